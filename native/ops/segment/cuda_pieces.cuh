// SPDX-License-Identifier: Apache-2.0
// Reductions of the sorted list on CUDA: groups of lanes own the pieces that begin in a window of ranks, a lane a few
// columns. Segments of one piece are finished at once; the others' parts are joined by a second kernel, and a third
// writes their rows where the result is one value a row.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/segment/cuda_columns.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// Small blocks, because a piece may have 256 rows and its neighbours few: a block holds its place until its longest
// group is done.
constexpr int kThreads = 64;
// Rows that a lane loads before it looks at the first.
constexpr int kRowsInFlight = 8;
static_assert(kRowsInFlight <= kRowsBeyond);
// Blocks a multiprocessor, hence registers a thread: lanes that load 16 bytes need the registers, and half as many of
// them have the same bytes in flight.
constexpr int blocks_per_multiprocessor(size_t bytes, int columns) { return bytes > 8 ? 10 : columns > 2 ? 12 : 16; }
// Ranks of one group: many rows pay for the start of a group, few give all multiprocessors some.
constexpr int32_t kLongWindowBits = 6;
constexpr int32_t kShortWindowBits = 3;

// How the list is shared out: `lanes` threads, a power of two, go through a window's ranks together.
struct Shape {
  int32_t lanes;
  int32_t window_bits;
  int32_t spread_bits;    // windows that a piece may cover
  int32_t column_blocks;  // of lanes * V columns

  Shape(const List& list, int32_t d, int columns) : lanes(1) {
    window_bits = list.n < kManyRows ? kShortWindowBits : kLongWindowBits;
    spread_bits = list.piece_bits - window_bits;
    while (lanes < 32 && lanes * columns < d) lanes *= 2;
    column_blocks = static_cast<int32_t>((int64_t{d} + lanes * columns - 1) / (lanes * columns));
  }
  BARACUDA_HD int32_t groups() const { return kThreads / lanes; }
  uint32_t blocks(int32_t n) const {
    const int64_t windows = (static_cast<int64_t>(n) + (1 << window_bits) - 1) >> window_bits;
    const int64_t spread = static_cast<int64_t>(groups()) << spread_bits;
    return blocks_for(((windows + spread - 1) / spread << spread_bits) * column_blocks, 1);
  }
};

// A thread's task: a window of ranks and a block of columns. The windows of a block lie a piece's length apart: within
// a segment of many pieces either all of them hold the begin of one or none does.
struct Task {
  int64_t begin;  // the window's first rank
  int64_t end;
  int32_t column;  // this lane's first

  __device__ __forceinline__ Task(const Shape& shape, int64_t block, int columns) {
    const int64_t at = block / shape.column_blocks, spread = at >> shape.spread_bits;
    const int64_t group = spread * shape.groups() + threadIdx.x / shape.lanes;
    begin = ((group << shape.spread_bits) + (at & ((1 << shape.spread_bits) - 1))) << shape.window_bits;
    end = begin + (1 << shape.window_bits);
    const int32_t column_block = static_cast<int32_t>(block % shape.column_blocks);
    column = (column_block * shape.lanes + static_cast<int32_t>(threadIdx.x) % shape.lanes) * columns;
  }
  static __device__ __forceinline__ int64_t count(const Shape& shape, int32_t n) {
    const int64_t spread = static_cast<int64_t>(shape.groups()) << (shape.spread_bits + shape.window_bits);
    return ((n + spread - 1) / spread << shape.spread_bits) * shape.column_blocks;
  }
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
template <class Fold, int V>
__device__ __forceinline__ void store_part(const Parts<Fold>& parts, int64_t at, const State<Fold, V>& state) {
#pragma unroll
  for (int k = 0; k < V; ++k) {
    parts.first[at + k] = state.first.at[k];
    if constexpr (Parts<Fold>::kHasSecond) parts.second[at + k] = state.second.at[k];
  }
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
  bool wide;

  Side(const Problem& p, const Buffers<Name>& b)
      : d(p.d), num_segments(p.num_segments), x(b.rows[0]), y(b.rows[1]), s(b.segments[0]), result(b.result),
        result_arg(b.result_arg), wide(b.wide_index) {}

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
    const int64_t at = static_cast<int64_t>(row) * d + column;
    Columns<T, V> values, mine{}, other{};
    if constexpr (Fold::kReadsRowsAgain) {
      mine = load<V>(x + at);
      if constexpr (Fold::kRows > 1) other = load<V>(y + at);
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
      values.at[k] =
          Fold::value(state.first.at[k], state.second.at[k], segment.at[k], mine.at[k], other.at[k], row);
    }
    store<V>(result + at, values);
  }
  template <int V>
  __device__ __forceinline__ void drop_row(int32_t row, int32_t column) const {
    store<V>(result + static_cast<int64_t>(row) * d + column, Columns<T, V>{});
  }
};

