// SPDX-License-Identifier: Apache-2.0
// Reductions of the sorted list on CUDA: groups of lanes own the pieces that begin in a window of ranks, a lane a few
// columns. Segments of one piece are finished at once; the others' parts are joined by a second kernel.
#pragma once

#include "core/cuda_copies.cuh"
#include "core/cuda_launch.cuh"
#include "ops/segment/cuda_columns.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// Small blocks, because a piece may have 256 rows and its neighbours few: a block holds its place until its longest
// group is done.
constexpr int kThreads = 64;
// Rows whose loads a lane has in flight.
constexpr int kRowsInFlight = 8;
static_assert(kRowsInFlight <= kRowsBeyond && kRowsInFlight <= 1 << kShortPieceBits);
// Rows that are folded before the next loads are issued.
constexpr int kRowsTogether = 2;
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
  int32_t first;   // the group's first column
  int32_t column;  // this lane's first

  __device__ __forceinline__ Task(const Shape& shape, int64_t block, int columns) {
    // Divisions of 64 bits are a tenth of a short window's instructions.
    const int64_t at = shape.column_blocks == 1 ? block : block / shape.column_blocks;
    const int32_t column_block = static_cast<int32_t>(block - at * shape.column_blocks);
    const int64_t spread = at >> shape.spread_bits;
    const int64_t group = spread * shape.groups() + (threadIdx.x >> shape.lane_bits);
    begin = ((group << shape.spread_bits) + (at & ((1 << shape.spread_bits) - 1))) << shape.window_bits;
    end = begin + (1 << shape.window_bits);
    first = (column_block << shape.lane_bits) * columns;
    column = first + static_cast<int32_t>(threadIdx.x & (shape.lanes() - 1)) * columns;
  }
};

// A group's records of the next ranks, in shared memory: its lanes bring them in while earlier ones are taken.
constexpr int kRingRecords = 4 * kRowsInFlight;

struct RecordRing {
  Record* records;  // [kRingRecords], by the rank's distance from the first one
  uint32_t lanes;   // of the group, those that have columns
  int32_t lane, count;

