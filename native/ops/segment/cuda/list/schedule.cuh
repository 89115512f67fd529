// SPDX-License-Identifier: Apache-2.0
// How the sorted list is shared out among warps. The pieces of long segments come first: a piece of 256 rows that began
// last would keep the whole GPU waiting. Short segments follow in windows of ranks.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/integer_math.h"
#include "ops/segment/cuda/state.cuh"

namespace baracuda::segment {
namespace {

// Rows of a segment that is a long one, and ranks of a window of short ones.
constexpr int32_t kLongBits = 6;
constexpr int32_t kLeastWindowBits = 3;
constexpr int32_t kMostWindowBits = 5;
static_assert(kMostWindowBits <= kShortPieceBits && kMostWindowBits <= kLongBits);

// How the list is shared out: `lanes` threads, a power of two, are a group. They take a piece's rows together, or those
// of a window. A warp's groups lie side by side.
struct ListShape {
  int32_t lane_bits;
  int32_t window_bits;
  int32_t long_bits;      // a segment of more rows is a long one
  int32_t column_blocks;  // of lanes * V columns
  int64_t long_tasks;     // of one warp each: groups' spans of a piece's length, in which pieces of long ones begin
  int64_t tasks;          // these and the windows

  // Windows are longer where the shortest ones would make more tasks than `many`.
  ListShape(const List& list, int32_t d, int columns, int64_t many)
      : lane_bits(0), window_bits(kLeastWindowBits),
        long_bits(list.piece_bits < kLongBits ? list.piece_bits : kLongBits) {
    while (lane_bits < 5 && lanes() * columns < d) ++lane_bits;
    // Half as many lanes, if fewer of them have no column then.
    const bool wastes = blocks_of(d, columns << 4) < 2 * blocks_of(d, columns << 5);
    if (lane_bits == 5 && (columns << 4) >= kLeastColumns && wastes) lane_bits = 4;
    column_blocks = blocks_of(d, columns << lane_bits);
    while (window_bits < kMostWindowBits && tasks_of(list.n, window_bits) > many) ++window_bits;
    long_tasks = list.n > 1 << long_bits ? tasks_of(list.n, list.piece_bits) : 0;
    tasks = long_tasks + tasks_of(list.n, window_bits);
  }
  BARACUDA_HD int32_t lanes() const { return 1 << lane_bits; }
  BARACUDA_HD int32_t groups() const { return 32 >> lane_bits; }
  // Tasks of a launch that goes through all windows as long as a segment that is not long.
  BARACUDA_HD int64_t finish_tasks(int32_t n) const { return tasks_of(n, long_bits); }
  // Words that count the pieces that are kept.
  static int64_t counters(int32_t n, int32_t piece_bits, int32_t d) {
    return ((int64_t{n} >> piece_bits) + 1) * blocks_of(d, kLeastColumns);
  }
  // Shared memory of a block for what find_ranges() finds.
  size_t shared_bytes() const;

 private:
  // Columns of a block that is not the only one.
  static constexpr int32_t kLeastColumns = 32;

  static int32_t blocks_of(int32_t d, int32_t columns) {
    return static_cast<int32_t>(ceil_div(d, columns));
  }
  BARACUDA_HD int64_t tasks_of(int64_t n, int32_t bits) const {
    return groups_of<int64_t>(groups_of_bits(n, bits), groups()) * column_blocks;
  }
};

// What a warp takes at once: a block of columns of as many spans or windows as it has groups.
struct Place {
  int32_t column_block;
  int32_t column;  // this lane's first; d if it has none
  int64_t first;   // the first group's span or window

  // `at` counts the places of spans or of windows of one length.
  __device__ __forceinline__ Place(const ListShape& shape, int64_t at, int32_t d, int columns) {
    // Divisions of 64 bits are a tenth of a short window's instructions.
    first = shape.column_blocks == 1 ? at : at / shape.column_blocks;
    column_block = static_cast<int32_t>(at - first * shape.column_blocks);
    first *= shape.groups();
    const int64_t lane = threadIdx.x & (shape.lanes() - 1);
    const int64_t mine = ((static_cast<int64_t>(column_block) << shape.lane_bits) + lane) * columns;
    column = mine < d ? static_cast<int32_t>(mine) : d;
  }
};

// A warp's task: pieces of long segments that begin in spans, or short segments that begin in windows.
struct Task : Place {
  bool is_long;

