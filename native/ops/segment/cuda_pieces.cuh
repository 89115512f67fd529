// SPDX-License-Identifier: Apache-2.0
// The sorted list on CUDA: groups of lanes own the pieces that begin in a window of ranks, a lane a few columns.
// Segments of one piece are finished at once; what is kept of the others is joined later. Here is what all rules share,
// and the kernel of those that give a segment's gradient to one of its rows.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/segment/cuda_columns.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// Small blocks, because a piece may have 256 rows and its neighbours few: a block holds its place until its longest
// group is done.
constexpr int kThreads = 64;
constexpr int kWarps = kThreads / 32;
// Rows whose loads a lane has in flight.
constexpr int kRowsInFlight = 8;
static_assert(kRowsInFlight <= kRowsBeyond && kRowsInFlight <= 1 << kShortPieceBits);
// Blocks a multiprocessor, hence registers a thread: lanes that load 16 bytes need the registers, and half as many of
// them have the same bytes in flight.
constexpr int blocks_per_multiprocessor(size_t bytes, int columns) {
  return bytes > 8 ? 10 : columns > 2 ? 12 : 16;
}
// Ranks of one group: many rows pay for the start of a group, few give all multiprocessors some.
constexpr int32_t kLongWindowBits = 6;
constexpr int32_t kShortWindowBits = 3;

// How the list is shared out: `lanes` threads, a power of two, go through a window's ranks together.
struct Shape {
  int32_t lane_bits;
  int32_t window_bits;
  int32_t spread_bits;    // windows that a piece may cover
  int32_t column_blocks;  // of lanes * V columns
  int64_t tasks;          // blocks without a limit to their number

  Shape(const List& list, int32_t d, int columns) : lane_bits(0) {
    window_bits = list.n < kManyRows ? kShortWindowBits : kLongWindowBits;
    spread_bits = list.piece_bits - window_bits;
    while (lane_bits < 5 && lanes() * columns < d) ++lane_bits;
    column_blocks = static_cast<int32_t>((int64_t{d} + lanes() * columns - 1) / (lanes() * columns));
    const int64_t windows = (static_cast<int64_t>(list.n) + (1 << window_bits) - 1) >> window_bits;
    const int64_t spread = static_cast<int64_t>(groups()) << spread_bits;
    tasks = ((windows + spread - 1) / spread << spread_bits) * column_blocks;
  }
  BARACUDA_HD int32_t lanes() const { return 1 << lane_bits; }
  BARACUDA_HD int32_t groups() const { return kThreads >> lane_bits; }
};

// A thread's task: a window of ranks and a block of columns. The windows of a block lie a piece's length apart: within
// a segment of many pieces either all of them hold the begin of one or none does.
struct Task {
  int64_t begin;  // the window's first rank
  int64_t end;
  int32_t column;  // this lane's first

  __device__ __forceinline__ Task(const Shape& shape, int64_t block, int columns) {
    // Divisions of 64 bits are a tenth of a short window's instructions.
    const int64_t at = shape.column_blocks == 1 ? block : block / shape.column_blocks;
    const int32_t column_block = static_cast<int32_t>(block - at * shape.column_blocks);
    const int64_t spread = at >> shape.spread_bits;
    const int64_t group = spread * shape.groups() + (threadIdx.x >> shape.lane_bits);
    begin = ((group << shape.spread_bits) + (at & ((1 << shape.spread_bits) - 1))) << shape.window_bits;
    end = begin + (1 << shape.window_bits);
    column = ((column_block << shape.lane_bits) + static_cast<int32_t>(threadIdx.x & (shape.lanes() - 1))) * columns;
  }
};

// The segments of several pieces, in the order in which they were found.
struct Cuts {
  uint32_t* count;
  int32_t* keys;  // [n / piece's rows + 1]

  Cuts(const Problem& p, int32_t piece_bits, uint32_t* word, WorkspaceLayout& layout, void* workspace)
      : count(word),
        keys(workspace_array<int32_t>(workspace, layout.reserve<int32_t>((int64_t{p.n} >> piece_bits) + 1))) {}
  __device__ __forceinline__ void add(int32_t key) const { keys[atomicAdd(count, 1u)] = key; }
};

template <typename T, int V>
struct Group {
  T at[V];
};

// A rule's state for a lane's columns.
template <class Fold, int V>
struct State {
  Group<typename Fold::First, V> first;
  Group<typename Fold::Second, V> second;

