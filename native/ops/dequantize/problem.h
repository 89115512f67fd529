// SPDX-License-Identifier: Apache-2.0
// What a valid dequantize_per_channel problem is, forward and backward. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::dequantize {

// A dense tensor seen as [outer, channels, inner]: whatever its rank, an element's channel is all that its place means.
struct Problem {
  int64_t outer, channels, inner;
  int64_t numel;
};

// Checks in the project's fixed order. `tensor` is the one with the most bytes, `element_bytes` its element's size.
Status make_problem(int64_t numel, const int32_t* shape, int32_t axis, const char* tensor, int64_t element_bytes,
                    Problem* problem);

}  // namespace baracuda::dequantize
