// SPDX-License-Identifier: Apache-2.0
// The backward on CUDA for windows of three elements that begin at every second one (core/pool_halving.cuh): a block
// divides the gradients of its windows once, and a thread adds the quotients. Windows that are not there count as
// zeros: sums begin at zero, so that no more zeros change them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/pool_halving.cuh"
#include "ops/avg_pool/cuda/divisors.cuh"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

template <typename T>
struct HalvingCall {
  BackwardBuffers<T> buffers;
  CommonDivisor<Compute<T>> by;
  PoolRule counts[3];  // what a window counts along each axis
  HalvingShape shape;
};

// The quotients of the tile's windows.
template <typename T>
__device__ __forceinline__ void divide_windows(const HalvingCall<T>& call, const HalvingTile& tile,
                                               Compute<T>* quotients) {
  using C = Compute<T>;
  const HalvingShape& shape = call.shape;
  const TileThread thread(shape.by_columns);
  if (thread.row >= shape.column_rows) return;
  const uint32_t plane = tile.plane * shape.plane_bins();
  const auto window_at = [&](int32_t row) {
    return HalvingWindow(shape, tile, static_cast<uint32_t>(row), thread.column);
  };
  for (int32_t begin = thread.row; begin < shape.rows; begin += kHalvingBatch * shape.column_rows) {
    T given[kHalvingBatch];
    C terms[kHalvingBatch];
#pragma unroll
    for (int k = 0; k < kHalvingBatch; ++k) {
      const HalvingWindow window = window_at(begin + k * shape.column_rows);
      given[k] = window.is_there ? call.buffers.source[plane + window.number(shape)] : T{};
    }
#pragma unroll
    for (int k = 0; k < kHalvingBatch; ++k) terms[k] = widen(given[k]);
    if (call.by.is_common) {
      divide_by_common<T, kHalvingBatch>(call.by, terms);
    } else {
#pragma unroll
      for (int k = 0; k < kHalvingBatch; ++k) {
        const HalvingWindow window = window_at(begin + k * shape.column_rows);
        if (!window.is_there) continue;
        const auto count = [&](int axis, uint32_t place) {
          return call.counts[axis](static_cast<int32_t>(place)).size();
        };
        terms[k] /= static_cast<C>(count(0, window.d) * count(1, window.h) * count(2, window.w));
      }
    }
#pragma unroll
    for (int k = 0; k < kHalvingBatch; ++k) {
      const int32_t row = begin + k * shape.column_rows;
      if (row < shape.rows) quotients[row * shape.pitch() + thread.column] = terms[k];
    }
  }
}

template <typename T, bool kHasDepth, int kOdd>
__global__ void __launch_bounds__(kTileThreads) add_halving(const __grid_constant__ HalvingCall<T> call) {
  using C = Compute<T>;
  constexpr int kSlices = kHasDepth ? 2 : 1;
  const HalvingShape& shape = call.shape;
  C* const quotients = dynamic_shared<C>();
  const HalvingTile tile(shape);
  divide_windows(call, tile, quotients);
  __syncthreads();
  const TileThread thread(shape.by_groups);
  const int32_t group = tile.group + thread.column;
  if (thread.row >= shape.group_rows || group >= shape.all_groups) return;
  walk_halving(shape, tile, thread, [&](int32_t cell, int32_t z, int32_t y) {
    C sums[kSlices][2][3];
    load_halving<C, kSlices>(quotients + cell, shape.pitch(),
                             static_cast<int32_t>(shape.windows_h.count) * shape.pitch(), sums);
    // Along d; the second slice has but the second window.
    if constexpr (kHasDepth) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int c = 0; c < 3; ++c) sums[0][h][c] += sums[1][h][c];
      }
    }
    // Along h likewise.
#pragma unroll
    for (int d = 0; d < kSlices; ++d) {
#pragma unroll
      for (int c = 0; c < 3; ++c) sums[d][0][c] += sums[d][1][c];
    }
#pragma unroll
    for (int d = 0; d < kSlices; ++d) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (z + d < 0 || z + d >= shape.extents[0] || y + h < 0 || y + h >= shape.extents[1]) continue;
        HalvingLanes<T> lanes;
#pragma unroll
        for (int lane = 0; lane < kHalvingLanes; ++lane) {
          C total = 0;
#pragma unroll
          for (int c = 0; c < 3; ++c) {
            if (is_in_column<kOdd>(lane, c)) total += sums[d][h][c];
          }
          lanes.lanes[lane] = narrow<T>(total);
        }
        const uint32_t row = (tile.plane * static_cast<uint32_t>(shape.extents[0]) + static_cast<uint32_t>(z + d)) *
                                 static_cast<uint32_t>(shape.extents[1]) + static_cast<uint32_t>(y + h);
        T* const to = call.buffers.destination + (row * static_cast<uint32_t>(shape.extents[2]) +
                                                  kHalvingLanes * static_cast<uint32_t>(group));
        *reinterpret_cast<HalvingLanes<T>*>(to) = lanes;
      }
    }
  });
}

// Indices of 32 bits; for calls with has_halving().
template <typename T>
Status enqueue_halving(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  const HalvingShape shape = halving_shape(p.axes, p.planes);
  const auto counts = [&](int axis) { return rule_of_elements(p.axes[axis], p.count_padding); };
  const HalvingCall<T> call{b, CommonDivisor<Compute<T>>(p), {counts(0), counts(1), counts(2)}, shape};
  auto* const kernel = shape.has_depth ? shape.is_odd ? add_halving<T, true, 1> : add_halving<T, true, 0>
                                       : shape.is_odd ? add_halving<T, false, 1> : add_halving<T, false, 0>;
  return launch_kernel("avg_pool_backward halving kernel", kernel, shape.blocks, kTileThreads,
                       static_cast<size_t>(shape.cells()) * sizeof(Compute<T>), stream, call);
}

}  // namespace
}  // namespace baracuda::avg_pool
