// SPDX-License-Identifier: Apache-2.0
// Validation of order statistics. No pointers, no CUDA.
#include "ops/order/problem.h"

#include "core/checked.h"

namespace baracuda::order {

Status make_problem(int64_t outer, int64_t length, int64_t inner, int64_t least_length, int64_t element_bytes,
                    const char* widest, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("outer", outer));
  BARACUDA_RETURN_IF_FAILED(check_range("length", length, least_length, INT64_MAX));
  BARACUDA_RETURN_IF_FAILED(check_extent("inner", inner));

  Problem p{};
  p.outer = outer, p.length = length, p.inner = inner;
  BARACUDA_RETURN_IF_FAILED(
      check_count(widest, CheckedCount(element_bytes).times(outer).times(length).times(inner), &p.numel));
  BARACUDA_RETURN_IF_FAILED(check_count("indices", CheckedCount(sizeof(int64_t)).times(outer).times(inner), &p.rows));
  *problem = p;
  return Status::kOk;
}

Status set_rank(int64_t k, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_range("k", k, 1, problem->length));
  problem->rank = k - 1;
  return Status::kOk;
}

Status check_mode(const Problem& problem) {
  return check_range("length", problem.length, 1, UINT32_MAX);
}

}  // namespace baracuda::order
