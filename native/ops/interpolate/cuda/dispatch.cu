// SPDX-License-Identifier: Apache-2.0
// Interpolation on CUDA: which path a call takes. The words of this family stand in native/ops/interpolate/README.md.
//
//   forward path   calls                                                     code
//   antialias vectors  antialiased modes, rows of the input are whole vectors  antialias.cuh
//   antialias      antialiased modes                                         antialias.cuh, an element at a time
//   cubic vectors  the cubic mode, rows of the output are whole vectors      cubic.cuh
//   cubic columns  the cubic mode                                            cubic.cuh, an element at a time
//   vectors        rows of the output are whole vectors of 16 bytes          columns.cuh
//   columns        all                                                       columns.cuh, an element at a time
//
//   backward path  calls                                                     code
//   zeros          without an output                                         core/cuda_zeros.cuh
//   reduced vectors  antialiased modes, no axis of the output is finer, its    reduced.cuh
//                  columns are 1.9 times as coarse or coarser, and rows of the
//                  input are whole vectors
//   reduced        antialiased modes, no axis of the output is finer         reduced.cuh, two columns a thread
//   antialias vectors  antialiased modes, rows of the output are whole vectors  antialias.cuh
//   antialias      antialiased modes                                         antialias.cuh, an element at a time
//   cubic short strips  as cubic strips, to 2.2 times the width              cubic.cuh, weights in registers
//   cubic strips   as strips, in the cubic mode                              cubic.cuh
//   cubic pixels   the cubic mode                                            cubic.cuh
//   doubled, quadrupled  the output is so many times as wide as the input,    multiples.cuh
//                  its rows are whole vectors, and no sum is cut
//   vector strips  rows of the output are whole vectors; as for strips       strips.cuh
//   strips         no sum is cut, and a pixel's columns fit into a window    strips.cuh, an element at a time
//   pixels         all                                                       pixels.cuh
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/interpolate/cuda/antialias.cuh"
#include "ops/interpolate/cuda/columns.cuh"
#include "ops/interpolate/cuda/cubic.cuh"
#include "ops/interpolate/cuda/multiples.cuh"
#include "ops/interpolate/cuda/pixels.cuh"
#include "ops/interpolate/cuda/reduced.cuh"
#include "ops/interpolate/cuda/strips.cuh"
#include "ops/interpolate/launch.h"