  __device__ __forceinline__ void none(int32_t row) {
#pragma unroll
    for (int k = 0; k < V; ++k) Fold::none(first.at[k], second.at[k], row);
  }
  template <typename T>
  __device__ __forceinline__ void add(const Columns<T, V>& x, const Columns<T, V>& y, int32_t row, bool begins) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (begins) {
        Fold::begin(first.at[k], second.at[k], x.at[k], y.at[k], row);
      } else {
        Fold::add(first.at[k], second.at[k], x.at[k], y.at[k], row);
      }
    }
  }
  __device__ __forceinline__ void join(const State& later) {
#pragma unroll
    for (int k = 0; k < V; ++k) Fold::join(first.at[k], second.at[k], later.first.at[k], later.second.at[k]);
  }
};

// Arrays of states go by single columns: V may be more than one access holds.
template <int V, class Fold>
__device__ __forceinline__ State<Fold, V> load_part(const Parts<Fold>& parts, int64_t at) {
  State<Fold, V> state{};
#pragma unroll
  for (int k = 0; k < V; ++k) {
    state.first.at[k] = parts.first[at + k];
    if constexpr (Parts<Fold>::kHasSecond) state.second.at[k] = parts.second[at + k];
  }
  return state;
}
// The same of parts that other blocks of the same launch have kept: past the first-level cache.
template <typename T>
__device__ __forceinline__ T load_kept(const T* value) {
  return bits_as<T>(*reinterpret_cast<const volatile typename BitsOf<sizeof(T)>::type*>(value));
}
template <int V, class Fold>
__device__ __forceinline__ State<Fold, V> load_kept_part(const Parts<Fold>& parts, int64_t at) {
  State<Fold, V> state{};
#pragma unroll
  for (int k = 0; k < V; ++k) {
    state.first.at[k] = load_kept(parts.first + at + k);
    if constexpr (Parts<Fold>::kHasSecond) state.second.at[k] = load_kept(parts.second + at + k);
  }
  return state;
}
template <class Fold, int V>
__device__ __forceinline__ void store_part(const Parts<Fold>& parts, int64_t at, const State<Fold, V>& state) {
#pragma unroll
  for (int k = 0; k < V; ++k) {
    parts.first[at + k] = state.first.at[k];
    if constexpr (Parts<Fold>::kHasSecond) parts.second[at + k] = state.second.at[k];
  }
}

// Keeps a piece that is not its whole segment; the lane of the first column lists the segment with its first piece.
template <class Fold, int V, class Ranks>
__device__ __forceinline__ void keep_part(const Parts<Fold>& parts, const Cuts& cuts, const Ranks& list, int32_t d,
                                          int32_t key, int32_t piece, bool begins_segment, int32_t column,
                                          const State<Fold, V>& state) {
  store_part(parts, list.slot(piece, begins_segment) * d + column, state);
  if (begins_segment && column == 0) cuts.add(key);
}

// What a segment becomes, by its rule.
template <class Name>
struct Side {
  using Fold = Rule<Name>;
  using T = typename Name::Element;
  static constexpr bool kReduces = Fold::kKind == Kind::kReduce;
  int32_t d;
  int32_t num_segments;
  const T* x;
  const T* y;
  const T* s;
  T* result;
  void* result_arg;
  T of_no_rows;
  bool wide;

  Side(const Problem& p, const Buffers<Name>& b)
      : d(p.d), num_segments(p.num_segments), x(b.rows[0]), y(b.rows[1]), s(b.segments[0]), result(b.result),
        result_arg(b.result_arg), of_no_rows(b.of_no_rows), wide(b.wide_index) {}

