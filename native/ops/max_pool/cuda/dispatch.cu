// SPDX-License-Identifier: Apache-2.0
// Maximum pooling on CUDA: which path a call takes.
//
//   forward path    calls                                                 code
//   small windows   as few windows, without dilation, up to 3 elements    small_windows.cuh
//                   along h and w
//   tall windows    as few windows, without dilation, 8 rows or more in   tall_windows.cuh
//                   a window, rows of input of whole vectors
//   few windows     fewer than 2^31 elements and windows                  forward.cuh, indices of 32 bits
//   windows         all                                                   forward.cuh, indices of 64 bits
//
//   backward path   calls                                                 code
//   zeros           without windows                                       core/cuda_zeros.cuh
//   halving         fewer than 2^31 of both, windows of three elements    halving.cuh, windows in shared memory
//                   that begin at every second one along h and w, along
//                   d those or single ones; rows of grad_input of whole
//                   vectors
//   tiles           fewer than 2^31 of both, at least two elements for    tiles.cuh, a block a box of elements
//                   each window and few windows for each element
//   strips          as vectors, with windows that are not too dense       strips.cuh, 16 bytes a thread in several rows
//   vectors         fewer than 2^31 of both, rows of grad_input of whole  backward.cuh, 16 bytes a thread
//                   vectors of 16 bytes
//   few elements    fewer than 2^31 of both                               backward.cuh, an element a thread
//   elements        all                                                   the same, indices of 64 bits
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/max_pool/cuda/backward.cuh"
#include "ops/max_pool/cuda/forward.cuh"
#include "ops/max_pool/cuda/halving.cuh"
#include "ops/max_pool/cuda/small_windows.cuh"
#include "ops/max_pool/cuda/strips.cuh"
#include "ops/max_pool/cuda/tall_windows.cuh"
#include "ops/max_pool/cuda/tiles.cuh"
#include "ops/max_pool/launch.h"

namespace baracuda::max_pool {
namespace {

template <typename T>
using ForwardRequest = Request<Problem, ForwardBuffers<T>>;
template <typename T>
using BackwardRequest = Request<Problem, BackwardBuffers<T>>;

bool is_few(const Problem& p) { return p.input_numel <= INT32_MAX && p.output_numel <= INT32_MAX; }

template <typename T>
struct SmallWindowsPath {
  static const char* name() { return "small windows"; }
  const ForwardRequest<T>& call;
  bool can() const { return is_few(call.p) && has_no_dilation(call.p) && has_small_windows(call.p.axes); }
  Status enqueue() const { return enqueue_small_windows(call.p, call.b, call.stream); }
};

template <typename T>
struct TallWindowsPath {
  static const char* name() { return "tall windows"; }
  const ForwardRequest<T>& call;
  bool can() const { return is_few(call.p) && can_pool_tall_windows(call.p, call.b); }
  Status enqueue() const { return enqueue_tall_windows(call.p, call.b, call.stream); }
};

template <typename T>
struct FewWindowsPath {
  static const char* name() { return "few windows"; }
  const ForwardRequest<T>& call;
  bool can() const { return is_few(call.p); }
  Status enqueue() const { return enqueue_windows<T, uint32_t>(call.p, call.b, call.stream); }
};

template <typename T>
struct WindowsPath {
  static const char* name() { return "windows"; }
  const ForwardRequest<T>& call;
  Status enqueue() const { return enqueue_windows<T, int64_t>(call.p, call.b, call.stream); }
};

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const BackwardRequest<T>& call;
  bool can() const { return call.p.output_numel == 0; }
  Status enqueue() const {
    return enqueue_zeros(call.b.grad_input, static_cast<size_t>(call.p.input_numel) * sizeof(T), call.stream);
  }
};

template <typename T>
struct HalvingPath {
  static const char* name() { return "halving"; }
  const BackwardRequest<T>& call;
  bool can() const { return is_few(call.p) && has_halving(call.p.axes, call.b.grad_input); }
  Status enqueue() const { return enqueue_halving(call.p, call.b, call.stream); }
};

// Where windows are as many as elements, strips, which read each of them several times, do less for it.
template <typename T>
TileShape tiles_of(const BackwardRequest<T>& call) {
  const Problem& p = call.p;
  const bool has_all_rules = has_rules(p.axes[0]) && has_rules(p.axes[1]) && has_rules(p.axes[2]);
  if (!is_few(p) || !has_all_rules || 2 * p.plane_bins > p.plane_numel) return {};
  return choose_sum_tiles(p.axes, p.planes, call.b.grad_input, most_windows);
}

// As tiles ask.
struct TileAxis {
  PoolRule windows, elements;

  TileAxis() = default;
  explicit TileAxis(const PoolAxis& axis) : windows(rule_of_windows(axis)), elements(rule_of_elements(axis)) {}
  BARACUDA_HD PoolRange with(int32_t element) const { return windows(element); }
  BARACUDA_HD PoolRange of(int32_t window) const { return elements(window); }
};

template <typename T>
struct TilesPath {
  static const char* name() { return "tiles"; }
  const BackwardRequest<T>& call;
  const TileShape shape;

  explicit TilesPath(const BackwardRequest<T>& request) : call(request), shape(tiles_of(request)) {}
  bool can() const { return shape.blocks > 0; }
  Status enqueue() const {
    const PoolAxis* const axes = call.p.axes;
    const TileAxis tile_axes[] = {TileAxis(axes[0]), TileAxis(axes[1]), TileAxis(axes[2])};
    return enqueue_tiles<T>("max_pool_backward tile kernel", shape, tile_axes, call.b, call.stream);
  }
};

template <typename T>
struct StripsPath {
  static const char* name() { return "strips"; }
  const BackwardRequest<T>& call;
  bool can() const { return is_few(call.p) && has_strips<T>(call.p.axes, call.b.grad_input); }
  Status enqueue() const { return enqueue_strips(call.p, call.b, call.stream); }
};

template <typename T>
struct VectorsPath {
  static const char* name() { return "vectors"; }
  const BackwardRequest<T>& call;
  bool can() const {
    return is_few(call.p) && call.p.axes[2].extent % kLanesOf<T> == 0 &&
           reinterpret_cast<uintptr_t>(call.b.grad_input) % 16 == 0;
  }
  Status enqueue() const { return enqueue_vectors<T, kLanesOf<T>, uint32_t>(call.p, call.b, call.stream); }
};

template <typename T>
struct FewElementsPath {
  static const char* name() { return "few elements"; }
  const BackwardRequest<T>& call;
  bool can() const { return is_few(call.p); }
  Status enqueue() const { return enqueue_vectors<T, 1, uint32_t>(call.p, call.b, call.stream); }
};

template <typename T>
struct ElementsPath {
  static const char* name() { return "elements"; }
  const BackwardRequest<T>& call;
  Status enqueue() const { return enqueue_vectors<T, 1, int64_t>(call.p, call.b, call.stream); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  using All = Paths<SmallWindowsPath<T>, TallWindowsPath<T>, FewWindowsPath<T>, WindowsPath<T>>;
  return All::enqueue(ForwardRequest<T>{p, b, workspace, stream});
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  using All = Paths<ZerosPath<T>, HalvingPath<T>, TilesPath<T>, StripsPath<T>, VectorsPath<T>, FewElementsPath<T>,
                    ElementsPath<T>>;
  return All::enqueue(BackwardRequest<T>{p, b, workspace, stream});
}

template <class Buffers>
size_t bytes_of(const Problem&, const Buffers*) {
  return 0;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::max_pool
