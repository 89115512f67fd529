// SPDX-License-Identifier: Apache-2.0
// The forward on CUDA: one thread a window. Neighbouring threads have neighbouring windows of a row, which share the
// lines of the input that they read.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/max_pool/cuda/places.cuh"
#include "ops/max_pool/launch.h"
#include "ops/max_pool/math.h"

namespace baracuda::max_pool {
namespace {

constexpr int kPoolThreads = 256;

// `Index` counts the elements of both tensors: uint32_t where they are fewer than 2^31, else int64_t.
template <typename T, typename Index>
__global__ void __launch_bounds__(kPoolThreads)
    pool_windows(const __grid_constant__ Pooling p, const __grid_constant__ ForwardBuffers<T> b,
                 const __grid_constant__ PlaceDividers by, const __grid_constant__ int64_t numel) {
  using C = Compute<T>;
  for (int64_t window = grid_thread(); window < numel; window += grid_threads()) {
    const Place at = place_of<Index>(window, p.d.bins, p.h.bins, p.w.bins, by);
    const Places ds = places_of(p.d, at.d), hs = places_of(p.h, at.h), ws = places_of(p.w, at.w);
    const T* const plane = b.input + at.plane * p.plane_numel;
    // 64 bits count on, where a step may pass the end of 32.
    Index kept = 0;
    bool has_any = false;
    C best = lowest<C>();
    for (int64_t z = ds.first; z < ds.end; z += ds.step) {
      for (int64_t y = hs.first; y < hs.end; y += hs.step) {
        const Index row = (static_cast<Index>(z) * static_cast<Index>(p.h.extent) + static_cast<Index>(y)) *
                          static_cast<Index>(p.w.extent);
        for (int64_t x = ws.first; x < ws.end; x += ws.step) {
          const C next = widen(plane[row + static_cast<Index>(x)]);
          if (has_any && !takes_over(next, best)) continue;
          has_any = true;
          best = next;
          kept = row + static_cast<Index>(x);
        }
      }
    }
    b.output[window] = has_any ? plane[kept] : lowest<T>();
    b.indices[window] = has_any ? static_cast<int64_t>(kept) : kNoElement;
  }
}

template <typename T, typename Index>
Status enqueue_windows(const Problem& p, const ForwardBuffers<T>& b, Stream stream) {
  // Every extent that divides is at least 1, since there are windows.
  const PlaceDividers by{Divider(p.axes[2].bins), Divider(p.axes[1].bins), Divider(p.axes[0].bins)};
  return launch_kernel("max_pool kernel", pool_windows<T, Index>, blocks_for(p.output_numel, kPoolThreads),
                       kPoolThreads, 0, stream, Pooling(p), b, by, p.output_numel);
}

}  // namespace
}  // namespace baracuda::max_pool
