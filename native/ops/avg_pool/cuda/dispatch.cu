// SPDX-License-Identifier: Apache-2.0
// Average pooling on CUDA: which path a call takes.
//
//   forward path     calls                                                code
//   zeros            nothing to read                                      core/cuda_zeros.cuh
//   small windows    as rows, windows of up to 3 elements along h and w   small_windows.cuh
//   tall windows     as rows, 8 rows or more in a window, rows of input   tall_windows.cuh
//                    of whole vectors
//   rows             fewer than 2^31 elements, lists of at most 256       rows.cuh
//   elements         all                                                  elements.cuh, indices of 64 bits
//
//   backward path    calls                                                code
//   zeros            nothing to read                                      core/cuda_zeros.cuh
//   single windows   as rows, one window for a plane and all of it        single_windows.cuh
//   halving          as rows, windows of three elements that begin at   halving.cuh, quotients in shared memory
//                    every second one along h and w, along d those or
//                    single ones; rows of grad_input of whole vectors
//   equal rows       as rows, windows so far apart that half of the rows  equal_rows.cuh, a row once and its copies
//                    of grad_input are copies of others; whole vectors
//   strips           as rows, with rows of grad_input of whole vectors    strips.cuh, 16 bytes a thread
//                    of 16 bytes, and windows that are not too dense
//   rows             fewer than 2^31 elements, lists of at most 256       rows.cuh
//   elements         all                                                  elements.cuh, indices of 64 bits
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/avg_pool/cuda/elements.cuh"
#include "ops/avg_pool/cuda/equal_rows.cuh"
#include "ops/avg_pool/cuda/halving.cuh"
#include "ops/avg_pool/cuda/rows.cuh"
#include "ops/avg_pool/cuda/single_windows.cuh"
#include "ops/avg_pool/cuda/small_windows.cuh"
#include "ops/avg_pool/cuda/strips.cuh"
#include "ops/avg_pool/cuda/tall_windows.cuh"
#include "ops/avg_pool/launch.h"

namespace baracuda::avg_pool {
namespace {

template <class Buffers>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, Buffers>& call;
  bool can() const { return source_numel<Buffers::kBackward>(call.p) == 0; }
  Status enqueue() const {
    const int64_t numel = destination_numel<Buffers::kBackward>(call.p);
    return enqueue_zeros(call.b.destination, static_cast<size_t>(numel) * sizeof(*call.b.destination), call.stream);
  }
};

// Whether indices have 32 bits and no list is cut.
template <class Buffers>
bool is_few(const Problem& p) {
  return p.input_numel <= INT32_MAX && p.output_numel <= INT32_MAX && has_short_lists<Buffers::kBackward>(p);
}

template <typename T>
struct SmallWindowsPath {
  static const char* name() { return "small windows"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  bool can() const { return is_few<ForwardBuffers<T>>(call.p) && has_small_windows(call.p.axes); }
  Status enqueue() const { return enqueue_small_windows(call.p, call.b, call.stream); }
};

template <typename T>
struct TallWindowsPath {
  static const char* name() { return "tall windows"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  bool can() const {
    return is_few<ForwardBuffers<T>>(call.p) &&
           has_tall_windows(call.p.axes, call.b.source, kStripLanes<T>, sizeof(Compute<T>));
  }
  Status enqueue() const { return enqueue_tall_windows(call.p, call.b, call.stream); }
};

template <typename T>
struct SingleWindowsPath {
  static const char* name() { return "single windows"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  bool can() const { return is_few<BackwardBuffers<T>>(call.p) && has_single_windows(call.p, call.b); }
  Status enqueue() const { return enqueue_single_windows(call.p, call.b, call.stream); }
};

template <typename T>
struct HalvingPath {
  static const char* name() { return "halving"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  bool can() const { return is_few<BackwardBuffers<T>>(call.p) && has_halving(call.p.axes, call.b.destination); }
  Status enqueue() const { return enqueue_halving(call.p, call.b, call.stream); }
};

template <typename T>
struct EqualRowsPath {
  static const char* name() { return "equal rows"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  const EqualRowsCall<T> tiles;

  explicit EqualRowsPath(const Request<Problem, BackwardBuffers<T>>& request)
      : call(request), tiles(is_few<BackwardBuffers<T>>(request.p) && has_vectors(request.p, request.b)
                                 ? equal_rows_call(request.p, request.b)
                                 : EqualRowsCall<T>(request.p, request.b)) {}
  bool can() const { return tiles.keys[0] > 0; }
  Status enqueue() const { return enqueue_equal_rows(call.p, tiles, call.stream); }
};

template <typename T>
struct StripsPath {
  static const char* name() { return "strips"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  bool can() const {
    return is_few<BackwardBuffers<T>>(call.p) && has_strips<T>(call.p.axes, call.b.destination);
  }
  Status enqueue() const { return enqueue_strips(call.p, call.b, call.stream); }
};

template <class Buffers>
struct RowsPath {
  static const char* name() { return "rows"; }
  const Request<Problem, Buffers>& call;
  bool can() const { return is_few<Buffers>(call.p) && has_rows<Buffers>(call.p); }
  Status enqueue() const { return enqueue_rows(call.p, call.b, call.stream); }
};

template <class Buffers>
struct ElementsPath {
  static const char* name() { return "elements"; }
  const Request<Problem, Buffers>& call;
  Status enqueue() const { return enqueue_elements<Buffers, int64_t>(call.p, call.b, call.stream); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  using Buffers = ForwardBuffers<T>;
  using All = Paths<ZerosPath<Buffers>, SmallWindowsPath<T>, TallWindowsPath<T>, RowsPath<Buffers>,
                    ElementsPath<Buffers>>;
  return All::enqueue(Request<Problem, Buffers>{p, b, workspace, stream});
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  using Buffers = BackwardBuffers<T>;
  using All = Paths<ZerosPath<Buffers>, SingleWindowsPath<T>, HalvingPath<T>, EqualRowsPath<T>, StripsPath<T>,
                    RowsPath<Buffers>, ElementsPath<Buffers>>;
  return All::enqueue(Request<Problem, Buffers>{p, b, workspace, stream});
}

template <class Buffers>
size_t bytes_of(const Problem&, const Buffers*) {
  return 0;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::avg_pool
