// SPDX-License-Identifier: Apache-2.0
// What a valid connectionist temporal classification is, forward and backward. No pointers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace baracuda::ctc_loss {

// The scalars by the names of the C arguments.
struct Scalars {
  int32_t t, n, c, target_rows, target_columns, num_states, blank, zero_infinity;
};

struct Problem {
  int32_t t, n, c;
  int32_t columns;     // of the targets
  int32_t num_states;
  int32_t max_labels;  // that a sequence may have, by num_states
  int32_t blank;
  bool joined;         // targets stand one behind another, in one row
  bool zero_infinity;
  int64_t log_probs, targets, log_alpha;  // their elements
};

// Checks in the project's fixed order. `sum_bytes` are those of an element of log_alpha.
Status make_problem(const Scalars& scalars, const char* log_probs, int64_t element_bytes, int64_t index_bytes,
                    int64_t sum_bytes, Problem* problem);

}  // namespace baracuda::ctc_loss
