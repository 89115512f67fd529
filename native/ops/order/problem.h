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

// Checks in the project's fixed order. `element_bytes` are those of the tensor of rows, which texts call `widest`.
Status make_problem(int64_t outer, int64_t length, int64_t inner, int64_t least_length, int64_t element_bytes,
                    const char* widest, Problem* problem);

// The rank of a problem that has one, counted from 1.
Status set_rank(int64_t k, Problem* problem);

// Rows of which 32 bits count the elements.
Status check_mode(const Problem& problem);

}  // namespace baracuda::order
