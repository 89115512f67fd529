// SPDX-License-Identifier: Apache-2.0
// Validation of connectionist temporal classification. No pointers, no CUDA.
#include "ops/ctc_loss/problem.h"

#include "core/checked.h"

namespace baracuda::ctc_loss {

Status make_problem(const Scalars& scalars, const char* log_probs, int64_t element_bytes, int64_t index_bytes,
                    int64_t sum_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("t", scalars.t));
  BARACUDA_RETURN_IF_FAILED(check_extent("n", scalars.n));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", scalars.c));
  BARACUDA_RETURN_IF_FAILED(check_extent("target_rows", scalars.target_rows));
  BARACUDA_RETURN_IF_FAILED(check_extent("target_columns", scalars.target_columns));
  BARACUDA_RETURN_IF_FAILED(check_extent("num_states", scalars.num_states));
  BARACUDA_RETURN_IF_FAILED(check_extent("blank", scalars.blank));
  BARACUDA_RETURN_IF_FAILED(check_range("zero_infinity", scalars.zero_infinity, 0, 1));
  if (scalars.target_rows != scalars.n && scalars.target_rows != 1) {
    return fail(Status::kInvalidProblem, "target_rows is %d; wanted n, %d, or 1", scalars.target_rows, scalars.n);
  }
  Problem p{};
  p.t = scalars.t, p.n = scalars.n, p.c = scalars.c;
  p.columns = scalars.target_columns;
  p.num_states = scalars.num_states;
  p.max_labels = scalars.num_states > 0 ? (scalars.num_states - 1) / 2 : 0;
  p.blank = scalars.blank;
  p.joined = scalars.target_rows != scalars.n;
  p.zero_infinity = scalars.zero_infinity != 0;
  BARACUDA_RETURN_IF_FAILED(
      check_count(log_probs, CheckedCount(element_bytes).times(p.t).times(p.n).times(p.c), &p.log_probs));
  BARACUDA_RETURN_IF_FAILED(check_count(
      "targets", CheckedCount(index_bytes).times(scalars.target_rows).times(scalars.target_columns), &p.targets));
  BARACUDA_RETURN_IF_FAILED(
      check_count("log_alpha", CheckedCount(sum_bytes).times(p.n).times(p.t).times(p.num_states), &p.log_alpha));
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::ctc_loss
