// SPDX-License-Identifier: Apache-2.0
// Gradients of bags with respect to the weights of positions on CUDA: a group of lanes takes the products of two rows,
// four strands a lane, and halves the strands.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/segment/bags/launch.h"
#include "ops/segment/cuda/bags/gradient.cuh"

namespace baracuda::embedding_bag {
namespace {

using segment::Columns;

// Strands of a lane, which are neighbouring columns, and of a position at most.
constexpr int32_t kStrands = 4;
constexpr int32_t kMostStrands = 32 * kStrands;
// Positions of a group whose rows are on their way at a time.
constexpr int kDotsAtOnce = 4;

template <typename T, bool kVectors>
__device__ __forceinline__ Columns<T, kStrands> load_strands(const T* from, int32_t count) {
  if constexpr (kVectors) {
    return segment::load<kStrands>(from);
  } else {
    Columns<T, kStrands> found{};
#pragma unroll
    for (int k = 0; k < kStrands; ++k) {
      if (k < count) found.at[k] = from[k];
    }
    return found;
  }
}

template <typename T, bool kVectors>
__global__ void __launch_bounds__(kPositionThreads)
    multiply_rows(FromPositions source, const T* grad_output, const T* weight, int32_t n, int32_t d, int32_t lane_bits,
                  T* grad_weights) {
  using C = Compute<T>;
  const int32_t lanes = 1 << lane_bits, lane = static_cast<int32_t>(threadIdx.x) & (lanes - 1);
  const int64_t groups = grid_threads() >> lane_bits;
  const int32_t none = source.positions.indices.num_segments;
  // Whole warps go on together.
#pragma unroll 1
  for (int64_t first = (grid_thread() >> lane_bits) * kDotsAtOnce;
       first - ((threadIdx.x % 32) >> lane_bits) * kDotsAtOnce < n; first += groups * kDotsAtOnce) {
    int32_t rows[kDotsAtOnce], bags[kDotsAtOnce];
    C sums[kDotsAtOnce][kStrands] = {};
#pragma unroll
    for (int u = 0; u < kDotsAtOnce; ++u) {
      rows[u] = first + u < n ? source.key(first + u) : none;
      bags[u] = rows[u] != none ? source.bag_ids.key(first + u) : 0;
    }
#pragma unroll 1
    for (int64_t column = lane * kStrands; column < d; column += lanes * kStrands) {
      Columns<T, kStrands> x[kDotsAtOnce], g[kDotsAtOnce];
      const int32_t left = d - column < kStrands ? static_cast<int32_t>(d - column) : kStrands;
#pragma unroll
      for (int u = 0; u < kDotsAtOnce; ++u) {
        const int32_t count = rows[u] != none ? left : 0;
        x[u] = g[u] = {};
        if (count == 0) continue;
        x[u] = load_strands<T, kVectors>(weight + int64_t{rows[u]} * d + column, count);
        g[u] = load_strands<T, kVectors>(grad_output + int64_t{bags[u]} * d + column, count);
      }
#pragma unroll
      for (int u = 0; u < kDotsAtOnce; ++u) {
#pragma unroll
        for (int k = 0; k < kStrands; ++k) {
          if (k < left) sums[u][k] = fma(segment::wide(g[u].at[k]), segment::wide(x[u].at[k]), sums[u][k]);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kDotsAtOnce; ++u) {
#pragma unroll
      for (int32_t half = 16; half > 0; half /= 2) {
        if (half >= lanes) continue;
#pragma unroll
        for (int k = 0; k < kStrands; ++k) sums[u][k] = sums[u][k] + __shfl_xor_sync(kFullWarp, sums[u][k], half);
      }
      const C sum = (sums[u][0] + sums[u][2]) + (sums[u][1] + sums[u][3]);
      if (lane == 0 && first + u < n) {
        grad_weights[first + u] = rows[u] != none ? segment::stored<T>(sum) : T{};
      }
    }
  }
}

template <typename T>
Status enqueue_dots(const Problem& p, const WeightsGradientBuffers<T>& b, Stream stream) {
  const FromPositions source{Positions(p, b.indices, b.wide), Index(b.bag_ids, b.wide, p.num_bags)};
  int32_t lane_bits = 0;
  while (lane_bits < 5 && (kStrands << lane_bits) < p.d) ++lane_bits;
  const uint32_t blocks = blocks_for(ceil_div(p.n, kDotsAtOnce) << lane_bits, kPositionThreads);
  if constexpr (kStrands * sizeof(T) <= 16) {
    const uintptr_t addresses = reinterpret_cast<uintptr_t>(b.grad_output) | reinterpret_cast<uintptr_t>(b.weight);
    if (segment::columns_per_access(p.d, sizeof(T), addresses, kStrands) == kStrands) {
      return launch_kernel("bag product kernel", multiply_rows<T, true>, blocks, kPositionThreads, 0, stream, source,
                           b.grad_output, b.weight, p.n, p.d, lane_bits, b.grad_weights);
    }
  }
  return launch_kernel("bag product kernel", multiply_rows<T, false>, blocks, kPositionThreads, 0, stream, source,
                       b.grad_output, b.weight, p.n, p.d, lane_bits, b.grad_weights);
}

}  // namespace
}  // namespace baracuda::embedding_bag
