// SPDX-License-Identifier: Apache-2.0
// Brings boxes into the order of their scores on CUDA: CTAs sort tiles of records, then each record looks up in every
// tile how many come before it, which is its rank, and its box is copied there.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/nms/cuda/scratch.cuh"
#include "ops/nms/launch.h"

namespace baracuda::nms {
namespace {

constexpr int kSortThreads = kTile / 2;
constexpr int kPlaceThreads = 256;
// Tiles that a record is looked up in at a time: as many loads are under way.
constexpr int kTilesAtOnce = 4;

// A bitonic sort. The first launch of a call: nothing of it overlaps what the caller has enqueued.
template <typename T, typename I>
__global__ void __launch_bounds__(kSortThreads)
    sort_tiles(const __grid_constant__ Buffers<T, I> b, int32_t num_boxes, Scored<Compute<T>>* tiles) {
  using Record = Scored<Compute<T>>;
  let_kernel_after_start();
  __shared__ Record records[kTile];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile;
  for (int i = threadIdx.x; i < kTile; i += kSortThreads) {
    const int64_t index = first + i;
    records[i] = index < num_boxes ? Record::of(key_of(widen(b.scores[index])), static_cast<int32_t>(index))
                                   : Record::none();
  }
  for (int run = 2; run <= kTile; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      __syncthreads();
      const int low = 2 * static_cast<int>(threadIdx.x) - (static_cast<int>(threadIdx.x) & (distance - 1));
      const int high = low + distance;
      const Record a = records[low], c = records[high];
      // Runs ascend and descend by turns, the last one ascends.
      if ((c < a) == ((low & run) == 0)) {
        records[low] = c;
        records[high] = a;
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTile; i += kSortThreads) {
    if (first + i < num_boxes) tiles[first + i] = records[i];
  }
}

// How many records of all tiles come before this one.
template <typename Record>
__device__ __forceinline__ int32_t rank_of(const Record& record, const Record* __restrict__ tiles, int32_t num_boxes) {
  int32_t rank = 0;
  for (int64_t first = 0; first < num_boxes; first += int64_t{kTilesAtOnce} * kTile) {
    int32_t found[kTilesAtOnce] = {};
#pragma unroll 1
    for (int32_t step = kTile; step > 0; step /= 2) {
#pragma unroll
      for (int k = 0; k < kTilesAtOnce; ++k) {
        // found[k] records of the tile come before this one; are there `step` more?
        const int64_t begin = first + int64_t{k} * kTile;
        const int32_t next = found[k] + step;
        if (next <= kTile && begin + next <= num_boxes && tiles[begin + next - 1] < record) found[k] = next;
      }
    }
#pragma unroll
    for (int k = 0; k < kTilesAtOnce; ++k) rank += found[k];
  }
  return rank;
}

// A thread a box; they also clear the words of `gone` and the marks.
template <bool kScores, typename T, typename I>
__global__ void __launch_bounds__(kPlaceThreads)
    place_boxes(const __grid_constant__ Buffers<T, I> b, int32_t num_boxes,
                const __grid_constant__ Scratch<Compute<T>> to) {
  using C = Compute<T>;
  if constexpr (kScores) wait_for_kernel_before();
  let_kernel_after_start();
  const int64_t i = grid_thread();
  if (i < ceil_div(num_boxes, kWordBits)) to.decisions.gone[i] = 0;
  if (i >= num_boxes) return;
  if (i < kBlockBoxes) to.decisions.marks[i] = {};
  int32_t index = static_cast<int32_t>(i), rank = index;
  if constexpr (kScores) {
    const Scored<C> record = to.tiles[i];
    index = record.index();
    rank = rank_of(record, to.tiles, num_boxes);
    to.ranked.indices[rank] = index;
    if (b.class_ids != nullptr) to.ranked.class_ids[rank] = static_cast<int64_t>(b.class_ids[index]);
  }
  const Box<C> box = read_box(b.boxes, index);
  to.ranked.boxes[rank] = box;
  to.ranked.areas[rank] = area_of(box);
}

template <typename T, typename I>
Status enqueue_order(const Problem& p, const Buffers<T, I>& b, const Scratch<Compute<T>>& scratch, Stream stream) {
  const uint32_t blocks = blocks_for(p.num_boxes, kPlaceThreads);
  if (!p.has_scores) {
    return launch_kernel("nms copy kernel", place_boxes<false, T, I>, blocks, kPlaceThreads, 0, stream, b, p.num_boxes,
                         scratch);
  }
  BARACUDA_RETURN_IF_FAILED(launch_kernel("nms sort kernel", sort_tiles<T, I>, blocks_for(p.num_boxes, kTile),
                                          kSortThreads, 0, stream, b, p.num_boxes, scratch.tiles));
  return launch_early("nms place kernel", place_boxes<true, T, I>, blocks, kPlaceThreads, 0, stream, b, p.num_boxes,
                      scratch);
}

}  // namespace
}  // namespace baracuda::nms
