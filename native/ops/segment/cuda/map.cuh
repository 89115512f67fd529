// SPDX-License-Identifier: Apache-2.0
// Results that depend on a row alone and on what is known of its segment, on CUDA: rows are streamed in their own
// order, so nothing is sorted; at most the rows of each segment are counted, in integers.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_zeros.cuh"
#include "core/workspace.h"
#include "ops/segment/cuda/columns.cuh"
#include "ops/segment/cuda/offsets.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// How a row's segment is found: by its id; among all offsets; or, of rows so narrow that a block has many, among the
// offsets near a block's rows.
enum class Lookup { kIds, kOffsets, kNearOffsets };
// Tiles of rows that one look at the offsets near them serves.
constexpr int kNearTiles = 4;

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

// Counts rows. The launch before clears the counts, and began after the ids were there: so all that touches no count is
// done while it runs.
__global__ void __launch_bounds__(kCountThreads) count_rows(Index ids, int32_t n, int32_t* counts) {
  let_kernel_after_start();
  __shared__ Tallies tallies;
  const int32_t num_segments = ids.num_segments;
  int32_t mine[kCountRows];
#pragma unroll
  for (int u = 0; u < kCountRows; ++u) {
    const int64_t row = (int64_t{blockIdx.x} * kCountRows + u) * kCountThreads + threadIdx.x;
    const int32_t key = ids.key(row < n ? row : n - 1);
    mine[u] = row < n ? key : num_segments;
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

// The key of a row by ids; none behind the last.
__device__ __forceinline__ int32_t key_of_row(const Index& ids, int32_t n, int64_t row) {
  if (row >= n) return ids.num_segments;
  return ids.key(row);
}

// Blocks a multiprocessor, hence registers a thread; 0 leaves that to the compiler.
template <class Tag, Lookup kLookup>
constexpr int kMapBlocks = kLookup == Lookup::kIds ? 0 : sizeof(typename Tag::Element) > 4 ? 4 : 5;

template <class Tag, int V, Lookup kLookup>
__global__ void __launch_bounds__(kMapThreads, (kMapBlocks<Tag, kLookup>))
    map_rows(Index index, int32_t n, int32_t d, int32_t lanes, const int32_t* counts, Buffers<Tag> b) {
  using Map = Rule<Tag>;
  using T = typename Tag::Element;
  wait_for_kernel_before();
  let_kernel_after_start();
  // `lanes` threads share a row and go through its columns.
  const int32_t num_segments = index.num_segments;
  const int64_t rows = kMapThreads / lanes, first_column = threadIdx.x % lanes * V;
  const Index args(b.arg, b.wide_index, num_segments);
  const OffsetKeys offsets{index, n};
  const auto map_tile = [&](int64_t first, const int32_t(&keys)[kMapRows]) {
    for (int64_t column = first_column; column < d; column += static_cast<int64_t>(lanes) * V) {
      Columns<T, V> results[kMapRows];
#pragma unroll
      for (int u = 0; u < kMapRows; ++u) {
        results[u] = Columns<T, V>{};
        if (keys[u] == num_segments) continue;
        const int64_t row = first + u * rows, at = static_cast<int64_t>(keys[u]) * d + column;
        const Columns<T, V> s = load<V>(b.segments[0] + at);
        Columns<T, V> t{}, x{};
        if constexpr (Map::kSegments > 1) t = load<V>(b.segments[1] + at);
        if constexpr (Map::kRows > 0) x = load_once<V>(b.rows[0] + row * d + column);
        int32_t count = 0;
        if constexpr (Map::kCounts) {
          count = kLookup == Lookup::kIds ? counts[keys[u]] : offsets.begin(keys[u] + 1) - offsets.begin(keys[u]);
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
        if (row < n) store<V>(b.result + row * d + column, results[u]);
      }
    }
  };
  const int64_t tile = rows * kMapRows;
  int32_t keys[kMapRows];
  if constexpr (kLookup == Lookup::kIds) {
    for (int64_t of_block = blockIdx.x * tile; of_block < n; of_block += gridDim.x * tile) {
      const int64_t first = of_block + threadIdx.x / lanes;
#pragma unroll
      for (int u = 0; u < kMapRows; ++u) keys[u] = key_of_row(index, n, first + u * rows);
      map_tile(first, keys);
    }
  } else if constexpr (kLookup == Lookup::kNearOffsets) {
    __shared__ SharedNear shared;
    const int64_t step = kNearTiles * tile;
    for (int64_t of_block = blockIdx.x * step; of_block < n; of_block += gridDim.x * step) {
      const int64_t end = of_block + step < n ? of_block + step : n;
      const auto near = offsets.read_near(shared, of_block, end - 1);
      for (int64_t of_tile = of_block; of_tile < end; of_tile += tile) {
        const int64_t first = of_tile + threadIdx.x / lanes;
        offsets.find_near(shared, near, first, rows, keys);
        map_tile(first, keys);
      }
    }
  } else {
    __shared__ FirstSteps shared;
    offsets.read_first_steps(shared);
    __syncthreads();
    for (int64_t of_block = blockIdx.x * tile; of_block < n; of_block += gridDim.x * tile) {
      const int64_t first = of_block + threadIdx.x / lanes;
      // Each of a row's threads looks for one row.
      const int32_t lane = threadIdx.x % 32, own = offsets.find(shared, first + lane % kMapRows * rows);
#pragma unroll
      for (int u = 0; u < kMapRows; ++u) keys[u] = __shfl_sync(kFullWarp, own, (lane & -lanes) + u);
      map_tile(first, keys);
    }
  }
}

template <class Tag>
struct MapScratch {
  using Map = Rule<Tag>;
  WorkspaceLayout layout;
  int32_t* counts;  // [num_segments]

  MapScratch(const Problem& p, void* workspace) {
    const bool counts_ids = Map::kCounts && p.form != Form::kOffsets;
    counts = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(counts_ids ? p.num_segments : 0));
  }
};

// Blocks that are enough for any GPU.
constexpr int64_t kManyBlocks = 4096;

template <Lookup kLookup, int V, class Tag>
Status enqueue_map(const Problem& p, int32_t lanes, const Index& index, const Buffers<Tag>& b, const int32_t* counts,
                   Stream stream) {
  const int64_t tile = kMapThreads / lanes * kMapRows;
  // What a block reads of all offsets serves twice as many rows, if that leaves enough blocks.
  const int tiles = kLookup == Lookup::kNearOffsets                              ? kNearTiles
                    : kLookup == Lookup::kOffsets && p.n > kManyBlocks * tile ? 2
                                                                                 : 1;
  const uint32_t blocks = blocks_for(p.n, tiles * tile);
  const auto kernel = map_rows<Tag, V, kLookup>;
  // The first launch of a call must not overlap what the caller enqueued before.
  return counts != nullptr ? launch_early("segment map kernel", kernel, blocks, kMapThreads, 0, stream, index, p.n,
                                          p.d, lanes, counts, b)
                           : launch_kernel("segment map kernel", kernel, blocks, kMapThreads, 0, stream, index, p.n,
                                           p.d, lanes, counts, b);
}

template <int V, class Tag>
Status enqueue_map(const Problem& p, const Index& index, const Buffers<Tag>& b, const int32_t* counts,
                   Stream stream) {
  int32_t lanes = 1;
  while (lanes < 32 && lanes * V < p.d) lanes *= 2;
  if (p.form != Form::kOffsets) return enqueue_map<Lookup::kIds, V>(p, lanes, index, b, counts, stream);
  return lanes < kMapRows ? enqueue_map<Lookup::kNearOffsets, V>(p, lanes, index, b, counts, stream)
                          : enqueue_map<Lookup::kOffsets, V>(p, lanes, index, b, counts, stream);
}

template <class Tag>
Status enqueue_map(const Problem& p, const Buffers<Tag>& b, void* workspace, Stream stream) {
  using T = typename Tag::Element;
  const Index index = index_of(p, b);
  int32_t* counts = nullptr;
  if (Rule<Tag>::kCounts && p.form != Form::kOffsets) {
    counts = MapScratch<Tag>(p, workspace).counts;
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(counts, p.num_segments * sizeof(int32_t), stream));
    BARACUDA_RETURN_IF_FAILED(launch_early("segment count kernel", count_rows,
                                           blocks_for(p.n, kCountThreads * kCountRows), kCountThreads, 0, stream,
                                           index, p.n, counts));
  }
  constexpr int kWide = 16 / sizeof(T) < 4 ? 16 / sizeof(T) : 4;
  return columns_per_access(p.d, sizeof(T), addresses_of(b), kWide) == kWide
             ? enqueue_map<kWide>(p, index, b, counts, stream)
             : enqueue_map<1>(p, index, b, counts, stream);
}

}  // namespace
}  // namespace baracuda::segment
