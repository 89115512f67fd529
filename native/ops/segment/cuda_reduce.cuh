// SPDX-License-Identifier: Apache-2.0
// Reductions of the sorted list on CUDA that are limited by memory. The pieces of long segments come first: a piece of
// 256 rows that began last would keep the whole GPU waiting. Short segments follow in windows of ranks.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/segment/cuda_pieces.cuh"

namespace baracuda::segment {
namespace {

// The tasks of a warp: one by its place in the grid; where there are more than the GPU has places for warps, then
// whichever nobody has taken yet, since a piece may have 256 rows and its neighbours few.
struct Turns {
  int64_t tasks;
  uint32_t* taken;  // [1], 0 at the start; NULL where the grid has a warp for each task

  __device__ __forceinline__ int64_t first() const {
    return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  }
  // Asked before a task and answered behind it, by all lanes: nobody waits for the answer.
  __device__ __forceinline__ uint32_t ask() const {
    return taken != nullptr && threadIdx.x % 32 == 0 ? atomicAdd(taken, 1u) : 0;
  }
  __device__ __forceinline__ int64_t next(uint32_t answer) const {
    if (taken == nullptr) return tasks;
    return static_cast<int64_t>(gridDim.x) * kWarps + __shfl_sync(0xffffffffu, answer, 0);
  }
};

// Enqueues a kernel whose warps take turns; so many of its blocks fit a multiprocessor.
template <typename... Parameters, typename... Arguments>
Status enqueue_turns(const char* name, void (*kernel)(Turns, Parameters...), int blocks, int64_t tasks,
                     uint32_t* taken, size_t shared_bytes, Stream stream, Arguments... arguments) {
  DeviceTraits device{};
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  const uint32_t places = static_cast<uint32_t>(device.multiprocessors * blocks), all = blocks_for(tasks, kWarps);
  const Turns turns{tasks, all > places ? taken : nullptr};
  return launch_early(name, kernel, turns.taken != nullptr ? places : all, kThreads, shared_bytes, stream, turns,
                      arguments...);
}

// Words of a call that are 0 before its rows are folded; reductions have one more for each segment of several pieces
// and each block of columns.
enum Word : int32_t {
  kCutCount,
  kTurns,
  kWords
};

// Pieces of a segment that are joined by whoever keeps the last one, which hides that behind the rows of others.
constexpr int32_t kJoinedAtOnce = 64;

// Rows of a segment that is a long one, and ranks of a window of short ones.
constexpr int32_t kLongBits = 6;
constexpr int32_t kMostWindowBits = 5;
static_assert(kMostWindowBits <= kShortPieceBits && kMostWindowBits <= kLongBits);

// How the list is shared out: `lanes` threads, a power of two, take a piece's rows together, or those of a window.
struct ReduceShape {
  int32_t lane_bits;
  int32_t window_bits;
  int32_t long_bits;      // a segment of more rows is a long one
  int32_t span_bits;      // ranks in which a group looks for pieces of long ones
  int32_t column_blocks;  // of lanes * V columns
  int64_t long_tasks;     // of one warp each: long segments
  int64_t tasks;          // these and the windows

  ReduceShape(const List& list, int32_t d, int columns) : lane_bits(0), window_bits(kShortWindowBits) {
    while (lane_bits < 5 && lanes() * columns < d) ++lane_bits;
    column_blocks = static_cast<int32_t>((int64_t{d} + lanes() * columns - 1) / (lanes() * columns));
    long_bits = list.piece_bits < kLongBits ? list.piece_bits : kLongBits;
    while (window_bits < kMostWindowBits && tasks_of(list.n, window_bits) > kManyTasks) ++window_bits;
    span_bits = list.piece_bits > long_bits ? list.piece_bits - 1 : list.piece_bits;
    long_tasks = list.n > 1 << long_bits ? tasks_of(list.n, span_bits) : 0;
    tasks = long_tasks + tasks_of(list.n, window_bits);
  }
  BARACUDA_HD int32_t lanes() const { return 1 << lane_bits; }
  BARACUDA_HD int32_t groups() const { return 32 >> lane_bits; }
  // Words that count the pieces that are kept.
  static int64_t counters(int32_t n, int32_t piece_bits, int32_t d) {
    return ((int64_t{n} >> piece_bits) + 1) * ((int64_t{d} + kLeastColumns - 1) / kLeastColumns);
  }

