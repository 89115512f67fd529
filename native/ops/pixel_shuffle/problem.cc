// SPDX-License-Identifier: Apache-2.0
// Validation of problems of pixel_shuffle and pixel_unshuffle. No pointers, no CUDA.
#include "ops/pixel_shuffle/problem.h"

#include "core/checked.h"

namespace baracuda::pixel_shuffle {

Status make_problem(int32_t n, int32_t c, int32_t h, int32_t w, int32_t factor, const char* factor_name,
                    const char* widest, int64_t element_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", n));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", c));
  BARACUDA_RETURN_IF_FAILED(check_extent("h", h));
  BARACUDA_RETURN_IF_FAILED(check_extent("w", w));
  BARACUDA_RETURN_IF_FAILED(check_range(factor_name, factor, 1, INT32_MAX));

  Problem p{};
  p.n = n, p.c = c, p.h = h, p.w = w, p.factor = factor;
  BARACUDA_RETURN_IF_FAILED(check_count(
      widest, CheckedCount(element_bytes).times(n).times(c).times(h).times(w).times(factor).times(factor), &p.numel));
  p.wide_w = static_cast<int64_t>(w) * factor;
  p.wide_rows = p.numel == 0 ? 0 : p.numel / p.wide_w;
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::pixel_shuffle
