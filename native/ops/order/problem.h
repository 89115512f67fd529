// SPDX-License-Identifier: Apache-2.0
// What a valid order statistic along an axis is, forward and backward: extents, which element is asked for and the
// sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::order {

enum class Choice : int32_t { kKth, kMedian, kNanmedian };

struct Problem {
  int64_t outer, length, inner;
  int64_t rank;  // of kKth, counted from 0
  Choice choice;

  int64_t rows;  // outer inner
  int64_t numel;
};

// The scalars by the names of the C arguments, and between what a row's length must be.
struct Scalars {
  int64_t outer, length, inner;
  int64_t k = 1;  // counted from 1
  int64_t least_length = 1, most_length = INT64_MAX;
};

// Checks in the project's fixed order. `element_bytes` are those of the tensor of rows, which texts call `widest`.
Status make_problem(const Scalars& scalars, int64_t element_bytes, const char* widest, Problem* problem);

}  // namespace baracuda::order
