// SPDX-License-Identifier: Apache-2.0
// Validation of affine_grid problems. No pointers, no CUDA.
#include "ops/affine_grid/problem.h"

#include "core/checked.h"
#include "core/integer_math.h"

namespace baracuda::affine_grid {

Status make_problem(int axes, int32_t n, const Extents& extents, int32_t align_corners, const char* grid,
                    const char* theta, int64_t element_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", n));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_d", extents.output_d));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_h", extents.output_h));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_w", extents.output_w));
  BARACUDA_RETURN_IF_FAILED(check_range("options->align_corners", align_corners, 0, 1));

  Problem p{};
  p.n = n, p.output_d = extents.output_d, p.output_h = extents.output_h, p.output_w = extents.output_w;
  p.aligns_corners = align_corners != 0;
  BARACUDA_RETURN_IF_FAILED(check_count(
      grid,
      CheckedCount(element_bytes).times(n).times(p.output_d).times(p.output_h).times(p.output_w).times(axes),
      &p.grid_numel));
  BARACUDA_RETURN_IF_FAILED(
      check_count(theta, CheckedCount(element_bytes).times(n).times(theta_size(axes)), &p.theta_numel));
  // A count of 0 may come of n alone, beside extents whose product 64 bits do not hold; then there is nothing to count.
  if (n > 0) p.samples = p.grid_numel / axes / n;
  p.chunks = ceil_div(p.samples, kChunk);
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::affine_grid
