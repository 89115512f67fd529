// SPDX-License-Identifier: Apache-2.0
// The antialiased modes on the CPU, both directions: tables of either axis, then some rows of destinations at a time,
// whose source rows are summed as they lie; what is left is summed along the width, the rows side by side in a vector.
#pragma once

#include "core/integer_math.h"
#include "ops/interpolate/antialias.h"
#include "ops/interpolate/cpu/parts.h"

namespace baracuda::interpolate {
namespace {

// Columns of destinations, and of sources, that are worked on at a time; source rows that are added in one pass.
constexpr int32_t kFilterColumns = 256;
constexpr int32_t kFilterSources = 512;
constexpr int32_t kFilterRows = 4;
// Rows of destinations that are summed along the width together, each in a lane: so nothing is gathered.
template <typename C>
constexpr int32_t kLanes = 64 / sizeof(C);

template <typename T>
struct FilterArrays {
  using C = Compute<T>;
  // Source columns, summed along the height: of one row, and of all lanes side by side; then the destinations.
  C row[kFilterSources];
  alignas(64) C columns[kFilterSources][kLanes<C>];
  alignas(64) C sums[kFilterColumns][kLanes<C>];
  C wide[kFilterRows][std::is_same_v<T, C> ? 1 : kFilterSources];
  C result[kFilterColumns];
};

// What one thread works with: planes of `from`, of the axes' sources, become planes of `to`.
template <typename T>
class FilteredRows {
 public:
  using C = Compute<T>;

  FilteredRows(const AxisTable<C> (&axes)[2], const int32_t (&sources)[2], const T* from, T* to,
               FilterArrays<T>& arrays)
      : height_(axes[0]), width_(axes[1]), rows_(sources[0]), row_(sources[1]), from_(from), to_(to), a_(arrays) {}

  // As many rows of a plane of destinations as there are lanes, in the columns of a block.
  void write(int64_t plane, int64_t block, int32_t row) {
    const int32_t first = static_cast<int32_t>(block * kFilterColumns);
    const int32_t count = static_cast<int32_t>(at_most(width_.destinations - first, kFilterColumns));
    const int32_t active = static_cast<int32_t>(at_least(at_most(width_.active - first, count), 0));
    const int32_t lanes = static_cast<int32_t>(at_most(height_.destinations - row, kLanes<C>));
    for (int32_t i = 0; i < count; ++i) {
      for (int32_t l = 0; l < kLanes<C>; ++l) a_.sums[i][l] = C(0);
    }
    const int32_t until = active > 0 ? width_.end[first + active - 1] : 0;
    for (int32_t left = until - width_.begin_of(first); left > 0; left -= kFilterSources) {
      const int32_t begin = until - left, end = left < kFilterSources ? until : begin + kFilterSources;
      for (int32_t l = 0; l < lanes; ++l) {
        sum_height(plane, row + l, begin, end - begin);
        for (int32_t j = 0; j < end - begin; ++j) a_.columns[j][l] = a_.row[j];
      }
      for (int32_t i = 0; i < active; ++i) sum_width(first + i, a_.sums[i], begin, end);
    }
    T* out = to_ + (plane * height_.destinations + row) * width_.destinations + first;
    for (int32_t l = 0; l < lanes; ++l, out += width_.destinations) {
      // Plus 0: a sum that underflows is 0, not -0.
      for (int32_t i = 0; i < count; ++i) a_.result[i] = C(0) + a_.sums[i][l];
      narrow_row<T>(a_.result, out, count);
    }
  }

 private:
  // Source columns [begin, begin + count), summed for one row of destinations.
  void sum_height(int64_t plane, int32_t row, int32_t begin, int32_t count) {
    for (int32_t j = 0; j < count; ++j) a_.row[j] = C(0);
    const int32_t first = height_.begin_of(row), end = height_.end_of(row);
    C weights[kFilterRows];
    const C* rows[kFilterRows];
    int waiting = 0;
    for (int32_t y = first; y < end; ++y) {
      const C weight = height_.weights[static_cast<int64_t>(y - first) * height_.active + row];
      if (weight != C(0)) {
        weights[waiting] = weight;
        rows[waiting] = widened(from_ + (plane * rows_ + y) * row_ + begin, a_.wide[waiting], count);
        ++waiting;
      }
      if (waiting < kFilterRows && y + 1 < end) continue;
      switch (waiting) {
        case 1: add_rows<1>(weights, rows, count); break;
        case 2: add_rows<2>(weights, rows, count); break;
        case 3: add_rows<3>(weights, rows, count); break;
        case 4: add_rows<4>(weights, rows, count); break;
        default: break;
      }
      waiting = 0;
    }
  }