 private:
  // Columns of a block that is not the only one.
  static constexpr int32_t kLeastColumns = 32;
  // Tasks that fill a GPU: with more, windows are longer.
  static constexpr int64_t kManyTasks = 1 << 12;

  int64_t tasks_of(int64_t n, int32_t bits) const {
    const int64_t windows = (n + (int64_t{1} << bits) - 1) >> bits;
    return (windows + groups() - 1) / groups() * column_blocks;
  }
};

// Some consecutive records. What is there instead of records behind the last one is one of those before.
struct Records {
  Record at[kRowsInFlight];

  __device__ __forceinline__ void load(const List& list, int32_t rank) {
    if (rank <= list.n - kRowsInFlight) {
      // From one address on.
      const Record* records = list.records + rank;
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) at[u] = records[u];
    } else {
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) at[u] = list.records[rank + u < list.n ? rank + u : list.n - 1];
    }
  }
  // Bit u: whether a record's key is not that of the next one.
  __device__ __forceinline__ uint32_t changes() const {
    uint32_t changes = 0;
#pragma unroll
    for (int u = 0; u + 1 < kRowsInFlight; ++u) changes |= at[u].key != at[u + 1].key ? 1u << u : 0;
    return changes;
  }
};

// Rows of consecutive ranks.
template <class Name, int V>
struct Rows {
  using T = typename Name::Element;
  static constexpr bool kHoldsRows = std::is_same_v<typename Rule<Name>::Second, int32_t>;
  Words<T, V> values[kRowsInFlight] = {};
  int32_t rows[kHoldsRows ? kRowsInFlight : 1];

  __device__ __forceinline__ void load(const Side<Name>& side, const Records& records, int32_t count, int32_t column) {
    const T* x = side.x + column;
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const Record record = records.at[u];
      if constexpr (kHoldsRows) rows[u] = record.row;
      if (u < count) values[u] = load_words_once<V>(x + side.place(record.row, 0));
    }
  }
  __device__ __forceinline__ int32_t row(int u) const { return kHoldsRows ? rows[kHoldsRows ? u : 0] : 0; }
};

// A piece of a long segment; of none if it has no rows.
struct LongPiece {
  int32_t key, begin, end;
};
// Such pieces that may begin in a piece's length of the list: of the segments that hold the first and the last rank of
// each of its windows, which are as long as a segment that is not long.
constexpr int kMostLongPieces = 2 << (kLongPieceBits - kLongBits);
static_assert(kLongBits >= kShortPieceBits);

__device__ __forceinline__ LongPiece find_long_piece(const List& list, int32_t long_bits, int64_t window, bool last) {
  const int64_t window_begin = window << long_bits, next = window_begin + (int64_t{1} << long_bits);
  if (window_begin >= list.n) return {};
  const int32_t begin = static_cast<int32_t>(window_begin), end = static_cast<int32_t>(next < list.n ? next : list.n);
  const int32_t key = list.key(last ? end - 1 : begin);
  const int32_t first = list.begin(key), behind = list.end(key);
  // A segment that holds both ranks is that of the first one.
  if (key == list.num_segments || behind - first <= 1 << long_bits || (last && first <= begin)) return {};
  const int32_t piece = first >= begin ? first : first + ((begin - first + list.piece_rows() - 1) & -list.piece_rows());
  if (piece >= end || piece >= behind) return {};
  return {key, piece, behind - piece < list.piece_rows() ? behind : piece + list.piece_rows()};
}

// Folds a piece of one segment.
template <class Name, int V>
__device__ __forceinline__ State<Rule<Name>, V> fold_piece(const Side<Name>& side, const List& list, int32_t begin,
                                                           int32_t end, int32_t column) {
  using T = typename Name::Element;
  Records records;
  records.load(list, begin);
  State<Rule<Name>, V> state;
  state.none(records.at[0].row);
  Rows<Name, V> rows;
#pragma unroll 1
  for (int32_t batch = begin; batch < end; batch += kRowsInFlight) {
    rows.load(side, records, end - batch, column);
    const int32_t next = batch + kRowsInFlight;
    records.load(list, next < list.n ? next : list.n - 1);
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      if (batch + u >= end) break;
      const Columns<T, V> row = bits_as<Columns<T, V>>(rows.values[u]);
      state.add(row, row, rows.row(u), false);
    }
  }
  return state;
}

