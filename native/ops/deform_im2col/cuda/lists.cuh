// SPDX-License-Identifier: Apache-2.0
// The gradient by input on CUDA, first half: which corners fall on which pixel of a group. A pixel's list is filled by
// integer atomics in an order that changes from run to run, and then sorted; all channels of the group share it.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/workspace.h"
#include "ops/deform_im2col/cuda/samples.cuh"
#include "ops/grid_sample/cuda/backward/list_sort.cuh"

namespace baracuda::deform_im2col {
namespace {

using grid_sample::Counter;

constexpr int kListThreads = 256;
// A warp sorts a list of one partial sum in its registers; longer ones are rare and have a block.
constexpr int kShortList = kChunk;

struct alignas(16) Totals {
  Counter listed;      // corners
  Counter long_lists;
};

// A corner's number in its group is 4 sample + corner; Index holds it. One load takes both.
template <typename C, typename Index>
struct alignas(2 * (sizeof(C) > sizeof(Index) ? sizeof(C) : sizeof(Index))) Corner {
  Index number;
  C weight;
};

// The places of a sample's corners in their pixels' lists.
template <typename Index>
struct alignas(16) Slots {
  Index of_corner[kCorners];
};

template <typename C, typename Index>
struct Storage {
  size_t cleared_bytes;  // from the totals on
  size_t bytes;
  uint4* laid;                // gradients with channels side by side; first, where lines begin if the workspace does
  Totals* totals;
  Index* counts;              // [pixel]: how many corners fall on it
  Counter* starts;            // [pixel]: where its list starts
  int64_t* long_lists;        // [pixel]: the pixels that have one
  Corner<C, Index>* listed;   // [4 samples]: by pixel, then ascending
  Slots<Index>* slots;        // [sample]; later the numbers in long lists, while they are sorted

  Storage(const Problem& p, int64_t laid_vectors, void* workspace) {
    const int64_t pixels = p.groups * p.pixels, samples = p.groups * p.samples;
    WorkspaceLayout layout;
    laid = take<uint4>(layout, workspace, laid_vectors);
    const size_t cleared_from = layout.bytes();
    totals = take<Totals>(layout, workspace, 1);
    counts = take<Index>(layout, workspace, pixels);
    cleared_bytes = layout.bytes() - cleared_from;
    starts = take<Counter>(layout, workspace, pixels);
    long_lists = take<int64_t>(layout, workspace, pixels);
    listed = take<Corner<C, Index>>(layout, workspace, kCorners * samples);
    slots = take<Slots<Index>>(layout, workspace, samples);
    bytes = layout.bytes();
  }