  template <int kCount>
  void add_rows(const C* weights, const C* const* rows, int32_t count) {
    C w[kCount];
    const C* r[kCount];
    for (int k = 0; k < kCount; ++k) w[k] = weights[k], r[k] = rows[k];
    C* __restrict__ const row = a_.row;
    for (int32_t j = 0; j < count; ++j) {
      C sum = row[j];
      for (int k = 0; k < kCount; ++k) sum = baracuda::fma(w[k], r[k][j], sum);
      row[j] = sum;
    }
  }

  // Adds what source columns [begin, end) give to a destination, in all lanes.
  void sum_width(int32_t column, C (&to)[kLanes<C>], int32_t begin, int32_t end) {
    const int32_t first = width_.begin[column], last = width_.end[column];
    const int32_t from = first > begin ? first : begin, until = last < end ? last : end;
    const C* weights = width_.weights + static_cast<int64_t>(from - first) * width_.active + column;
    C sums[kLanes<C>];
    for (int32_t l = 0; l < kLanes<C>; ++l) sums[l] = to[l];
    for (int32_t j = from; j < until; ++j, weights += width_.active) {
      const C weight = *weights;
      if (weight == C(0)) continue;
      const C* const source = a_.columns[j - begin];
      for (int32_t l = 0; l < kLanes<C>; ++l) sums[l] = baracuda::fma(weight, source[l], sums[l]);
    }
    for (int32_t l = 0; l < kLanes<C>; ++l) to[l] = sums[l];
  }

  const AxisTable<C>&height_, &width_;
  int64_t rows_, row_;
  const T* from_;
  T* to_;
  FilterArrays<T>& a_;
};

template <typename T>
struct FilterScratch {
  using C = Compute<T>;
  WorkspaceLayout layout;
  Tables<C> tables;
  TaskScratch<FilterArrays<T>> arrays;

  FilterScratch(const Problem& p, void* workspace, bool is_backward)
      : tables(lay_tables<C>(layout, workspace, p, is_backward)), arrays(layout, workspace) {}
};

template <typename C>
void fill_tables(const Tables<C>& tables) {
  for (int axis = 0; axis < 2; ++axis) {
    const Filter<C>& filter = tables.filters[axis];
    const AxisTable<C>& table = tables.axes[axis];
    const int32_t outputs = tables.is_backward ? filter.output : table.active;
    parallel_for(outputs, grain_for(16 * static_cast<int64_t>(filter.most)),
                 [&](int64_t o) { enter_output(filter, table, static_cast<int32_t>(o), tables.is_backward); });
    if (!tables.is_backward) continue;
    parallel_for(table.active, grain_for(16 * static_cast<int64_t>(table.terms)),
                 [&](int64_t i) { enter_input(filter, table, static_cast<int32_t>(i)); });
  }
}

// Planes of `from` become planes of `to`, whose axes are the tables' destinations.
template <typename T>
void filter_planes(const Problem& p, const FilterScratch<T>& scratch, const T* from, T* to) {
  const Tables<Compute<T>>& tables = scratch.tables;
  fill_tables(tables);
  const AxisTable<Compute<T>>&height = tables.axes[0], &width = tables.axes[1];
  const int32_t sources[2] = {tables.is_backward ? p.height().output : p.height().input,
                              tables.is_backward ? p.width().output : p.width().input};
  constexpr int32_t kGroup = kLanes<Compute<T>>;
  const int64_t groups = ceil_div(height.destinations, kGroup), all_groups = p.planes() * groups;
  const int64_t blocks = ceil_div(width.destinations, kFilterColumns);
  // Of a group of rows: their source rows, and the terms of their columns.
  const int64_t terms = height.terms * static_cast<int64_t>(sources[1]) / blocks +
                        width.terms * at_most(width.destinations, kFilterColumns);
  parallel_parts(blocks * all_groups, grain_for(terms * kGroup / 4), [&](int64_t begin, int64_t end) {
    FilteredRows<T> worker(tables.axes, sources, from, to, scratch.arrays.mine());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t group = i % all_groups;
      worker.write(group / groups, i / all_groups, static_cast<int32_t>(group % groups) * kGroup);
    }
  });
}

}  // namespace
}  // namespace baracuda::interpolate
