// SPDX-License-Identifier: Apache-2.0
// The backward on CUDA: one thread for some neighbouring elements of a row of grad_input. It looks at every window that
// may hold one of them, in their order, and adds the gradients of those whose index names one.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/max_pool/cuda/places.cuh"
#include "ops/max_pool/launch.h"
#include "ops/max_pool/math.h"

namespace baracuda::max_pool {
namespace {

constexpr int kSumThreads = 128;

template <typename T>
struct SumCall {
  Pooling pooling;
  BackwardBuffers<T> buffers;
  PlaceDividers by;  // of the vectors of a row, the rows and the depth
  int32_t vectors;   // of a row
};

// The elements of vector number `vector`.
template <typename T, int kLanes, typename Index>
__device__ __forceinline__ Vector<T, kLanes> vector_of(const SumCall<T>& call, int64_t vector) {
  using C = Compute<T>;
  const Pooling& p = call.pooling;
  const Place at = place_of<Index>(vector, p.d.extent, p.h.extent, call.vectors, call.by);
  const int32_t place = at.w * kLanes;
  const PoolRange ds = windows_with(p.d, at.d), hs = windows_with(p.h, at.h);
  const int32_t first = windows_with(p.w, place).first, end = windows_with(p.w, place + kLanes - 1).end;
  const T* const gradient = call.buffers.grad_output + at.plane * p.plane_bins;
  const int64_t* const indices = call.buffers.indices + at.plane * p.plane_bins;
  const int64_t start = (static_cast<int64_t>(at.d) * p.h.extent + at.h) * p.w.extent + place;
  C sums[kLanes] = {};
  for (int32_t d = ds.first; d < ds.end; ++d) {
    for (int32_t h = hs.first; h < hs.end; ++h) {
      const Index row = (static_cast<Index>(d) * static_cast<Index>(p.h.bins) + static_cast<Index>(h)) *
                        static_cast<Index>(p.w.bins);
      for (int32_t w = first; w < end; ++w) {
        const uint64_t named = static_cast<uint64_t>(indices[row + static_cast<Index>(w)] - start);
        if (named >= kLanes) continue;
        // A window of the neighbours may name an element that it does not span.
        if (kLanes > 1 && !spans(window_of(p.w, w), place + static_cast<int32_t>(named))) continue;
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

// `Index` counts the elements of both tensors: uint32_t where they are fewer than 2^31, else int64_t.
template <typename T, int kLanes, typename Index>
__global__ void __launch_bounds__(kSumThreads)
    add_vectors(const __grid_constant__ SumCall<T> call, const __grid_constant__ int64_t count) {
  for (int64_t vector = grid_thread(); vector < count; vector += grid_threads()) {
    reinterpret_cast<Vector<T, kLanes>*>(call.buffers.grad_input)[vector] = vector_of<T, kLanes, Index>(call, vector);
  }
}

template <typename T, int kLanes, typename Index>
Status enqueue_vectors(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  const int32_t vectors = p.axes[2].extent / kLanes;
  const PlaceDividers by{Divider(vectors), Divider(p.axes[1].extent), Divider(p.axes[0].extent)};
  const SumCall<T> call{Pooling(p), b, by, vectors};
  const int64_t count = p.input_numel / kLanes;
  return launch_kernel("max_pool_backward kernel", add_vectors<T, kLanes, Index>, blocks_for(count, kSumThreads),
                       kSumThreads, 0, stream, call, count);
}

}  // namespace
}  // namespace baracuda::max_pool
