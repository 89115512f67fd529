// SPDX-License-Identifier: Apache-2.0
// What a valid segment problem is, forward and backward: extents and the sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::segment {

struct Problem {
  int32_t n;  // rows of the input
  int32_t d;  // columns of input and output
  int32_t num_segments;

  int64_t input_numel;   // n d
  int64_t output_numel;  // num_segments d
};

// Checks in the project's fixed order. `rows` and `segments` are what texts call the tensors,
// `element_bytes` is the size of T.
Status make_problem(int32_t num_inputs, int32_t embedding_dim, int32_t num_segments, int64_t element_bytes,
                    const char* rows, const char* segments, Problem* problem);

}  // namespace baracuda::segment