  // Where a row's or a segment's columns are: one multiplication, for no number is negative.
  __device__ __forceinline__ int64_t place(int32_t row, int32_t column) const {
    return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(row)} * static_cast<uint32_t>(d)) + column;
  }

  // A segment's result.
  template <int V>
  __device__ __forceinline__ void finish_segment(int32_t key, int32_t column, const State<Fold, V>& state,
                                                 int32_t count) const {
    const int64_t at = static_cast<int64_t>(key) * d + column;
    Columns<T, V> values;
#pragma unroll
    for (int k = 0; k < V; ++k) values.at[k] = Fold::output(state.first.at[k], state.second.at[k], count);
    store<V>(result + at, values);
    if constexpr (std::is_same_v<typename Fold::Second, int32_t>) {
      if (result_arg == nullptr) return;
#pragma unroll
      for (int k = 0; k < V; ++k) store_row_index(result_arg, wide, at + k, state.second.at[k]);
    }
  }

  // What a segment's rows need of its own tensor.
  template <int V>
  __device__ __forceinline__ Columns<T, V> of_segment(int32_t key, int32_t column) const {
    if (kReduces || Fold::kSegments == 0 || key == num_segments) return {};
    return load<V>(s + static_cast<int64_t>(key) * d + column);
  }
  template <int V>
  __device__ __forceinline__ void finish_row(int32_t row, int32_t column, const State<Fold, V>& state,
                                             const Columns<T, V>& segment) const {
    static_assert(Fold::kRows == 1);
    const int64_t at = place(row, column);
    Columns<T, V> values, mine{};
    if constexpr (Fold::kReadsRowsAgain) mine = load<V>(x + at);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      values.at[k] = Fold::value(state.first.at[k], state.second.at[k], segment.at[k], mine.at[k], T{}, row);
    }
    store<V>(result + at, values);
  }
  template <int V>
  __device__ __forceinline__ void drop_row(int32_t row, int32_t column) const {
    store<V>(result + place(row, column), Columns<T, V>{});
  }
  // What a segment of several pieces becomes, of rules whose rows have zeros by then but for the one that holds the
  // column's value.
  __device__ __forceinline__ void finish_holder(int32_t key, int32_t column, const State<Fold, 1>& state) const {
    result[place(state.second.at[0], column)] = s[place(key, column)];
  }
};

// Segments without rows are filled last, by warps that have no rows any more. Each lane looks at some segments; the
// warp fills some columns of those that are empty.
constexpr int64_t kFillColumns = 4096;
constexpr int kFillRounds = 4;
constexpr int64_t kFillSegments = 32 * kFillRounds;

template <class Name>
int64_t fill_tasks(const Side<Name>& side) {
  if (!Side<Name>::kReduces) return 0;
  const int64_t column_blocks = (side.d + kFillColumns - 1) / kFillColumns;
  return (static_cast<int64_t>(side.num_segments) + kFillSegments - 1) / kFillSegments * column_blocks;
}
template <class Name>
__device__ __forceinline__ void fill_empty(const Side<Name>& side, const List& list, int64_t task) {
  const int lane = threadIdx.x % 32;
  const int64_t column_blocks = (side.d + kFillColumns - 1) / kFillColumns;
  const int64_t at = column_blocks == 1 ? task : task / column_blocks;
  const int64_t column = (task - at * column_blocks) * kFillColumns;
  const int64_t end = column + kFillColumns < side.d ? column + kFillColumns : side.d;
#pragma unroll 1
  for (int64_t first = at * kFillSegments; first < (at + 1) * kFillSegments; first += 32) {
    const int64_t mine = first + lane;
    const bool empty = mine < list.num_segments && list.length(static_cast<int32_t>(mine)) <= 0;
    for (uint32_t left = __ballot_sync(0xffffffffu, empty); left != 0; left &= left - 1) {
      const int64_t row = (first + __ffs(left) - 1) * side.d;
#pragma unroll 2
      for (int64_t k = column + lane; k < end; k += 32) {
        side.result[row + k] = side.of_no_rows;
        if (side.result_arg != nullptr) store_row_index(side.result_arg, side.wide, row + k, -1);
      }
    }
  }
}

// Writes the rows of the ranks [begin, end), which are of one segment.
template <int V, class Name>
__device__ __forceinline__ void finish_rows(const Side<Name>& side, const List& list, int32_t begin, int32_t end,
                                            int32_t column, const State<Rule<Name>, V>& state,
                                            const Columns<typename Name::Element, V>& segment) {
#pragma unroll 1
  for (int32_t rank = begin; rank < end; ++rank) side.template finish_row<V>(list.row(rank), column, state, segment);
}

// Folds the rows of the ranks [begin, end), or reads none of them, and gives them zeros.
template <int V, class Name, class Ranks>
__device__ __forceinline__ State<Rule<Name>, V> zero_rows(const Side<Name>& side, const Ranks& list, int32_t begin,
                                                          int32_t end, int32_t column, bool reads) {
  using T = typename Name::Element;
  State<Rule<Name>, V> state{};
  // Beyond the end the last row again: all loads are issued together.
  int32_t rows[kRowsInFlight];
#pragma unroll
  for (int u = 0; u < kRowsInFlight; ++u) rows[u] = list.row(begin + u < end ? begin + u : end - 1);
#pragma unroll 1
  for (int32_t batch = begin; batch < end; batch += kRowsInFlight) {
    Words<T, V> values[kRowsInFlight];
    int32_t following[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      values[u] = Words<T, V>{};
      if (reads) values[u] = load_words_once<V>(side.x + side.place(rows[u], column));
    }
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const int32_t rank = batch + kRowsInFlight + u;
      following[u] = list.row(rank < end ? rank : end - 1);
    }
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) side.template drop_row<V>(rows[u], column);
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      if (batch + u >= end) break;
      const Columns<T, V> row = bits_as<Columns<T, V>>(values[u]);
      state.add(row, row, rows[u], batch + u == begin);
    }
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) rows[u] = following[u];
  }
  return state;
}

