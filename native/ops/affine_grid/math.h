// SPDX-License-Identifier: Apache-2.0
// affine_grid's formulas, shared by both backends: base coordinates, a map's position of a sample, and what a sample
// adds to the gradient of its map.
#pragma once

#include <cstdint>

#include "core/float_math.h"
#include "core/host_device.h"
#include "ops/affine_grid/problem.h"

namespace baracuda::affine_grid {
namespace {

// The centre of sample `index` on an axis of `extent` samples that spans [-1, 1], or on which the outermost centres do;
// a single one of these is at 0. The numerator may exceed 32 bits.
template <typename C>
BARACUDA_HD C base_coordinate(int64_t index, int32_t extent, bool aligns_corners) {
  if (!aligns_corners) return static_cast<C>(2 * index + 1) / static_cast<C>(extent) - C(1);
  return extent == 1 ? C(0) : static_cast<C>(2 * index) / static_cast<C>(extent - 1) - C(1);
}

// One coordinate of the position of a sample whose base coordinates are `base`; `row` is that coordinate's elements of
// theta, the last of which is added to.
template <int kAxes, typename C>
BARACUDA_HD C map_coordinate(const C* row, const C* base) {
  C sum = row[kAxes];
  for (int axis = 0; axis < kAxes; ++axis) sum = fma(row[axis], base[axis], sum);
  return sum;
}

// Adds a sample to the sums of one coordinate's elements of theta. `gradient` is that coordinate's.
template <int kAxes, typename C>
BARACUDA_HD void add_to_row(C gradient, const C* base, C* row) {
  for (int axis = 0; axis < kAxes; ++axis) row[axis] = fma(gradient, base[axis], row[axis]);
  row[kAxes] = row[kAxes] + gradient;
}

}  // namespace
}  // namespace baracuda::affine_grid
