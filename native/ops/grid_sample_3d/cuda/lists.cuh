// SPDX-License-Identifier: Apache-2.0
// The backward's first steps on CUDA: which samples reach which tile of voxels. A tile's list is filled by integer
// atomics in an order that changes from run to run; then it is sorted.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/grid_sample/cuda/backward/bins.cuh"
#include "ops/grid_sample/cuda/backward/list_sort.cuh"
#include "ops/grid_sample_3d/cuda/tiling.cuh"

namespace baracuda::grid_sample_3d {
namespace {

constexpr int kListThreads = 256;

// Counts each tile's samples, or with kFills lists them. The first time, writes the gradients of samples that have no
// tap, where they are asked for.
template <typename C, typename Index, bool kFills>
__global__ void __launch_bounds__(kListThreads)
    list_samples(Problem p, TileGrid tiles, const C* grid, C* grad_grid, Storage<C, Index> s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const int64_t total = p.n * p.samples;
  const bool is_nearest = p.rule.mode == Mode::kNearest;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kListThreads; base < total; base += grid_threads()) {
    const int64_t i = base + threadIdx.x;
    TouchedTiles touched;
    Index sample = 0;
    if (i < total) {
      const Division at(i, p.samples);
      sample = static_cast<Index>(at.remainder);
      touched = TouchedTiles(locate_sample(grid + kAxes * i, p), p, tiles, at.quotient);
      if (!kFills && touched.home < 0 && grad_grid != nullptr) {
        for (int axis = 0; axis < kAxes; ++axis) grad_grid[kAxes * i + axis] = C(0);
      }
    }
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      if (k > 0 && is_nearest) break;  // there is one tap, at home
      const int64_t tile = touched.tile(k, tiles);
      if (!__any_sync(kFullWarp, tile >= 0)) continue;
      if constexpr (kFills) {
        const Index slot = grid_sample::append(tile, s.records, &TileRecord<Index>::taken);
        if (tile >= 0) s.listed[s.records[tile].list + slot] = sample;
      } else {
        grid_sample::append(tile, s.records, &TileRecord<Index>::count);
      }
    }
  }
}

// Gives each tile a place for its list.
template <typename C, typename Index>
__global__ void __launch_bounds__(kListThreads) reserve_lists(TileGrid tiles, Storage<C, Index> s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kListThreads; base < tiles.total; base += grid_threads()) {
    const int64_t tile = base + threadIdx.x;
    const Counter count = tile < tiles.total ? s.records[tile].count : 0;
    const Counter up_to_here = grid_sample::sum_up_to_lane(count);
    Counter first = 0;
    if (threadIdx.x % 32 == 31) first = atomicAdd(&s.totals->listed, up_to_here);
    first = __shfl_sync(kFullWarp, first, 31);
    if (tile < tiles.total) s.records[tile].list = first + up_to_here - count;
  }
}

// Samples of a segment, which are staged together: the bits of a slot's number. 512 hold the 405 or so that reach a
// tile from a random map of one sample a voxel. A list of one segment needs no order: each voxel's contributions are
// sorted.
constexpr int kSegmentShift = 9, kSegment = 1 << kSegmentShift;

// Lists of at most so many samples are sorted in shared memory, by buckets of neighbouring numbers.
constexpr int kShortList = 2048;
constexpr int kSortBuckets = 1024;
constexpr int kSortEach = kShortList / kListThreads;
// Blocks of a multiprocessor that look for lists to sort.
constexpr int kSortBlocks = 8;

template <typename Index>
struct ShortSortShared {
  Index samples[kShortList];  // by bucket
  int starts[kSortBuckets + 1];
  // Four of them are read at once. Unaligned, they would be read with what stands before, which another thread writes.
  alignas(16) int warp_totals[kListThreads / 32];
  Index warp_least[kListThreads / 32], warp_most[kListThreads / 32];
};

// Replaces counts by the sums before them; starts[kCount] is the sum of all. Every thread of the block calls.
template <int kCount>
__device__ void sum_counts(int* starts, int* warp_totals) {
  constexpr int kEach = kCount / kListThreads;
  static_assert(kCount % kListThreads == 0);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int counts[kEach], sum = 0;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kEach; ++k) sum += counts[k] = starts[thread * kEach + k];
  const int up_to_here = grid_sample::sum_up_to_lane(sum);
  if (lane == 31) warp_totals[warp] = up_to_here;
  __syncthreads();
  int before = up_to_here - sum;
  for (int w = 0; w < warp; ++w) before += warp_totals[w];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    starts[thread * kEach + k] = before;
    before += counts[k];
  }
  if (thread == kListThreads - 1) starts[kCount] = before;
  __syncthreads();
}

