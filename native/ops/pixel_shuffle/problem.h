// SPDX-License-Identifier: Apache-2.0
// What a valid problem of pixel_shuffle or pixel_unshuffle is: extents and the sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::pixel_shuffle {

// The deep image has [n, c factor factor, h, w] elements, the wide one [n, c, h factor, w factor].
struct Problem {
  int32_t n, c, h, w, factor;

  int64_t numel;      // elements of either
  int64_t wide_w;     // w factor
  int64_t wide_rows;  // n c h factor
};

// Checks in the project's fixed order. `factor_name` and `widest` are what texts call the factor and the tensor.
Status make_problem(int32_t n, int32_t c, int32_t h, int32_t w, int32_t factor, const char* factor_name,
                    const char* widest, int64_t element_bytes, Problem* problem);

}  // namespace baracuda::pixel_shuffle
