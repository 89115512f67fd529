// SPDX-License-Identifier: Apache-2.0
// What a valid affine_grid problem is, forward and backward: extents and the sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::affine_grid {

// The backward's sums are cut into chunks of this many consecutive samples; their sums are added in order.
constexpr int32_t kChunk = 256;

// Elements of one map of `axes` coordinates: rows (x, y) and columns (x, y, 1), in volumes (x, y, z) and (x, y, z, 1).
constexpr int32_t theta_size(int axes) { return axes * (axes + 1); }

// The grid's extents; an image has a depth of 1.
struct Extents {
  int32_t output_d, output_h, output_w;
};

struct Problem {
  int32_t n, output_d, output_h, output_w;
  bool aligns_corners;  // the outermost samples' centres, not their outer edges, are at -1 and 1

  int64_t samples;      // output_d output_h output_w, of one map
  int64_t chunks;       // of kChunk samples, of one map
  int64_t grid_numel;   // axes n samples
  int64_t theta_numel;  // theta_size(axes) n
};

// Checks in the project's fixed order. `axes` is 2 or 3, `align_corners` is an option's number; `grid` and `theta` are
// what texts call the tensors, `element_bytes` is the size of a coordinate.
Status make_problem(int axes, int32_t n, const Extents& extents, int32_t align_corners, const char* grid,
                    const char* theta, int64_t element_bytes, Problem* problem);

}  // namespace baracuda::affine_grid
