// SPDX-License-Identifier: Apache-2.0
// The pieces of segments on CUDA, of which a group of lanes takes the rows and a lane a few columns. Segments of one
// piece are finished at once; what is kept of the others is joined later. Here is what all rules share.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/segment/cuda/columns.cuh"
#include "ops/segment/cuda/list/schedule.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// Rows whose loads a lane has in flight.
constexpr int kRowsInFlight = 8;
static_assert(kRowsInFlight <= kRowsBeyond && kRowsInFlight <= 1 << kShortPieceBits);

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

// Goes through a warp's tasks: take(task, range) takes a piece of a long segment, or some short segments. `tasks` are
// the shape's and, behind them, those that fill.
template <int V, class Name, class Take>
__device__ __forceinline__ void take_tasks(const Side<Name>& side, const Shape& shape, const List& list, int64_t tasks,
                                           const Take& take) {
#pragma unroll 1
  for (int64_t at = first_task(); at < tasks; at += task_step()) {
    if constexpr (Side<Name>::kReduces) {
      if (at >= shape.tasks) {
        fill_empty(side, list, at - shape.tasks);
        continue;
      }
    }
    const Task task(shape, at, side.d, V);
    const RankRange* range = find_ranges<!Side<Name>::kReduces>(list, shape, task);
    if (task.column >= side.d) continue;
#pragma unroll 1
    for (; range->begin < range->end; range += shape.groups()) take(task, *range);
  }
}

// Folds the rows of the ranks [begin, end), or reads none of them, and gives them zeros.
template <int V, int kCount, class Name, class Ranks>
__device__ __forceinline__ State<Rule<Name>, V> zero_rows(const Side<Name>& side, const Ranks& list, int32_t begin,
                                                          int32_t end, int32_t column, bool reads) {
  using T = typename Name::Element;
  State<Rule<Name>, V> state{};
  // Beyond the end the last row again: all loads are issued together.
  int32_t rows[kCount];
#pragma unroll
  for (int u = 0; u < kCount; ++u) rows[u] = list.row(begin + u < end ? begin + u : end - 1);
#pragma unroll 1
  for (int32_t batch = begin; batch < end; batch += kCount) {
    Words<T, V> values[kCount];
    int32_t following[kCount];
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      values[u] = Words<T, V>{};
      if (reads) values[u] = load_words_once<V>(side.x + side.place(rows[u], column));
    }
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      const int32_t rank = batch + kCount + u;
      following[u] = list.row(rank < end ? rank : end - 1);
    }
#pragma unroll
    for (int u = 0; u < kCount; ++u) side.template drop_row<V>(rows[u], column);
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      if (batch + u >= end) break;
      const Columns<T, V> row = bits_as<Columns<T, V>>(values[u]);
      state.add(row, row, rows[u], batch + u == begin);
    }
#pragma unroll
    for (int u = 0; u < kCount; ++u) rows[u] = following[u];
  }
  return state;
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
