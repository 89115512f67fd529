// SPDX-License-Identifier: Apache-2.0
// What a valid grid_sample problem is, forward and backward: extents and the sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::grid_sample {

// A pixel's gradient is cut into chunks of this many consecutive contributions; their sums are added in order.
constexpr int32_t kChunk = 256;

// A sample's gradient to its position is cut into chunks of this many channels; their sums are added in order.
constexpr int32_t kChannelChunk = 64;

struct Problem {
  int32_t n, c, input_h, input_w, output_h, output_w;

  int64_t pixels;        // input_h input_w, in one image
  int64_t samples;       // output_h output_w, in one image
  int64_t input_numel;   // n c pixels
  int64_t output_numel;  // n c samples
  int64_t grid_numel;    // 2 n samples
};

// Checks in the project's fixed order. `samples` is what a text calls the tensor of samples; `element_bytes` and
// `coordinate_bytes` are the sizes of T and of the grid's type.
Status make_problem(int32_t n, int32_t c, int32_t input_h, int32_t input_w, int32_t output_h, int32_t output_w,
                    const char* samples, int64_t element_bytes, int64_t coordinate_bytes, Problem* problem);

}  // namespace baracuda::grid_sample
