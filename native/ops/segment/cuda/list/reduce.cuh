// SPDX-License-Identifier: Apache-2.0
// Reductions of the sorted list on CUDA whose formulas are short: memory is what limits them, so the loads of several
// rows are always on their way.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "ops/segment/cuda/gate.cuh"
#include "ops/segment/cuda/list/tasks.cuh"

namespace baracuda::segment {
namespace {

// A segment of at most so many pieces is joined by the group that keeps the last of its parts: this is hidden behind
// the rows of other groups.
constexpr int32_t kJoinedAtOnce = 64;

// Whether a lane takes 16 bytes at once.
template <class Tag, int V>
constexpr bool kLoadsQuads = sizeof(typename Tag::Element) * V > 8;
// Rows whose loads a lane has in flight. Memory answers all lanes alike, so what a group has asked for is its share of
// what arrives: those that have a long piece ask for more, unless what a row brings besides would not fit in registers.
template <class Tag, int V>
constexpr int kPieceRows = TermsOf<Tag>::kSome ? 8 : kLoadsQuads<Tag, V> ? 16 : 12;
template <class Tag, int V>
constexpr int kWindowRows = kLoadsQuads<Tag, V> && !TermsOf<Tag>::kSome ? 12 : 8;

// Some consecutive records of the list. Where the list ends before, the rest are copies of its last record: so all can
// be loaded without a condition, and nobody uses the copies.
template <int kCount>
struct Records {
  Record at[kCount];

  __device__ __forceinline__ void load(const List& list, int32_t rank) {
    if (rank <= list.n - kCount) {
      // From one address on.
      const Record* records = list.records + rank;
#pragma unroll
      for (int u = 0; u < kCount; ++u) at[u] = records[u];
    } else {
#pragma unroll
      for (int u = 0; u < kCount; ++u) at[u] = list.records[rank + u < list.n ? rank + u : list.n - 1];
    }
  }
  // Bit u: whether a record's key is not that of the next one.
  __device__ __forceinline__ uint32_t changes() const {
    uint32_t changes = 0;
#pragma unroll
    for (int u = 0; u + 1 < kCount; ++u) changes |= at[u].key != at[u + 1].key ? 1u << u : 0;
    return changes;
  }
};

// Rows of consecutive ranks.
template <class Tag, int V, int kCount>
struct Rows {
  using T = typename Tag::Element;
  static constexpr bool kHoldsRows = std::is_same_v<typename Rule<Tag>::Second, int32_t>;
  Words<T, V> values[kCount] = {};
  int32_t rows[kHoldsRows ? kCount : 1];

  // Asks for what decides which rows are loaded. It comes with the records, before load() of the same ranks.
  __device__ __forceinline__ void ask(const Call<Tag>&, int32_t, int32_t, int32_t) {}
  // `rank` is that of the first record.
  __device__ __forceinline__ void load(const Call<Tag>& call, const Records<kCount>& records, int32_t,
                                       int32_t count, int32_t column) {
    const T* x = call.x + column;
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      const Record record = records.at[u];
      if constexpr (kHoldsRows) rows[u] = record.row;
      if (u < count) values[u] = load_words_once<V>(x + call.place(record.row, 0));
    }
  }
  __device__ __forceinline__ int32_t row(int u) const { return kHoldsRows ? rows[kHoldsRows ? u : 0] : 0; }
  __device__ __forceinline__ void fold(State<Rule<Tag>, V>& state, int u) const {
    const Columns<T, V> values_of_row = bits_as<Columns<T, V>>(values[u]);
    state.add(values_of_row, values_of_row, row(u), false);
  }
};

// Rows of bags: each is read several times, and has a factor and columns that take part.
template <typename T, int V, int kCount>
struct Rows<rule::BagSum<T>, V, kCount> {
  using Tag = rule::BagSum<T>;
  Words<T, V> values[kCount] = {};
  Compute<T> factors[kCount];
  // The columns that take part, V bits a row; and words with those of the rows that come next.
  uint32_t columns = 0;
  uint32_t next_columns[kCount];
  static_assert(kCount * V <= 32);

