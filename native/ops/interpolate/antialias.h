// SPDX-License-Identifier: Apache-2.0
// The antialiased modes' filter on one axis: the pixels under it, their weights, and for either direction the table
// that both backends sum by. Shared by both backends.
//
// Forward and gradient are one kernel over two tables: a destination, which is an output pixel forward and an input
// pixel in the gradient, has sources [begin, end) and a weight for each of them. It adds them up by fma from 0 in
// ascending order: the rows of a column first, then of these sums the columns, both in the compute type, rounded once.
#pragma once

#include "core/workspace.h"
#include "ops/interpolate/math.h"

namespace baracuda::interpolate {
namespace {

// The filter of an axis: a triangle of `radius` 1, or Keys' cubic with a = -1/2 of radius 2, in steps where there are
// fewer pixels than before.
template <typename C>
struct Filter {
  int32_t input, output, radius;
  int32_t most;  // pixels under it, at most
  C step, support, inverse;
};

template <typename C>
BARACUDA_HD Filter<C> filter_of(const Axis& axis, int32_t radius) {
  Filter<C> f;
  f.input = axis.input, f.output = axis.output, f.radius = radius;
  f.step = static_cast<C>(axis.step);
  const bool shrinks = f.step >= C(1);
  f.support = static_cast<C>(radius) * (shrinks ? f.step : C(1));
  f.inverse = shrinks ? C(1) / f.step : C(1);
  // 2 ceil(support) + 1, as far as there are pixels; a step that is so long that this is infinite has none.
  const C half = ceil_of(f.support);
  f.most = half < static_cast<C>(axis.input) / C(2) ? 2 * static_cast<int32_t>(half) + 1 : axis.input;
  f.most = f.most < axis.input ? f.most : axis.input;
  if (!is_finite(f.support)) f.most = 0;
  return f;
}

// The pixels [first, end) under the filter of output pixel o. Neither ever falls as o rises, since every operation
// rounds monotonically; NaN, which infinity less infinity is, is at 0.
template <typename C>
struct Span {
  int32_t first, end;
  C centre;
};

template <typename C>
BARACUDA_HD Span<C> span_of(const Filter<C>& f, int32_t o) {
  Span<C> span;
  span.centre = f.step * (static_cast<C>(o) + C(0.5));
  span.first = pixel_at((span.centre - f.support) + C(0.5), f.input);
  span.end = pixel_at((span.centre + f.support) + C(0.5), f.input);
  if (span.end - span.first > f.most) span.end = span.first + f.most;
  if (span.end < span.first) span.end = span.first;
  return span;
}

// The filter at a pixel, before the weights are divided by their sum. In factors, as in cubic.h: so it is 0 at a
// distance that is whole, and nowhere else under it. A NaN is outside.
template <typename C>
BARACUDA_HD C filter_at(const Filter<C>& f, C centre, int32_t i) {
  const C signed_distance = ((static_cast<C>(i) - centre) + C(0.5)) * f.inverse;
  const C x = signed_distance < C(0) ? -signed_distance : signed_distance;
  if (f.radius == 1) return x < C(1) ? C(1) - x : C(0);
  if (x < C(1)) return (C(1) - x) * baracuda::fma(C(-1.5) * x, x, C(1) + x);
  if (x < C(2)) return (C(-0.5) * (x - C(1))) * ((C(2) - x) * (C(2) - x));
  return C(0);
}

// The sum of an output pixel's weights, in ascending order.
template <typename C>
BARACUDA_HD C filter_total(const Filter<C>& f, const Span<C>& span) {
  C total = C(0);
  for (int32_t i = span.first; i < span.end; ++i) total += filter_at(f, span.centre, i);
  return total;
}

template <typename C>
BARACUDA_HD C normalised(C weight, C total) {
  return total != C(0) ? weight / total : C(0);
}

// The first output pixel whose first pixel, or with `ends` whose end, is more than i; the number of them if there is
// none.
template <typename C>
BARACUDA_HD int32_t first_beyond(const Filter<C>& f, int32_t i, bool ends) {
  int32_t low = 0, high = f.output;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    const Span<C> span = span_of(f, middle);
    if ((ends ? span.end : span.first) > i) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// The table of an axis. Destinations from `active` on have no source; a scale that the extents do not have leaves them.
template <typename C>
struct AxisTable {
  int32_t destinations, active, terms;
  int32_t* begin;  // [active]
  int32_t* end;    // [active]
  C* weights;      // [terms][active]; those of the sources from `begin` on, and zeros behind them
  C* totals;       // [output]; of the gradient alone, for the weights

  BARACUDA_HD int32_t begin_of(int32_t d) const { return d < active ? begin[d] : 0; }
  BARACUDA_HD int32_t end_of(int32_t d) const { return d < active ? end[d] : 0; }
};

template <typename C>
struct Tables {
  Filter<C> filters[2];  // height, width
  AxisTable<C> axes[2];
  bool is_backward;
};

// The most output pixels that have an input pixel. Their centres lie within the support of its own centre, but for the
// roundings of three sums, each of at most a unit of input + 2 support + 1; a centre's own two roundings are as many
// units of the output pixel's number.
template <typename C>
int32_t most_outputs(const Filter<C>& f) {
  if (f.most == 0) return 0;
  const double unit = sizeof(C) == sizeof(double) ? 0x1p-53 : 0x1p-24;
  const double support = static_cast<double>(f.support), step = static_cast<double>(f.step);
  const double reach = support + 1.0 + 8.0 * unit * (static_cast<double>(f.input) + support);
  const double wanted = 2.0 * (reach / step) + 4.0 + 8.0 * unit * f.output;
  return wanted < f.output ? static_cast<int32_t>(wanted) : f.output;
}

// An axis's part of the workspace. Small: there are about as many terms as pixels under all the filters.
template <typename C>
AxisTable<C> lay_table(WorkspaceLayout& layout, void* workspace, const Filter<C>& f, bool is_backward) {
  AxisTable<C> table{};
  if (f.input == 0 || f.output == 0) return table;
  if (is_backward) {
    table.destinations = f.input;
    table.active = span_of(f, f.output - 1).end;
    table.terms = most_outputs(f);
  } else {
    table.destinations = f.output;
    table.active = first_beyond(f, f.input - 1, false);
    table.terms = f.most;
  }
  const int64_t active = table.active;
  table.begin = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(active));
  table.end = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(active));
  table.weights = workspace_array<C>(workspace, layout.reserve<C>(active * table.terms));
  table.totals = workspace_array<C>(workspace, layout.reserve<C>(is_backward ? f.output : 0));
  return table;
}

template <typename C>
Tables<C> lay_tables(WorkspaceLayout& layout, void* workspace, const Problem& p, bool is_backward) {
  Tables<C> tables;
  tables.is_backward = is_backward;
  for (int axis = 0; axis < 2; ++axis) {
    tables.filters[axis] = filter_of<C>(p.axes[1 + axis], p.radius);
    tables.axes[axis] = lay_table(layout, workspace, tables.filters[axis], is_backward);
  }
  return tables;
}

// The entries of one destination of the forward's table, or the total of one output pixel for the gradient's.
template <typename C>
BARACUDA_HD void enter_output(const Filter<C>& f, const AxisTable<C>& table, int32_t o, bool is_backward) {
  const Span<C> span = span_of(f, o);
  const C total = filter_total(f, span);
  if (is_backward) {
    table.totals[o] = total;
    return;
  }
  table.begin[o] = span.first, table.end[o] = span.end;
  C* weight = table.weights + o;
  for (int32_t i = span.first; i < span.end; ++i, weight += table.active) {
    *weight = normalised(filter_at(f, span.centre, i), total);
  }
  for (int32_t k = span.end - span.first; k < table.terms; ++k, weight += table.active) *weight = C(0);
}

// The entries of one destination of the gradient's table, once all totals are known.
template <typename C>
BARACUDA_HD void enter_input(const Filter<C>& f, const AxisTable<C>& table, int32_t i) {
  const int32_t begin = first_beyond(f, i, true), end = first_beyond(f, i, false);
  table.begin[i] = begin, table.end[i] = end;
  C* weight = table.weights + i;
  for (int32_t o = begin; o < end; ++o, weight += table.active) {
    *weight = normalised(filter_at(f, span_of(f, o).centre, i), table.totals[o]);
  }
  for (int32_t k = end - begin; k < table.terms; ++k, weight += table.active) *weight = C(0);
}

}  // namespace
}  // namespace baracuda::interpolate
