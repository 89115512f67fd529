// SPDX-License-Identifier: Apache-2.0
// The gradient of maximum pooling on the CPU, fixed, adaptive or fractional: windows of a plane are added, in their
// order, to the elements that indices name. Which elements a window may hold is the family's to say.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/cpu_convert.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "core/workspace.h"

namespace baracuda {
namespace {

// Division by a number that is constant during a call; N is int32_t only where everything is small.
template <typename N>
struct Quotient {
  Divider by;
  explicit Quotient(int64_t divisor) : by(divisor) {}
  N operator()(N number) const {
    // Divider's own, without a jump.
    const uint64_t product = static_cast<uint64_t>(static_cast<uint32_t>(number)) * by.multiplier;
    return by.divisor == 1 ? number : static_cast<N>(static_cast<uint32_t>(product >> 32) >> by.shift);
  }
};
template <>
struct Quotient<int64_t> {
  int64_t by;
  explicit Quotient(int64_t divisor) : by(divisor) {}
  int64_t operator()(int64_t number) const { return number / by; }
};

// Windows of a row that are looked at together: 8 KiB of what is found out about them.
constexpr int32_t kTogether = 512;

// Finds which elements a row's windows give their gradients to, in loops that compilers vectorise. Windows has the axes
// d, h and w; an axis has its extent, how many windows (bins), and of<N>(window): the first element that a window may
// hold, and the end.
template <typename N, class Windows>
class RowElements {
  using Unsigned = std::make_unsigned_t<N>;

 public:
  explicit RowElements(const Windows& p)
      : p_(p),
        width_(p.w.extent),
        slab_numel_(static_cast<int64_t>(p.w.extent) * p.h.extent),
        by_width_(at_least(width_, 1)),
        by_slab_(at_least(slab_numel_, 1)) {}

  // The elements that windows may hold whose first axes' spans are these.
  template <class Range>
  void set_rows(const Range& ds, const Range& hs) {
    begin_ = ds.first * slab_numel_ + hs.first * width_;
    rows_numel_ = at_least(hs.end - hs.first, 0) * width_;
    numel_ = ds.first < ds.end ? (ds.end - ds.first - 1) * slab_numel_ + rows_numel_ : 0;
    is_flat_ = ds.end - ds.first <= 1;
  }

  // Of windows [first, first + count) of a row the elements that `indices` name, or -1 where a window cannot hold it.
  const N* find(const int64_t* indices, int32_t first, int32_t count) {
    find_spans(first, count);
    if (is_flat_) {
      find_in<true>(indices, count);
    } else {
      find_in<false>(indices, count);
    }
    return elements_;
  }

 private:
  // kIsFlat: the windows hold elements of one slab alone, whose number need not be found.
  template <bool kIsFlat>
  void find_in(const int64_t* indices, int32_t count) {
    const N width = static_cast<N>(width_), slab_numel = static_cast<N>(slab_numel_);
    const N rows_numel = static_cast<N>(rows_numel_);
    const Unsigned begin = static_cast<Unsigned>(begin_), numel = static_cast<Unsigned>(numel_);
    for (int32_t j = 0; j < count; ++j) {
      const N index = static_cast<N>(indices[j]);
      // What comes before the first is a large number.
      const Unsigned counted = static_cast<Unsigned>(index) - begin;
      const bool is_near = (index == indices[j]) & (counted < numel);
      // What is not near is divided as if it were the first.
      const N near = is_near ? static_cast<N>(counted) : 0;
      const N in_slab = kIsFlat ? near : near - by_slab_(near) * slab_numel;
      const int32_t x = static_cast<int32_t>(in_slab - by_width_(in_slab) * width);
      const bool holds = is_near & (in_slab < rows_numel) & (x >= firsts_[j]) & (x < ends_[j]);
      elements_[j] = holds ? index : -1;
    }
  }

  // All rows of windows have the same spans along themselves.
  void find_spans(int32_t first, int32_t count) {
    if (first == first_) return;
    first_ = first;
    for (int32_t j = 0; j < count; ++j) {
      const auto span = p_.w.template of<N>(first + j);
      firsts_[j] = span.first, ends_[j] = span.end;
    }
  }

  const Windows& p_;
  const int64_t width_, slab_numel_;
  const Quotient<N> by_width_, by_slab_;
  int64_t begin_ = 0, rows_numel_ = 0, numel_ = 0;
  bool is_flat_ = false;
  int32_t first_ = -1;  // whose spans are at hand
  int32_t firsts_[kTogether], ends_[kTogether];
  N elements_[kTogether];
};

// Adds a plane's windows in their order. NaNs are made canonical where they arise: a later pass over all elements would
// cost more than the few that are touched.
template <typename N, typename T, class Windows>
void sum_plane(const Windows& p, const T* grad_output, const int64_t* indices, Compute<T>* sums) {
  using C = Compute<T>;
  // Elements are cleared shortly before the first windows that may hold them, so that they still are in the cache.
  int64_t cleared = 0;
  const auto clear = [&](int64_t end) {
    if (end <= cleared) return;
    memset(sums + cleared, 0, static_cast<size_t>(end - cleared) * sizeof(C));
    cleared = end;
  };
  RowElements<N, Windows> row(p);
  const int64_t width = p.w.extent, height = p.h.extent;
  for (int32_t d = 0; d < p.d.bins; ++d) {
    const auto ds = p.d.template of<N>(d);
    for (int32_t h = 0; h < p.h.bins; ++h) {
      const auto hs = p.h.template of<N>(h);
      row.set_rows(ds, hs);
      clear(p.d.extent == 1 ? hs.end * width : ds.end * height * width);
      for (int32_t rest = p.w.bins; rest > 0; rest -= kTogether) {
        const int32_t first = p.w.bins - rest, count = rest < kTogether ? rest : kTogether;
        const N* const elements = row.find(indices, first, count);
        for (int32_t j = 0; j < count; ++j) {
          if (elements[j] < 0) continue;
          C& sum = sums[elements[j]];
          sum = narrow<C>(sum + widen(grad_output[j]));
        }
        grad_output += count, indices += count;
      }
    }
  }
  clear(p.d.extent * height * width);
}

template <typename T>
struct PlaneSums {
  static constexpr bool kHasTotals = !std::is_same_v<T, Compute<T>>;
  WorkspaceLayout layout;
  Compute<T>* totals;  // [planes, plane_numel], of 16-bit types: others have theirs in grad_input

  template <class Problem>
  PlaneSums(const Problem& p, void* workspace) {
    totals = workspace_array<Compute<T>>(workspace, layout.reserve<Compute<T>>(kHasTotals ? p.input_numel : 0));
  }

  // N is int32_t where all that is computed stays below 2^31, else int64_t.
  template <typename N, class Problem, class Buffers, class Windows>
  void add(const Problem& p, const Buffers& b, const Windows& windows) const {
    parallel_for(p.planes, grain_for(p.plane_numel + 4 * p.plane_bins), [&](int64_t plane) {
      T* const out = b.grad_input + plane * p.plane_numel;
      const T* const gradient = b.grad_output + plane * p.plane_bins;
      const int64_t* const indices = b.indices + plane * p.plane_bins;
      if constexpr (kHasTotals) {
        Compute<T>* const sums = totals + plane * p.plane_numel;
        sum_plane<N>(windows, gradient, indices, sums);
        narrow_row<T>(sums, out, p.plane_numel);
      } else {
        sum_plane<N>(windows, gradient, indices, out);
      }
    });
  }
};

}  // namespace
}  // namespace baracuda
