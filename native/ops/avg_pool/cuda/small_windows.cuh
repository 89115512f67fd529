// SPDX-License-Identifier: Apache-2.0
// The forward on CUDA for windows of few elements along h and w (core/pool_strips.cuh): a thread has a column of
// windows, and asks for all elements of a window and slice at once.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/pool_strips.cuh"
#include "ops/avg_pool/cuda/divisors.cuh"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

template <typename T>
struct SmallWindowCall {
  ForwardBuffers<T> buffers;
  CommonDivisor<Compute<T>> by;
  StripShape shape;
  PoolRule counts[3];           // what a window counts along each axis
  uint32_t width, slab, plane;  // elements of a row of input and so on
};

// kMost is at least as many elements as a window has along h and w.
template <typename T, int kMost>
__global__ void __launch_bounds__(kStripThreads) add_small_windows(const __grid_constant__ SmallWindowCall<T> call) {
  using C = Compute<T>;
  __shared__ StripRow rows[kStripThreads];
  const StripShape& shape = call.shape;
  const StripPlace at = begin_strips<1>(shape, rows);
  if (!at.has_strip) return;
  const PoolRange ws = shape.sources[2](at.place);
  const int32_t count_w = call.by.is_common ? 1 : call.counts[2](at.place).size();
  for (int32_t k = at.team; k < shape.rows; k += shape.together) {
    const uint32_t row = at.first_row + static_cast<uint32_t>(k);
    if (row >= shape.all_rows) return;
    const StripRow box = rows[k];
    const T* from = call.buffers.source + box.plane * call.plane + static_cast<uint32_t>(box.d.first) * call.slab +
                    static_cast<uint32_t>(box.h.first) * call.width + ws.first;
    // What is not there adds 0, which changes no sum, since none is -0.
    C depths[kMost][kMost] = {};
    for (int32_t z = 0; z < box.d.size(); ++z, from += call.slab) {
      C terms[kMost][kMost];
#pragma unroll
      for (int y = 0; y < kMost; ++y) {
#pragma unroll
        for (int x = 0; x < kMost; ++x) {
          const bool reads = y < box.h.size() && x < ws.size();
          terms[y][x] = reads ? widen(from[static_cast<uint32_t>(y) * call.width + x]) : C(0);
        }
      }
#pragma unroll
      for (int y = 0; y < kMost; ++y) {
#pragma unroll
        for (int x = 0; x < kMost; ++x) depths[y][x] += terms[y][x];
      }
    }
    C total[1] = {};
#pragma unroll
    for (int x = 0; x < kMost; ++x) {
      C column = depths[0][x];
#pragma unroll
      for (int y = 1; y < kMost; ++y) column += depths[y][x];
      total[0] += column;
    }
    // Nothing is not divided, by 0 at that.
    if (box.d.size() > 0 && box.h.size() > 0 && ws.size() > 0) {
      if (call.by.is_common) {
        divide_by_common<T, 1>(call.by, total);
      } else {
        const uint32_t slab = shape.h.divide(row);
        const int32_t d = static_cast<int32_t>(shape.d.remainder(slab));
        const int32_t h = static_cast<int32_t>(row - slab * shape.h.divisor);
        total[0] /= static_cast<C>(call.counts[0](d).size() * call.counts[1](h).size() * count_w);
      }
    }
    call.buffers.destination[row * static_cast<uint32_t>(shape.width) + static_cast<uint32_t>(at.place)] =
        narrow<T>(total[0]);
  }
}

// Indices of 32 bits and short lists; for calls with has_small_windows().
template <typename T>
Status enqueue_small_windows(const Problem& p, const ForwardBuffers<T>& b, Stream stream) {
  const StripShape shape = window_strips(p.axes, p.planes);
  const auto counts = [&](int axis) { return rule_of_elements(p.axes[axis], p.count_padding); };
  const uint32_t width = static_cast<uint32_t>(p.axes[2].extent);
  const uint32_t slab = static_cast<uint32_t>(p.axes[1].extent) * width;
  const SmallWindowCall<T> call{b,
                                CommonDivisor<Compute<T>>(p),
                                shape,
                                {counts(0), counts(1), counts(2)},
                                width,
                                slab,
                                static_cast<uint32_t>(p.axes[0].extent) * slab};
  const bool are_tiny = most_elements(p.axes[1]) <= 2 && most_elements(p.axes[2]) <= 2;
  auto* const kernel = are_tiny ? add_small_windows<T, 2> : add_small_windows<T, 3>;
  return launch_kernel("avg_pool small window kernel", kernel, shape.blocks(), kStripThreads, 0, stream, call);
}

}  // namespace
}  // namespace baracuda::avg_pool
