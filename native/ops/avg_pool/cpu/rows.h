// SPDX-License-Identifier: Apache-2.0
// Average pooling on the CPU, either direction by the same code. Of a row's boxes first the columns are added, for all
// its elements at once, then each element adds those of its own.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/cpu_convert.h"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

// Columns whose sums are kept at a time; the arrays of one thread are then 128 KiB in f64.
constexpr int32_t kColumns = 2048;

template <typename C>
struct Arrays {
  C columns[kColumns];  // the sums of a row's columns
  C column_partials[kColumns];
  C depth[kColumns];  // those along d, of one h
  C depth_partials[kColumns];
  C terms[kColumns];  // one row of the source, widened
  C divisors[kColumns];  // of windows, along a row of them
  C results[kColumns];   // one row of the destination
  PoolRange sources[kColumns];  // the columns of each of them
};

// Where sums of columns are wanted: source columns [first, end), of the source rows that two ranges span.
struct Box {
  PoolRange d, h, columns;

  bool operator==(const Box& other) const {
    return d.first == other.d.first && d.end == other.d.end && h.first == other.h.first && h.end == other.h.end;
  }
  bool is_empty() const { return d.size() <= 0 || h.size() <= 0 || columns.size() <= 0; }
};

template <class Buffers>
class RowSums {
 public:
  using T = typename Buffers::Element;
  using C = Compute<T>;
  static constexpr bool kBackward = Buffers::kBackward;

  RowSums(const Pooling& p, const Buffers& b, Arrays<C>& arrays)
      : p_(p), b_(b), a_(arrays), width_(destination_extent<kBackward>(p.axes[2])),
        source_width_(source_extent<kBackward>(p.axes[2])) {}

  // The destination's rows [begin, end), some of its columns after the other.
  void add_rows(int64_t begin, int64_t end) {
    for (int32_t first = 0; first < width_;) first = add_columns(begin, end, first);
  }

 private:
  // From destination column `first` on as many as the arrays hold the sources of; answers the column behind them.
  int32_t add_columns(int64_t begin, int64_t end, int32_t first) {
    PoolRange span = sources(first);
    a_.sources[0] = span;
    int32_t last = first + 1;
    if (span.size() <= kColumns) {
      for (; last < width_ && last - first < kColumns; ++last) {
        const PoolRange next = sources(last);
        if (next.end - span.first > kColumns) break;
        if (next.end > span.end) span.end = next.end;
        a_.sources[last - first] = next;
      }
    }
    const bool is_long = span.size() > kColumns;
    cached_count_ = 0;
    Box done{};
    int64_t done_row = -1;
    for (int64_t row = begin; row < end; ++row) {
      const Place at = place_of(row);
      Box box{sources_of<kBackward>(p_.axes[0], at.d), sources_of<kBackward>(p_.axes[1], at.h), span};
      T* const to = b_.destination + row * width_ + first;
      // Rows that add the same source rows are equal; but for the divisor, which is the window's own.
      if (kBackward && at.h > 0 && done_row == row - 1 && box == done) {
        memcpy(to, to - width_, static_cast<size_t>(last - first) * sizeof(T));
      } else if (is_long) {
        to[0] = finished(long_sum(at, box), at, first);
      } else {
        add_columns_of_row(at, box, first, last, to);
      }
      done = box, done_row = row;
    }
    return last;
  }

  struct Place {
    int64_t plane;
    int32_t d, h;
  };

  Place place_of(int64_t row) const {
    const int64_t rows = destination_extent<kBackward>(p_.axes[1]), depth = destination_extent<kBackward>(p_.axes[0]);
    return {row / rows / depth, static_cast<int32_t>(row / rows % depth), static_cast<int32_t>(row % rows)};
  }

  PoolRange sources(int32_t column) const { return sources_of<kBackward>(p_.axes[2], column); }

  void add_columns_of_row(const Place& at, const Box& box, int32_t first, int32_t last, T* to) {
    add_source_rows(at, box);
    const int32_t count = last - first;
    for (int32_t j = 0; j < count; ++j) {
      const PoolRange range = a_.sources[j];
      const C* const column = a_.columns + (range.first - box.columns.first);
      a_.results[j] = sum_of(column, range.size());
    }
    if constexpr (!kBackward) divide(at, box, first, count);
    narrow_row<T>(a_.results, to, count);
  }

  static C sum_of(const C* columns, int32_t count) {
    if (count <= kTermsInPartial) {
      C sum = 0;
      for (int32_t k = 0; k < count; ++k) sum += columns[k];
      return sum;
    }
    Sum<C> sum;
    for (int32_t k = 0; k < count; ++k) sum.add(columns[k]);
    return sum.result();
  }

