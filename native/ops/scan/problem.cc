// SPDX-License-Identifier: Apache-2.0
// Validation of scans. No pointers, no CUDA.
#include "ops/scan/problem.h"

#include "core/checked.h"
#include "core/integer_math.h"

namespace baracuda::scan {

Status make_problem(const Scalars& scalars, bool is_backward, int64_t element_bytes, const char* widest,
                    Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("outer", scalars.outer));
  BARACUDA_RETURN_IF_FAILED(check_extent("length", scalars.length));
  BARACUDA_RETURN_IF_FAILED(check_extent("inner", scalars.inner));
  BARACUDA_RETURN_IF_FAILED(check_range("reverse", scalars.reverse, 0, 1));

  Problem p{};
  p.outer = scalars.outer, p.length = scalars.length, p.inner = scalars.inner;
  p.reverse = (scalars.reverse == 1) != is_backward;
  BARACUDA_RETURN_IF_FAILED(check_count(
      widest, CheckedCount(element_bytes).times(p.outer).times(p.length).times(p.inner), &p.numel));
  p.rows = p.numel > 0 ? p.numel / p.length : 0;
  p.tiles = ceil_div(p.length, kTile);
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::scan
