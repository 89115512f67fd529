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
template <bool kByOffsets>
struct Keys {
  Index index;
  int32_t n;

  // Of the rows that `lanes` neighbouring threads take together, `distance` apart; rows behind the last have none. A
  // bisection is a chain of trips to memory: each thread takes one of them where there are enough threads. For whole
  // warps.
  __device__ __forceinline__ void find(int64_t first, int64_t distance, int32_t lanes,
                                       int32_t (&found)[kMapRows]) const {
    const int32_t lane = threadIdx.x % 32;
    const bool shares = kByOffsets && lanes >= kMapRows;
    const int32_t own = shares ? key(first + lane % kMapRows * distance) : index.num_segments;
#pragma unroll
    for (int u = 0; u < kMapRows; ++u) {
      found[u] = shares ? __shfl_sync(0xffffffffu, own, (lane & -lanes) + u) : key(first + u * distance);
    }
  }
  // Of offsets: where a segment begins.
  __device__ __forceinline__ int32_t begin(int64_t key) const { return rank_of_offset(index[key], n); }

 private:
  __device__ __forceinline__ int32_t key(int64_t row) const {
    if (row >= n) return index.num_segments;
    return kByOffsets ? key_by_offsets(index, index.num_segments, row) : index.key(row);
  }
};

// A block counts for itself first, in a table with room for the segments of all its rows, so that a hot segment is
// passed on once by each block and not by each row. A segment that finds its places taken goes without.
constexpr int kCountThreads = 1024;
constexpr int kCountRows = 4;  // of a thread
constexpr int kTallyBits = 12;
constexpr int kTallies = 1 << kTallyBits;
constexpr int kTallyPlaces = 4;
static_assert(kTallies >= kCountThreads * kCountRows);

struct Tallies {
  int32_t keys[kTallies];  // -1 where there is none
  int32_t counts[kTallies];

  // Whether there was a place for the key.
  __device__ __forceinline__ bool add(int32_t key) {
    uint32_t at = static_cast<uint32_t>(key) * 0x9e3779b9u >> (32 - kTallyBits);
    for (int place = 0; place < kTallyPlaces; ++place, at = (at + 1) % kTallies) {
      int32_t holder = *static_cast<const volatile int32_t*>(keys + at);
      if (holder < 0) {
        holder = atomicCAS(keys + at, -1, key);
        if (holder < 0) holder = key;
      }
      if (holder != key) continue;
      atomicAdd(counts + at, 1);
      return true;
    }
    return false;
  }
};

// By a kernel, not by a memset: the count is a dependent launch.
__global__ void __launch_bounds__(kCountThreads) clear_counts(int32_t num_segments, int32_t* counts) {
  let_kernel_after_start();
  for (int64_t key = grid_thread(); key < num_segments; key += grid_threads()) counts[key] = 0;
}

// The first launch of the call, which clears the counts, began after the ids were there: all that touches no count is
// done beside it.
__global__ void __launch_bounds__(kCountThreads) count_rows(Keys<false> keys, int32_t* counts) {
  let_kernel_after_start();
  __shared__ Tallies tallies;
  const int32_t num_segments = keys.index.num_segments;
  int32_t mine[kCountRows];
#pragma unroll
  for (int u = 0; u < kCountRows; ++u) {
    const int64_t row = (int64_t{blockIdx.x} * kCountRows + u) * kCountThreads + threadIdx.x;
    const int32_t key = keys.index.key(row < keys.n ? row : keys.n - 1);
    mine[u] = row < keys.n ? key : num_segments;
  }
  for (int i = threadIdx.x; i < kTallies; i += kCountThreads) tallies.keys[i] = -1, tallies.counts[i] = 0;
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kCountRows; ++u) {
    if (mine[u] != num_segments && tallies.add(mine[u])) mine[u] = num_segments;
  }
  wait_for_kernel_before();