 private:
  template <typename U>
  static U* take(WorkspaceLayout& layout, void* workspace, int64_t count) {
    return workspace_array<U>(workspace, layout.reserve<U>(count));
  }
};

// Counts each pixel's corners, or with kFills lists them.
template <typename T, typename Index, bool kFills>
__global__ void __launch_bounds__(kListThreads)
    list_corners(const __grid_constant__ Problem p, const __grid_constant__ InputBuffers<T> b,
                 Storage<Compute<T>, Index> s) {
  using C = Compute<T>;
  const int64_t total = p.groups * p.samples;
  for (int64_t i = grid_thread(); i < total; i += grid_threads()) {
    const SamplePlace place(i, p);
    const Position<C> at = place.locate(b.offset, p);
    const Taps<C> taps = place.taps(at, b.mask, p);
    const int64_t first = place.group * p.pixels + first_pixel(at, p);
    if constexpr (kFills) {
      const Slots<Index> slots = s.slots[i];
      Counter places[kCorners];
#pragma unroll
      for (int corner = 0; corner < kCorners; ++corner) {
        if (taps.weight[corner] == C(0)) continue;
        places[corner] = s.starts[first + corner_offset(corner, p)] + slots.of_corner[corner];
      }
#pragma unroll
      for (int corner = 0; corner < kCorners; ++corner) {
        if (taps.weight[corner] == C(0)) continue;
        const Index number = static_cast<Index>(kCorners * place.sample + corner);
        s.listed[places[corner]] = {number, taps.weight[corner]};
      }
    } else {
      Slots<Index> slots{};
#pragma unroll
      for (int corner = 0; corner < kCorners; ++corner) {
        if (taps.weight[corner] == C(0)) continue;
        slots.of_corner[corner] = atomicAdd(&s.counts[first + corner_offset(corner, p)], Index{1});
      }
      s.slots[i] = slots;
    }
  }
}

// Gives each pixel a place for its list, and learns which lists are long.
template <typename C, typename Index>
__global__ void __launch_bounds__(kListThreads) reserve_lists(int64_t pixels, Storage<C, Index> s) {
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kListThreads; base < pixels; base += grid_threads()) {
    const int64_t pixel = base + threadIdx.x;
    const Counter count = pixel < pixels ? s.counts[pixel] : 0;
    const Counter up_to_here = grid_sample::sum_up_to_lane(count);
    Counter first = 0;
    if (threadIdx.x % 32 == 31) first = atomicAdd(&s.totals->listed, up_to_here);
    first = __shfl_sync(kFullWarp, first, 31);
    if (pixel < pixels) s.starts[pixel] = first + up_to_here - count;
    if (count > kShortList) s.long_lists[atomicAdd(&s.totals->long_lists, Counter{1})] = pixel;
  }
}

// Sorts up to 32 kEach corners, no two of one number, by counting for each how many are smaller.
template <int kEach, typename C, typename Index>
__device__ void sort_in_warp(Corner<C, Index>* list, int count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Corner<C, Index> own[kEach];
  int ranks[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int i = k * 32 + lane;
    own[k] = {~Index{0}, C(0)};
    if (i < count) own[k] = list[i];
    ranks[k] = 0;
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int others = count - k * 32 < 32 ? count - k * 32 : 32;
    for (int other = 0; other < others; ++other) {
      const Index number = __shfl_sync(kFullWarp, own[k].number, other);
#pragma unroll
      for (int j = 0; j < kEach; ++j) ranks[j] += number < own[j].number;
    }
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    if (k * 32 + lane < count) list[ranks[k]] = own[k];
  }
}

template <typename C, typename Index>
__global__ void __launch_bounds__(kListThreads) sort_short_lists(int64_t pixels, Storage<C, Index> s) {
  for (int64_t pixel = grid_thread() / 32; pixel < pixels; pixel += grid_threads() / 32) {
    const Index found = s.counts[pixel];
    if (found < 2 || found > kShortList) continue;
    const int count = static_cast<int>(found);
    Corner<C, Index>* const list = s.listed + s.starts[pixel];
    if (count <= 32) {
      sort_in_warp<1>(list, count);
    } else if (count <= 64) {
      sort_in_warp<2>(list, count);
    } else {
      sort_in_warp<kShortList / 32>(list, count);
    }
  }
}

// A block each, in linear time: their numbers, with which the weights are found again.
template <typename T, typename Index>
__global__ void __launch_bounds__(grid_sample::kSortThreads<Index>)
    sort_long_lists(const __grid_constant__ Problem p, const __grid_constant__ InputBuffers<T> b,
                    Storage<Compute<T>, Index> s) {
  using C = Compute<T>;
  __shared__ grid_sample::SortShared<Index> shared;
  const int64_t lists = static_cast<int64_t>(s.totals->long_lists);
  for (int64_t job = blockIdx.x; job < lists; job += gridDim.x) {
    const int64_t pixel = s.long_lists[job], count = static_cast<int64_t>(s.counts[pixel]);
    Corner<C, Index>* const list = s.listed + s.starts[pixel];
    Index* const numbers = reinterpret_cast<Index*>(s.slots) + s.starts[pixel];
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) numbers[i] = list[i].number;
    __syncthreads();
    grid_sample::sort_by_digits(numbers, reinterpret_cast<Index*>(list), count, kCorners * p.samples, shared);
    __syncthreads();
    const int64_t first_sample = pixel / p.pixels * p.samples;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      const Index number = numbers[i];
      const SamplePlace place(first_sample + static_cast<int64_t>(number / kCorners), p);
      const Taps<C> taps = place.taps(place.locate(b.offset, p), b.mask, p);
      C weight = C(0);
#pragma unroll
      for (int corner = 0; corner < kCorners; ++corner) {
        if (static_cast<int>(number % kCorners) == corner) weight = taps.weight[corner];
      }
      list[i] = {number, weight};
    }
    __syncthreads();  // the next list's numbers are sorted in the same shared memory
  }
}

}  // namespace
}  // namespace baracuda::deform_im2col
