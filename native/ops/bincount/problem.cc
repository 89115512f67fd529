// SPDX-License-Identifier: Apache-2.0
// Validation of weighted counts. No pointers, no CUDA.
#include "ops/bincount/problem.h"

#include "core/checked.h"
#include "core/integer_math.h"

namespace baracuda::bincount {

Status make_problem(int64_t n, int32_t num_bins, int64_t element_bytes, int64_t index_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", n));
  BARACUDA_RETURN_IF_FAILED(check_range("num_bins", num_bins, 0, kMostBins));
  Problem p{};
  p.num_bins = num_bins;
  BARACUDA_RETURN_IF_FAILED(check_count("input", CheckedCount(index_bytes).times(n), &p.n));
  BARACUDA_RETURN_IF_FAILED(check_count("weights", CheckedCount(element_bytes).times(n), &p.n));
  p.blocks = ceil_div(n, kBlock);
  p.groups = ceil_div(n, kGroup);
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::bincount
