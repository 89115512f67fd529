// SPDX-License-Identifier: Apache-2.0
// Where each key begins in a list of keys in order: the sorted records, or ids that come in order.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "ops/segment/cuda/columns.cuh"
#include "ops/segment/cuda/gate.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// A rank whose key is not that of the rank before begins that key, and those in between, which have no rows.
constexpr int kBeginThreads = 256;
constexpr int kBeginRanks = 4;  // of a thread
constexpr int kBeginTile = kBeginThreads * kBeginRanks;
// Keys that a lane writes by itself.
constexpr uint32_t kFewKeys = 32;

// The keys in (below, key], unless that is descending, begin at `rank`.
struct Gap {
  int32_t below, key, rank;
  __device__ uint32_t count() const {
    return key > below ? static_cast<uint32_t>(key) - static_cast<uint32_t>(below) : 0;
  }
};

// The j-th rank of a thread. A rank past the end is replaced by the list's first, before which there is no gap: so the
// loads need no condition, and are issued together.
__device__ __forceinline__ uint32_t rank_of_thread(uint32_t tile, int j, int32_t n) {
  const uint32_t rank = tile * kBeginTile + j * kBeginThreads + threadIdx.x;
  return rank < static_cast<uint32_t>(n) ? rank : 0;
}

// Long gaps are written by all threads of the block. Only a block that has one waits for its threads.
__device__ __forceinline__ void write_begins(const Gap (&gaps)[kBeginRanks], int32_t* begins) {
  bool some_long = false;
#pragma unroll
  for (int j = 0; j < kBeginRanks; ++j) {
    const uint32_t count = gaps[j].count();
    some_long |= count > kFewKeys;
    if (count > kFewKeys) continue;
    int32_t* before = begins + gaps[j].below;
#pragma unroll 1
    for (uint32_t i = 1; i <= count; ++i) before[i] = gaps[j].rank;
  }
  if (!__syncthreads_or(some_long)) return;
  __shared__ Gap shared_gaps[kBeginTile];
  __shared__ int gap_count;
  if (threadIdx.x == 0) gap_count = 0;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kBeginRanks; ++j) {
    if (gaps[j].count() > kFewKeys) shared_gaps[atomicAdd(&gap_count, 1)] = gaps[j];
  }
  __syncthreads();
  for (int g = 0; g < gap_count; ++g) {
    const Gap gap = shared_gaps[g];
    for (int64_t key = int64_t{gap.below} + 1 + threadIdx.x; key <= gap.key; key += kBeginThreads) {
      begins[key] = gap.rank;
    }
  }
}

// The keys up to that of the first rank and those past that of the last one, which may be nearly all keys, are written
// by all blocks. begins[num_segments] is where keys that are none begin, and begins[num_segments + 1] is n.
__device__ __forceinline__ void write_outer_begins(int32_t lowest, int32_t highest, int32_t n, int32_t num_segments,
                                                   int32_t* begins) {
#pragma unroll 1
  for (int64_t key = grid_thread(); key <= lowest; key += grid_threads()) begins[key] = 0;
#pragma unroll 1
  for (int64_t key = int64_t{highest} + 1 + grid_thread(); key <= num_segments; key += grid_threads()) begins[key] = n;
  if (grid_thread() == 0) begins[int64_t{num_segments} + 1] = n;
}

// Ids in order as keys: those below every segment come before, those past the end behind.
struct SortedIds {
  Index ids;
  __device__ int32_t key(int64_t id) const {
    return id < 0 ? -1 : id < ids.num_segments ? static_cast<int32_t>(id) : ids.num_segments;
  }
  __device__ int32_t operator()(int64_t row) const { return key(ids[row]); }
};

// Where the keys of ids in order begin, unless `begins` is NULL. The launch before clears *descends, which becomes 1 if
// they are not in order.
__global__ void __launch_bounds__(kBeginThreads)
    find_begins_of_ids(Index ids, int32_t n, int32_t num_segments, int32_t* begins, uint32_t* descends) {
  let_kernel_after_start();
  const SortedIds sorted{ids};
  bool found = false;
  Gap gaps[kBeginRanks] = {};
  if (n > 0) {
#pragma unroll
    for (int j = 0; j < kBeginRanks; ++j) {
      const uint32_t row = rank_of_thread(blockIdx.x, j, n);
      const int64_t before = ids[row > 0 ? row - 1 : 0], id = ids[row];
      found |= id < before;
      gaps[j] = {sorted.key(before), sorted.key(id), static_cast<int32_t>(row)};
    }
  }
  if (begins != nullptr) {
    write_outer_begins(n > 0 ? sorted(0) : num_segments, n > 0 ? sorted(n - 1) : num_segments, n, num_segments, begins);
    write_begins(gaps, begins);
  }
  wait_for_kernel_before();
  if (found) *descends = 1;
}

