// SPDX-License-Identifier: Apache-2.0
// What a valid histogram is: how many elements and bins, and the range, which may be that of the data. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::histc {

struct Problem {
  int64_t numel, bins;
  double min, max;       // rounded to what is computed in
  bool has_datas_range;  // whether they are one number
};

// The scalars by the names of the C arguments.
struct Scalars {
  int64_t numel, bins;
  double min, max;
};

// Checks in the project's fixed order. Elements have `element_bytes` and are computed with in float, or in double if
// `is_wide`.
Status make_problem(const Scalars& scalars, int64_t element_bytes, bool is_wide, Problem* problem);

}  // namespace baracuda::histc
