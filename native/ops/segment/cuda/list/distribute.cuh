// SPDX-License-Identifier: Apache-2.0
// Rules with long formulas, and those that read a segment's rows again once they are folded, on CUDA: a group of lanes
// takes its pieces one after the other. The rows of a short piece are still in registers when its state is known, those
// of a longer one in a cache. Formulas appear once each in the code: unrolled over rows of several segments they would
// not fit the instruction cache.
#pragma once

#include "ops/segment/cuda/batch.cuh"
#include "ops/segment/cuda/list/tasks.cuh"

namespace baracuda::segment {
namespace {

// Blocks a multiprocessor, hence registers a thread: for a batch of one tensor or of two.
template <class Tag>
constexpr int kSingleBlocks = sizeof(typename Tag::Element) > 4 ? 8
                              : Call<Tag>::kReduces             ? 16
                              : Rule<Tag>::kRows > 1            ? 10
                                                                 : 12;

// The segments of some ranks, or a piece of one.
template <class Tag, int V>
__device__ __forceinline__ void distribute_range(const Call<Tag>& call, const List& list,
                                                 const Parts<Rule<Tag>>& parts, const CutSegments& cut, RankRange range,
                                                 int32_t column) {
  using T = typename Tag::Element;
#pragma unroll 1
  for (int32_t piece = range.begin, next; piece < range.end; piece = next) {
    Batch<Tag, V> batch;
    // The first rows are fetched before it is known how many the piece has: those of other segments are not wanted.
    Record records[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      records[u] = piece + u < range.end ? list.records[piece + u] : Record{-1, 0};
    }
    const int32_t key = records[0].key;
    int32_t count = 0;
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      count += records[u].key == key ? 1 : 0;
      batch.rows[u] = records[u].row;
    }
    if (!Call<Tag>::kReduces && key == list.num_segments) {
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        if (u < count) call.template drop_row<V>(batch.rows[u], column);
      }
      next = piece + count;
      continue;
    }
    batch.load_values(call, column, count);
    const int32_t segment_begin = list.begin(key), segment_end = list.end(key);
    const Columns<T, V> segment = call.template of_segment<V>(key, column);
    next = segment_end - piece < list.piece_rows() ? segment_end : piece + list.piece_rows();
    auto state = state_of_none<Rule<Tag>, V>();
    const int32_t at = fold_ranks<kFetchesAhead<Tag>>(call, list, piece, next, column, batch, count, state);
    if (segment_begin != piece || segment_end != next) {
      keep_part(parts, cut, list, call.d, key, piece, segment_begin == piece, column, state);
      continue;
    }
    if constexpr (Call<Tag>::kReduces) {
      call.template finish_segment<V>(key, column, state, next - piece);
    } else {
      finish_ranks(call, list, piece, at, column, batch, count, state, segment);
    }
  }
}

template <class Tag, int V>
__global__ void __launch_bounds__(kThreads, kSingleBlocks<Tag>)
    distribute_list(Call<Tag> call, ListShape shape, List list, Parts<Rule<Tag>> parts, CutSegments cut,
                    int64_t tasks) {
  wait_for_kernel_before();
  let_kernel_after_start();
  take_tasks<V>(call, shape, list, tasks, [&](const Task& task, RankRange range) {
    distribute_range<Tag, V>(call, list, parts, cut, range, task.column);
  });
}

// Writes the rows of segments of several pieces, which are longer than a window: only the segments that hold its first
// and its last rank can be such.
template <class Tag, int V>
__global__ void __launch_bounds__(kThreads, kSingleBlocks<Tag>)
    distribute_parts(Call<Tag> call, ListShape shape, List list, Parts<Rule<Tag>> parts) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const int32_t group = static_cast<int32_t>(threadIdx.x % 32) >> shape.lane_bits;
  const int64_t tasks = shape.finish_tasks(list.n);
  for (int64_t at = first_task(); at < tasks; at += task_step()) {
    const Place place(shape, at, call.d, V);
    const int64_t window_begin = (place.first + group) << shape.long_bits;
    if (window_begin >= list.n || place.column >= call.d) continue;
    const int64_t window_end = window_begin + (int64_t{1} << shape.long_bits);
    const int32_t begin = static_cast<int32_t>(window_begin);
    const int32_t end = window_end < list.n ? static_cast<int32_t>(window_end) : list.n;
    const int32_t head = list.key(begin), tail = list.key(end - 1);
#pragma unroll 1
    for (int32_t key = head;; key = tail) {
      if (list.in_pieces(key)) {
        const int32_t first = list.begin(key), last = list.end(key);
        const int32_t stop = last < end ? last : end;
        const auto state = load_part<V>(parts, list.slot(first, true) * call.d + place.column);
        const auto segment = call.template of_segment<V>(key, place.column);
#pragma unroll 1
        for (int32_t rank = first > begin ? first : begin; rank < stop; rank += kRowsInFlight) {
          Batch<Tag, V> batch;
          const int32_t count = stop - rank < kRowsInFlight ? stop - rank : kRowsInFlight;
          batch.load(call, list, rank, count, place.column);
          batch.finish(call, list, state, segment, rank, count, place.column);
        }
      }
      if (key == tail) break;
    }
  }
}

}  // namespace
}  // namespace baracuda::segment