struct ListKeys {
  const Record* list;
  __device__ int32_t operator()(int64_t rank) const { return list[rank].key; }
};

// Where each key begins, by one pass over the list of n > 0 records.
__global__ void __launch_bounds__(kBeginThreads)
    find_begins_of_rows(const Record* list, int32_t n, int32_t num_segments, int32_t* begins, Gate gate) {
  wait_for_kernel_before();
  let_kernel_after_start();
  if (gate.is_closed()) return;
  write_outer_begins(list[0].key, list[n - 1].key, n, num_segments, begins);
  const uint32_t tiles = groups_of(static_cast<uint32_t>(n), uint32_t{kBeginTile});
#pragma unroll 1
  for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    Gap gaps[kBeginRanks];
#pragma unroll
    for (int j = 0; j < kBeginRanks; ++j) {
      const uint32_t rank = rank_of_thread(tile, j, n);
      gaps[j] = {list[rank > 0 ? rank - 1 : 0].key, list[rank].key, static_cast<int32_t>(rank)};
    }
    write_begins(gaps, begins);
    if (gridDim.x < tiles) __syncthreads();
  }
}

// Where each key begins if there are many more keys than rows: each key is looked for by bisection, first among evenly
// spread samples of the list, then between two of them.
constexpr int64_t kManyKeys = 4;
constexpr int kKeyThreads = 512;
template <class KeyAt>
__global__ void __launch_bounds__(kKeyThreads)
    find_begins_of_keys(KeyAt key_at, int32_t n, int32_t num_segments, int32_t* begins, Gate gate) {
  wait_for_kernel_before();
  let_kernel_after_start();
  if (gate.is_closed()) return;
  __shared__ int64_t samples[kKeyThreads];
  const int64_t distance = n > 0 ? (n - 1) / kKeyThreads + 1 : 1;
  const int64_t sample = static_cast<int64_t>(threadIdx.x) * distance;
  samples[threadIdx.x] = sample < n ? key_at(sample) : INT64_MAX;
  __syncthreads();
  for (int64_t key = grid_thread(); key <= static_cast<int64_t>(num_segments) + 1; key += grid_threads()) {
    int32_t below = 0;  // samples of smaller keys
    for (int32_t step = kKeyThreads; step > 0; step /= 2) {
      if (below + step <= kKeyThreads && samples[below + step - 1] < key) below += step;
    }
    // The first rank of the key lies behind the last smaller sample, up to the next sample.
    int64_t low = below > 0 ? (below - 1) * distance + 1 : 0;
    int64_t high = below * distance < n ? below * distance : n;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (key_at(middle) < key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begins[key] = key > num_segments ? n : static_cast<int32_t>(low < n ? low : n);
  }
}

template <class KeyAt>
Status enqueue_begins_of_keys(KeyAt key_at, int32_t n, int32_t num_segments, int32_t* begins, Stream stream,
                              Gate gate = {}) {
  return launch_early("segment begin kernel", find_begins_of_keys<KeyAt>,
                      blocks_for(int64_t{num_segments} + 2, kKeyThreads), kKeyThreads, 0, stream, key_at, n,
                      num_segments, begins, gate);
}
inline bool many_keys(int64_t n, int32_t num_segments) { return num_segments > kManyKeys * n; }

// Where the keys of ids in order begin; `descends` as above.
inline Status enqueue_begins_of_ids(const Index& ids, const Problem& p, int32_t* begins, uint32_t* descends,
                                    Stream stream) {
  const bool bisects = many_keys(p.n, p.num_segments);
  BARACUDA_RETURN_IF_FAILED(launch_early("segment begin kernel", find_begins_of_ids,
                                         blocks_for(int64_t{p.n} + 1, kBeginTile), kBeginThreads, 0, stream, ids, p.n,
                                         p.num_segments, bisects ? nullptr : begins, descends));
  return bisects ? enqueue_begins_of_keys(SortedIds{ids}, p.n, p.num_segments, begins, stream) : Status::kOk;
}

}  // namespace
}  // namespace baracuda::segment