// Folds the short segments that begin in a window. While some rows are folded, the records of the next ones are on
// their way.
template <class Name, int V>
__device__ __forceinline__ void reduce_window(const Side<Name>& side, const ReduceShape& shape, const List& list,
                                              int64_t window, int32_t column) {
  using T = typename Name::Element;
  const int64_t window_begin = window << shape.window_bits, window_end = window_begin + (1 << shape.window_bits);
  if (window_begin >= list.n) return;
  const int32_t begin = static_cast<int32_t>(window_begin), most = 1 << shape.long_bits;
  const int32_t last = window_end < list.n ? static_cast<int32_t>(window_end) - 1 : list.n - 1;
  const int32_t head = list.key(begin), tail = list.key(last);
  const int32_t head_begin = list.begin(head), head_end = list.end(head);
  const int32_t tail_begin = list.begin(tail), tail_end = list.end(tail);
  int32_t first = head_begin == begin && head_end - head_begin <= most ? begin : head_end;
  const int32_t end = tail == list.num_segments || tail_end - tail_begin > most ? tail_begin : tail_end;
  if (first >= end) return;
  Records records;
  records.load(list, first);
  int32_t key = records.at[0].key;
  State<Rule<Name>, V> state;
  state.none(records.at[0].row);
  Rows<Name, V> rows;
  rows.load(side, records, end - first, column);
  uint32_t ends = records.changes();
  int32_t last_key = records.at[kRowsInFlight - 1].key;
  records.load(list, first + kRowsInFlight < list.n ? first + kRowsInFlight : list.n - 1);
#pragma unroll 1
  for (int32_t batch = first;; batch += kRowsInFlight) {
    const int32_t left = end - batch;
    ends |= last_key != records.at[0].key ? 1u << (kRowsInFlight - 1) : 0;
    // What is folded behind the last row does not count.
    if (left <= kRowsInFlight) ends = (ends & ((1u << left) - 1)) | 1u << (left - 1);
    const int32_t next_row = records.at[0].row;
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const Columns<T, V> row = bits_as<Columns<T, V>>(rows.values[u]);
      state.add(row, row, rows.row(u), false);
      if ((ends >> u & 1) == 0) continue;
      const int32_t next = batch + u + 1;
      side.template finish_segment<V>(key, column, state, next - first);
      first = next;
      key = list.key(next < end ? next : end - 1);
      state.none(u + 1 < kRowsInFlight ? rows.row(u + 1) : next_row);
    }
    if (left <= kRowsInFlight) return;
    rows.load(side, records, left - kRowsInFlight, column);
    ends = records.changes();
    last_key = records.at[kRowsInFlight - 1].key;
    const int32_t after = batch + 2 * kRowsInFlight;
    records.load(list, after < list.n ? after : list.n - 1);
  }
}

// Blocks a multiprocessor. More loads on their way than memory answers at once do not make it faster, but let a long
// piece, which has as many as any other, fall behind.
template <class Name, int V>
constexpr int kReduceBlocks = sizeof(typename Name::Element) * V > 8 ? 8 : 12;

