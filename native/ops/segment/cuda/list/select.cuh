// SPDX-License-Identifier: Apache-2.0
// Rules that give a segment's gradient to one of its rows on CUDA, from the sorted list: they need not read rows again.
#pragma once

#include "ops/segment/cuda/list/tasks.cuh"

namespace baracuda::segment {
namespace {

// Blocks a multiprocessor, hence registers a thread: lanes that take wider accesses need the registers, and fewer of
// them have the same bytes in flight.
template <class Tag, int V>
constexpr int kSelectBlocks = sizeof(typename Tag::Element) > 4 && V > 1 ? 8
                              : sizeof(typename Tag::Element) * V > 8    ? 10
                              : V > 2                                     ? 12
                                                                          : 16;
// Rows in flight of a piece that gets zeros.
template <class Tag, int V>
constexpr int kZeroRows = V > 2 && sizeof(typename Tag::Element) * V <= 8 ? 12 : kRowsInFlight;

// Writes the rows of the ranks [begin, end), which are of one segment.
template <int V, class Tag>
__device__ __forceinline__ void finish_rows(const Call<Tag>& call, const List& list, int32_t begin, int32_t end,
                                            int32_t column, const State<Rule<Tag>, V>& state,
                                            const Columns<typename Tag::Element, V>& segment) {
#pragma unroll 1
  for (int32_t rank = begin; rank < end; ++rank) call.template finish_row<V>(list.row(rank), column, state, segment);
}

// Whole segments, whose rows are written where the segment ends: that is code for each row of a batch, and what is
// needed to load ahead would not fit the instruction cache beside it.
template <class Tag, int V>
__device__ __forceinline__ void select_in_segments(const Call<Tag>& call, const List& list, int32_t piece,
                                                   int32_t stop, int32_t column) {
  using T = typename Tag::Element;
  if (piece >= stop) return;
  int32_t key = list.key(piece);
  State<Rule<Tag>, V> state{};
  Columns<T, V> segment = call.template of_segment<V>(key, column);
#pragma unroll 1
  for (int32_t batch = piece; batch < stop; batch += kRowsInFlight) {
    Record records[kRowsInFlight + 1];
    Words<T, V> values[kRowsInFlight];
#pragma unroll
    for (int u = 0; u <= kRowsInFlight; ++u) {
      records[u] = batch + u < list.n ? list.records[batch + u] : Record{-1, 0};
    }
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      // Without a branch: the loads are issued together.
      values[u] = Words<T, V>{};
      if (batch + u < stop) values[u] = load_words_once<V>(call.x + call.place(records[u].row, column));
    }
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const int32_t next = batch + u + 1;
      if (next > stop) break;
      const Columns<T, V> row = bits_as<Columns<T, V>>(values[u]);
      state.add(row, row, records[u].row, next - 1 == piece);
      if (records[u + 1].key == key) continue;
      finish_rows(call, list, piece, next, column, state, segment);
      piece = next;
      key = records[u + 1].key;
      // Read as early as possible: the piece's rows are on their way.
      if (next != stop) segment = call.template of_segment<V>(key, column);
    }
  }
}

// Rows of segments of several pieces get zeros as they are read: few get more, by the join, which knows them. Whole
// segments are finished at once.
template <class Tag, int V>
__global__ void __launch_bounds__(kThreads, (kSelectBlocks<Tag, V>))
    select_in_list(Call<Tag> call, ListShape shape, List list, Parts<Rule<Tag>> parts, CutSegments cut, int64_t tasks) {
  static_assert(!Call<Tag>::kReduces && Rule<Tag>::kRows == 1 && !Rule<Tag>::kReadsRowsAgain);
  wait_for_kernel_before();
  let_kernel_after_start();
  take_tasks<V>(call, shape, list, tasks, [&](const Task& task, RankRange range) {
    const int32_t key = list.key(range.begin), without = list.begin(list.num_segments);
    if (task.is_long && range.end - range.begin != list.length(key)) {
      // A piece of several, or rows without a segment.
      const bool dropped = key == list.num_segments;
      const auto state = zero_rows<V, kZeroRows<Tag, V>>(call, list, range.begin, range.end, task.column, !dropped);
      if (!dropped) {
        keep_part(parts, cut, list, call.d, key, range.begin, list.begin(key) == range.begin, task.column, state);
      }
      return;
    }
    select_in_segments<Tag, V>(call, list, range.begin, range.end < without ? range.end : without, task.column);
#pragma unroll 1
    for (int32_t rank = range.begin > without ? range.begin : without; rank < range.end; ++rank) {
      call.template drop_row<V>(list.row(rank), task.column);
    }
  });
}

}  // namespace
}  // namespace baracuda::segment
