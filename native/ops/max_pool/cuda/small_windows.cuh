// SPDX-License-Identifier: Apache-2.0
// The forward on CUDA for windows of few elements along h and w (core/pool_strips.cuh): a thread has a column of
// windows, and asks for all elements of a window and slice at once.
#pragma once

#include <type_traits>

#include "core/cuda_launch.cuh"
#include "core/pool_strips.cuh"
#include "ops/max_pool/launch.h"
#include "ops/max_pool/math.h"

namespace baracuda::max_pool {
namespace {

template <typename T>
struct SmallWindowCall {
  ForwardBuffers<T> buffers;
  StripShape shape;
  uint32_t width, slab, plane;  // elements of a row of input and so on
};

// kMost is at least as many elements as a window has along h and w.
template <typename T, int kMost>
__global__ void __launch_bounds__(kStripThreads)
    pool_small_windows(const __grid_constant__ SmallWindowCall<T> call) {
  using C = Compute<T>;
  __shared__ StripRow rows[kStripThreads];
  const StripPlace at = begin_strips<1>(call.shape, rows);
  if (!at.has_strip) return;
  const PoolRange ws = call.shape.sources[2](at.place);
  for (int32_t k = at.team; k < call.shape.rows; k += call.shape.together) {
    const uint32_t row = at.first_row + static_cast<uint32_t>(k);
    if (row >= call.shape.all_rows) return;
    const StripRow box = rows[k];
    const T* const plane = call.buffers.input + box.plane * call.plane;
    const uint32_t window = row * static_cast<uint32_t>(call.shape.width) + static_cast<uint32_t>(at.place);
    uint32_t from = static_cast<uint32_t>(box.d.first) * call.slab +
                    static_cast<uint32_t>(box.h.first) * call.width + static_cast<uint32_t>(ws.first);
    const bool has_any = box.d.size() > 0 && box.h.size() > 0 && ws.size() > 0;
    // The first element is there whatever it holds.
    uint32_t kept = from;
    C best = lowest<C>();
    for (int32_t z = 0; z < box.d.size(); ++z, from += call.slab) {
      T elements[kMost][kMost];
#pragma unroll
      for (int y = 0; y < kMost; ++y) {
#pragma unroll
        for (int x = 0; x < kMost; ++x) {
          const bool reads = y < box.h.size() && x < ws.size();
          // What is not there takes over from nothing.
          elements[y][x] = reads ? plane[from + static_cast<uint32_t>(y) * call.width + x] : lowest<T>();
        }
      }
#pragma unroll
      for (int y = 0; y < kMost; ++y) {
#pragma unroll
        for (int x = 0; x < kMost; ++x) {
          const C next = widen(elements[y][x]);
          const bool takes = takes_over(next, best);
          best = takes ? next : best;
          kept = takes ? from + static_cast<uint32_t>(y) * call.width + x : kept;
        }
      }
    }
    // Of 16 bits the element itself, since a NaN's bits are not kept where it is widened.
    if constexpr (std::is_same_v<T, C>) {
      call.buffers.output[window] = best;
    } else {
      call.buffers.output[window] = has_any ? plane[kept] : lowest<T>();
    }
    call.buffers.indices[window] = has_any ? static_cast<int64_t>(kept) : kNoElement;
  }
}

inline bool has_no_dilation(const Problem& p) {
  for (const PoolAxis& axis : p.axes) {
    if (!axis.is_adaptive() && axis.dilation != 1) return false;
  }
  return true;
}

// Indices of 32 bits; for calls without dilation that have has_small_windows().
template <typename T>
Status enqueue_small_windows(const Problem& p, const ForwardBuffers<T>& b, Stream stream) {
  const StripShape shape = window_strips(p.axes, p.planes);
  const uint32_t width = static_cast<uint32_t>(p.axes[2].extent);
  const uint32_t slab = static_cast<uint32_t>(p.axes[1].extent) * width;
  const SmallWindowCall<T> call{b, shape, width, slab, static_cast<uint32_t>(p.axes[0].extent) * slab};
  const bool are_tiny = most_elements(p.axes[1]) <= 2 && most_elements(p.axes[2]) <= 2;
  auto* const kernel = are_tiny ? pool_small_windows<T, 2> : pool_small_windows<T, 3>;
  return launch_kernel("max_pool small window kernel", kernel, shape.blocks(), kStripThreads, 0, stream, call);
}

}  // namespace
}  // namespace baracuda::max_pool
