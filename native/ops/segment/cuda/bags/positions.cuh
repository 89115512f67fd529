// SPDX-License-Identifier: Apache-2.0
// Positions of bags on CUDA: which row of the table each one names, which bag it is of, how many of a bag take part.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/segment/bags/problem.h"
#include "ops/segment/cuda/columns.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::embedding_bag {
namespace {

using segment::Index;

constexpr int kPositionThreads = 256;

// The rows that positions name.
struct Positions {
  Index indices;
  int32_t padding;  // the row that takes no part, or -1

  Positions(const Problem& p, const void* data, bool wide)
      : indices(data, wide, p.num_embeddings), padding(segment::padding_key(p.padding_idx, p.num_embeddings)) {}

  // -1 of a position that takes no part.
  __device__ __forceinline__ int32_t row(int64_t position) const {
    const int32_t key = indices.key(position);
    return key == indices.num_segments || key == padding ? -1 : key;
  }
};

// What a call finds out on its way; all are 0 at the start.
enum Finding : int32_t {
  kDescends,  // offsets are not in order: all bags are empty
  kCut,       // how many bags of several pieces there are
  kLong,      // whether there is one
  kFindings
};

// Bags as segments whose rows are positions, in order.
struct BagRanks : segment::Pieces {
  Index offsets;             // [num_segments]: the first position of a bag
  const uint32_t* findings;  // [kFindings]

  __device__ __forceinline__ int32_t row(int32_t rank) const { return rank; }
  __device__ __forceinline__ int32_t begin(int32_t key) const { return segment::rank_of_offset(offsets[key], n); }
  __device__ __forceinline__ int32_t end(int32_t key) const { return key + 1 < num_segments ? begin(key + 1) : n; }
  __device__ __forceinline__ int32_t length(int32_t key) const { return end(key) - begin(key); }
  // The last bag that begins at or before a rank, num_segments if there is none.
  __device__ __forceinline__ int32_t key(int32_t rank) const {
    const int32_t begun = segment::offsets_up_to(offsets, num_segments, rank);
    return begun > 0 ? begun - 1 : num_segments;
  }
};

// How many positions of each bag take part: an output, or scratch of 32 bits.
struct Sizes {
  void* data;
  bool wide;

  __device__ __forceinline__ void clear(int64_t bag) const { segment::store_row_index(data, wide, bag, 0); }
  __device__ __forceinline__ void add(int32_t bag, uint32_t count) const {
    if (wide) {
      atomicAdd(static_cast<unsigned long long*>(data) + bag, static_cast<unsigned long long>(count));
    } else {
      atomicAdd(static_cast<unsigned int*>(data) + bag, count);
    }
  }
};

// Zeros, before anything is counted.
__global__ void __launch_bounds__(kPositionThreads) clear_sizes(int32_t num_bags, Sizes sizes, uint32_t* findings) {
  let_kernel_after_start();
  for (int64_t bag = grid_thread(); bag < num_bags; bag += grid_threads()) sizes.clear(bag);
  if (grid_thread() < kFindings) findings[grid_thread()] = 0;
}

__device__ __forceinline__ void look_at_bag(const BagRanks& bags, int32_t bag, uint32_t* findings) {
  if (bag + 1 < bags.num_segments && bags.offsets[bag + 1] < bags.offsets[bag]) findings[kDescends] = 1;
  if (bags.length(bag) > bags.piece_rows()) findings[kLong] = 1;
}
// For bags that need no description.
__global__ void __launch_bounds__(kPositionThreads) look_at_bags(BagRanks bags, uint32_t* findings) {
  wait_for_kernel_before();
  let_kernel_after_start();
  for (int64_t bag = grid_thread(); bag < bags.num_segments; bag += grid_threads()) {
    look_at_bag(bags, static_cast<int32_t>(bag), findings);
  }
}

// Counts the positions of each bag that take part, in integers, whose order does not matter: one addition for
// neighbours of one bag. Writes the bag of each position where somebody wants it.
__global__ void __launch_bounds__(kPositionThreads)
    describe_bags(BagRanks bags, Positions positions, void* bag_ids, Sizes sizes, uint32_t* findings) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const int32_t lane = threadIdx.x % 32;
  const int64_t n = bags.n, items = n > bags.num_segments ? n : bags.num_segments;
  // Whole warps go on together.
#pragma unroll 1
  for (int64_t i = grid_thread(); i - lane < items; i += grid_threads()) {
    if (i < bags.num_segments) look_at_bag(bags, static_cast<int32_t>(i), findings);
    int32_t bag = -1;
    bool takes_part = false;
    if (i < n) {
      const int32_t key = bags.key(static_cast<int32_t>(i));
      bag = key == bags.num_segments ? -1 : key;
      if (bag_ids != nullptr) segment::store_row_index(bag_ids, sizes.wide, i, bag);
      takes_part = bag >= 0 && positions.row(i) >= 0;
    }
    const int32_t before = __shfl_up_sync(kFullWarp, bag, 1);
    const bool begins = lane == 0 || before != bag;
    const uint32_t heads = __ballot_sync(kFullWarp, begins), taking = __ballot_sync(kFullWarp, takes_part);
    if (!begins) continue;
    const uint32_t later = heads & ~(kFullWarp >> (31 - lane));
    const uint32_t run = (later != 0 ? (later & (0u - later)) - 1 : kFullWarp) & (kFullWarp << lane);
    if ((taking & run) != 0) sizes.add(bag, __popc(taking & run));
  }
}

// Where offsets descend all bags are empty, whatever was written before.
__device__ __forceinline__ void undo_descending(const BagRanks& bags, void* bag_ids, const Sizes& sizes) {
  if (bag_ids == nullptr) return;
  for (int64_t i = grid_thread(); i < bags.n; i += grid_threads()) segment::store_row_index(bag_ids, sizes.wide, i, -1);
  for (int64_t bag = grid_thread(); bag < bags.num_segments; bag += grid_threads()) sizes.clear(bag);
}
// For bags without columns, which have no fold that would do it.
__global__ void __launch_bounds__(kPositionThreads) undo_bags(BagRanks bags, void* bag_ids, Sizes sizes) {
  wait_for_kernel_before();
  let_kernel_after_start();
  if (bags.findings[kDescends] != 0) undo_descending(bags, bag_ids, sizes);
}

}  // namespace
}  // namespace baracuda::embedding_bag
