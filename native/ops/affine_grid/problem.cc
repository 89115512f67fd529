// SPDX-License-Identifier: Apache-2.0
// Validation of affine_grid problems. No pointers, no CUDA.
#include "ops/affine_grid/problem.h"

#include "core/checked.h"
#include "core/integer_math.h"

namespace baracuda::affine_grid {

Status make_problem(int32_t n, int32_t output_h, int32_t output_w, const char* grid, const char* theta,
                    int64_t element_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", n));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_h", output_h));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_w", output_w));

  Problem p{};
  p.n = n, p.output_h = output_h, p.output_w = output_w;
  p.samples = static_cast<int64_t>(output_h) * output_w;
  p.chunks = ceil_div(p.samples, kChunk);
  BARACUDA_RETURN_IF_FAILED(
      check_count(grid, CheckedCount(element_bytes).times(n).times(output_h).times(output_w).times(2), &p.grid_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(theta, CheckedCount(element_bytes).times(n).times(kThetaSize), &p.theta_numel));
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::affine_grid
