// SPDX-License-Identifier: Apache-2.0
// The forward on CUDA by rows of tall windows (core/pool_tall.cuh): a block adds along d, then along h for each column,
// then the columns of each window.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/pool_strips.cuh"
#include "core/pool_tall.cuh"
#include "ops/avg_pool/cuda/divisors.cuh"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

template <typename T>
struct TallCall {
  ForwardBuffers<T> buffers;
  CommonDivisor<Compute<T>> by;
  TallShape shape;
  PoolRule counts[3];  // what a window counts along each axis
};

template <typename T>
__global__ void __launch_bounds__(kTallThreads) add_tall_windows(const __grid_constant__ TallCall<T> call) {
  using C = Compute<T>;
  constexpr int kLanes = kStripLanes<T>;
  const TallShape& shape = call.shape;
  C* const sums = dynamic_shared<C>();  // [rows of the windows along h][width]
  const TallRow row(shape, blockIdx.x);
  const T* const source = call.buffers.source + row.plane * shape.plane +
                          static_cast<uint32_t>(row.ds.first) * shape.slab +
                          static_cast<uint32_t>(row.hs.first) * shape.width;
  const uint32_t items = static_cast<uint32_t>(row.hs.size()) * shape.vectors.divisor;
  for (uint32_t item = threadIdx.x; item < items; item += kTallThreads) {
    const T* from = source + item * kLanes;
    C depths[kLanes] = {};
#pragma unroll 4
    for (int32_t d = row.ds.first; d < row.ds.end; ++d, from += shape.slab) {
      const Strip<T> strip = *reinterpret_cast<const Strip<T>*>(from);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) depths[lane] += widen(strip.lanes[lane]);
    }
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) sums[item * kLanes + lane] = depths[lane];
  }
  __syncthreads();
  // A column is one thread's, which puts its sum where the first row's stood.
  for (uint32_t x = threadIdx.x; x < shape.width; x += kTallThreads) {
    C column = 0;
#pragma unroll 4
    for (int32_t y = 0; y < row.hs.size(); ++y) column += sums[static_cast<uint32_t>(y) * shape.width + x];
    sums[x] = column;
  }
  __syncthreads();
  for (int32_t w = static_cast<int32_t>(threadIdx.x); w < shape.bins; w += kTallThreads) {
    const PoolRange ws = shape.elements[2](w);
    C total[1] = {};
    // Nothing is not divided, by 0 at that.
    if (row.ds.size() > 0 && row.hs.size() > 0 && ws.size() > 0) {
#pragma unroll 4
      for (int32_t x = ws.first; x < ws.end; ++x) total[0] += sums[x];
      if (call.by.is_common) {
        divide_by_common<T, 1>(call.by, total);
      } else {
        const int32_t face = call.counts[0](row.d).size() * call.counts[1](row.h).size();
        total[0] /= static_cast<C>(face * call.counts[2](w).size());
      }
    }
    call.buffers.destination[blockIdx.x * static_cast<uint32_t>(shape.bins) + static_cast<uint32_t>(w)] =
        narrow<T>(total[0]);
  }
}

// Indices of 32 bits and short lists; for calls with has_tall_windows().
template <typename T>
Status enqueue_tall_windows(const Problem& p, const ForwardBuffers<T>& b, Stream stream) {
  const auto counts = [&](int axis) { return rule_of_elements(p.axes[axis], p.count_padding); };
  const TallCall<T> call{b, CommonDivisor<Compute<T>>(p), tall_shape(p.axes, kStripLanes<T>),
                         {counts(0), counts(1), counts(2)}};
  const uint32_t blocks = static_cast<uint32_t>(p.output_numel / p.axes[2].bins);
  const size_t bytes = static_cast<size_t>(tall_bytes(p.axes, sizeof(Compute<T>)));
  return launch_kernel("avg_pool tall window kernel", add_tall_windows<T>, blocks, kTallThreads, bytes, stream, call);
}

}  // namespace
}  // namespace baracuda::avg_pool