namespace baracuda::interpolate {
namespace {

template <typename T>
using Forward = baracuda::Request<Problem, ForwardBuffers<T>>;
template <typename T>
using Backward = baracuda::Request<Problem, BackwardBuffers<T>>;

// Whether rows of so many elements from this address on are whole vectors of `kCount`.
template <int kCount, typename T>
bool has_vectors_of(const T* pointer, int32_t row) {
  return row % kCount == 0 && reinterpret_cast<uintptr_t>(pointer) % (kCount * sizeof(T)) == 0;
}

template <typename T, int kCount>
struct AntialiasPath {
  static const char* name() { return kCount > 1 ? "antialias vectors" : "antialias"; }
  const Forward<T>& call;
  bool can() const {
    return call.p.is_antialiased() && has_vectors_of<kCount>(call.b.input, call.p.width().input);
  }
  Status enqueue() const {
    return enqueue_filter<T, kCount>(call.p, call.b.input, call.b.output, false, call.workspace, call.stream);
  }
};

template <typename T, int kCount>
struct AntialiasBackwardPath {
  static const char* name() { return kCount > 1 ? "antialias vectors" : "antialias"; }
  const Backward<T>& call;
  bool can() const {
    return call.p.is_antialiased() && has_vectors_of<kCount>(call.b.grad_output, call.p.width().output);
  }
  Status enqueue() const {
    return enqueue_filter<T, kCount>(call.p, call.b.grad_output, call.b.grad_input, true, call.workspace, call.stream);
  }
};

// Vectors of an f64 row are two columns: there both are one.
template <typename T, bool kVectors>
struct ReducedPath {
  static constexpr int kCount = kVectors ? kReducedVector<T> : 2;
  static const char* name() { return kVectors ? "reduced vectors" : "reduced"; }
  const Backward<T>& call;
  bool can() const {
    if (kVectors && !has_vectors_of<kCount>(call.b.grad_input, call.p.width().input)) return false;
    return is_reduced<T>(call.p, kCount);
  }
  Status enqueue() const { return enqueue_reduced<T, kCount>(call.p, call.b, call.workspace, call.stream); }
};

template <typename T, int kCount>
struct CubicColumnsPath {
  static const char* name() { return kCount > 1 ? "cubic vectors" : "cubic columns"; }
  const Forward<T>& call;
  bool can() const {
    if (!call.p.is_cubic) return false;
    constexpr size_t kBytes = kCount * sizeof(T);
    return call.p.width().output % kCount == 0 && reinterpret_cast<uintptr_t>(call.b.output) % kBytes == 0;
  }
  Status enqueue() const { return enqueue_cubic_columns<T, kCount>(call.p, call.b, call.stream); }
};

template <typename T>
struct VectorsPath {
  static const char* name() { return "vectors"; }
  const Forward<T>& call;
  bool can() const { return has_vectors(call.b.output, call.p.width().output); }
  Status enqueue() const { return enqueue_columns<T, kVector<T>>(call.p, call.b, call.stream); }
};

template <typename T>
struct ColumnsPath {
  static const char* name() { return "columns"; }
  const Forward<T>& call;
  Status enqueue() const { return enqueue_columns<T, 1>(call.p, call.b, call.stream); }
};

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Backward<T>& call;
  bool can() const { return call.p.output_numel == 0; }
  Status enqueue() const {
    return enqueue_zeros(call.b.grad_input, static_cast<size_t>(call.p.input_numel) * sizeof(T), call.stream);
  }
};

template <typename T, bool kShort>
struct CubicStripsPath {
  static const char* name() { return kShort ? "cubic short strips" : "cubic strips"; }
  const Backward<T>& call;
  bool can() const { return call.p.is_cubic && cubic_strips_of<T, kShort>(call.p).exists(); }
  Status enqueue() const { return enqueue_cubic_strips<T, kShort>(call.p, call.b, call.stream); }
};

template <typename T>
struct CubicPixelsPath {
  static const char* name() { return "cubic pixels"; }
  const Backward<T>& call;
  bool can() const { return call.p.is_cubic; }
  Status enqueue() const { return enqueue_cubic_pixels(call.p, call.b, call.stream); }
};

template <typename T, int kFactor>
struct MultiplesPath {
  static const char* name() { return kFactor == 2 ? "doubled" : "quadrupled"; }
  const Backward<T>& call;
  bool can() const {
    constexpr size_t kRead = kMultipleColumns<T, kFactor> * sizeof(T), kWritten = kRead / kFactor;
    if (call.p.width().output % kMultipleColumns<T, kFactor> != 0) return false;
    if (reinterpret_cast<uintptr_t>(call.b.grad_output) % kRead != 0) return false;
    if (reinterpret_cast<uintptr_t>(call.b.grad_input) % kWritten != 0) return false;
    return is_multiple<T>(call.p, kFactor);
  }
  Status enqueue() const { return enqueue_multiples<T, kFactor>(call.p, call.b, call.stream); }
};

template <typename T, int kCount>
struct StripsPath {
  static const char* name() { return kCount > 1 ? "vector strips" : "strips"; }
  const Backward<T>& call;
  bool can() const {
    if (kCount > 1 && !has_vectors(call.b.grad_output, call.p.width().output)) return false;
    return strips_of<T>(call.p, kCount).exists();
  }
  Status enqueue() const {
    return enqueue_strips<T, kCount>(call.p, call.b, strips_of<T>(call.p, kCount), call.stream);
  }
};

template <typename T>
struct PixelsPath {
  static const char* name() { return "pixels"; }
  const Backward<T>& call;
  Status enqueue() const { return enqueue_pixels(call.p, call.b, call.stream); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  using ForwardPaths = Paths<AntialiasPath<T, kFilterVector<T>>, AntialiasPath<T, 1>,
                             CubicColumnsPath<T, kCubicColumns<T>>, CubicColumnsPath<T, 1>, VectorsPath<T>,
                             ColumnsPath<T>>;
  return ForwardPaths::enqueue(Forward<T>{p, b, workspace, stream});
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  using BackwardPaths = Paths<ZerosPath<T>, ReducedPath<T, true>, ReducedPath<T, false>,
                              AntialiasBackwardPath<T, kFilterVector<T>>, AntialiasBackwardPath<T, 1>,
                              CubicStripsPath<T, true>, CubicStripsPath<T, false>, CubicPixelsPath<T>,
                              MultiplesPath<T, 2>, MultiplesPath<T, 4>, StripsPath<T, kVector<T>>, StripsPath<T, 1>,
                              PixelsPath<T>>;
  return BackwardPaths::enqueue(Backward<T>{p, b, workspace, stream});
}

// The tables of the antialiased modes.
template <typename T>
size_t table_bytes(const Problem& p, bool is_backward) {
  if (!p.is_antialiased()) return 0;
  WorkspaceLayout layout;
  lay_tables<Compute<T>>(layout, nullptr, p, is_backward);
  return layout.bytes();
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  return table_bytes<T>(p, false);
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  return table_bytes<T>(p, true);
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::interpolate
