// SPDX-License-Identifier: Apache-2.0
// Validation of order statistics. No pointers, no CUDA.
#include "ops/order/problem.h"

#include "core/checked.h"

namespace baracuda::order {

Status make_problem(const Scalars& scalars, int64_t element_bytes, const char* widest, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("outer", scalars.outer));
  BARACUDA_RETURN_IF_FAILED(check_range("length", scalars.length, scalars.least_length, scalars.most_length));
  BARACUDA_RETURN_IF_FAILED(check_extent("inner", scalars.inner));
  // A row without elements has no rank that could be wrong.
  if (scalars.length > 0) BARACUDA_RETURN_IF_FAILED(check_range("k", scalars.k, 1, scalars.length));

  Problem p{};
  p.outer = scalars.outer, p.length = scalars.length, p.inner = scalars.inner;
  p.rank = scalars.k - 1;
  BARACUDA_RETURN_IF_FAILED(
      check_count(widest, CheckedCount(element_bytes).times(p.outer).times(p.length).times(p.inner), &p.numel));
  BARACUDA_RETURN_IF_FAILED(
      check_count("indices", CheckedCount(sizeof(int64_t)).times(p.outer).times(p.inner), &p.rows));
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::order
