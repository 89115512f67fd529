// SPDX-License-Identifier: Apache-2.0
// Validation of problems of non-maximum suppression. No pointers, no CUDA.
#include "ops/nms/problem.h"

#include "core/checked.h"

namespace baracuda::nms {

Status make_problem(int32_t num_boxes, double iou_threshold, int64_t element_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("num_boxes", num_boxes));
  Problem p{};
  p.num_boxes = num_boxes;
  p.iou_threshold = iou_threshold;
  BARACUDA_RETURN_IF_FAILED(
      check_count("boxes", CheckedCount(element_bytes).times(num_boxes).times(4), &p.boxes_numel));
  *problem = p;
  return Status::kOk;
}

Status make_scored_problem(int32_t num_boxes, int32_t num_class_ids, double iou_threshold, int64_t element_bytes,
                           Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("num_boxes", num_boxes));
  BARACUDA_RETURN_IF_FAILED(check_extent("num_class_ids", num_class_ids));
  if (num_class_ids != 0 && num_class_ids != num_boxes) {
    return fail(Status::kInvalidProblem, "num_class_ids is %d; wanted 0 or num_boxes, which is %d", num_class_ids,
                num_boxes);
  }
  BARACUDA_RETURN_IF_FAILED(make_problem(num_boxes, iou_threshold, element_bytes, problem));
  problem->has_scores = true;
  problem->has_classes = num_class_ids != 0;
  return Status::kOk;
}

}  // namespace baracuda::nms
