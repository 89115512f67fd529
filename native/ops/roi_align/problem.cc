// SPDX-License-Identifier: Apache-2.0
// Validation of roi_align problems. No pointers, no CUDA.
#include "ops/roi_align/problem.h"

#include "core/box_blocks.h"
#include "core/checked.h"

namespace baracuda::roi_align {
Status make_problem(int32_t n, int32_t c, int32_t h, int32_t w, int32_t num_rois, int32_t pooled_h, int32_t pooled_w,
                    float spatial_scale, int32_t sampling_ratio, int32_t aligned, int64_t element_bytes,
                    int64_t coordinate_bytes, const char* image, const char* bins, Problem* problem,
                    int32_t most_samples) {
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
  if (sampling_ratio > most_samples) {
    return fail(Status::kInvalidProblem, "sampling_ratio is %d; wanted at most %d", sampling_ratio, most_samples);
  }
  BARACUDA_RETURN_IF_FAILED(check_range("aligned", aligned, 0, 1));

  Problem p{};
  p.n = n, p.c = c, p.h = h, p.w = w;
  p.num_rois = num_rois, p.pooled_h = pooled_h, p.pooled_w = pooled_w;
  p.spatial_scale = static_cast<double>(spatial_scale);
  p.sampling_ratio = sampling_ratio;
  p.aligned = aligned == 1;
  BARACUDA_RETURN_IF_FAILED(
      check_count(image, CheckedCount(element_bytes).times(n).times(c).times(h).times(w), &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(
      check_count(bins, CheckedCount(element_bytes).times(num_rois).times(c).times(pooled_h).times(pooled_w),
                  &p.output_numel));
  BARACUDA_RETURN_IF_FAILED(
      check_count("rois", CheckedCount(coordinate_bytes).times(num_rois).times(5), &p.rois_numel));
  p.rois_per_block = rois_per_block_of(n, c, h, w, num_rois);
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::roi_align
