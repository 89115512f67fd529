// SPDX-License-Identifier: Apache-2.0
// Puts a staged tile's samples in ascending order on CUDA. They were listed in runs of neighbours, whose order varies;
// only the runs are sorted.
#pragma once

#include "core/cuda_warp.cuh"
#include "ops/grid_sample/cuda/backward/tiling.cuh"

namespace baracuda::grid_sample {
namespace {

// Consecutive samples that a warp listed together.
struct alignas(8) Run {
  uint32_t first, length;
};

// With at most so many runs each is compared with all.
constexpr int kFewRuns = 64;
constexpr int kOrderBuckets = 128;

template <int kCapacity>
struct OrderScratch {
  alignas(16) Run runs[kCapacity];
  uint32_t count;               // of runs; 0 at the start
  uint16_t offsets[kCapacity];  // samples before a run's, in ascending order
  // Where runs are many: buckets of runs by their first samples.
  uint16_t members[kCapacity];        // runs, by bucket
  uint32_t buckets[kOrderBuckets];    // runs above samples, first counts, then those before
  uint32_t members_in[kOrderBuckets];
};

// Listed samples of the calling thread, one a round: where they go.
template <int kThreads, int kListRounds>
struct ListedSamples {
  uint32_t marked[kListRounds];  // with kHome
  uint16_t run[kListRounds], rank[kListRounds];

  // Loads the samples. Every thread calls.
  __device__ __forceinline__ ListedSamples(int count, const uint32_t* staged) {
#pragma unroll
    for (int round = 0; round < kListRounds; ++round) {
      const int i = round * kThreads + static_cast<int>(threadIdx.x);
      marked[round] = i < count ? staged[i] : 0;
    }
  }

  // Cuts the list into runs and orders them. Every thread calls; the block has synchronised since scratch.count = 0.
  template <int kCapacity>
  __device__ __forceinline__ void order(int count, int64_t samples, OrderScratch<kCapacity>& scratch) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int round = 0; round < kListRounds; ++round) {
      const int i = round * kThreads + static_cast<int>(threadIdx.x);
      const uint32_t before = __shfl_up_sync(kFullWarp, marked[round], 1);
      const bool is_head = i < count && (lane == 0 || marked[round] != before + 1);
      const unsigned heads = __ballot_sync(kFullWarp, is_head), listed = __ballot_sync(kFullWarp, i < count);
      if (listed == 0) continue;
      unsigned base = 0;
      if (lane == 0) base = atomicAdd(&scratch.count, static_cast<uint32_t>(__popc(heads)));
      base = __shfl_sync(kFullWarp, base, 0);
      const unsigned up_to_here = heads & (kFullWarp >> (31 - lane));
      const unsigned head = 31 - __clz(up_to_here);
      run[round] = static_cast<uint16_t>(base + __popc(up_to_here) - 1);
      rank[round] = static_cast<uint16_t>(lane - head);
      if (is_head) {
        const unsigned later = lane == 31 ? 0 : (heads | ~listed) >> (lane + 1);
        scratch.runs[run[round]] = {marked[round] & ~kHome<uint32_t>,
                                    later == 0 ? 32 - lane : static_cast<unsigned>(__ffs(later))};
      }
    }
    __syncthreads();
    const int runs = static_cast<int>(scratch.count);
    if (runs > kFewRuns) return order_by_bucket(runs, samples, scratch);
    for (int i = threadIdx.x; i < runs; i += kThreads) {
      const uint32_t first = scratch.runs[i].first;
      uint32_t offset = 0;
#pragma unroll 4
      for (int j = 0; j < runs; ++j) {
        const Run other = scratch.runs[j];
        if (other.first < first) offset += other.length;
      }
      scratch.offsets[i] = static_cast<uint16_t>(offset);
    }
    __syncthreads();
  }

  // Compares runs of neighbouring samples alone. `samples` is the number of the image's.
  template <int kCapacity>
  __device__ static void order_by_bucket(int runs, int64_t samples, OrderScratch<kCapacity>& scratch) {
    constexpr int kCountShift = 16;
    static_assert(kThreads >= kOrderBuckets && kOrderBuckets == 4 * 32);
    int shift = 0;
    while (((samples - 1) >> shift) >= kOrderBuckets) ++shift;
    if (threadIdx.x < kOrderBuckets) scratch.buckets[threadIdx.x] = scratch.members_in[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < runs; i += kThreads) {
      const Run own = scratch.runs[i];
      atomicAdd(&scratch.buckets[own.first >> shift], 1u << kCountShift | own.length);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      uint32_t counts[4], sum = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) sum += counts[k] = scratch.buckets[4 * threadIdx.x + k];
      uint32_t before = sum;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_up_sync(kFullWarp, before, distance);
        if (threadIdx.x >= distance) before += other;
      }
      before -= sum;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        scratch.buckets[4 * threadIdx.x + k] = before;
        before += counts[k];
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < runs; i += kThreads) {
      const uint32_t bucket = scratch.runs[i].first >> shift;
      const uint32_t rank = atomicAdd(&scratch.members_in[bucket], 1u);
      scratch.members[(scratch.buckets[bucket] >> kCountShift) + rank] = static_cast<uint16_t>(i);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < runs; i += kThreads) {
      const uint32_t first = scratch.runs[i].first, bucket = first >> shift;
      const uint32_t begin = scratch.buckets[bucket] >> kCountShift, members = scratch.members_in[bucket];
      uint32_t offset = scratch.buckets[bucket] & ((1u << kCountShift) - 1);
      for (uint32_t k = 0; k < members; ++k) {
        const Run other = scratch.runs[scratch.members[begin + k]];
        if (other.first < first) offset += other.length;
      }
      scratch.offsets[i] = static_cast<uint16_t>(offset);
    }
    __syncthreads();
  }

  // The sample's slot: its rank among all. After order().
  template <int kCapacity>
  __device__ __forceinline__ int slot(int round, const OrderScratch<kCapacity>& scratch) const {
    return scratch.offsets[run[round]] + rank[round];
  }
};

}  // namespace
}  // namespace baracuda::grid_sample
