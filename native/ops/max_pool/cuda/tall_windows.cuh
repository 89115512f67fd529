// SPDX-License-Identifier: Apache-2.0
// The forward on CUDA by rows of tall windows (core/pool_tall.cuh): a block finds the best along d, then along h for
// each column, then among the columns of each window. Since this is not the order of a window's elements, of equals
// the one with the lower index stays, and of NaNs the one with the higher.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/pool_strips.cuh"
#include "core/pool_tall.cuh"
#include "ops/max_pool/cuda/small_windows.cuh"
#include "ops/max_pool/launch.h"
#include "ops/max_pool/math.h"

namespace baracuda::max_pool {
namespace {

template <typename T>
struct TallCall {
  ForwardBuffers<T> buffers;
  TallShape shape;
  uint32_t most;  // places in shared memory
};

template <typename C>
struct Best {
  C value;
  uint32_t index;

  // takes_over() of elements in any order.
  __device__ __forceinline__ void meet(C next, uint32_t next_index) {
    const bool is_nan = next != next, was_nan = value != value;
    const bool ties = is_nan && was_nan ? next_index > index : next == value && next_index < index;
    const bool wins = is_nan ? !was_nan : next > value;
    if (!wins && !ties) return;
    value = next;
    index = next_index;
  }
};

template <typename T>
__global__ void __launch_bounds__(kTallThreads) pool_tall_windows(const __grid_constant__ TallCall<T> call) {
  using C = Compute<T>;
  constexpr int kLanes = kStripLanes<T>;
  const TallShape& shape = call.shape;
  C* const values = dynamic_shared<C>();  // [rows of the windows along h][width], and the indices alike
  uint32_t* const indices = reinterpret_cast<uint32_t*>(values + call.most);
  const TallRow row(shape, blockIdx.x);
  const T* const plane = call.buffers.input + row.plane * shape.plane;
  const bool has_rows = row.ds.size() > 0 && row.hs.size() > 0;
  const uint32_t corner = static_cast<uint32_t>(row.ds.first) * shape.slab +
                          static_cast<uint32_t>(row.hs.first) * shape.width;
  const uint32_t items = has_rows ? static_cast<uint32_t>(row.hs.size()) * shape.vectors.divisor : 0;
  for (uint32_t item = threadIdx.x; item < items; item += kTallThreads) {
    uint32_t from = corner + item * kLanes;
    C best[kLanes];
    uint32_t slabs[kLanes] = {};
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) best[lane] = lowest<C>();
#pragma unroll 4
    for (int32_t d = 0; d < row.ds.size(); ++d) {
      const Strip<T> strip = *reinterpret_cast<const Strip<T>*>(plane + from + static_cast<uint32_t>(d) * shape.slab);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        const C next = widen(strip.lanes[lane]);
        // The first one is there whatever it holds.
        const bool takes = takes_over(next, best[lane]);
        best[lane] = takes ? next : best[lane];
        slabs[lane] = takes ? static_cast<uint32_t>(d) : slabs[lane];
      }
    }
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      values[item * kLanes + lane] = best[lane];
      indices[item * kLanes + lane] = from + slabs[lane] * shape.slab + lane;
    }
  }
  __syncthreads();
  // A column is one thread's, which puts its best where the first row's stood.
  for (uint32_t x = threadIdx.x; has_rows && x < shape.width; x += kTallThreads) {
    Best<C> column{values[x], indices[x]};
    for (int32_t y = 1; y < row.hs.size(); ++y) {
      const uint32_t at = static_cast<uint32_t>(y) * shape.width + x;
      column.meet(values[at], indices[at]);
    }
    values[x] = column.value;
    indices[x] = column.index;
  }
  __syncthreads();
  for (int32_t w = static_cast<int32_t>(threadIdx.x); w < shape.bins; w += kTallThreads) {
    const PoolRange ws = shape.elements[2](w);
    const uint32_t window = blockIdx.x * static_cast<uint32_t>(shape.bins) + static_cast<uint32_t>(w);
    if (!has_rows || ws.size() <= 0) {
      call.buffers.output[window] = lowest<T>();
      call.buffers.indices[window] = kNoElement;
      continue;
    }
    Best<C> best{values[ws.first], indices[ws.first]};
    for (int32_t x = ws.first + 1; x < ws.end; ++x) best.meet(values[x], indices[x]);
    call.buffers.output[window] = plane[best.index];
    call.buffers.indices[window] = static_cast<int64_t>(best.index);
  }
}

template <typename T>
constexpr int64_t kTallElement = sizeof(Compute<T>) + sizeof(uint32_t);

template <typename T>
bool can_pool_tall_windows(const Problem& p, const ForwardBuffers<T>& b) {
  return has_no_dilation(p) && has_tall_windows(p.axes, b.input, kStripLanes<T>, kTallElement<T>);
}

// Indices of 32 bits.
template <typename T>
Status enqueue_tall_windows(const Problem& p, const ForwardBuffers<T>& b, Stream stream) {
  const int64_t bytes = tall_bytes(p.axes, kTallElement<T>);
  const TallCall<T> call{b, tall_shape(p.axes, kStripLanes<T>), static_cast<uint32_t>(bytes / kTallElement<T>)};
  const uint32_t blocks = static_cast<uint32_t>(p.output_numel / p.axes[2].bins);
  return launch_kernel("max_pool tall window kernel", pool_tall_windows<T>, blocks, kTallThreads,
                       static_cast<size_t>(bytes), stream, call);
}

}  // namespace
}  // namespace baracuda::max_pool
