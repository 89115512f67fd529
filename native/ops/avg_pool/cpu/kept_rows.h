// SPDX-License-Identifier: Apache-2.0
// Average pooling's gradient on the CPU where an element has few windows. Rows of windows are divided and added along d
// once for all rows of elements that have them. Along a row, places that are a fixed stride apart have as many windows,
// one window further on each: they are a phase, and sums of neighbouring windows. Places have one or two adaptive
// windows.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/cpu_convert.h"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

// Of a row of windows or elements, with what is around it.
constexpr int32_t kKeptColumns = 1536;
// Rows of windows that are kept, all together; the arrays of one thread are then 128 KiB in f64.
constexpr int32_t kKept = 7168;

template <typename C>
struct KeptArrays {
  C kept[kKept];  // rows of windows, divided and added along d, each in the place of one that is not needed any more
  C terms[kKeptColumns];
  C divisors[kKeptColumns];
  C columns[kKeptColumns];  // those added along h, between zeros for windows that are not there
  C phases[kKeptColumns];   // sums of windows, phase after phase
  C results[kKeptColumns];  // those place after place
  int32_t firsts[kKeptColumns], seconds[kKeptColumns];  // the columns of a place, windows being adaptive
};

template <typename T>
class KeptRowSums {
 public:
  using C = Compute<T>;

  KeptRowSums(const Problem& problem, const Pooling& p, const BackwardBuffers<T>& b, KeptArrays<C>& arrays)
      : p_(p),
        b_(b),
        a_(arrays),
        width_(p.axes[2].extent),
        bins_(p.axes[2].bins),
        slots_(static_cast<int32_t>(most_sources<true>(problem.axes[1]))),
        before_(most_before(problem.axes[2])),
        steps_(steps_of(problem.axes[2])) {
    for (int32_t i = 0; i < kKeptColumns; ++i) a_.columns[i] = 0;
    if (!p.axes[2].is_adaptive()) return;
    for (int32_t x = 0; x < width_; ++x) {
      const PoolRange windows = windows_with(p.axes[2], x);
      a_.firsts[x] = static_cast<int32_t>(before_) + windows.first;
      a_.seconds[x] = windows.size() > 1 ? a_.firsts[x] + 1 : 0;
    }
  }

  static bool can(const Problem& p) {
    const PoolAxis& w = p.axes[2];
    if (!has_short_lists<true>(p) || most_before(w) > kTermsInPartial) return false;
    if (w.is_adaptive() && w.bins > w.extent) return false;
    const int64_t places = (static_cast<int64_t>(w.extent) + w.padding) + w.stride;
    return places <= kKeptColumns && steps_of(w) + int64_t{w.bins} + most_before(w) <= kKeptColumns &&
           most_sources<true>(p.axes[1]) * w.bins <= kKept;
  }

  // The destination's rows [begin, end).
  void add_rows(int64_t begin, int64_t end) {
    const int64_t height = p_.axes[1].extent, depth = p_.axes[0].extent;
    for (int64_t row = begin; row < end; ++row) {
      const int32_t y = static_cast<int32_t>(row % height);
      const int64_t slab = row / height;
      T* const to = b_.destination + row * width_;
      if (slab != slab_) {
        slab_ = slab, next_ = 0;
        plane_ = slab / depth;
        ds_ = windows_with(p_.axes[0], static_cast<int32_t>(slab % depth));
      }
      const PoolRange hs = windows_with(p_.axes[1], y);
      // Rows of the same windows are equal.
      if (y > 0 && row > begin && hs.first == hs_.first && hs.end == hs_.end) {
        memcpy(to, to - width_, static_cast<size_t>(width_) * sizeof(T));
        continue;
      }
      hs_ = hs;
      if (hs.size() <= 0 || ds_.size() <= 0) {
        memset(to, 0, static_cast<size_t>(width_) * sizeof(T));
        continue;
      }
      for (next_ = next_ < hs.first ? hs.first : next_; next_ < hs.end; ++next_) keep_row(next_);
      add_kept();
      add_windows();
      narrow_row<T>(a_.results + p_.axes[2].padding, to, width_);
    }
  }

 private:
  // The most windows that a place has before its last one, itself included.
  static int64_t most_before(const PoolAxis& w) { return w.is_adaptive() ? 1 : (w.kernel - 1) / w.stride + 1; }
  // How many times a stride there are places.
  static int64_t steps_of(const PoolAxis& w) {
    return w.is_adaptive() ? 0 : (static_cast<int64_t>(w.extent) + w.padding - 1) / w.stride + 1;
  }

  C* kept(int32_t h) const { return a_.kept + (h % slots_) * bins_; }

