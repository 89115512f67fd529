// SPDX-License-Identifier: Apache-2.0
// Maximum pooling's forward on the CPU, a row of windows at a time. Of each column the maximum over the rows that the
// windows span comes first, for all columns at once; then neighbouring columns are joined, at every place of the row,
// and each window takes what stands where it begins.
//
// A maximum stands with its element's place in the plane. Of two the greater value stays, of equal ones the first
// place, of NaNs the last; that is an order of all elements, so that they may be joined in any order, and twice.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cpu_convert.h"
#include "ops/max_pool/launch.h"
#include "ops/max_pool/math.h"

namespace baracuda::max_pool {
namespace {

// Columns of a row that are kept at a time, in lines with room for a vector more, all arrays in 32 KiB. Lines are not a
// multiple of 4 KiB apart, or else they would compete for the same places of the cache.
constexpr int32_t kColumns = 896;
constexpr int32_t kLine = kColumns + 16;
// Rows that take part in one pass over the columns.
constexpr int kRows = 4;

// An integer as wide as what is compared, so that both fill vectors alike.
template <typename C>
using PlaceOf = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;

// What a column outside the input has for a place: it comes after all others.
constexpr int32_t kNowhere = INT32_MAX;

// Elements of the widest vector.
template <typename C>
constexpr int32_t kLanes = 64 / static_cast<int32_t>(sizeof(C));

// part(first, end) for all of [0, count), in whole vectors. The last one overlaps the one before, for parts that may be
// repeated: elements by themselves would be slower, and wide loads wait long for what narrow stores wrote.
template <typename C, class Part>
void for_lanes(int32_t count, Part part) {
  int32_t first = 0, end = count < kLanes<C> ? count : count - count % kLanes<C>;
  for (;;) {
    part(first, end);
    if (end == count) return;
    first = count - kLanes<C>, end = count;
  }
}

template <typename T>
struct ColumnArrays {
  using C = Compute<T>;
  // Two lines of maxima: one is made from the other.
  C best[2 * kLine];
  PlaceOf<C> places[2 * kLine];
  int32_t begins[kColumns];  // where each window's maximum stands, windows being adaptive
  C wide[kRows][std::is_same_v<T, C> ? 1 : kColumns];
};

template <typename T>
class ColumnMaxima {
 public:
  using C = Compute<T>;
  using P = PlaceOf<C>;

  ColumnMaxima(const Pooling& p, const ForwardBuffers<T>& b, ColumnArrays<T>& arrays) : p_(p), b_(b), a_(arrays) {}

  // Whether the columns of any window fit, and places that are kept in 32 bits.
  static bool can(const Problem& p) {
    const PoolAxis& w = p.axes[2];
    const int64_t width = w.is_adaptive() ? w.extent / at_least(w.bins, 1) + 2
                                          : (static_cast<int64_t>(w.kernel) - 1) * w.dilation + 1;
    return width <= kColumns && p.plane_numel <= INT32_MAX;
  }

  // Rows of windows [begin, end), of some windows after the other.
  void pool(int64_t begin, int64_t end) {
    for (int32_t first = 0; first < p_.w.bins; first += count_) {
      enter(first);
      for (int64_t row = begin; row < end; ++row) pool_row(row);
    }
  }

 private:
  // The columns of a window, whether they are in the input or not.
  int64_t begin_of(int32_t window) const {
    if (p_.w.is_adaptive()) return window_of(p_.w, window).first;
    return static_cast<int64_t>(window) * p_.w.stride - p_.w.padding;
  }
  int64_t end_of(int32_t window) const {
    if (p_.w.is_adaptive()) return window_of(p_.w, window).end;
    return begin_of(window) + static_cast<int64_t>(gap_) * (size_ - 1) + 1;
  }

  // The windows from `first` on whose columns fit.
  void enter(int32_t first) {
    const PoolWindows& w = p_.w;
    first_ = first;
    // Adaptive windows have this many columns, or one more.
    size_ = w.is_adaptive() ? static_cast<int32_t>(ceil_div(w.extent, w.bins)) : w.kernel;
    gap_ = w.is_adaptive() || size_ == 1 ? 1 : w.dilation;
    begin_ = begin_of(first);
    count_ = 1;
    while (count_ < kColumns && first + count_ < w.bins && end_of(first + count_) - begin_ <= kColumns) ++count_;
    width_ = static_cast<int32_t>(end_of(first + count_ - 1) - begin_);
    low_ = static_cast<int32_t>(at_most(at_least(-begin_, 0), width_));
    high_ = static_cast<int32_t>(at_least(at_most(w.extent - begin_, width_), low_));
    if (!w.is_adaptive()) return;
    has_longer_ = false;
    int32_t line = 0;
    for (int32_t joined = 1; joined < size_; joined = next_size(joined)) line = kLine - line;
    for (int32_t j = 0; j < count_; ++j) {
      const PoolRange range = window_of(w, first + j);
      const bool is_longer = range.size() > size_;
      has_longer_ = has_longer_ || is_longer;
      a_.begins[j] = static_cast<int32_t>(range.first - begin_) + (is_longer ? kLine - line : line);
    }
  }

