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

// The centre of sample `index` on an axis of `extent` samples that spans [-1, 1]. The numerator may exceed 32 bits.
template <typename C>
BARACUDA_HD C base_coordinate(int64_t index, int32_t extent) {
  return static_cast<C>(2 * index + 1) / static_cast<C>(extent) - C(1);
}

// One coordinate of a sample's position; `row` is that coordinate's three elements of theta.
template <typename C>
BARACUDA_HD C map_coordinate(const C* row, C x, C y) {
  return fma(row[1], y, fma(row[0], x, row[2]));
}

// Adds a sample to the sums of one coordinate's three elements of theta. `gradient` is that coordinate's.
template <typename C>
BARACUDA_HD void add_to_row(C gradient, C x, C y, C* row) {
  row[0] = fma(gradient, x, row[0]);
  row[1] = fma(gradient, y, row[1]);
  row[2] = row[2] + gradient;
}

}  // namespace
}  // namespace baracuda::affine_grid