  // Puts the columns' sums into a_.columns.
  void add_source_rows(const Place& at, const Box& box) {
    Rows columns(a_.columns, a_.column_partials, box.columns.size());
    for (int32_t h = box.h.first; h < box.h.end; ++h) {
      if (box.d.size() == 1) {
        // A list of one term, on its way into another.
        columns.add(source_row(at.plane, box.d.first, h, box.columns));
        continue;
      }
      Rows depth(a_.depth, a_.depth_partials, box.columns.size());
      for (int32_t d = box.d.first; d < box.d.end; ++d) depth.add(source_row(at.plane, d, h, box.columns));
      columns.add(depth.result());
    }
    columns.result();
  }

  // Adds rows of terms in order, each element by itself, as Sum does.
  class Rows {
   public:
    Rows(C* sums, C* partials, int32_t count) : sums_(sums), partials_(partials), count_(count) {
      for (int32_t k = 0; k < count_; ++k) sums_[k] = 0;
    }

    void add(const C* row) {
      // The first partial sum is the total so far, since adding it to +0 changes no bits: no sum is -0.
      C* const to = is_cut_ ? partials_ : sums_;
      for (int32_t k = 0; k < count_; ++k) to[k] += row[k];
      if (++terms_ < kTermsInPartial) return;
      if (is_cut_) add_partials();
      is_cut_ = true;
      terms_ = 0;
      for (int32_t k = 0; k < count_; ++k) partials_[k] = 0;
    }

    const C* result() {
      if (is_cut_) add_partials();
      return sums_;
    }

   private:
    void add_partials() {
      for (int32_t k = 0; k < count_; ++k) sums_[k] += partials_[k];
    }

    C *const sums_, *const partials_;
    const int32_t count_;
    int32_t terms_ = 0;
    bool is_cut_ = false;
  };

  // One source row's terms.
  const C* source_row(int64_t plane, int32_t d, int32_t h, PoolRange columns) {
    const int64_t depth = source_extent<kBackward>(p_.axes[0]), rows = source_extent<kBackward>(p_.axes[1]);
    const T* const from = b_.source + ((plane * depth + d) * rows + h) * source_width_ + columns.first;
    const int32_t count = columns.size();
    if constexpr (kBackward) {
      widen_row(from, a_.terms, count);
      find_divisors(d, h, columns);
      for (int32_t k = 0; k < count; ++k) a_.terms[k] /= a_.divisors[k];
      return a_.terms;
    } else if constexpr (sizeof(T) == sizeof(C)) {
      return from;
    } else {
      widen_row(from, a_.terms, count);
      return a_.terms;
    }
  }

  // The divisors of windows [first, end) of a row of them.
  void find_divisors(int32_t d, int32_t h, PoolRange windows) {
    // Rows of windows that count as much have equal divisors, nearly all of them.
    const int64_t face = p_.divisor != 0 ? 1
                                         : count_of(p_.axes[0], p_.count_padding, d) *
                                               count_of(p_.axes[1], p_.count_padding, h);
    if (face == cached_count_ && windows.first == cached_.first && windows.end == cached_.end) return;
    cached_count_ = face, cached_ = windows;
    for (int32_t w = windows.first; w < windows.end; ++w) {
      const int64_t divisor =
          p_.divisor != 0 ? p_.divisor : face * count_of(p_.axes[2], p_.count_padding, w);
      a_.divisors[w - windows.first] = static_cast<C>(divisor);
    }
  }

  void divide(const Place& at, const Box& box, int32_t first, int32_t count) {
    if (box.d.size() <= 0 || box.h.size() <= 0 || box.columns.size() <= 0) return;
    find_divisors(at.d, at.h, {first, first + count});
    for (int32_t j = 0; j < count; ++j) a_.results[j] /= a_.divisors[j];
  }

  // Of a single element with more columns than the arrays hold.
  C long_sum(const Place& at, const Box& box) {
    Sum<C> sum;
    if (box.is_empty()) return 0;
    for (int32_t rest = box.columns.size(); rest > 0; rest -= kColumns) {
      const int32_t first = box.columns.end - rest;
      const Box piece{box.d, box.h, {first, first + (rest < kColumns ? rest : kColumns)}};
      cached_count_ = 0;
      add_source_rows(at, piece);
      for (int32_t k = 0; k < piece.columns.size(); ++k) sum.add(a_.columns[k]);
    }
    return sum.result();
  }

  T finished(C sum, const Place& at, int32_t column) const {
    if constexpr (kBackward) {
      return narrow<T>(sum);
    } else {
      return narrow<T>(sum / static_cast<C>(divisor_of(p_, at.d, at.h, column)));
    }
  }

  const Pooling& p_;
  const Buffers& b_;
  Arrays<C>& a_;
  const int32_t width_, source_width_;
  // What a_.divisors holds.
  int64_t cached_count_ = 0;
  PoolRange cached_{};
};

}  // namespace
}  // namespace baracuda::avg_pool