  // Divides a row of windows and adds it along d.
  void keep_row(int32_t h) {
    C* __restrict__ const sums = kept(h);
    for (int32_t d = ds_.first; d < ds_.end; ++d) {
      const int64_t row = (plane_ * p_.axes[0].bins + d) * p_.axes[1].bins + h;
      const C* terms = a_.terms;
      if constexpr (std::is_same_v<T, C>) {
        terms = b_.source + row * bins_;
      } else {
        widen_row(b_.source + row * bins_, a_.terms, bins_);
      }
      find_divisors(d, h);
      const C* const divisors = a_.divisors;
      if (d == ds_.first) {
        for (int32_t k = 0; k < bins_; ++k) sums[k] = C(0) + terms[k] / divisors[k];
      } else {
        for (int32_t k = 0; k < bins_; ++k) sums[k] += terms[k] / divisors[k];
      }
    }
  }

  void find_divisors(int32_t d, int32_t h) {
    // Rows of windows that count as much have equal divisors, nearly all of them.
    const int64_t face = p_.divisor != 0 ? 1
                                         : count_of(p_.axes[0], p_.count_padding, d) *
                                               count_of(p_.axes[1], p_.count_padding, h);
    if (face == face_) return;
    face_ = face;
    for (int32_t w = 0; w < bins_; ++w) {
      const int64_t divisor = p_.divisor != 0 ? p_.divisor : face * count_of(p_.axes[2], p_.count_padding, w);
      a_.divisors[w] = static_cast<C>(divisor);
    }
  }

  void add_kept() {
    C* __restrict__ const columns = a_.columns + before_;
    for (int32_t left = hs_.size(); left > 0; left -= 2) {
      const int32_t h = hs_.end - left;
      const C *const one = kept(h), *const other = kept(h + 1);
      const bool is_first = h == hs_.first;
      if (left == 1) {
        for (int32_t k = 0; k < bins_; ++k) columns[k] = (is_first ? C(0) : columns[k]) + one[k];
      } else {
        for (int32_t k = 0; k < bins_; ++k) columns[k] = ((is_first ? C(0) : columns[k]) + one[k]) + other[k];
      }
    }
  }

  // Place q stride + r, padding counted, has as many windows as r has, and q is the last of them.
  void add_windows() {
    const PoolWindows& w = p_.axes[2];
    if (w.is_adaptive()) return add_adaptive_windows();
    const int32_t steps = static_cast<int32_t>(steps_);
    if (w.stride == 1) return add_phase(w.kernel, a_.results);
    for (int32_t r = 0; r < w.stride; ++r) {
      const int32_t windows = r < w.kernel ? (w.kernel - 1 - r) / w.stride + 1 : 0;
      add_phase(windows, a_.phases + r * steps);
    }
    const C* const phases = a_.phases;
    C* __restrict__ const results = a_.results;
    if (w.stride == 2) {
      for (int32_t q = 0; q < steps; ++q) results[2 * q] = phases[q], results[2 * q + 1] = phases[steps + q];
      return;
    }
    for (int32_t r = 0; r < w.stride; ++r) {
      for (int32_t q = 0; q < steps; ++q) results[q * w.stride + r] = phases[r * steps + q];
    }
  }

  void add_adaptive_windows() {
    const C* const columns = a_.columns;
    C* __restrict__ const results = a_.results;
    // The second column may be the zero before the first.
    for (int32_t x = 0; x < width_; ++x) results[x] = (C(0) + columns[a_.firsts[x]]) + columns[a_.seconds[x]];
  }

  void add_phase(int32_t windows, C* to) const {
    const int32_t steps = static_cast<int32_t>(steps_);
    const C* const from = a_.columns + (before_ + 1 - windows);
    C* __restrict__ const sums = to;
    if (windows == 1) {
      for (int32_t q = 0; q < steps; ++q) sums[q] = C(0) + from[q];
    } else if (windows == 2) {
      for (int32_t q = 0; q < steps; ++q) sums[q] = (C(0) + from[q]) + from[q + 1];
    } else if (windows == 3) {
      for (int32_t q = 0; q < steps; ++q) sums[q] = ((C(0) + from[q]) + from[q + 1]) + from[q + 2];
    } else {
      for (int32_t q = 0; q < steps; ++q) sums[q] = C(0);
      for (int32_t k = 0; k < windows; ++k) {
        for (int32_t q = 0; q < steps; ++q) sums[q] += from[q + k];
      }
    }
  }

  const Pooling& p_;
  const BackwardBuffers<T>& b_;
  KeptArrays<C>& a_;
  const int32_t width_, bins_;
  const int32_t slots_;           // rows of windows that are kept
  const int64_t before_, steps_;  // zeros before the columns; places of a phase
  int64_t slab_ = -1, plane_ = 0;
  PoolRange ds_{}, hs_{};
  int32_t next_ = 0;   // the first row of windows that is not kept yet
  int64_t face_ = -1;  // what a_.divisors counts of the first axes
};

}  // namespace
}  // namespace baracuda::avg_pool