  int32_t next_size(int32_t joined) const { return joined <= size_ - joined ? 2 * joined : size_; }

  void pool_row(int64_t row) {
    const int64_t slab = row / p_.h.bins;
    const Places hs = places_of(p_.h, static_cast<int32_t>(row % p_.h.bins));
    const Places ds = places_of(p_.d, static_cast<int32_t>(slab % p_.d.bins));
    const T* const input = b_.input + slab / p_.d.bins * p_.plane_numel;
    const int64_t at = row * p_.w.bins + first_;
    if (low_ == high_ || hs.first >= hs.end || ds.first >= ds.end) {
      for (int32_t j = 0; j < count_; ++j) b_.indices[at + j] = kNoElement, b_.output[at + j] = lowest<T>();
      return;
    }
    add_rows(input, ds, hs);
    for (int32_t i = 0; i < low_; ++i) a_.best[i] = lowest<C>(), a_.places[i] = kNowhere;
    for (int32_t i = high_; i < width_; ++i) a_.best[i] = lowest<C>(), a_.places[i] = kNowhere;
    if (has_nans()) {
      join_columns<true>();
    } else {
      join_columns<false>();
    }
    store(input, at);
  }

  // The columns' maxima over the rows.
  void add_rows(const T* input, const Places& ds, const Places& hs) {
    const C* rows[kRows];
    P places[kRows];
    int waiting = 0;
    bool is_first = true;
    for (int64_t z = ds.first; z < ds.end; z += ds.step) {
      for (int64_t y = hs.first; y < hs.end; y += hs.step) {
        if (waiting == kRows) {
          compare(rows, places, waiting, is_first);
          waiting = 0, is_first = false;
        }
        const int64_t place = (z * p_.h.extent + y) * p_.w.extent + begin_ + low_;
        places[waiting] = static_cast<P>(place);
        if constexpr (std::is_same_v<T, C>) {
          rows[waiting] = input + place;
        } else {
          widen_row(input + place, a_.wide[waiting], high_ - low_);
          rows[waiting] = a_.wide[waiting];
        }
        ++waiting;
      }
    }
    compare(rows, places, waiting, is_first);
  }

  void compare(const C* const* rows, const P* places, int count, bool is_first) {
    switch (count) {
      case 1: return is_first ? compare_rows<1, true>(rows, places) : compare_rows<1, false>(rows, places);
      case 2: return is_first ? compare_rows<2, true>(rows, places) : compare_rows<2, false>(rows, places);
      case 3: return is_first ? compare_rows<3, true>(rows, places) : compare_rows<3, false>(rows, places);
      default: return is_first ? compare_rows<4, true>(rows, places) : compare_rows<4, false>(rows, places);
    }
  }

  template <int kCount, bool kIsFirst>
  void compare_rows(const C* const* rows, const P* places) {
    for_lanes<C>(high_ - low_, [&](int32_t first, int32_t end) {
      compare_part<kCount, kIsFirst>(rows, places, first, end);
    });
  }

  // No loop over the rows: around that one, none is vectorised.
  template <int kCount, bool kIsFirst>
  void compare_part(const C* const* rows, const P* places, int32_t first, int32_t end) const {
    constexpr int k1 = kCount > 1 ? 1 : 0, k2 = kCount > 2 ? 2 : 0, k3 = kCount > 3 ? 3 : 0;
    const C *const r0 = rows[0], *const r1 = rows[k1], *const r2 = rows[k2], *const r3 = rows[k3];
    const P at0 = places[0], at1 = places[k1], at2 = places[k2], at3 = places[k3];
    C* __restrict__ const best = a_.best + low_;
    P* __restrict__ const kept = a_.places + low_;
    for (int32_t i = first; i < end; ++i) {
      C top = kIsFirst ? r0[i] : best[i];
      P place = kIsFirst ? at0 + i : kept[i];
      const auto take = [&](C next, P next_place) {
        const bool takes = (next > top) | (next != next);
        top = takes ? next : top;
        place = takes ? next_place : place;
      };
      if constexpr (!kIsFirst) take(r0[i], at0 + i);
      if constexpr (kCount > 1) take(r1[i], at1 + i);
      if constexpr (kCount > 2) take(r2[i], at2 + i);
      if constexpr (kCount > 3) take(r3[i], at3 + i);
      best[i] = top;
      kept[i] = place;
    }
  }