#pragma unroll
  for (int u = 0; u < kCountRows; ++u) {
    if (mine[u] != num_segments) atomicAdd(counts + mine[u], 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTallies; i += kCountThreads) {
    if (tallies.counts[i] != 0) atomicAdd(counts + tallies.keys[i], tallies.counts[i]);
  }
}

template <class Name, int V, bool kByOffsets>
__global__ void __launch_bounds__(kMapThreads)
    map_rows(Keys<kByOffsets> keys, int32_t d, int32_t lanes, const int32_t* counts, Buffers<Name> b) {
  using Map = Rule<Name>;
  using T = typename Name::Element;
  wait_for_kernel_before();
  let_kernel_after_start();
  // `lanes` threads share a row and go through its columns.
  const int32_t num_segments = keys.index.num_segments;
  const int64_t rows = kMapThreads / lanes, first_column = threadIdx.x % lanes * V;
  const Index args(b.arg, b.wide_index, num_segments);
  for (int64_t of_block = blockIdx.x * rows * kMapRows; of_block < keys.n; of_block += gridDim.x * rows * kMapRows) {
    const int64_t first = of_block + threadIdx.x / lanes;
    int32_t mine[kMapRows];
    keys.find(first, rows, lanes, mine);
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
        if constexpr (Map::kRows > 0) x = load_once<V>(b.rows[0] + row * d + column);
        int32_t count = 0;
        if constexpr (Map::kCounts) {
          count = kByOffsets ? keys.begin(mine[u] + 1) - keys.begin(mine[u]) : counts[mine[u]];
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

template <int V, class Name, bool kByOffsets>
Status enqueue_map(const Problem& p, const Keys<kByOffsets>& keys, const Buffers<Name>& b, const int32_t* counts,
                   Stream stream) {
  int32_t lanes = 1;
  while (lanes < 32 && lanes * V < p.d) lanes *= 2;
  const uint32_t blocks = blocks_for(p.n, kMapThreads / lanes * kMapRows);
  const auto kernel = map_rows<Name, V, kByOffsets>;
  // The first launch of a call must not overlap what the caller enqueued before.
  return counts != nullptr ? launch_early("segment map kernel", kernel, blocks, kMapThreads, 0, stream, keys, p.d,
                                          lanes, counts, b)
                           : launch_kernel("segment map kernel", kernel, blocks, kMapThreads, 0, stream, keys, p.d,
                                           lanes, counts, b);
}

template <class Name, bool kByOffsets>
Status enqueue_map(const Problem& p, const Keys<kByOffsets>& keys, const Buffers<Name>& b, const int32_t* counts,
                   Stream stream) {
  using T = typename Name::Element;
  constexpr int kWide = 16 / sizeof(T) < 4 ? 16 / sizeof(T) : 4;
  return columns_per_access(p.d, sizeof(T), addresses_of(b), kWide) == kWide
             ? enqueue_map<kWide>(p, keys, b, counts, stream)
             : enqueue_map<1>(p, keys, b, counts, stream);
}

template <class Name>
Status enqueue_map(const Problem& p, const Buffers<Name>& b, void* workspace, Stream stream) {
  const Index index(b.index, b.wide_index, p.num_segments);
  if (p.form == Form::kOffsets) return enqueue_map(p, Keys<true>{index, p.n}, b, nullptr, stream);
  const Keys<false> keys{index, p.n};
  if (!Rule<Name>::kCounts) return enqueue_map(p, keys, b, nullptr, stream);
  int32_t* counts = MapPlan<Name>(p, workspace).counts;
  BARACUDA_RETURN_IF_FAILED(launch_kernel("segment clear kernel", clear_counts,
                                          blocks_for(p.num_segments, kCountThreads), kCountThreads, 0, stream,
                                          p.num_segments, counts));
  BARACUDA_RETURN_IF_FAILED(launch_early("segment count kernel", count_rows,
                                         blocks_for(p.n, kCountThreads * kCountRows), kCountThreads, 0, stream, keys,
                                         counts));
  return enqueue_map(p, keys, b, counts, stream);
}

}  // namespace
}  // namespace baracuda::segment
