// SPDX-License-Identifier: Apache-2.0
// Reductions of the sorted list on the CPU: threads own windows of ranks, lanes are columns.
#pragma once

#include "core/cpu_bytes.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "ops/segment/cpu/sort.h"
#include "ops/segment/launch.h"

namespace baracuda::segment {
namespace {

// A window is long enough to cost nothing beside its rows, and short enough that some hundred of them balance the
// threads.
constexpr int32_t kShortestWindow = 64;
constexpr int32_t kLongestWindow = 1024;
constexpr int64_t kEnoughWindows = 128;
// Columns of one task, so that few wide rows are shared out as well.
constexpr int64_t kTaskColumns = 1024;
// Columns that are folded at once: four 512-bit vectors of f32.
constexpr int32_t kLanes = 64;
// Rows that are fetched ahead: they lie anywhere, so the processor cannot guess them. Into the second cache, which
// keeps more misses in flight than the first: on a Zen 4, 100,000 rows of 256 bytes are summed in 1.8 ms on a thread,
// and in 2.9 ms with 8 or 16 rows on their way to the first.
constexpr int64_t kRowsAhead = 24;
constexpr int kSecondCache = 2;

// What a rule keeps of up to kLanes columns.
template <class Fold, typename T>
struct Lanes {
  typename Fold::First first[kLanes];
  typename Fold::Second second[kLanes];

  inline __attribute__((always_inline)) void add_lanes(const T* __restrict__ x, const T* __restrict__ y, int32_t row,
                                                       bool begins, int32_t count) {
    if (begins) {
      for (int32_t k = 0; k < count; ++k) Fold::begin(first[k], second[k], x[k], y[k], row);
    } else {
      for (int32_t k = 0; k < count; ++k) Fold::add(first[k], second[k], x[k], y[k], row);
    }
  }
  void add(const T* x, const T* y, int32_t row, bool begins, int32_t count) {
    // A loop of known length vectorises without a remainder.
    count == kLanes ? add_lanes(x, y, row, begins, kLanes) : add_lanes(x, y, row, begins, count);
  }
  void join(const Parts<Fold>& parts, int64_t at, int32_t count) {
    for (int32_t k = 0; k < count; ++k) {
      typename Fold::Second later{};
      if constexpr (Parts<Fold>::kHasSecond) later = parts.second[at + k];
      Fold::join(first[k], second[k], parts.first[at + k], later);
    }
  }
  void load(const Parts<Fold>& parts, int64_t at, int32_t count) {
    for (int32_t k = 0; k < count; ++k) first[k] = parts.first[at + k];
    if constexpr (Parts<Fold>::kHasSecond) {
      for (int32_t k = 0; k < count; ++k) second[k] = parts.second[at + k];
    }
  }
  void store(const Parts<Fold>& parts, int64_t at, int32_t count) const {
    for (int32_t k = 0; k < count; ++k) parts.first[at + k] = first[k];
    if constexpr (Parts<Fold>::kHasSecond) {
      for (int32_t k = 0; k < count; ++k) parts.second[at + k] = second[k];
    }
  }
};

// The ranks [begin, end), all of one segment, in the columns [column, column + count).
struct RankBlock {
  int32_t begin, end;
  int64_t column;
  int32_t count;
};

template <typename T>
void fetch_row(const T* values, int32_t count) {
  const char* bytes = reinterpret_cast<const char*>(values);
  for (int64_t i = 0; i < count * static_cast<int64_t>(sizeof(T)); i += kCacheLine) {
    __builtin_prefetch(bytes + i, 0, kSecondCache);
  }
}

inline void store_row_index(void* rows, bool wide, int64_t at, int64_t row) {
  if (wide) {
    static_cast<int64_t*>(rows)[at] = row;
  } else {
    static_cast<int32_t*>(rows)[at] = static_cast<int32_t>(row);
  }
}

// How rows are folded that are more than values: Terms of such a rule have fold(folding, part, kept), which does it,
// and divisor(rows), what a segment's result takes for its number of rows.
template <class Tag>
struct Terms {
  static constexpr bool kSome = false;
};

// One call of a rule that keeps something of a segment's rows.
template <class Tag>
struct Folding {
  using Fold = Rule<Tag>;
  using T = typename Tag::Element;
  using Kept = Lanes<Fold, T>;
  static constexpr bool kReduces = Fold::kKind == Kind::kReduce;

  int64_t d;
  int32_t num_segments;
  int32_t window;
  // Whether the rows' results are written past the caches: lines written in part would cost twice as much, and rows lie
  // anywhere, so that nobody writes the other part soon.
  bool streams = false;
  WorkspaceLayout layout;
  RowSorter sorter;
  Parts<Fold> parts;
  Buffers<Tag> b{};
  List list{};
  Terms<Tag> terms{};

