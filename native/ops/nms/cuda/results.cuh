// SPDX-License-Identifier: Apache-2.0
// Writes on CUDA what is kept: the mask by index, the indices by rank, and the count.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/nms/cuda/scratch.cuh"
#include "ops/nms/launch.h"

namespace baracuda::nms {
namespace {

constexpr int kResultThreads = 256;

template <typename I>
struct Results {
  I* keep;  // where the problem has scores
  int32_t* count;
  uint8_t* keep_mask;
};

// A thread a rank; `indices` is NULL where a box's rank is its index.
template <typename I>
__global__ void __launch_bounds__(kResultThreads)
    write_results(int32_t num_boxes, const int32_t* indices, const __grid_constant__ Decisions decisions,
                  const __grid_constant__ Results<I> results) {
  wait_for_kernel_before();
  const int64_t rank = grid_thread();
  if (rank >= num_boxes) return;
  const int64_t last = (int64_t{num_boxes} - 1) / kWordBits, word = rank / kWordBits;
  const int bit = static_cast<int>(rank % kWordBits);
  const int32_t count = decisions.before[last] + __popcll(decisions.kept[last]);
  const Word kept = decisions.kept[word];
  const bool is_kept = (kept >> bit & 1) != 0;
  const int32_t index = indices != nullptr ? indices[rank] : static_cast<int32_t>(rank);
  results.keep_mask[index] = is_kept ? 1 : 0;
  if (results.keep != nullptr) {
    if (is_kept) results.keep[decisions.before[word] + __popcll(kept & lowest(bit))] = static_cast<I>(index);
    if (rank >= count) results.keep[rank] = static_cast<I>(kNoBox);
  }
  if (rank == 0) *results.count = count;
}

template <typename T, typename I>
Status enqueue_results(const Problem& p, const Buffers<T, I>& b, const Scratch<Compute<T>>& scratch, Stream stream) {
  const int32_t* const indices = p.has_scores ? scratch.ranked.indices : nullptr;
  I* const keep = p.has_scores ? b.keep : nullptr;
  return launch_early("nms result kernel", write_results<I>, blocks_for(p.num_boxes, kResultThreads), kResultThreads, 0,
                      stream, p.num_boxes, indices, scratch.decisions, Results<I>{keep, b.count, b.keep_mask});
}

}  // namespace
}  // namespace baracuda::nms
