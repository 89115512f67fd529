// SPDX-License-Identifier: Apache-2.0
// What a valid maximum pooling is, forward and backward, by fixed and by adaptive windows. No pointers.
#pragma once

#include <cstdint>

#include "core/pool_windows.h"
#include "core/status.h"

namespace baracuda::max_pool {

// The axes of a plane, outermost first.
constexpr int kAxes = 3;

struct Problem {
  PoolAxis axes[kAxes];
  int64_t planes;         // n c
  int64_t plane_numel;    // elements of a plane
  int64_t plane_bins;     // windows of a plane
  int64_t input_numel;    // planes plane_numel
  int64_t output_numel;   // planes plane_bins
};

// The extents that all operators have, by the names of the C arguments.
struct Extents {
  int32_t n, c;
  int32_t input[kAxes], output[kAxes];
};

// What fixed windows have besides.
struct Windows {
  int32_t kernel[kAxes], stride[kAxes], padding[kAxes], dilation[kAxes];
};

// Checks in the project's fixed order. Without `windows` they are adaptive. `input` and `output` are what texts call
// the tensors.
Status make_problem(const Extents& extents, const Windows* windows, int64_t element_bytes, const char* input,
                    const char* output, Problem* problem);

}  // namespace baracuda::max_pool