// Windows of rules that distribute and need not read rows again. What belongs to no segment or to one of several pieces
// lies at a window's ends and gets zeros as it is read; the join knows the few rows that get more. Between them are
// whole segments, whose rows are written where the segment ends: that is code for each row of a batch, and what is
// needed to load ahead would not fit the instruction cache beside it.
template <class Name, int V>
__global__ void __launch_bounds__(kThreads, blocks_per_multiprocessor(sizeof(typename Name::Element) * V, V))
    select_pieces(Side<Name> side, Shape shape, List list, Parts<Rule<Name>> parts, Cuts cuts) {
  using T = typename Name::Element;
  using Fold = Rule<Name>;
  static_assert(!Side<Name>::kReduces && Fold::kRows == 1 && !Fold::kReadsRowsAgain);
  wait_for_kernel_before();
  let_kernel_after_start();
  for (int64_t block = blockIdx.x; block < shape.tasks; block += gridDim.x) {
    const Task task(shape, block, V);
    if (task.begin >= list.n || task.column >= side.d) continue;
    int32_t piece = list.boundary(task.begin);
    const int32_t end = list.boundary(task.end);
    if (piece >= end) continue;
    // A piece that is cut is longer than a window, so the segment of several pieces that begins here is the last one.
    const int32_t tail = list.key(task.end < list.n ? static_cast<int32_t>(task.end) : list.n - 1);
    int32_t whole_end = end;
    if (tail == list.num_segments || list.in_pieces(tail)) {
      const int32_t tail_begin = list.begins[tail];
      if (tail_begin < end) whole_end = tail_begin;
    }
#pragma unroll 1
    while (piece < end) {
      int32_t key = list.key(piece);
      const bool dropped = key == list.num_segments;
      if (dropped || list.in_pieces(key)) {
        // Rows without a segment lie before the first one and behind the last one.
        int32_t next = list.begins[dropped ? 0 : key + 1];
        if (dropped && next <= piece) next = end;
        if (!dropped && next > piece + list.piece_rows()) next = piece + list.piece_rows();
        if (next > end) next = end;
        const auto state = zero_rows<V>(side, list, piece, next, task.column, !dropped);
        if (!dropped) {
          keep_part(parts, cuts, list, side.d, key, piece, list.begins[key] == piece, task.column, state);
        }
        piece = next;
        continue;
      }
      const int32_t stop = piece < whole_end ? whole_end : end;
      State<Fold, V> state{};
      Columns<T, V> segment = side.template of_segment<V>(key, task.column);
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
          if (batch + u < stop) values[u] = load_words_once<V>(side.x + side.place(records[u].row, task.column));
        }
#pragma unroll
        for (int u = 0; u < kRowsInFlight; ++u) {
          const int32_t next = batch + u + 1;
          if (next > stop) break;
          const Columns<T, V> row = bits_as<Columns<T, V>>(values[u]);
          state.add(row, row, records[u].row, next - 1 == piece);
          if (records[u + 1].key == key) continue;
          finish_rows(side, list, piece, next, task.column, state, segment);
          piece = next;
          key = records[u + 1].key;
          // Read as early as possible: the piece's rows are on their way.
          if (next != stop) segment = side.template of_segment<V>(key, task.column);
        }
      }
      piece = stop;
    }
  }
}

// Whether a rule's state is a sum relative to the largest value.
template <class Fold>
struct IsExponentialSum : std::false_type {};
template <template <typename> class Name, typename T>
struct IsExponentialSum<Rule<Name<T>>> : std::is_base_of<ExponentialSum<T>, Rule<Name<T>>> {};

// The state of no rows. Of exponentials: below every row, so that the first one becomes what it is.
template <class Fold, int V>
__device__ __forceinline__ State<Fold, V> state_of_none() {
  State<Fold, V> state{};
  if constexpr (IsExponentialSum<Fold>::value) {
#pragma unroll
    for (int k = 0; k < V; ++k) state.first.at[k] = Limits<typename Fold::First>::lowest();
  }
  return state;
}

}  // namespace
}  // namespace baracuda::segment