// Writes the rows of the ranks [begin, end), which are of one segment.
template <int V, int kUnroll, class Name>
__device__ __forceinline__ void finish_rows(const Side<Name>& side, const List& list, int32_t begin, int32_t end,
                                            int32_t column, const State<Rule<Name>, V>& state,
                                            const Columns<typename Name::Element, V>& segment) {
#pragma unroll kUnroll
  for (int32_t rank = begin; rank < end; ++rank) side.template finish_row<V>(list.row(rank), column, state, segment);
}

template <class Name, int V>
__global__ void __launch_bounds__(kThreads, blocks_per_multiprocessor(sizeof(typename Name::Element) * V, V))
    reduce_pieces(Side<Name> side, Shape shape, List list, Parts<Rule<Name>> parts) {
  using T = typename Name::Element;
  using Fold = Rule<Name>;
  constexpr int kTensors = Fold::kRows;
  wait_for_kernel_before();
  let_kernel_after_start();
  for (int64_t block = blockIdx.x; block < Task::count(shape, list.n); block += gridDim.x) {
    const Task task(shape, block, V);
    if (task.begin >= list.n || task.column >= side.d) continue;
    int32_t piece = list.boundary(task.begin);
    const int32_t end = list.boundary(task.end);
    if (piece >= end) continue;
    int32_t key = list.key(piece);
    bool begins_segment = list.begins[key] == piece;
    State<Fold, V> state{};
    Columns<T, V> segment = side.template of_segment<V>(key, task.column);
    for (int32_t batch = piece; batch < end; batch += kRowsInFlight) {
      Record records[kRowsInFlight + 1];
      Words<T, V> values[kTensors][kRowsInFlight];
#pragma unroll
      for (int u = 0; u <= kRowsInFlight; ++u) {
        records[u] = batch + u < list.n ? list.records[batch + u] : Record{-1, 0};
      }
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        // Without a branch: the loads are issued together.
        const bool reads = batch + u < end && records[u].key != list.num_segments;
        const int64_t at = static_cast<int64_t>(records[u].row) * side.d + task.column;
        values[0][u] = Words<T, V>{};
        if (reads) values[0][u] = load_words<V>(side.x + at);
        if constexpr (kTensors > 1) {
          values[1][u] = Words<T, V>{};
          if (reads) values[1][u] = load_words<V>(side.y + at);
        }
      }
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        const int32_t next = batch + u + 1;
        if (next > end) break;
        state.add(bits_as<Columns<T, V>>(values[0][u]), bits_as<Columns<T, V>>(values[kTensors - 1][u]), records[u].row,
                  next - 1 == piece);
        const bool ends_segment = records[u + 1].key != key;
        if (!ends_segment && next - piece < list.piece_rows() && next != end) continue;
        if (key == list.num_segments) {
          if constexpr (!Side<Name>::kReduces) {
            for (int32_t rank = piece; rank < next; ++rank) side.template drop_row<V>(list.row(rank), task.column);
          }
        } else if (!(begins_segment && ends_segment)) {
          store_part(parts, list.slot(piece, begins_segment) * side.d + task.column, state);
        } else if constexpr (!Side<Name>::kReduces) {
          finish_rows<V, 1>(side, list, piece, next, task.column, state, segment);
        } else {
          side.template finish_segment<V>(key, task.column, state, next - piece);
        }
        piece = next;
        begins_segment = ends_segment;
        key = records[u + 1].key;
        // Read as early as possible: the piece's rows are on their way.
        if (ends_segment && next != end) segment = side.template of_segment<V>(key, task.column);
      }
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

// Joins the parts of segments of several pieces. Each warp of a block looks for one that begins in its window of a
// piece's length, and joins 32 columns of it, if it is short. The block joins the long ones together: if parts may be
// joined in any grouping, each warp joins its share and one warp what they have; if not, all warps fetch parts, the
// next ones while one warp adds the last ones in ascending order. Of sums of exponentials, what each part is scaled by
// follows from the values before it alone, and all warps compute it.
constexpr int kJoinWarps = 16;
constexpr int kJoinThreads = 32 * kJoinWarps;
// Parts a warp fetches at once: of all warps they fit the 48 KiB that need no opt-in.
template <class Fold>
constexpr int kJoinBatch = sizeof(typename Fold::First) + sizeof(typename Fold::Second) > 9 ? 4 : 8;
constexpr int kJoinAlone = 32;

template <class Fold>
struct Joiner {
  const List& list;
  const Parts<Fold>& parts;
  int32_t begin, count;  // the segment's first rank, its pieces
  int64_t d, column;     // lanes beyond the last column read the first one's

  // Beyond the last piece the last one again, without a branch.
  __device__ __forceinline__ State<Fold, 1> part(int32_t piece) const {
    const int32_t at = piece < count ? piece : count - 1;
    return load_part<1>(parts, list.slot(begin + (at << list.piece_bits), at == 0) * d + (column < d ? column : 0));
  }
  __device__ __forceinline__ void fetch(int32_t first, State<Fold, 1> (&fetched)[kJoinBatch<Fold>]) const {
#pragma unroll
    for (int u = 0; u < kJoinBatch<Fold>; ++u) fetched[u] = part(first + u);
  }
};

template <class Fold>
struct JoinTables {
  static constexpr int kParts = Fold::kAnyGrouping ? kJoinWarps : kJoinWarps * kJoinBatch<Fold>;
  typename Fold::First first[kParts][32];
  typename Fold::Second second[kParts][32];

  __device__ __forceinline__ void put(int at, int lane, const State<Fold, 1>& state) {
    first[at][lane] = state.first.at[0], second[at][lane] = state.second.at[0];
  }
  __device__ __forceinline__ State<Fold, 1> get(int at, int lane) const {
    State<Fold, 1> state;
    state.first.at[0] = first[at][lane], state.second.at[0] = second[at][lane];
    return state;
  }
};

// The pieces of the segment of several pieces that begins in a window, 0 if none does.
__device__ __forceinline__ int32_t find_segment(const List& list, int64_t window, int32_t* key) {
  const int64_t next = (window + 1) << list.piece_bits;
  if (next >= list.n) return 0;
  *key = list.key(static_cast<int32_t>(next));
  if (!list.in_pieces(*key)) return 0;
  const int32_t begin = list.begins[*key];
  if (begin >= next || begin < next - list.piece_rows()) return 0;
  return (list.length(*key) + list.piece_rows() - 1) >> list.piece_bits;
}

template <class Fold>
__device__ __forceinline__ State<Fold, 1> join_in_order(const Joiner<Fold>& joiner, int32_t first, int32_t last) {
  State<Fold, 1> state{}, fetched[kJoinBatch<Fold>];
  for (int32_t batch = first; batch < last; batch += kJoinBatch<Fold>) {
    joiner.fetch(batch, fetched);
#pragma unroll
    for (int u = 0; u < kJoinBatch<Fold>; ++u) {
      if (batch + u == first) {
        state = fetched[u];
      } else if (batch + u < last) {
        state.join(fetched[u]);
      }
    }
  }
  return state;
}

// The same where parts are scaled.
template <class Fold>
__device__ State<Fold, 1> join_scaled(const Joiner<Fold>& joiner, JoinTables<Fold>& tables) {
  using First = typename Fold::First;
  constexpr int32_t kBatch = kJoinWarps * kJoinBatch<Fold>;
  __shared__ First maxima[kJoinWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  auto state = state_of_none<Fold, 1>();
  State<Fold, 1> fetched[kJoinBatch<Fold>];
  joiner.fetch(warp * kJoinBatch<Fold>, fetched);
  for (int32_t batch = 0; batch < joiner.count; batch += kBatch) {
    First mine = fetched[0].first.at[0];
#pragma unroll
    for (int u = 1; u < kJoinBatch<Fold>; ++u) {
      mine = choose(Largest::wins(fetched[u].first.at[0], mine), fetched[u].first.at[0], mine);
    }
    maxima[warp][lane] = mine;
    __syncthreads();
    // The largest value before this warp's parts.
    First& all = state.first.at[0];
    mine = all;
#pragma unroll
    for (int i = 0; i < kJoinWarps; ++i) {
      mine = choose(i == warp, all, mine);
      all = choose(Largest::wins(maxima[i][lane], all), maxima[i][lane], all);
    }
#pragma unroll
    for (int u = 0; u < kJoinBatch<Fold>; ++u) {
      const auto step = Fold::step_to(mine, fetched[u].first.at[0]);
      fetched[u].first.at[0] = step.grows ? -step.factor : step.factor;
      tables.put(warp * kJoinBatch<Fold> + u, lane, fetched[u]);
    }
    __syncthreads();
    joiner.fetch(batch + kBatch + warp * kJoinBatch<Fold>, fetched);
    if (warp != 0) continue;
    const int32_t left = joiner.count - batch < kBatch ? joiner.count - batch : kBatch;
#pragma unroll 8
    for (int i = 0; i < left; ++i) {
      const State<Fold, 1> part = tables.get(i, lane);
      const First factor = part.first.at[0];
      Fold::take(state.second.at[0], {factor < 0 ? -factor : factor, factor < 0}, part.second.at[0]);
    }
  }
  return state;
}

// The first warp has the answer.
template <class Fold>
__device__ State<Fold, 1> join_together(const Joiner<Fold>& joiner, JoinTables<Fold>& tables) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  State<Fold, 1> state{};
  if constexpr (Fold::kAnyGrouping) {
    const int32_t each = (joiner.count + kJoinWarps - 1) / kJoinWarps, first = warp * each;
    state = join_in_order(joiner, first, first + each < joiner.count ? first + each : joiner.count);
    __syncthreads();
    tables.put(warp, lane, state);
    __syncthreads();
    for (int i = 1; warp == 0 && i < kJoinWarps && i * each < joiner.count; ++i) state.join(tables.get(i, lane));
  } else if constexpr (IsExponentialSum<Fold>::value) {
    state = join_scaled(joiner, tables);
  } else {
    State<Fold, 1> fetched[kJoinBatch<Fold>];
    joiner.fetch(warp * kJoinBatch<Fold>, fetched);
    for (int32_t batch = 0; batch < joiner.count; batch += kJoinWarps * kJoinBatch<Fold>) {
      __syncthreads();
#pragma unroll
      for (int u = 0; u < kJoinBatch<Fold>; ++u) tables.put(warp * kJoinBatch<Fold> + u, lane, fetched[u]);
      __syncthreads();
      joiner.fetch(batch + (kJoinWarps + warp) * kJoinBatch<Fold>, fetched);
      if (warp != 0) continue;
      const int32_t left =
          joiner.count - batch < kJoinWarps * kJoinBatch<Fold> ? joiner.count - batch : kJoinWarps * kJoinBatch<Fold>;
      if (batch == 0) state = tables.get(0, lane);
#pragma unroll 8
      for (int i = batch == 0 ? 1 : 0; i < left; ++i) state.join(tables.get(i, lane));
    }
  }
  return state;
}

template <class Name>
__device__ __forceinline__ void finish_join(const Side<Name>& side, const Joiner<Rule<Name>>& joiner, int32_t key,
                                            const State<Rule<Name>, 1>& state) {
  if (joiner.column >= side.d) return;
  const int32_t column = static_cast<int32_t>(joiner.column);
  if constexpr (Side<Name>::kReduces) {
    side.template finish_segment<1>(key, column, state, joiner.list.length(key));
  } else {
    store_part(joiner.parts, joiner.list.slot(joiner.begin, true) * side.d + column, state);
  }
}

template <class Name>
__global__ void __launch_bounds__(kJoinThreads) join_parts(Side<Name> side, List list, Parts<Rule<Name>> parts) {
  using Fold = Rule<Name>;
  wait_for_kernel_before();
  let_kernel_after_start();
  __shared__ JoinTables<Fold> tables;
  __shared__ int32_t long_keys[kJoinWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column_blocks = (static_cast<int64_t>(side.d) + 31) / 32;
  const int64_t windows = (static_cast<int64_t>(list.n) + list.piece_rows() - 1) >> list.piece_bits;
  const int64_t tasks = (windows + kJoinWarps - 1) / kJoinWarps * column_blocks;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t column = task % column_blocks * 32 + lane;
    int32_t key = -1;
    const int32_t count = find_segment(list, task / column_blocks * kJoinWarps + warp, &key);
    if (lane == 0) long_keys[warp] = count > kJoinAlone ? key : -1;
    if (count > 0 && count <= kJoinAlone) {
      const Joiner<Fold> joiner{list, parts, list.begins[key], count, side.d, column};
      finish_join(side, joiner, key, join_in_order(joiner, 0, count));
    }
    __syncthreads();
    for (int i = 0; i < kJoinWarps; ++i) {
      const int32_t mine = long_keys[i];
      if (mine < 0) continue;
      const int32_t pieces = (list.length(mine) + list.piece_rows() - 1) >> list.piece_bits;
      const Joiner<Fold> joiner{list, parts, list.begins[mine], pieces, side.d, column};
      const State<Fold, 1> state = join_together(joiner, tables);
      if (warp == 0) finish_join(side, joiner, mine, state);
      __syncthreads();
    }
    __syncthreads();
  }
}

// Writes the rows of segments of several pieces.
template <class Name, int V>
__global__ void __launch_bounds__(kThreads)
    finish_parts(Side<Name> side, Shape shape, List list, Parts<Rule<Name>> parts) {
  wait_for_kernel_before();
  let_kernel_after_start();
  for (int64_t block = blockIdx.x; block < Task::count(shape, list.n); block += gridDim.x) {
    const Task task(shape, block, V);
    if (task.begin >= list.n || task.column >= side.d) continue;
    const int32_t begin = static_cast<int32_t>(task.begin);
    const int32_t end = task.end < list.n ? static_cast<int32_t>(task.end) : list.n;
    // A segment of several pieces is longer than a window: only the first and the last can be one.
    const int32_t head = list.key(begin), tail = list.key(end - 1);
    const bool finish_head = list.in_pieces(head), finish_tail = tail != head && list.in_pieces(tail);
    if (finish_head) {
      const int32_t stop = tail == head ? end : list.begins[head + 1] < end ? list.begins[head + 1] : end;
      const auto state = load_part<V>(parts, list.slot(list.begins[head], true) * side.d + task.column);
      finish_rows<V, kRowsInFlight>(side, list, begin, stop, task.column, state,
                                    side.template of_segment<V>(head, task.column));
    }
    if (finish_tail) {
      const int32_t start = list.begins[tail] > begin ? list.begins[tail] : begin;
      const auto state = load_part<V>(parts, list.slot(list.begins[tail], true) * side.d + task.column);
      finish_rows<V, kRowsInFlight>(side, list, start, end, task.column, state,
                                    side.template of_segment<V>(tail, task.column));
    }
  }
}

// Fills the rows of segments without rows; a block takes 32 segments and some columns of them.
constexpr int kFillThreads = 256;
constexpr int64_t kFillColumns = 4096;

template <typename W>
__global__ void __launch_bounds__(kFillThreads)
    fill_empty(List list, int32_t d, W value, W* output, void* arg, bool wide) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column_blocks = (d + kFillColumns - 1) / kFillColumns;
  const int64_t tasks = (static_cast<int64_t>(list.num_segments) + 31) / 32 * column_blocks;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t first = task / column_blocks * 32, column = task % column_blocks * kFillColumns;
    const int64_t end = column + kFillColumns < d ? column + kFillColumns : d;
    const bool empty = first + lane < list.num_segments && list.length(static_cast<int32_t>(first + lane)) <= 0;
    const uint32_t all = __ballot_sync(0xffffffffu, empty);
    for (int i = warp; i < 32; i += kFillThreads / 32) {
      if ((all >> i & 1) == 0) continue;
      for (int64_t k = column + lane; k < end; k += 32) {
        output[(first + i) * d + k] = value;
        if (arg != nullptr) store_row_index(arg, wide, (first + i) * d + k, -1);
      }
    }
  }
}

}  // namespace
}  // namespace baracuda::segment