// Keeps a piece's state; if no other piece of its segment is missing, joins them and finishes the segment.
template <class Name, int V>
__device__ __forceinline__ void keep_piece(const Side<Name>& side, const ReduceShape& shape, const List& list,
                                           const Parts<Rule<Name>>& parts, const Cuts& cuts, uint32_t* kept,
                                           const LongPiece& piece, int32_t column_block, int32_t column,
                                           const State<Rule<Name>, V>& state) {
  const int32_t first = list.begin(piece.key), rows = list.end(piece.key) - first;
  const int32_t pieces = (rows + list.piece_rows() - 1) >> list.piece_bits;
  store_part(parts, list.slot(piece.begin, first == piece.begin) * side.d + column, state);
  if (pieces > kJoinedAtOnce) {
    if (first == piece.begin && column == 0) cuts.add(piece.key);
    return;
  }
  const int32_t lane = threadIdx.x % 32, leader = lane >> shape.lane_bits << shape.lane_bits;
  const int32_t left = (side.d - (column_block << shape.lane_bits) * V + V - 1) / V;
  const uint32_t lanes = 0xffffffffu >> (32 - (left < shape.lanes() ? left : shape.lanes())) << leader;
  __threadfence();
  __syncwarp(lanes);
  uint32_t before = 0;
  if (lane == leader) {
    before = atomicAdd(kept + static_cast<int64_t>(first >> list.piece_bits) * shape.column_blocks + column_block, 1u);
  }
  before = __shfl_sync(lanes, before, leader);
  if (before + 1 != static_cast<uint32_t>(pieces)) return;
  __threadfence();
  const auto part = [&](int32_t at) {
    return load_kept_part<V>(parts, list.slot(first + (at << list.piece_bits), at == 0) * side.d + column);
  };
  auto all = part(0);
#pragma unroll 1
  for (int32_t batch = 1; batch < pieces; batch += kRowsInFlight) {
    State<Rule<Name>, V> later[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) later[u] = part(batch + u < pieces ? batch + u : pieces - 1);
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      if (batch + u < pieces) all.join(later[u]);
    }
  }
  side.template finish_segment<V>(piece.key, column, all, rows);
}

template <class Name, int V>
__global__ void __launch_bounds__(kThreads, (kReduceBlocks<Name, V>))
    reduce_list(Turns turns, Side<Name> side, ReduceShape shape, List list, Parts<Rule<Name>> parts, Cuts cuts,
                uint32_t* kept) {
  static_assert(Side<Name>::kReduces && Rule<Name>::kRows == 1);
  extern __shared__ LongPiece long_pieces[];
  wait_for_kernel_before();
  let_kernel_after_start();
  const int32_t lane = threadIdx.x % 32, group = lane >> shape.lane_bits;
  LongPiece* const of_warp = long_pieces + threadIdx.x / 32 * shape.groups() * kMostLongPieces;
  uint32_t answer;
  for (int64_t turn = turns.first(); turn < turns.tasks; turn = turns.next(answer)) {
    answer = turns.ask();
    if (turn >= shape.tasks) {
      fill_empty(side, list, turn - shape.tasks);
      continue;
    }
    const bool is_long = turn < shape.long_tasks;
    const int64_t task = is_long ? turn : turn - shape.long_tasks;
    const int64_t at = shape.column_blocks == 1 ? task : task / shape.column_blocks;
    const int32_t column_block = static_cast<int32_t>(task - at * shape.column_blocks);
    const int64_t column = static_cast<int64_t>((column_block << shape.lane_bits) + (lane & (shape.lanes() - 1))) * V;
    if (!is_long) {
      if (column < side.d) {
        reduce_window<Name, V>(side, shape, list, at * shape.groups() + group, static_cast<int32_t>(column));
      }
      continue;
    }
    // The groups of the warp share what is found, so that they go through pieces side by side.
    const int32_t candidates = shape.groups() * 2 << (shape.span_bits - shape.long_bits);
    int32_t found = 0;
    __syncwarp();
    for (int32_t first = 0; first < candidates; first += 32) {
      const int32_t i = first + lane;
      LongPiece piece{};
      if (i < candidates) piece = find_long_piece(list, shape.long_bits, (at * candidates + i) >> 1, i % 2 != 0);
      const uint32_t with_rows = __ballot_sync(0xffffffffu, piece.begin < piece.end);
      if (piece.begin < piece.end) of_warp[found + __popc(with_rows & ((1u << lane) - 1))] = piece;
      found += __popc(with_rows);
    }
    __syncwarp();
    if (column >= side.d) continue;
#pragma unroll 1
    for (int32_t i = group; i < found; i += shape.groups()) {
      const LongPiece piece = of_warp[i];
      const auto state = fold_piece<Name, V>(side, list, piece.begin, piece.end, static_cast<int32_t>(column));
      if (piece.end - piece.begin == list.length(piece.key)) {
        side.template finish_segment<V>(piece.key, static_cast<int32_t>(column), state, piece.end - piece.begin);
      } else {
        keep_piece(side, shape, list, parts, cuts, kept, piece, column_block, static_cast<int32_t>(column), state);
      }
    }
  }
}

}  // namespace
}  // namespace baracuda::segment