  __device__ __forceinline__ void ask(const Call<Tag>& call, int32_t rank, int32_t count, int32_t column) {
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      next_columns[u] = u < count ? ~0u : 0;
      if (call.columns != nullptr && u < count) {
        next_columns[u] = call.columns[(int64_t{rank} + u) * call.column_words + (column >> 5)];
      }
    }
  }
  __device__ __forceinline__ void load(const Call<Tag>& call, const Records<kCount>& records, int32_t rank,
                                       int32_t count, int32_t column) {
    const T* x = call.x + column;
    columns = 0;
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      const uint32_t taking = next_columns[u] >> (column & 31) & ((1u << V) - 1);
      columns |= taking << u * V;
      factors[u] = Compute<T>(1);
      if (call.factors != nullptr && u < count) factors[u] = call.factors[rank + u];
      if (taking != 0) values[u] = load_words<V>(x + call.place(records.at[u].row, 0));
    }
  }
  __device__ __forceinline__ int32_t row(int) const { return 0; }
  __device__ __forceinline__ void fold(State<Rule<Tag>, V>& state, int u) const {
    const Columns<T, V> x = bits_as<Columns<T, V>>(values[u]);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      auto sum = state.first.at[k];
      auto nothing = state.second.at[k];
      Rule<Tag>::add(sum, nothing, x.at[k], factors[u], 0);
      state.first.at[k] = choose((columns >> (u * V + k) & 1) != 0, sum, state.first.at[k]);
    }
  }
};

// Folds a piece of one segment.
template <class Tag, int V>
__device__ __forceinline__ State<Rule<Tag>, V> fold_piece(const Call<Tag>& call, const List& list, int32_t begin,
                                                           int32_t end, int32_t column) {
  constexpr int kCount = kPieceRows<Tag, V>;
  Records<kCount> records;
  records.load(list, begin);
  State<Rule<Tag>, V> state;
  state.none(records.at[0].row);
  Rows<Tag, V, kCount> rows;
  rows.ask(call, begin, end - begin, column);
#pragma unroll 1
  for (int32_t batch = begin; batch < end; batch += kCount) {
    rows.load(call, records, batch, end - batch, column);
    const int32_t next = batch + kCount;
    records.load(list, next < list.n ? next : list.n - 1);
    rows.ask(call, next, end - next, column);
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      if (batch + u >= end) break;
      rows.fold(state, u);
    }
  }
  return state;
}

// Folds short segments. While some rows are folded, the records of the next ones are on their way.
template <class Tag, int V>
__device__ __forceinline__ void reduce_segments(const Call<Tag>& call, const List& list, int32_t first, int32_t end,
                                                int32_t column) {
  constexpr int kCount = kWindowRows<Tag, V>;
  Records<kCount> records;
  records.load(list, first);
  int32_t key = records.at[0].key;
  State<Rule<Tag>, V> state;
  state.none(records.at[0].row);
  Rows<Tag, V, kCount> rows;
  rows.ask(call, first, end - first, column);
  rows.load(call, records, first, end - first, column);
  uint32_t ends = records.changes();
  int32_t last_key = records.at[kCount - 1].key;
  records.load(list, first + kCount < list.n ? first + kCount : list.n - 1);
  rows.ask(call, first + kCount, end - first - kCount, column);
#pragma unroll 1
  for (int32_t batch = first;; batch += kCount) {
    const int32_t left = end - batch;
    ends |= last_key != records.at[0].key ? 1u << (kCount - 1) : 0;
    // Copies of the last row are folded, too, but nothing is finished behind it, so they do not count.
    if (left <= kCount) ends = (ends & ((1u << left) - 1)) | 1u << (left - 1);
    const int32_t next_row = records.at[0].row;
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      rows.fold(state, u);
      if ((ends >> u & 1) == 0) continue;
      const int32_t next = batch + u + 1;
      call.template finish_segment<V>(key, column, state, next - first);
      first = next;
      key = list.key(next < end ? next : end - 1);
      state.none(u + 1 < kCount ? rows.row(u + 1) : next_row);
    }
    if (left <= kCount) return;
    rows.load(call, records, batch + kCount, left - kCount, column);
    ends = records.changes();
    last_key = records.at[kCount - 1].key;
    const int32_t after = batch + 2 * kCount;
    records.load(list, after < list.n ? after : list.n - 1);
    rows.ask(call, after, end - after, column);
  }
}