  Folding(const Problem& p, void* workspace)
      : d(p.d),
        num_segments(p.num_segments),
        window(kShortestWindow),
        sorter(p, layout, workspace),
        parts(p, layout, workspace) {
    while (window < kLongestWindow && p.n / (2 * window) >= kEnoughWindows) window *= 2;
  }

  const T* x(int32_t rank, int64_t column) const { return b.rows[0] + list.row(rank) * d + column; }
  const T* y(int32_t rank, int64_t column) const { return b.rows[Fold::kRows - 1] + list.row(rank) * d + column; }

  // Runs body(window, first column, end column) over all windows of `length` ranks and blocks of columns.
  template <class Body>
  void for_each_task(int64_t length, int64_t rows_per_task, Body body) const {
    const int64_t blocks = ceil_div(d, kTaskColumns), columns = d;
    const int64_t width = d < kTaskColumns ? d : kTaskColumns;
    parallel_for(ceil_div(list.n, length) * blocks, grain_for(rows_per_task * width), [=](int64_t task) {
      const int64_t first = task % blocks * kTaskColumns;
      body(task / blocks, first, first + kTaskColumns < columns ? first + kTaskColumns : columns);
    });
  }
  template <class Body>
  static void for_each_block(int64_t first_column, int64_t end_column, Body body) {
    for (int64_t column = first_column; column < end_column; column += kLanes) {
      body(column, end_column - column < kLanes ? static_cast<int32_t>(end_column - column) : kLanes);
    }
  }

  void fold(const RankBlock& part, Kept& kept) const {
    if constexpr (Terms<Tag>::kSome) {
      terms.fold(*this, part, kept);
    } else {
      fold_rows(part, kept);
    }
  }
  void fold_rows(const RankBlock& part, Kept& kept) const {
    const int32_t last = list.n - 1;
    for (int32_t rank = part.begin; rank < part.end; ++rank) {
      fetch_row(x(rank + kRowsAhead < last ? rank + kRowsAhead : last, part.column), part.count);
      kept.add(x(rank, part.column), y(rank, part.column), list.row(rank), rank == part.begin, part.count);
    }
  }

  // What becomes of a whole segment's state.
  void finish(int32_t key, const RankBlock& part, const Kept& kept) const {
    if constexpr (kReduces) {
      finish_segment(key, part, kept);
    } else {
      finish_rows(key, part, kept);
    }
  }
  void finish_segment(int32_t key, const RankBlock& part, const Kept& kept) const {
    const int64_t at = key * d + part.column;
    T* __restrict__ output = b.result + at;
    int32_t rows = list.length(key);
    if constexpr (Terms<Tag>::kSome) rows = terms.divisor(rows);
    for (int32_t k = 0; k < part.count; ++k) output[k] = Fold::output(kept.first[k], kept.second[k], rows);
    if constexpr (std::is_same_v<typename Fold::Second, int32_t>) {
      if (b.result_arg == nullptr) return;
      for (int32_t k = 0; k < part.count; ++k) store_row_index(b.result_arg, b.wide_index, at + k, kept.second[k]);
    }
  }
  void finish_rows(int32_t key, const RankBlock& part, const Kept& kept) const {
    // Rules without a tensor of segments are given any values.
    const T* s = Fold::kSegments > 0 ? b.segments[0] + key * d + part.column : x(part.begin, part.column);
    for (int32_t rank = part.begin; rank < part.end; ++rank) {
      const int32_t row = list.row(rank);
      T* const result = b.result + row * d + part.column;
      T formed[kLanes];
      finish_row(kept, s, x(rank, part.column), y(rank, part.column), row, streams ? formed : result, part.count);
      constexpr int32_t kLine = kCacheLine / sizeof(T);
      for (int32_t k = 0; streams && k < part.count; k += kLine) stream_line(result + k, formed + k);
    }
  }
  inline __attribute__((always_inline)) static void finish_lanes(const Kept& kept, const T* __restrict__ s,
                                                                 const T* __restrict__ x, const T* __restrict__ y,
                                                                 int32_t row, T* __restrict__ result, int32_t count) {
    for (int32_t k = 0; k < count; ++k) {
      result[k] = Fold::value(kept.first[k], kept.second[k], s[k], Fold::kReadsRowsAgain ? x[k] : T{},
                              Fold::kReadsRowsAgain ? y[k] : T{}, row);
    }
  }
  static void finish_row(const Kept& kept, const T* s, const T* x, const T* y, int32_t row, T* result, int32_t count) {
    count == kLanes ? finish_lanes(kept, s, x, y, row, result, kLanes)
                    : finish_lanes(kept, s, x, y, row, result, count);
  }

