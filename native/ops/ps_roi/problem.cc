// SPDX-License-Identifier: Apache-2.0
// Validation of position-sensitive pooling. No pointers, no CUDA.
#include "ops/ps_roi/problem.h"

#include "core/checked.h"

namespace baracuda::ps_roi {

Status make_problem(const Numbers& given, int64_t element_bytes, int64_t coordinate_bytes, const char* image,
                    const char* bins, Problem* problem) {
  // What it shares with roi_align is checked there, on one channel.
  Problem p{};
  BARACUDA_RETURN_IF_FAILED(check_extent("n", given.n));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", given.c));
  BARACUDA_RETURN_IF_FAILED(check_extent("h", given.h));
  BARACUDA_RETURN_IF_FAILED(check_extent("w", given.w));
  BARACUDA_RETURN_IF_FAILED(check_extent("num_rois", given.num_rois));
  BARACUDA_RETURN_IF_FAILED(check_range("pooled_h", given.pooled_h, 1, INT32_MAX));
  BARACUDA_RETURN_IF_FAILED(check_range("pooled_w", given.pooled_w, 1, INT32_MAX));
  p.n = given.n, p.c = given.c, p.h = given.h, p.w = given.w;
  p.num_rois = given.num_rois, p.pooled_h = given.pooled_h, p.pooled_w = given.pooled_w;
  p.spatial_scale = static_cast<double>(given.spatial_scale);
  BARACUDA_RETURN_IF_FAILED(roi_align::make_problem(given.n, given.c, given.h, given.w, given.num_rois, given.pooled_h,
                                                    given.pooled_w, given.spatial_scale, given.sampling_ratio, 1,
                                                    element_bytes, coordinate_bytes, image, bins, &p.boxes));
  BARACUDA_RETURN_IF_FAILED(check_count(image,
                                        CheckedCount(element_bytes)
                                            .times(given.n)
                                            .times(given.c)
                                            .times(given.pooled_h)
                                            .times(given.pooled_w)
                                            .times(given.h)
                                            .times(given.w),
                                        &p.input_numel));
  p.output_numel = p.boxes.output_numel;
  p.rois_numel = p.boxes.rois_numel;
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::ps_roi
