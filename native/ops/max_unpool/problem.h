// SPDX-License-Identifier: Apache-2.0
// What a valid maximum unpooling is, forward and backward. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::max_unpool {

// The extents by the names of the C arguments, outermost axis first.
struct Extents {
  int32_t n, c;
  int32_t input[3], output[3];
};

struct Problem {
  int64_t planes;        // n c
  int64_t plane_inputs;  // elements of a plane of input
  int64_t plane_places;  // elements of a plane of output
  int64_t input_numel;   // planes plane_inputs
  int64_t output_numel;  // planes plane_places
};

// Checks in the project's fixed order. `input` and `output` are what texts call the tensors.
Status make_problem(const Extents& extents, int64_t element_bytes, const char* input, const char* output,
                    Problem* problem);

}  // namespace baracuda::max_unpool