// Sorts `count` samples ascending; no two are the same.
template <typename Index>
__device__ void sort_short_list(Index* list, int count, ShortSortShared<Index>& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int k = thread; k < kSortBuckets; k += kListThreads) shared.starts[k] = 0;
  Index own[kSortEach], least = ~Index{0}, most = 0;
#pragma unroll
  for (int k = 0; k < kSortEach; ++k) {
    const int i = k * kListThreads + thread;
    own[k] = i < count ? list[i] : 0;
    if (i < count) {
      least = own[k] < least ? own[k] : least;
      most = own[k] > most ? own[k] : most;
    }
  }
  // Each warp's range stands in a place of its own: no two warps write one, and no thread reads one that is written.
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Index other_least = __shfl_xor_sync(kFullWarp, least, distance);
    const Index other_most = __shfl_xor_sync(kFullWarp, most, distance);
    least = other_least < least ? other_least : least;
    most = other_most > most ? other_most : most;
  }
  if (thread % 32 == 0) {
    shared.warp_least[thread / 32] = least;
    shared.warp_most[thread / 32] = most;
  }
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kListThreads / 32; ++w) {
    least = shared.warp_least[w] < least ? shared.warp_least[w] : least;
    most = shared.warp_most[w] > most ? shared.warp_most[w] : most;
  }
  const Index range = most - least;
  int shift = 0;
  while ((range >> shift) >= kSortBuckets) ++shift;
  int ranks[kSortEach];
#pragma unroll
  for (int k = 0; k < kSortEach; ++k) {
    const bool exists = k * kListThreads + thread < count;
    ranks[k] = exists ? atomicAdd(&shared.starts[(own[k] - least) >> shift], 1) : 0;
  }
  sum_counts<kSortBuckets>(shared.starts, shared.warp_totals);
#pragma unroll
  for (int k = 0; k < kSortEach; ++k) {
    if (k * kListThreads + thread < count) {
      shared.samples[shared.starts[(own[k] - least) >> shift] + ranks[k]] = own[k];
    }
  }
  __syncthreads();
  // Lanes without a sample come along, so that warps arrive at the barrier whole.
#pragma unroll
  for (int k = 0; k < kSortEach; ++k) {
    const bool exists = k * kListThreads + thread < count;
    const int bucket = exists ? static_cast<int>((own[k] - least) >> shift) : 0;
    const int begin = shared.starts[bucket], end = exists ? shared.starts[bucket + 1] : begin;
    int place = begin;
    for (int i = begin; i < end; ++i) place += shared.samples[i] < own[k];
    if (exists) list[place] = own[k];
  }
  __syncthreads();  // the next list reuses the buckets
}

// Sorts the short lists of more than a segment and learns which ones are long.
template <typename C, typename Index>
__global__ void __launch_bounds__(kListThreads) sort_short_lists(TileGrid tiles, int segment, Storage<C, Index> s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  __shared__ ShortSortShared<Index> shared;
  for (int64_t tile = blockIdx.x; tile < tiles.total; tile += gridDim.x) {
    const TileRecord<Index>& record = s.records[tile];
    if (record.count <= kShortList) {
      const int count = static_cast<int>(record.count);
      if (count > segment) sort_short_list(s.listed + record.list, count, shared);
    } else if (threadIdx.x == 0) {
      s.long_lists[atomicAdd(&s.totals->long_lists, Counter{1})] = tile;
    }
  }
}

// Sorts the long lists, a block each, in linear time.
template <typename C, typename Index>
__global__ void __launch_bounds__(grid_sample::kSortThreads<Index>)
    sort_long_lists(int64_t samples, Storage<C, Index> s) {
  // Does not let the next kernel start: its blocks would crowd on the few multiprocessors that have no list.
  wait_for_kernel_before();
  __shared__ grid_sample::SortShared<Index> shared;
  const int64_t lists = static_cast<int64_t>(s.totals->long_lists);
  for (int64_t job = blockIdx.x; job < lists; job += gridDim.x) {
    const TileRecord<Index>& record = s.records[s.long_lists[job]];
    grid_sample::sort_by_digits(s.listed + record.list, s.other + record.list, static_cast<int64_t>(record.count),
                                samples, shared);
  }
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