  // Finishes the segments of one piece and keeps the parts of the others.
  void own_window(int64_t at, int64_t first_column, int64_t end_column) const {
    const int32_t end = list.boundary((at + 1) * window);
    for (int32_t piece = list.boundary(at * window), next; piece < end; piece = next) {
      const int32_t key = list.key(piece);
      next = piece + 1;
      while (next < end && next - piece < list.piece_rows() && list.key(next) == key) ++next;
      const bool begins = list.begins[key] == piece, ends = next == list.n || list.key(next) != key;
      for_each_block(first_column, end_column, [&](int64_t column, int32_t count) {
        const RankBlock part{piece, next, column, count};
        if (key == num_segments) {
          drop(part);
          return;
        }
        Kept kept;
        fold(part, kept);
        if (begins && ends) {
          finish(key, part, kept);
        } else {
          kept.store(parts, list.slot(piece, begins) * d + column, count);
        }
      });
    }
    if (streams) end_stream();
  }
  void drop(const RankBlock& part) const {
    if constexpr (!kReduces) {
      for (int32_t rank = part.begin; rank < part.end; ++rank) {
        T* result = b.result + list.row(rank) * d + part.column;
        for (int32_t k = 0; k < part.count; ++k) result[k] = T{};
      }
    }
  }

  // Joins the parts of the segment of several pieces that begins in a window of a piece's length, in ascending order.
  void join_window(int64_t at, int64_t first_column, int64_t end_column) const {
    const int64_t next = (at + 1) << list.piece_bits;
    if (next >= list.n) return;
    const int32_t key = list.key(static_cast<int32_t>(next));
    if (!list.in_pieces(key)) return;
    const int32_t begin = list.begins[key], end = list.begins[key + 1];
    if (begin >= next || begin < next - list.piece_rows()) return;
    for_each_block(first_column, end_column, [&](int64_t column, int32_t count) {
      Kept kept;
      kept.load(parts, list.slot(begin, true) * d + column, count);
      for (int64_t piece = int64_t{begin} + list.piece_rows(); piece < end; piece += list.piece_rows()) {
        kept.join(parts, list.slot(static_cast<int32_t>(piece), false) * d + column, count);
      }
      if constexpr (kReduces) {
        finish_segment(key, {begin, begin + 1, column, count}, kept);
      } else {
        kept.store(parts, list.slot(begin, true) * d + column, count);
      }
    });
  }

  // Writes a window's rows of segments of several pieces.
  void finish_window(int64_t at, int64_t first_column, int64_t end_column) const {
    const int32_t begin = static_cast<int32_t>(at * window);
    const int32_t end = (at + 1) * window < list.n ? static_cast<int32_t>((at + 1) * window) : list.n;
    for (int32_t rank = begin, next; rank < end; rank = next) {
      const int32_t key = list.key(rank);
      next = rank + 1;
      while (next < end && list.key(next) == key) ++next;
      if (!list.in_pieces(key)) continue;
      for_each_block(first_column, end_column, [&](int64_t column, int32_t count) {
        Kept kept;
        kept.load(parts, list.slot(list.begins[key], true) * d + column, count);
        finish_rows(key, {rank, next, column, count}, kept);
      });
    }
    if (streams) end_stream();
  }

  Status run(const Buffers<Tag>& buffers) {
    b = buffers;
    const int64_t row_bytes = d * static_cast<int64_t>(sizeof(T));
    streams = !kReduces && row_bytes * sorter.rows() >= kStreamedBytes && row_bytes % kCacheLine == 0 &&
              reinterpret_cast<uintptr_t>(b.result) % kCacheLine == 0;
    list = b.wide_index ? sorter.order(static_cast<const int64_t*>(b.index), parts.piece_bits)
                        : sorter.order(static_cast<const int32_t*>(b.index), parts.piece_bits);
    return fold_list();
  }
  Status fold_list() const {
    const Folding& self = *this;
    const auto task = [&self](auto member) {
      return [&self, member](int64_t at, int64_t first, int64_t end) { (self.*member)(at, first, end); };
    };
    for_each_task(window, window, task(&Folding::own_window));
    if (list.n > list.piece_rows()) {
      for_each_task(list.piece_rows(), 2, task(&Folding::join_window));
      if constexpr (!kReduces) for_each_task(window, window, task(&Folding::finish_window));
    }
    if constexpr (kReduces) {
      parallel_for(num_segments, grain_for(d), [&self](int64_t key) {
        if (self.list.length(static_cast<int32_t>(key)) > 0) return;
        for (int64_t at = key * self.d; at < (key + 1) * self.d; ++at) {
          self.b.result[at] = self.b.of_no_rows;
          if (self.b.result_arg != nullptr) store_row_index(self.b.result_arg, self.b.wide_index, at, -1);
        }
      });
    }
    return Status::kOk;
  }
};

}  // namespace
}  // namespace baracuda::segment
