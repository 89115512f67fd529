// SPDX-License-Identifier: Apache-2.0
// Validation of roi_pool problems. No pointers, no CUDA.
#include "ops/roi_pool/problem.h"

#include "core/box_blocks.h"
#include "core/checked.h"

namespace baracuda::roi_pool {

Status make_problem(int32_t n, int32_t c, int32_t h, int32_t w, int32_t num_rois, int32_t pooled_h, int32_t pooled_w,
                    float spatial_scale, int64_t element_bytes, int64_t coordinate_bytes, const char* image,
                    const char* bins, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", n));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", c));
  BARACUDA_RETURN_IF_FAILED(check_extent("h", h));
  BARACUDA_RETURN_IF_FAILED(check_extent("w", w));
  BARACUDA_RETURN_IF_FAILED(check_extent("num_rois", num_rois));
  BARACUDA_RETURN_IF_FAILED(check_extent("pooled_h", pooled_h));
  BARACUDA_RETURN_IF_FAILED(check_extent("pooled_w", pooled_w));
  if (!(spatial_scale - spatial_scale == 0.0f)) {
    return fail(Status::kInvalidProblem, "spatial_scale is %g; wanted a finite number",
                static_cast<double>(spatial_scale));
  }
  // argmax is an i32 index into a plane.
  const int64_t plane = static_cast<int64_t>(h) * w;
  if (plane > INT32_MAX) {
    return fail(Status::kInvalidProblem, "h w is %lld pixels; wanted at most %d, since argmax is an i32 index",
                static_cast<long long>(plane), INT32_MAX);
  }

  Problem p{};
  p.n = n, p.c = c, p.h = h, p.w = w;
  p.num_rois = num_rois, p.pooled_h = pooled_h, p.pooled_w = pooled_w;
  p.spatial_scale = static_cast<double>(spatial_scale);
  BARACUDA_RETURN_IF_FAILED(
      check_count(image, CheckedCount(element_bytes).times(n).times(c).times(h).times(w), &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(
      check_count(bins, CheckedCount(element_bytes).times(num_rois).times(c).times(pooled_h).times(pooled_w),
                  &p.output_numel));
  BARACUDA_RETURN_IF_FAILED(
      check_count("rois", CheckedCount(coordinate_bytes).times(num_rois).times(5), &p.rois_numel));
  // Wider than 16-bit bins are.
  BARACUDA_RETURN_IF_FAILED(
      check_count("argmax", CheckedCount(sizeof(int32_t)).times(num_rois).times(c).times(pooled_h).times(pooled_w),
                  &p.output_numel));
  p.rois_per_block = rois_per_block_of(n, c, h, w, num_rois);
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::roi_pool