  bool has_nans() const {
    const C* const best = a_.best + low_;
    P nans = 0;
    for (int32_t i = 0; i < high_ - low_; ++i) nans |= best[i] != best[i] ? 1 : 0;
    return nans != 0;
  }

  // Maxima of as many columns as windows have, at every place; then of one more, in the other line.
  template <bool kHasNans>
  void join_columns() {
    int32_t line = 0, width = width_;
    for (int32_t joined = 1; joined < size_; joined = next_size(joined)) {
      const int32_t apart = (next_size(joined) - joined) * gap_;
      width -= apart;
      join<kHasNans>(line, apart, width);
      line = kLine - line;
    }
    line_ = line;
    if (p_.w.is_adaptive() && has_longer_) join<kHasNans>(line, 1, width - 1);
  }

  // From the line that begins at `from` to the other: what begins at each place with what begins `apart` columns later.
  // In whole vectors: nothing is read of what they make beyond `count`.
  template <bool kHasNans>
  void join(int32_t from, int32_t apart, int32_t count) {
    const C *const best = a_.best + from, *const later = best + apart;
    const P *const places = a_.places + from, *const later_places = places + apart;
    C* const to = a_.best + (kLine - from);
    P* const to_places = a_.places + (kLine - from);
    const int32_t end = groups_of(count, kLanes<C>) * kLanes<C>;
#pragma GCC ivdep
    for (int32_t i = 0; i < end; ++i) {
      const C top = best[i], next = later[i];
      const P place = places[i], next_place = later_places[i];
      bool takes = (next > top) | ((next == top) & (next_place < place));
      if constexpr (kHasNans) takes = takes | ((next != next) & ((top == top) | (next_place > place)));
      to[i] = takes ? next : top;
      to_places[i] = takes ? next_place : place;
    }
  }

  void store(const T* input, int64_t at) const {
    if (p_.w.is_adaptive()) {
      put(input, at, [begins = a_.begins](int64_t j) { return begins[j]; });
    } else if (p_.w.stride == 1) {
      put(input, at, [line = line_](int64_t j) { return line + j; });
    } else if (p_.w.stride == 2) {
      put(input, at, [line = line_](int64_t j) { return line + 2 * j; });
    } else {
      put(input, at, [line = line_, stride = int64_t{p_.w.stride}](int64_t j) { return line + j * stride; });
    }
  }

  // place_of(j) is where window j's maximum stands.
  template <class PlaceOfWindow>
  void put(const T* input, int64_t at, PlaceOfWindow place_of) const {
    const C* const best = a_.best;
    const P* const places = a_.places;
    int64_t* const indices = b_.indices + at;
    T* const output = b_.output + at;
    for_lanes<C>(count_, [=](int32_t from, int32_t end) {
#pragma GCC ivdep
      for (int32_t j = from; j < end; ++j) indices[j] = places[place_of(j)];
      if constexpr (std::is_same_v<T, C>) {
#pragma GCC ivdep
        for (int32_t j = from; j < end; ++j) output[j] = best[place_of(j)];
      }
    });
    const bool may_lack = low_ > 0 || high_ < width_;
    if (may_lack) {
      for (int32_t j = 0; j < count_; ++j) indices[j] = indices[j] == kNowhere ? kNoElement : indices[j];
    }
    if constexpr (!std::is_same_v<T, C>) {
      // Bits that widening may change.
      for (int32_t j = 0; j < count_; ++j) output[j] = indices[j] == kNoElement ? lowest<T>() : input[indices[j]];
    }
  }

  const Pooling& p_;
  const ForwardBuffers<T>& b_;
  ColumnArrays<T>& a_;
  // Windows [first_, first_ + count_); their columns are begin_ + [0, width_), of which [low_, high_) are in the input.
  int32_t first_ = 0, count_ = 0;
  int64_t begin_ = 0;
  int32_t width_ = 0, low_ = 0, high_ = 0;
  int32_t size_ = 0, gap_ = 1;  // columns of a window, and how far they are apart
  bool has_longer_ = false;     // whether a window has one more
  int32_t line_ = 0;            // where the joined maxima's line begins
};

}  // namespace
}  // namespace baracuda::max_pool
