// SPDX-License-Identifier: Apache-2.0
// What a valid average pooling is, forward and backward, by fixed and by adaptive windows. No pointers.
#pragma once

#include <cstdint>

#include "core/pool_windows.h"
#include "core/status.h"

namespace baracuda::avg_pool {

// The axes of a plane, outermost first.
constexpr int kAxes = 3;

struct Problem {
  PoolAxis axes[kAxes];
  int64_t planes;         // n c
  int64_t input_numel;    // planes, each of all extents
  int64_t output_numel;   // planes, each of all windows
  int64_t divisor;        // of every window; 0 is what it counts
  bool count_padding;
};

// The extents that all operators have, by the names of the C arguments.
struct Extents {
  int32_t n, c;
  int32_t input[kAxes], output[kAxes];
};

// What fixed windows have besides.
struct Windows {
  int32_t kernel[kAxes], stride[kAxes], padding[kAxes];
  int32_t count_include_pad;
  int64_t divisor_override;
};

// Checks in the project's fixed order. Without `windows` they are adaptive. `input` and `output` are what texts call
// the tensors.
Status make_problem(const Extents& extents, const Windows* windows, int64_t element_bytes, const char* input,
                    const char* output, Problem* problem);

}  // namespace baracuda::avg_pool
