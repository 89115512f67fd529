// SPDX-License-Identifier: Apache-2.0
// Results that depend on a row alone and on what is known of its segment, on CUDA: rows are streamed in their own
// order, so nothing is sorted; at most the rows of each segment are counted, in integers.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/workspace.h"
#include "ops/segment/cuda_columns.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

constexpr int kMapThreads = 256;
// Rows that a thread takes at once: their keys are read together, then their values.
constexpr int kMapRows = 4;

// The keys of rows, by ids or by offsets.
struct Keys {
  Index index;
  int32_t n;
  bool offsets;

  __device__ __forceinline__ int32_t operator()(int64_t row) const {
    return offsets ? key_by_offsets(index, index.num_segments, row) : index.key(row);
  }
  // Of offsets: where a segment begins.
  __device__ __forceinline__ int32_t begin(int64_t key) const { return rank_of_offset(index[key], n); }
};

// Up to so many segments a block counts for itself first, in 32 KiB of shared memory.
constexpr int32_t kSharedCounts = 8192;
// Beyond that, additions of one warp to one segment go together for so many segments a warp: a hot segment is soon
// among them.
constexpr int kMergedKeys = 4;
// Rows of a block that counts for itself: few blocks have few sums to pass on.
constexpr int64_t kCountRows = 16 * kMapThreads;

__global__ void __launch_bounds__(kMapThreads) count_rows(Keys keys, int32_t* counts) {
  __shared__ int32_t mine[kSharedCounts];
  const int32_t num_segments = keys.index.num_segments;
  const bool shares = num_segments <= kSharedCounts;
  for (int32_t i = threadIdx.x; shares && i < num_segments; i += kMapThreads) mine[i] = 0;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  for (int64_t first = int64_t{blockIdx.x} * kMapThreads; first < keys.n; first += grid_threads()) {
    const int64_t row = first + threadIdx.x;
    const int32_t key = row < keys.n ? keys(row) : num_segments;
    if (shares) {
      if (key < num_segments) atomicAdd(mine + key, 1);
      continue;
    }
    uint32_t left = __ballot_sync(0xffffffffu, key < num_segments);
    for (int merged = 0; merged < kMergedKeys && left != 0; ++merged) {
      const int leader = __ffs(left) - 1;
      const uint32_t equals = __ballot_sync(0xffffffffu, key == __shfl_sync(0xffffffffu, key, leader)) & left;
      if (lane == leader) atomicAdd(counts + key, __popc(equals));
      left &= ~equals;
    }
    if ((left >> lane & 1) != 0) atomicAdd(counts + key, 1);
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; shares && i < num_segments; i += kMapThreads) {
    if (mine[i] != 0) atomicAdd(counts + i, mine[i]);
  }
}

template <class Name, int V>
__global__ void __launch_bounds__(kMapThreads)
    map_rows(Keys keys, int32_t d, int32_t lanes, const int32_t* counts, Buffers<Name> b) {
  using Map = Rule<Name>;
  using T = typename Name::Element;
  wait_for_kernel_before();
  let_kernel_after_start();
  // `lanes` threads share a row and go through its columns.
  const int32_t num_segments = keys.index.num_segments;
  const int64_t rows = kMapThreads / lanes, first_column = threadIdx.x % lanes * V;
  const Index args(b.arg, b.wide_index, num_segments);
  for (int64_t first = blockIdx.x * rows * kMapRows + threadIdx.x / lanes; first < keys.n;
       first += gridDim.x * rows * kMapRows) {
    int32_t mine[kMapRows];
#pragma unroll
    for (int u = 0; u < kMapRows; ++u) {
      const int64_t row = first + u * rows;
      mine[u] = row < keys.n ? keys(row) : num_segments;
    }
    for (int64_t column = first_column; column < d; column += static_cast<int64_t>(lanes) * V) {
      Columns<T, V> results[kMapRows];
#pragma unroll
      for (int u = 0; u < kMapRows; ++u) {
        results[u] = Columns<T, V>{};
        if (mine[u] == num_segments) continue;
        const int64_t row = first + u * rows, at = static_cast<int64_t>(mine[u]) * d + column;
        const Columns<T, V> s = load<V>(b.segments[0] + at);
        Columns<T, V> t{}, x{};
        if constexpr (Map::kSegments > 1) t = load<V>(b.segments[1] + at);
        if constexpr (Map::kRows > 0) x = load<V>(b.rows[0] + row * d + column);
        int32_t count = 0;
        if constexpr (Map::kCounts) {
          count = keys.offsets ? keys.begin(mine[u] + 1) - keys.begin(mine[u]) : counts[mine[u]];
        }
#pragma unroll
        for (int k = 0; k < V; ++k) {
          int64_t arg = 0;
          if constexpr (Map::kArg) arg = args[at + k];
          results[u].at[k] = Map::value(s.at[k], t.at[k], x.at[k], count, arg, row);
        }
      }
#pragma unroll
      for (int u = 0; u < kMapRows; ++u) {
        const int64_t row = first + u * rows;
        if (row < keys.n) store<V>(b.result + row * d + column, results[u]);
      }
    }
  }
}

template <class Name>
struct MapPlan {
  using Map = Rule<Name>;
  WorkspaceLayout layout;
  int32_t* counts;  // [num_segments]

  MapPlan(const Problem& p, void* workspace) {
    const bool counts_ids = Map::kCounts && p.form != Form::kOffsets;
    counts = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(counts_ids ? p.num_segments : 0));
  }
};

template <int V, class Name>
Status enqueue_map(const Problem& p, const Keys& keys, const Buffers<Name>& b, const int32_t* counts, Stream stream) {
  int32_t lanes = 1;
  while (lanes < 32 && lanes * V < p.d) lanes *= 2;
  return launch_kernel("segment map kernel", map_rows<Name, V>, blocks_for(p.n, kMapThreads / lanes * kMapRows),
                       kMapThreads, 0, stream, keys, p.d, lanes, counts, b);
}

template <class Name>
Status enqueue_map(const Problem& p, const Buffers<Name>& b, void* workspace, Stream stream) {
  using T = typename Name::Element;
  const MapPlan<Name> plan(p, workspace);
  const Keys keys{Index(b.index, b.wide_index, p.num_segments), p.n, p.form == Form::kOffsets};
  if (Rule<Name>::kCounts && !keys.offsets) {
    const size_t bytes = static_cast<size_t>(p.num_segments) * sizeof(int32_t);
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros(plan.counts, bytes, stream));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("segment count kernel", count_rows,
                                            blocks_for(p.n, p.num_segments <= kSharedCounts ? kCountRows : kMapThreads),
                                            kMapThreads, 0, stream, keys, plan.counts));
  }
  constexpr int kWide = 16 / sizeof(T) < 4 ? 16 / sizeof(T) : 4;
  return columns_per_access(p.d, sizeof(T), addresses_of(b), kWide) == kWide
             ? enqueue_map<kWide>(p, keys, b, plan.counts, stream)
             : enqueue_map<1>(p, keys, b, plan.counts, stream);
}

}  // namespace
}  // namespace baracuda::segment
