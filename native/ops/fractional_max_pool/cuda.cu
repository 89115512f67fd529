// SPDX-License-Identifier: Apache-2.0
// Fractional maximum pooling on CUDA.
//
//   forward path   calls                                               what happens
//   few windows    fewer than 2^31 elements of input and of output     a thread a window, numbered in 32 bits
//   windows        all                                                 the same in 64 bits
//
//   backward path  calls                                               what happens
//   zeros          without windows                                     core/cuda_zeros.cuh
//   tiles          fewer than 2^31 of both, extents and windows that   max_pool/cuda/tiles.cuh, a block a box of
//                  multiply to that on every axis, at most 32 windows  elements
//                  that may hold an element
//   vectors        the same but for the last, rows of grad_input of    16 bytes of grad_input a thread, which looks at
//                  whole vectors of 16 bytes                           all windows that may hold one of their elements
//   few elements   the same but for the vectors                        the same with an element a thread
//   elements       all                                                 the same, numbered in 64 bits
#include <type_traits>

#include "core/cuda_launch.cuh"
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/fractional_max_pool/launch.h"
#include "ops/fractional_max_pool/math.h"
#include "ops/max_pool/cuda/places.cuh"
#include "ops/max_pool/cuda/tiles.cuh"
#include "ops/max_pool/math.h"

namespace baracuda::fractional_max_pool {
namespace {

using max_pool::kLanesOf;
using max_pool::Place;
using max_pool::place_of;
using max_pool::PlaceDividers;
using max_pool::takes_over;
using max_pool::Vector;

constexpr int kPoolThreads = 256;
constexpr int kSumThreads = 128;

// `Index` counts the elements of both tensors: uint32_t where they are fewer than 2^31, else int64_t.
template <typename T, typename Index>
__global__ void __launch_bounds__(kPoolThreads)
    pool_windows(const __grid_constant__ Pooling<Compute<T>> p, const __grid_constant__ ForwardBuffers<T> b,
                 const __grid_constant__ PlaceDividers by, const __grid_constant__ int64_t numel) {
  using C = Compute<T>;
  for (int64_t window = grid_thread(); window < numel; window += grid_threads()) {
    const Place at = place_of<Index>(window, p.d.bins, p.h.bins, p.w.bins, by);
    const Samples<C> samples = samples_of(b.random_samples + at.plane * p.num_samples, p.num_samples);
    const Index rows = static_cast<Index>(p.h.extent), width = static_cast<Index>(p.w.extent);
    const Index corner = (static_cast<Index>(p.d.of(samples.d, at.d)) * rows +
                          static_cast<Index>(p.h.of(samples.h, at.h))) * width +
                         static_cast<Index>(p.w.of(samples.w, at.w));
    const T* const plane = b.input + at.plane * p.plane_numel;
    Index kept = corner;
    C best = widen(plane[corner]);
    for (int32_t z = 0; z < p.d.kernel; ++z) {
      for (int32_t y = 0; y < p.h.kernel; ++y) {
        const Index row = corner + (static_cast<Index>(z) * rows + static_cast<Index>(y)) * width;
#pragma unroll 4
        for (int32_t x = 0; x < p.w.kernel; ++x) {
          const C next = widen(plane[row + static_cast<Index>(x)]);
          if (!takes_over(next, best)) continue;
          best = next;
          kept = row + static_cast<Index>(x);
        }
      }
    }
    b.output[window] = plane[kept];
    b.indices[window] = static_cast<int64_t>(kept);
  }
}

template <typename T>
struct SumCall {
  Gathering gathering;
  BackwardBuffers<T> buffers;
  PlaceDividers by;  // of the vectors of a row, the rows and the depth
  int32_t vectors;   // of a row
};

// The elements of vector number `vector`.
template <typename T, int kLanes, typename Index>
__device__ __forceinline__ Vector<T, kLanes> vector_of(const SumCall<T>& call, int64_t vector) {
  using C = Compute<T>;
  using N = std::conditional_t<std::is_same_v<Index, uint32_t>, int32_t, int64_t>;
  const Gathering& p = call.gathering;
  const Place at = place_of<Index>(vector, p.d.extent, p.h.extent, call.vectors, call.by);
  const int32_t place = at.w * kLanes;
  const Range ds = p.d.with<N>(at.d), hs = p.h.with<N>(at.h);
  const int32_t first = p.w.with<N>(place).first, end = p.w.with<N>(place + kLanes - 1).end;
  const T* const gradient = call.buffers.grad_output + at.plane * p.plane_bins;
  const int64_t* const indices = call.buffers.indices + at.plane * p.plane_bins;
  const uint64_t start = static_cast<uint64_t>((static_cast<int64_t>(at.d) * p.h.extent + at.h) * p.w.extent + place);
  C sums[kLanes] = {};
  for (int32_t d = ds.first; d < ds.end; ++d) {
    for (int32_t h = hs.first; h < hs.end; ++h) {
      const Index row = (static_cast<Index>(d) * static_cast<Index>(p.h.bins) + static_cast<Index>(h)) *
                        static_cast<Index>(p.w.bins);
      for (int32_t w = first; w < end; ++w) {
        const uint64_t named = static_cast<uint64_t>(indices[row + static_cast<Index>(w)]) - start;
        if (named >= kLanes) continue;
        // A window of the neighbours may name an element that it cannot hold.
        if (kLanes > 1 && !spans(p.w.of<N>(w), place + static_cast<int32_t>(named))) continue;
        const C term = widen(gradient[row + static_cast<Index>(w)]);
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
          if (named == lane) sums[lane] += term;
        }
      }
    }
  }
  Vector<T, kLanes> found;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) found.lanes[lane] = narrow<T>(sums[lane]);
  return found;
}

