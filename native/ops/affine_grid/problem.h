// SPDX-License-Identifier: Apache-2.0
// What a valid affine_grid problem is, forward and backward: extents and the sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::affine_grid {

// The backward's sums are cut into chunks of this many consecutive samples; their sums are added in order.
constexpr int32_t kChunk = 256;

// Elements of one map: rows (x, y), columns (x, y, 1).
constexpr int32_t kThetaSize = 6;

struct Problem {
  int32_t n, output_h, output_w;

  int64_t samples;      // output_h output_w, in one image
  int64_t chunks;       // of kChunk samples, in one image
  int64_t grid_numel;   // 2 n samples
  int64_t theta_numel;  // 6 n
};

// Checks in the project's fixed order. `grid` and `theta` are what texts call the tensors, `element_bytes` is the size
// of a coordinate.
Status make_problem(int32_t n, int32_t output_h, int32_t output_w, const char* grid, const char* theta,
                    int64_t element_bytes, Problem* problem);

}  // namespace baracuda::affine_grid
