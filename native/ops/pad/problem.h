// SPDX-License-Identifier: Apache-2.0
// What a valid pad problem is, and the one form both directions take: a copy seen through a window. The destination is
// output (forward) or grad_input (backward), the source input or grad_output. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::pad {

constexpr int32_t kMaxRank = 8;

// Destination index i of an axis takes source index i - low where the source has one, else the axis is outside there.
// Forward, low is the pad; backward it is minus the pad, because the gradient lies inside its source.
struct Axis {
  int64_t extent;
  int64_t low;
  int64_t source_extent;
  int64_t stride, source_stride;  // in elements
};

// Axes in order of destination stride, outermost first, none of extent 1 unless it is the only one, merged where two
// are one in memory: an image with padded rows and columns has three, whatever its rank.
struct Problem {
  int32_t rank;
  Axis axes[kMaxRank];
  int64_t numel;          // elements of the destination
  int64_t source_numel;   // elements of the source; 0: the destination is all fill value
  int64_t source_offset;  // where in the source every axis has source index 0
};

// Checks in the project's fixed order, for pad_constant.
Status make_forward_problem(int64_t output_numel, int32_t rank, const int32_t* input_shape, const int32_t* output_shape,
                            const int32_t* pad_low, const int64_t* input_strides, const int64_t* output_strides,
                            int64_t element_bytes, Problem* problem);

// The same for pad_constant_backward.
Status make_backward_problem(int64_t input_numel, int32_t rank, const int32_t* input_shape, const int32_t* pad_low,
                             const int64_t* grad_output_strides, const int64_t* grad_input_strides,
                             int64_t element_bytes, Problem* problem);

}  // namespace baracuda::pad
