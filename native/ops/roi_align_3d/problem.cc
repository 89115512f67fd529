// SPDX-License-Identifier: Apache-2.0
// Validation of roi_align_3d problems. No pointers, no CUDA.
#include "ops/roi_align_3d/problem.h"

#include "core/box_blocks.h"
#include "core/checked.h"

namespace baracuda::roi_align_3d {

Status make_problem(const Numbers& given, int64_t element_bytes, int64_t coordinate_bytes, const char* volume,
                    const char* bins, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", given.n));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", given.c));
  BARACUDA_RETURN_IF_FAILED(check_extent("d", given.d));
  BARACUDA_RETURN_IF_FAILED(check_extent("h", given.h));
  BARACUDA_RETURN_IF_FAILED(check_extent("w", given.w));
  BARACUDA_RETURN_IF_FAILED(check_extent("num_rois", given.num_rois));
  BARACUDA_RETURN_IF_FAILED(check_extent("pooled_d", given.pooled_d));
  BARACUDA_RETURN_IF_FAILED(check_extent("pooled_h", given.pooled_h));
  BARACUDA_RETURN_IF_FAILED(check_extent("pooled_w", given.pooled_w));
  Problem p{};
  p.n = given.n, p.c = given.c, p.num_rois = given.num_rois;
  p.extents[0] = given.d, p.extents[1] = given.h, p.extents[2] = given.w;
  p.pooled[0] = given.pooled_d, p.pooled[1] = given.pooled_h, p.pooled[2] = given.pooled_w;
  // The options are checked where roi_align's are, on no pixels.
  BARACUDA_RETURN_IF_FAILED(roi_align::make_problem(0, 0, 0, 0, 0, 0, 0, given.spatial_scale, given.sampling_ratio,
                                                    given.aligned, element_bytes, coordinate_bytes, volume, bins,
                                                    &p.rule));
  const auto count = [&](int64_t first, const int32_t (&sizes)[kAxes]) {
    return CheckedCount(element_bytes).times(first).times(given.c).times(sizes[0]).times(sizes[1]).times(sizes[2]);
  };
  BARACUDA_RETURN_IF_FAILED(check_count(volume, count(given.n, p.extents), &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(bins, count(given.num_rois, p.pooled), &p.output_numel));
  BARACUDA_RETURN_IF_FAILED(
      check_count("rois", CheckedCount(coordinate_bytes).times(given.num_rois).times(7), &p.rois_numel));
  // The rule is that of maps: all rows of a volume are one map's.
  const int64_t rows = int64_t{given.d} * given.h;
  p.rois_per_block = rois_per_block_of(given.n, given.c, static_cast<int32_t>(rows < INT32_MAX ? rows : INT32_MAX),
                                       given.w, given.num_rois);
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::roi_align_3d
