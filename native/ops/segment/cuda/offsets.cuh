// SPDX-License-Identifier: Apache-2.0
// How rows find their segments among offsets on CUDA, by bisections that a block of threads shortens for its rows.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/segment/cuda/columns.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// Threads of a block.
constexpr int kMapThreads = 256;
// Rows that a thread takes at once: their keys are read together, then their values.
constexpr int kMapRows = 4;

// Where among the offsets a row's place is still looked for. It halves as in offsets_up_to(): also where offsets
// descend, all backends find the same key.
struct Bisection {
  uint32_t low, high;

  __device__ __forceinline__ bool open() const { return low < high; }
  __device__ __forceinline__ uint32_t middle() const { return (low + high) / 2; }
  __device__ __forceinline__ void halve(bool upwards) {
    const uint32_t at = middle();
    if (open()) (upwards ? low : high) = upwards ? at + 1 : at;
  }
};

// What the first steps of a bisection may compare, as a heap from 1 on. It is the same for all rows.
constexpr int kFirstSteps = 8;
struct FirstSteps {
  int32_t offsets[1 << kFirstSteps];
};
static_assert(kMapThreads >= 1 << kFirstSteps);

// Offsets that rows which follow each other have among them.
constexpr uint32_t kMostNear = 1024;
struct SharedNear {
  int32_t offsets[kMostNear];
  uint32_t ends[2];  // what bisections for the first and the last of these rows answer
};

// The keys of rows. A bisection is a chain of trips to memory.
struct OffsetKeys {
  Index index;
  int32_t n;

  // For whole blocks, which wait for all threads before find().
  __device__ __forceinline__ void read_first_steps(FirstSteps& shared) const {
    const uint32_t place = threadIdx.x;
    if (place > 0 && place < 1 << kFirstSteps) {
      const Bisection search = after(all(), place);
      shared.offsets[place] = search.open() ? narrow(index[search.middle()]) : 0;
    }
  }
  // None for rows behind the last.
  __device__ __forceinline__ int32_t find(const FirstSteps& shared, int64_t row) const {
    Bisection search = all();
    uint32_t place = 1;
#pragma unroll
    for (int i = 0; i < kFirstSteps; ++i) {
      const bool upwards = shared.offsets[place] <= row;
      search.halve(upwards);
      place = 2 * place + (upwards ? 1 : 0);
    }
#pragma unroll 1
    while (search.open()) search.halve(index[search.middle()] <= row);
    return key(row, search.low);
  }

  // Where the offsets between the answers for two rows ascend, they alone decide about the rows between: a comparison
  // with another one, on the way of a bisection, turns out as for one of the two.
  struct Near {
    uint32_t low, count;
    bool decides;
  };
  // Of the rows from `first` to `last`. For whole blocks, which wait for all threads.
  __device__ __forceinline__ Near read_near(SharedNear& shared, int64_t first, int64_t last) const {
    __syncthreads();
    const uint32_t warp = threadIdx.x / 32;
    if (warp < 2) {
      const uint32_t end = bisect_by_warp(warp == 0 ? first : last);
      if (threadIdx.x % 32 == 0) shared.ends[warp] = end;
    }
    __syncthreads();
    const uint32_t low = shared.ends[0], count = shared.ends[1] - low;
    bool ascends = count <= kMostNear;
    for (uint32_t i = threadIdx.x; i < count && ascends; i += kMapThreads) {
      const int64_t offset = index[low + i];
      shared.offsets[i] = narrow(offset);
      ascends = i + 1 == count || offset <= index[low + i + 1];
    }
    return {low, count, __syncthreads_and(ascends) != 0};
  }
  // Of rows `distance` apart.
  __device__ __forceinline__ void find_near(const SharedNear& shared, const Near& near, int64_t first,
                                            int64_t distance, int32_t (&found)[kMapRows]) const {
    if (!near.decides) {
      // Rare: offsets that descend, or very many segments without rows.
#pragma unroll
      for (int u = 0; u < kMapRows; ++u) found[u] = bisect(first + u * distance);
      return;
    }
    uint32_t begun[kMapRows] = {};
#pragma unroll 1
    for (uint32_t step = 1u << 31 >> __clz(near.count | 1); step > 0; step /= 2) {
#pragma unroll
      for (int u = 0; u < kMapRows; ++u) {
        const uint32_t next = begun[u] + step;
        if (next <= near.count && shared.offsets[next - 1] <= first + u * distance) begun[u] = next;
      }
    }
#pragma unroll
    for (int u = 0; u < kMapRows; ++u) found[u] = key(first + u * distance, near.low + begun[u]);
  }
  // Where a segment begins.
  __device__ __forceinline__ int32_t begin(int64_t key) const { return rank_of_offset(index[key], n); }

 private:
  __device__ __forceinline__ Bisection all() const { return {0, static_cast<uint32_t>(index.num_segments) + 1}; }
  __device__ __forceinline__ int32_t key(int64_t row, uint32_t begun) const {
    return row < n ? key_of_begun(begun, index.num_segments) : index.num_segments;
  }
  __device__ __forceinline__ int32_t bisect(int64_t row) const {
    return row < n ? key_by_offsets(index, index.num_segments, row) : index.num_segments;
  }
  // Rows are at least 0 and less than INT32_MAX, so that the ends of 32 bits serve for all offsets beyond.
  static __device__ __forceinline__ int32_t narrow(int64_t offset) {
    return static_cast<int32_t>(offset < 0 ? 0 : offset < INT32_MAX ? offset : INT32_MAX);
  }
  // After the steps that lead to a place of a heap.
  static __device__ __forceinline__ Bisection after(Bisection search, uint32_t place) {
    for (int bit = 30 - __clz(place); bit >= 0; --bit) search.halve((place >> bit & 1) != 0);
    return search;
  }
  // A trip to memory for five steps: a lane reads what one of them may compare. For whole warps.
  __device__ __forceinline__ uint32_t bisect_by_warp(int64_t row) const {
    const uint32_t lane = threadIdx.x % 32;
    Bisection search = all();
#pragma unroll 1
    while (search.open()) {
      const Bisection mine = after(search, lane > 0 ? lane : 1);
      const bool upwards = mine.open() && index[mine.middle()] <= row;
      const uint32_t all_upwards = __ballot_sync(kFullWarp, upwards);
      for (uint32_t place = 1; place < 32;) {
        const uint32_t mine_upwards = all_upwards >> place & 1;
        search.halve(mine_upwards != 0);
        place = 2 * place + mine_upwards;
      }
    }
    return search.low;
  }
};

}  // namespace
}  // namespace baracuda::segment