// `Index` counts the elements of both tensors: uint32_t where everything is small, else int64_t.
template <typename T, int kLanes, typename Index>
__global__ void __launch_bounds__(kSumThreads)
    add_vectors(const __grid_constant__ SumCall<T> call, const __grid_constant__ int64_t count) {
  for (int64_t vector = grid_thread(); vector < count; vector += grid_threads()) {
    reinterpret_cast<Vector<T, kLanes>*>(call.buffers.grad_input)[vector] = vector_of<T, kLanes, Index>(call, vector);
  }
}

template <typename T>
using ForwardRequest = Request<Problem, ForwardBuffers<T>>;
template <typename T>
using BackwardRequest = Request<Problem, BackwardBuffers<T>>;

bool is_few(const Problem& p) { return p.input_numel <= INT32_MAX && p.output_numel <= INT32_MAX; }

// Whether a gradient is found by numbers of 32 bits.
bool is_small(const Problem& p) { return is_few(p) && Gathering(p).is_small(); }

template <typename T, typename Index>
Status enqueue_windows(const ForwardRequest<T>& call) {
  const Problem& p = call.p;
  // Every extent that divides is at least 1, since there are windows.
  const PlaceDividers by{Divider(p.axes[2].bins), Divider(p.axes[1].bins), Divider(p.axes[0].bins)};
  return launch_kernel("fractional_max_pool kernel", pool_windows<T, Index>, blocks_for(p.output_numel, kPoolThreads),
                       kPoolThreads, 0, call.stream, Pooling<Compute<T>>(p), call.b, by, p.output_numel);
}

template <typename T, int kLanes, typename Index>
Status enqueue_vectors(const BackwardRequest<T>& call) {
  const Problem& p = call.p;
  const int32_t vectors = p.axes[2].extent / kLanes;
  const PlaceDividers by{Divider(vectors), Divider(p.axes[1].extent), Divider(p.axes[0].extent)};
  const int64_t count = p.input_numel / kLanes;
  return launch_kernel("fractional_max_pool_backward kernel", add_vectors<T, kLanes, Index>,
                       blocks_for(count, kSumThreads), kSumThreads, 0, call.stream,
                       SumCall<T>{Gathering(p), call.b, by, vectors}, count);
}

template <typename T>
struct FewWindowsPath {
  static const char* name() { return "few windows"; }
  const ForwardRequest<T>& call;
  bool can() const { return is_few(call.p); }
  Status enqueue() const { return enqueue_windows<T, uint32_t>(call); }
};

template <typename T>
struct WindowsPath {
  static const char* name() { return "windows"; }
  const ForwardRequest<T>& call;
  Status enqueue() const { return enqueue_windows<T, int64_t>(call); }
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

// As tiles ask, in numbers of 32 bits.
struct TileAxis {
  Spans spans;

  BARACUDA_HD Range with(int32_t element) const { return spans.with<int32_t>(element); }
  BARACUDA_HD Range of(int32_t window) const { return spans.of<int32_t>(window); }
};

template <typename T>
struct TilesPath {
  static const char* name() { return "tiles"; }
  const BackwardRequest<T>& call;
  const Gathering gathering;
  const TileShape shape;

  explicit TilesPath(const BackwardRequest<T>& request)
      : call(request), gathering(request.p), shape(tiles()) {}
  bool can() const { return shape.blocks > 0; }
  Status enqueue() const {
    const TileAxis axes[] = {{gathering.d}, {gathering.h}, {gathering.w}};
    return max_pool::enqueue_tiles<T>("fractional_max_pool_backward tile kernel", shape, axes, call.b, call.stream);
  }

 private:
  TileShape tiles() const {
    if (!is_few(call.p) || !gathering.is_small()) return {};
    const Spans axes[] = {gathering.d, gathering.h, gathering.w};
    const auto most = [](const Spans& axis, int64_t count) { return axis.most_with(count); };
    return max_pool::choose_sum_tiles(axes, call.p.planes, call.b.grad_input, most);
  }
};

template <typename T>
struct VectorsPath {
  static const char* name() { return "vectors"; }
  const BackwardRequest<T>& call;
  bool can() const {
    return is_small(call.p) && call.p.axes[2].extent % kLanesOf<T> == 0 &&
           reinterpret_cast<uintptr_t>(call.b.grad_input) % 16 == 0;
  }
  Status enqueue() const { return enqueue_vectors<T, kLanesOf<T>, uint32_t>(call); }
};

template <typename T>
struct FewElementsPath {
  static const char* name() { return "few elements"; }
  const BackwardRequest<T>& call;
  bool can() const { return is_small(call.p); }
  Status enqueue() const { return enqueue_vectors<T, 1, uint32_t>(call); }
};

template <typename T>
struct ElementsPath {
  static const char* name() { return "elements"; }
  const BackwardRequest<T>& call;
  Status enqueue() const { return enqueue_vectors<T, 1, int64_t>(call); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<FewWindowsPath<T>, WindowsPath<T>>::enqueue(ForwardRequest<T>{p, b, workspace, stream});
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<ZerosPath<T>, TilesPath<T>, VectorsPath<T>, FewElementsPath<T>, ElementsPath<T>>::enqueue(
      BackwardRequest<T>{p, b, workspace, stream});
}

template <class Buffers>
size_t bytes_of(const Problem&, const Buffers*) {
  return 0;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::fractional_max_pool