  __device__ __forceinline__ RecordRing(const Shape& shape, const Task& task, int32_t d, int columns,
                                        Record* of_block)
      : records(of_block + static_cast<int>(threadIdx.x >> shape.lane_bits) * kRingRecords),
        lane(threadIdx.x & (shape.lanes() - 1)) {
    const int32_t filled = (d - task.first + columns - 1) / columns;
    count = filled < shape.lanes() ? filled : shape.lanes();
    lanes = 0xffffffffu >> (32 - count) << (threadIdx.x % 32 - lane);
  }
  // Starts to bring in the records of [rank, rank + kRowsInFlight) up to `end`, which may be n: it gets no segment's
  // key.
  __device__ __forceinline__ void fetch(const List& list, int32_t place, int32_t rank, int32_t end) const {
    for (int i = lane; i < kRowsInFlight; i += count) {
      Record* to = records + (place + i) % kRingRecords;
      if (rank + i > end) break;
      if (rank + i < list.n) {
        copy_async<sizeof(Record)>(to, list.records + rank + i);
      } else {
        *to = {-1, 0};
      }
    }
    close_copies();
  }
  // Waits for what the group brought in but the last.
  __device__ __forceinline__ void wait() const {
    wait_for_copies_but_last();
    __syncwarp(lanes);
  }
  __device__ __forceinline__ const Record* at(int32_t place) const { return records + place % kRingRecords; }
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

// Segments without rows are filled by blocks that come after those of the rows, to run where those of short windows are
// done. Each thread looks at one segment; a warp fills some columns of those of its threads.
constexpr int64_t kFillColumns = 4096;

template <class Name>
int64_t fill_tasks(const Side<Name>& side) {
  if (!Side<Name>::kReduces) return 0;
  const int64_t column_blocks = (side.d + kFillColumns - 1) / kFillColumns;
  return (static_cast<int64_t>(side.num_segments) + kThreads - 1) / kThreads * column_blocks;
}
template <class Name>
__device__ __forceinline__ void fill_empty(const Side<Name>& side, const List& list, int64_t task) {
  const int lane = threadIdx.x % 32;
  const int64_t column_blocks = (side.d + kFillColumns - 1) / kFillColumns;
  const int64_t at = column_blocks == 1 ? task : task / column_blocks;
  const int64_t column = (task - at * column_blocks) * kFillColumns;
  const int64_t end = column + kFillColumns < side.d ? column + kFillColumns : side.d;
  const int64_t mine = at * kThreads + threadIdx.x;
  const bool empty = mine < list.num_segments && list.length(static_cast<int32_t>(mine)) <= 0;
  for (uint32_t left = __ballot_sync(0xffffffffu, empty); left != 0; left &= left - 1) {
    const int64_t row = (mine - lane + __ffs(left) - 1) * side.d;
    for (int64_t k = column + lane; k < end; k += 32) {
      side.result[row + k] = side.of_no_rows;
      if (side.result_arg != nullptr) store_row_index(side.result_arg, side.wide, row + k, -1);
    }
  }
}

// Windows of rules that reduce: loads of rows are always on their way, and the records of those that come after.
template <class Name, int V>
__global__ void __launch_bounds__(kThreads, blocks_per_multiprocessor(sizeof(typename Name::Element) * V, V))
    reduce_pieces(Side<Name> side, Shape shape, List list, Parts<Rule<Name>> parts, int64_t tasks) {
  using T = typename Name::Element;
  using Fold = Rule<Name>;
  static_assert(Side<Name>::kReduces && Fold::kRows == 1);
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  wait_for_kernel_before();
  let_kernel_after_start();
  for (int64_t block = blockIdx.x; block < tasks; block += gridDim.x) {
    if (block >= shape.tasks) {
      fill_empty(side, list, block - shape.tasks);
      continue;
    }
    const Task task(shape, block, V);
    if (task.begin >= list.n || task.column >= side.d) continue;
    int32_t piece = list.boundary(task.begin);
    const int32_t end = list.boundary(task.end);
    if (piece >= end) continue;
    const RecordRing ring(shape, task, side.d, V, reinterpret_cast<Record*>(shared_bytes));
    // The last window's reads of the ring are done.
    __syncwarp(ring.lanes);
    ring.fetch(list, 0, piece, end);
    ring.fetch(list, kRowsInFlight, piece + kRowsInFlight, end);
    int32_t key = list.key(piece);
    bool begins_segment = list.begins[key] == piece;
    State<Fold, V> state{};
    // Where the piece ends if its segment does not before.
    int32_t stop = piece + list.piece_rows() < end ? piece + list.piece_rows() : end;
    int32_t loaded_key = key;  // of the row loaded last
    uint32_t ends = 0;         // bit i: row i of the batch is the last of its segment
    Words<T, V> values[kRowsInFlight] = {};
    const T* x = side.x + task.column;
    // Row u of a batch of which `left` rows are the window's. What is there instead of later records does not count.
    const auto load_row = [&](int u, const Record& record, int32_t left) {
      if (record.key != loaded_key && (u > 0 || left >= 0)) ends |= 1u << (kRowsInFlight - 1 + u);
      loaded_key = record.key;
      if (left <= u || record.key == list.num_segments) return;
      // One multiplication, for neither number is negative.
      values[u] = load_words<V>(x + uint64_t{static_cast<uint32_t>(record.row)} * static_cast<uint32_t>(side.d));
    };
    ring.wait();
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) load_row(u, ring.at(0)[u], end - piece);
    ring.fetch(list, 2 * kRowsInFlight, piece + 2 * kRowsInFlight, end);
    int32_t place = 0;  // of the batch in the ring
    for (int32_t batch = piece; batch < end; batch += kRowsInFlight, place += kRowsInFlight) {
      const int32_t left = end - batch;
      ends >>= kRowsInFlight;
      if (left < kRowsInFlight) ends &= (1u << left) - 1;
      ring.wait();
      ring.fetch(list, place + 3 * kRowsInFlight, batch + 3 * kRowsInFlight, end);
      const Record* now = ring.at(place);
      const Record* after = ring.at(place + kRowsInFlight);
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        const int32_t next = batch + u + 1;
        const Columns<T, V> row = bits_as<Columns<T, V>>(values[u]);
        state.add(row, row, now[u].row, next - 1 == piece);
        const bool ends_segment = (ends >> u & 1) != 0;
        if (ends_segment || next == stop) {
          if (key == list.num_segments) {
            // Rows without a segment have no part in the result.
          } else if (!(begins_segment && ends_segment)) {
            store_part(parts, list.slot(piece, begins_segment) * side.d + task.column, state);
          } else {
            side.template finish_segment<V>(key, task.column, state, next - piece);
          }
          piece = next;
          stop = piece + list.piece_rows() < end ? piece + list.piece_rows() : end;
          begins_segment = ends_segment;
          key = u + 1 < kRowsInFlight ? now[u + 1].key : after[0].key;
        }
        if ((u + 1) % kRowsTogether != 0) continue;
#pragma unroll
        for (int w = u + 1 - kRowsTogether; w <= u; ++w) load_row(w, after[w], left - kRowsInFlight);
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
      if (reads) values[u] = load_words<V>(side.x + side.place(rows[u], column));
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
    select_pieces(Side<Name> side, Shape shape, List list, Parts<Rule<Name>> parts) {
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
        if (!dropped) store_part(parts, list.slot(piece, list.begins[key] == piece) * side.d + task.column, state);
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
          if (batch + u < stop) values[u] = load_words<V>(side.x + side.place(records[u].row, task.column));
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

// Joins the parts of segments of several pieces. Each warp of a block looks for one that begins in its window of a
// piece's length, and joins 32 columns of it, if it is short. The block joins the long ones together: if parts may be
// joined in any grouping, each warp joins its share and one warp what they have; if not, the first warp adds parts in
// ascending order while the others fetch the next ones. Of sums of exponentials, what each part is scaled by follows
// from the values before it alone, and all warps compute it.
constexpr int kJoinWarps = 16;
constexpr int kJoinThreads = 32 * kJoinWarps;
// Parts a warp fetches at once: those of all warps fit the 48 KiB that need no opt-in, those added in order twice.
template <class Fold>
constexpr bool kJoinsInOrder = !Fold::kAnyGrouping && !IsExponentialSum<Fold>::value;
template <class Fold>
constexpr int kJoinBatch =
    (sizeof(typename Fold::First) + sizeof(typename Fold::Second) > 9 ? 4 : 8) / (kJoinsInOrder<Fold> ? 2 : 1);
constexpr int kJoinAlone = 32;

template <class Fold, class Ranks>
struct Joiner {
  const Ranks& list;
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
  static constexpr int kTogether = (kJoinsInOrder<Fold> ? kJoinWarps - 1 : kJoinWarps) * kJoinBatch<Fold>;
  static constexpr int kParts = Fold::kAnyGrouping ? kJoinWarps : kJoinsInOrder<Fold> ? 2 * kTogether : kTogether;
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
template <class Ranks>
__device__ __forceinline__ int32_t find_segment(const Ranks& list, int64_t window, int32_t* key) {
  const int64_t next = (window + 1) << list.piece_bits;
  if (next >= list.n) return 0;
  *key = list.key(static_cast<int32_t>(next));
  if (!list.in_pieces(*key)) return 0;
  const int32_t begin = list.begin(*key);
  if (begin >= next || begin < next - list.piece_rows()) return 0;
  return (list.length(*key) + list.piece_rows() - 1) >> list.piece_bits;
}

template <class Fold, class Ranks>
__device__ __forceinline__ State<Fold, 1> join_in_order(const Joiner<Fold, Ranks>& joiner, int32_t first,
                                                        int32_t last) {
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
template <class Fold, class Ranks>
__device__ State<Fold, 1> join_scaled(const Joiner<Fold, Ranks>& joiner, JoinTables<Fold>& tables) {
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
template <class Fold, class Ranks>
__device__ State<Fold, 1> join_together(const Joiner<Fold, Ranks>& joiner, JoinTables<Fold>& tables) {
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
    // While one half of the tables is added up, the other one is filled.
    constexpr int32_t kTogether = JoinTables<Fold>::kTogether;
    const int32_t mine = (warp - 1) * kJoinBatch<Fold>;
    State<Fold, 1> fetched[kJoinBatch<Fold>];
    if (warp > 0) joiner.fetch(mine, fetched);
    __syncthreads();
    int32_t half = 0;
    for (int32_t batch = 0; batch < joiner.count; batch += kTogether, half = kTogether - half) {
      if (warp > 0) {
#pragma unroll
        for (int u = 0; u < kJoinBatch<Fold>; ++u) tables.put(half + mine + u, lane, fetched[u]);
      }
      __syncthreads();
      if (warp > 0) {
        joiner.fetch(batch + kTogether + mine, fetched);
        continue;
      }
      const int32_t left = joiner.count - batch < kTogether ? joiner.count - batch : kTogether;
      if (batch == 0) state = tables.get(0, lane);
#pragma unroll 8
      for (int i = batch == 0 ? 1 : 0; i < left; ++i) state.join(tables.get(half + i, lane));
    }
  }
  return state;
}

template <class Name, class Ranks>
__device__ __forceinline__ void finish_join(const Side<Name>& side, const Joiner<Rule<Name>, Ranks>& joiner,
                                            int32_t key, const State<Rule<Name>, 1>& state) {
  if (joiner.column >= side.d) return;
  const int32_t column = static_cast<int32_t>(joiner.column);
  if constexpr (Side<Name>::kReduces) {
    side.template finish_segment<1>(key, column, state, joiner.list.length(key));
  } else if constexpr (!Rule<Name>::kReadsRowsAgain) {
    side.finish_holder(key, column, state);
  } else {
    store_part(joiner.parts, joiner.list.slot(joiner.begin, true) * side.d + column, state);
  }
}

template <class Name, class Ranks>
__device__ __forceinline__ void join_all(const Side<Name>& side, const Ranks& list, const Parts<Rule<Name>>& parts) {
  using Fold = Rule<Name>;
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
      const Joiner<Fold, Ranks> joiner{list, parts, list.begin(key), count, side.d, column};
      finish_join(side, joiner, key, join_in_order(joiner, 0, count));
    }
    __syncthreads();
    for (int i = 0; i < kJoinWarps; ++i) {
      const int32_t mine = long_keys[i];
      if (mine < 0) continue;
      const int32_t pieces = (list.length(mine) + list.piece_rows() - 1) >> list.piece_bits;
      const Joiner<Fold, Ranks> joiner{list, parts, list.begin(mine), pieces, side.d, column};
      const State<Fold, 1> state = join_together(joiner, tables);
      if (warp == 0) finish_join(side, joiner, mine, state);
      __syncthreads();
    }
    __syncthreads();
  }
}

template <class Name>
__global__ void __launch_bounds__(kJoinThreads) join_parts(Side<Name> side, List list, Parts<Rule<Name>> parts) {
  wait_for_kernel_before();
  let_kernel_after_start();
  join_all(side, list, parts);
}
// The blocks that a join takes for all windows of a piece's length.
inline uint32_t join_blocks(const Pieces& list, int32_t d) {
  const int64_t windows = (slot_count(list.n, list.piece_bits) / 2 + kJoinWarps - 1) / kJoinWarps;
  return blocks_for(windows * ((static_cast<int64_t>(d) + 31) / 32), 1);
}

}  // namespace
}  // namespace baracuda::segment