// Blocks a multiprocessor, hence registers a thread: for the rows in flight and, of some rules, their indices. More
// loads on their way than memory answers at once would not make it faster, but let a long piece fall behind.
template <class Tag, int V>
constexpr int kReduceBlocks = !kLoadsQuads<Tag, V> ? 10 : std::is_same_v<typename Rule<Tag>::Second, int32_t> ? 6 : 8;

// Keeps a piece's state; if no other piece of its segment is missing, joins them and finishes the segment.
template <class Tag, int V>
__device__ __forceinline__ void keep_piece(const Call<Tag>& call, const ListShape& shape, const List& list,
                                           const Parts<Rule<Tag>>& parts, const CutSegments& cut, uint32_t* kept,
                                           const Task& task, int32_t key, int32_t begin,
                                           const State<Rule<Tag>, V>& state) {
  const int32_t first = list.begin(key), rows = list.end(key) - first, column = task.column;
  const int32_t pieces = groups_of_bits(rows, list.piece_bits);
  if (pieces > kJoinedAtOnce) {
    keep_part(parts, cut, list, call.d, key, begin, first == begin, column, state);
    return;
  }
  store_part(parts, list.slot(begin, first == begin) * call.d + column, state);
  const int32_t lane = threadIdx.x % 32, leader = lane >> shape.lane_bits << shape.lane_bits;
  const int32_t left = groups_of(call.d - (task.column_block << shape.lane_bits) * V, V);
  const uint32_t lanes = kFullWarp >> (32 - (left < shape.lanes() ? left : shape.lanes())) << leader;
  __threadfence();
  __syncwarp(lanes);
  uint32_t before = 0;
  if (lane == leader) {
    const int64_t counters = static_cast<int64_t>(first >> list.piece_bits) * shape.column_blocks;
    before = atomicAdd(kept + counters + task.column_block, 1u);
  }
  before = __shfl_sync(lanes, before, leader);
  if (before + 1 != static_cast<uint32_t>(pieces)) return;
  __threadfence();
  const auto part = [&](int32_t at) {
    return load_kept_part<V>(parts, list.slot(first + (at << list.piece_bits), at == 0) * call.d + column);
  };
  auto all = part(0);
#pragma unroll 1
  for (int32_t batch = 1; batch < pieces; batch += kRowsInFlight) {
    State<Rule<Tag>, V> later[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) later[u] = part(batch + u < pieces ? batch + u : pieces - 1);
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      if (batch + u < pieces) all.join(later[u]);
    }
  }
  call.template finish_segment<V>(key, column, all, rows);
}

template <class Tag, int V>
__global__ void __launch_bounds__(kThreads, (kReduceBlocks<Tag, V>))
    reduce_list(Call<Tag> call, ListShape shape, List list, Parts<Rule<Tag>> parts, CutSegments cut, int64_t tasks,
                uint32_t* kept, Gate gate) {
  static_assert(Call<Tag>::kReduces && Rule<Tag>::kRows == 1);
  wait_for_kernel_before();
  let_kernel_after_start();
  if (gate.is_closed()) return;
  take_tasks<V>(call, shape, list, tasks, [&](const Task& task, RankRange range) {
    if (!task.is_long) {
      reduce_segments<Tag, V>(call, list, range.begin, range.end, task.column);
      return;
    }
    const int32_t key = list.key(range.begin);
    const auto state = fold_piece<Tag, V>(call, list, range.begin, range.end, task.column);
    if (range.end - range.begin == list.length(key)) {
      call.template finish_segment<V>(key, task.column, state, range.end - range.begin);
    } else {
      keep_piece(call, shape, list, parts, cut, kept, task, key, range.begin, state);
    }
  });
}

}  // namespace
}  // namespace baracuda::segment