  __device__ __forceinline__ Task(const ListShape& shape, int64_t at, int32_t d, int columns)
      : Place(shape, at < shape.long_tasks ? at : at - shape.long_tasks, d, columns), is_long(at < shape.long_tasks) {}
};

// The tasks of a warp, whose blocks the hardware hands out in ascending order: this one, and every so many.
__device__ __forceinline__ int64_t first_task() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}
__device__ __forceinline__ int64_t task_step() { return static_cast<int64_t>(gridDim.x) * kWarps; }

// The ranks of a piece of a long segment, or of some short segments; of none if `begin` is not below `end`.
struct RankRange {
  int32_t begin, end;
};
// Pieces of long segments that may begin in a span: of the segments that hold the first and the last rank of each of
// its windows, which are as long as a segment that is not long.
constexpr int kMostLongPieces = 2 << (kLongPieceBits - kLongBits);
static_assert(kLongBits >= kShortPieceBits && kLongBits <= kLongPieceBits);

inline size_t ListShape::shared_bytes() const {
  return static_cast<size_t>(kWarps) * groups() * (kMostLongPieces + 1) * sizeof(RankRange);
}

// The piece of a long segment that begins in a window: of the segment of its first rank, or of its last. Rules that
// give each row a result (kTakesAll) take the rows without a segment, too, as if they were one.
template <bool kTakesAll>
__device__ __forceinline__ RankRange find_long_piece(const List& list, int32_t long_bits, int64_t window, bool last) {
  const int64_t window_begin = window << long_bits, next = window_begin + (int64_t{1} << long_bits);
  if (window_begin >= list.n) return {};
  const int32_t begin = static_cast<int32_t>(window_begin), end = static_cast<int32_t>(next < list.n ? next : list.n);
  const int32_t key = list.key(last ? end - 1 : begin);
  const int32_t first = list.begin(key), behind = list.end(key);
  // A segment that holds both ranks is found by the window's first rank alone.
  if (behind - first <= 1 << long_bits || (last && first <= begin)) return {};
  if (!kTakesAll && key == list.num_segments) return {};
  const int32_t piece = first >= begin ? first : first + ((begin - first + list.piece_rows() - 1) & -list.piece_rows());
  if (piece >= end || piece >= behind) return {};
  return {piece, behind - piece < list.piece_rows() ? behind : piece + list.piece_rows()};
}

// The short segments that begin in a window.
template <bool kTakesAll>
__device__ __forceinline__ RankRange short_segments(const List& list, const ListShape& shape, int64_t window) {
  const int64_t window_begin = window << shape.window_bits, window_end = window_begin + (1 << shape.window_bits);
  if (window_begin >= list.n) return {};
  const int32_t begin = static_cast<int32_t>(window_begin), most = 1 << shape.long_bits;
  const int32_t last = window_end < list.n ? static_cast<int32_t>(window_end) - 1 : list.n - 1;
  const int32_t head = list.key(begin), tail = list.key(last);
  const int32_t head_begin = list.begin(head), head_end = list.end(head);
  const int32_t tail_begin = list.begin(tail), tail_end = list.end(tail);
  const bool drops_tail = !kTakesAll && tail == list.num_segments;
  return {head_begin == begin && head_end - head_begin <= most ? begin : head_end,
          drops_tail || tail_end - tail_begin > most ? tail_begin : tail_end};
}

// What the groups of a warp take of a task: the first range of this lane's group; the next ones are as many further as
// a warp has groups, up to an empty one. The groups share the pieces of long segments, so that they go through them
// side by side.
template <bool kTakesAll>
__device__ __forceinline__ const RankRange* find_ranges(const List& list, const ListShape& shape, const Task& task) {
  RankRange* const shared_ranges = dynamic_shared<RankRange>();
  const int32_t lane = threadIdx.x % 32, groups = shape.groups(), group = lane >> shape.lane_bits;
  RankRange* const found = shared_ranges + threadIdx.x / 32 * groups * (kMostLongPieces + 1);
  __syncwarp();
  if (!task.is_long) {
    const RankRange range = short_segments<kTakesAll>(list, shape, task.first + group);
    if ((lane & (shape.lanes() - 1)) == 0) found[group] = range, found[groups + group] = {};
  } else {
    const int32_t of_span = 2 << (list.piece_bits - shape.long_bits), candidates = groups * of_span;
    int32_t count = 0;
#pragma unroll 1
    for (int32_t first = 0; first < candidates; first += 32) {
      const int32_t i = first + lane;
      RankRange piece{};
      if (i < candidates) {
        piece = find_long_piece<kTakesAll>(list, shape.long_bits, (task.first * of_span + i) >> 1, i % 2 != 0);
      }
      const uint32_t with_rows = __ballot_sync(kFullWarp, piece.begin < piece.end);
      if (piece.begin < piece.end) found[count + __popc(with_rows & ((1u << lane) - 1))] = piece;
      count += __popc(with_rows);
    }
    if (lane < groups) found[count + lane] = {};
  }
  __syncwarp();
  return found + group;
}

}  // namespace
}  // namespace baracuda::segment
