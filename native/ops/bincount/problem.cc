// SPDX-License-Identifier: Apache-2.0
// Validation of weighted counts. No pointers, no CUDA.
#include "ops/bincount/problem.h"

#include "core/checked.h"
#include "core/integer_math.h"

namespace baracuda::bincount {

Status make_problem(int64_t rows, int64_t n, int32_t num_bins, int32_t wants_extent, int64_t element_bytes,
                    int64_t index_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("rows", rows));
  BARACUDA_RETURN_IF_FAILED(check_extent("n", n));
  BARACUDA_RETURN_IF_FAILED(check_range("num_bins", num_bins, 0, kMostBins));
  BARACUDA_RETURN_IF_FAILED(check_range("wants_extent", wants_extent, 0, 1));
  Problem p{};
  p.rows = rows;
  p.n = n;
  p.num_bins = num_bins;
  p.wants_extent = wants_extent != 0;
  BARACUDA_RETURN_IF_FAILED(check_count("input", CheckedCount(index_bytes).times(rows).times(n), &p.entries));
  BARACUDA_RETURN_IF_FAILED(check_count("weights", CheckedCount(element_bytes).times(rows).times(n), &p.entries));
  BARACUDA_RETURN_IF_FAILED(check_count("output", CheckedCount(element_bytes).times(rows).times(num_bins), &p.sums));
  p.blocks = ceil_div(n, kBlock);
  p.groups = ceil_div(n, kGroup);
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::bincount
