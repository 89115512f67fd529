// SPDX-License-Identifier: Apache-2.0
// What a valid problem of deformable convolution's sampling is, forward and backward. No pointers.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/status.h"
#include "ops/grid_sample/problem.h"

namespace baracuda::deform_im2col {

using grid_sample::kChannelChunk;
using grid_sample::kChunk;

// A sample's corners.
constexpr int kCorners = 4;

// The kernel's way along one axis of the image.
struct Axis {
  int32_t taps, stride, padding, dilation;

  // Where a tap lies before it is moved; below 2^63.
  BARACUDA_HD int64_t place(int64_t position, int64_t tap) const {
    return position * stride - padding + tap * dilation;
  }
};

struct Numbers {
  int32_t n, offset_groups, c, h, w, output_h, output_w;
  Axis y, x;
  int32_t has_mask;
};

struct Problem {
  int32_t c, h, w, output_h, output_w;  // c of a group
  Axis y, x;
  bool has_mask;

  int64_t groups;         // n offset_groups
  int64_t pixels;         // h w, in one channel
  int64_t positions;      // output_h output_w, in one tap
  int64_t samples;        // taps of the kernel times positions, in one group
  int64_t input_numel;    // groups c pixels
  int64_t columns_numel;  // groups c samples
  int64_t offset_numel;   // 2 groups samples
  int64_t mask_numel;     // groups samples, or 0
  // The image of a channel as grid_sample's formulas take it.
  grid_sample::Problem image;
};

// Checks in the project's fixed order. `input` and `columns` are what texts call the tensors; `element_bytes` and
// `offset_bytes` are the sizes of T and of the offsets' type.
Status make_problem(const Numbers& numbers, const char* input, const char* columns, int64_t element_bytes,
                    int64_t offset_bytes, Problem* problem);

}  // namespace baracuda::deform_im2col
