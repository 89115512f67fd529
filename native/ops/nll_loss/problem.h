// SPDX-License-Identifier: Apache-2.0
// What a valid loss of classification is, by log-probabilities and by logits, forward and backward. No pointers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace baracuda::nll_loss {

enum class Reduction : int32_t { kNone, kMean, kSum };

// The scalars by the names of the C arguments; log-probabilities are not smoothed.
struct Scalars {
  int32_t n, c, d, has_weight;
  int64_t ignore_index;
  int32_t reduction;
  double label_smoothing;
};

struct Problem {
  int32_t n, c, d;
  bool has_weight;
  int64_t ignore_index;
  Reduction reduction;
  // The shares of a target that its class has alone and that every class has.
  double alone, each;
  int64_t elements;  // n d
  int64_t losses;    // of output: elements, or 1
  int64_t weights;   // c, or 0
  int64_t logits;    // n c d

  constexpr bool reduces() const { return reduction != Reduction::kNone; }
  constexpr bool smooths() const { return alone != 1.0; }
};

// The tensors as texts call them; NULL for one that an operator does not have.
struct Names {
  const char* per_class;    // [n, c, d]
  const char* per_loss;     // of the output's shape
  const char* log_sum_exp;
};

// Checks in the project's fixed order. `sum_bytes` are those of an element of log_sum_exp.
Status make_problem(const Scalars& scalars, const Names& names, int64_t element_bytes, int64_t index_bytes,
                    int64_t sum_bytes, Problem* problem);

}  // namespace baracuda::nll_loss
