// SPDX-License-Identifier: Apache-2.0
// What a valid copy of rows by an index is. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::index_copy {

struct Problem {
  int64_t outer;         // tables of rows
  int64_t length;        // rows of a table of input
  int64_t n;             // rows of a table of source
  int64_t row_bytes;     // bytes of a row: from here on nothing depends on what an element is
  int64_t input_numel;   // outer length inner
  int64_t source_numel;  // outer n inner
};

// Checks in the project's fixed order.
Status make_problem(int64_t outer, int64_t length, int64_t n, int64_t inner, int64_t element_bytes, int64_t index_bytes,
                    Problem* problem);

}  // namespace baracuda::index_copy
