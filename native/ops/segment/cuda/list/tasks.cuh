// SPDX-License-Identifier: Apache-2.0
// How a warp goes through its tasks of a sorted list, and what it does when no rows are left: it fills the results of
// segments that have none.
#pragma once

#include "core/integer_math.h"
#include "ops/segment/cuda/call.cuh"
#include "ops/segment/cuda/list/schedule.cuh"

namespace baracuda::segment {
namespace {

// Segments without rows are filled last, by warps that have no rows any more. Each lane looks at some segments; the
// warp fills some columns of those that are empty.
constexpr int64_t kFillColumns = 4096;
constexpr int kFillRounds = 4;
constexpr int64_t kFillSegments = 32 * kFillRounds;

template <class Tag>
int64_t fill_tasks(const Call<Tag>& call) {
  if (!Call<Tag>::kReduces) return 0;
  const int64_t column_blocks = groups_of<int64_t>(call.d, kFillColumns);
  return groups_of<int64_t>(call.num_segments, kFillSegments) * column_blocks;
}
template <class Tag>
__device__ __forceinline__ void fill_empty(const Call<Tag>& call, const List& list, int64_t task) {
  const int lane = threadIdx.x % 32;
  const int64_t column_blocks = groups_of<int64_t>(call.d, kFillColumns);
  const int64_t at = column_blocks == 1 ? task : task / column_blocks;
  const int64_t column = (task - at * column_blocks) * kFillColumns;
  const int64_t end = column + kFillColumns < call.d ? column + kFillColumns : call.d;
#pragma unroll 1
  for (int64_t first = at * kFillSegments; first < (at + 1) * kFillSegments; first += 32) {
    const int64_t mine = first + lane;
    const bool empty = mine < list.num_segments && list.length(static_cast<int32_t>(mine)) <= 0;
    for (uint32_t left = __ballot_sync(kFullWarp, empty); left != 0; left &= left - 1) {
      const int64_t row = (first + __ffs(left) - 1) * call.d;
#pragma unroll 2
      for (int64_t k = column + lane; k < end; k += 32) {
        call.result[row + k] = call.of_no_rows;
        if (call.result_arg != nullptr) store_row_index(call.result_arg, call.wide, row + k, -1);
      }
    }
  }
}

// Goes through a warp's tasks: take(task, range) takes a piece of a long segment, or some short segments. `tasks` are
// the shape's and, behind them, those that fill.
template <int V, class Tag, class Take>
__device__ __forceinline__ void take_tasks(const Call<Tag>& call, const ListShape& shape, const List& list,
                                           int64_t tasks, const Take& take) {
#pragma unroll 1
  for (int64_t at = first_task(); at < tasks; at += task_step()) {
    if constexpr (Call<Tag>::kReduces) {
      if (at >= shape.tasks) {
        fill_empty(call, list, at - shape.tasks);
        continue;
      }
    }
    const Task task(shape, at, call.d, V);
    const RankRange* range = find_ranges<!Call<Tag>::kReduces>(list, shape, task);
    if (task.column >= call.d) continue;
#pragma unroll 1
    for (; range->begin < range->end; range += shape.groups()) take(task, *range);
  }
}

}  // namespace
}  // namespace baracuda::segment
