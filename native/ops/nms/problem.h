// SPDX-License-Identifier: Apache-2.0
// What a valid problem of non-maximum suppression is: how many boxes, and what is known of them. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::nms {

struct Problem {
  int32_t num_boxes;
  double iou_threshold;
  bool has_scores;   // else the boxes stand in the order of their scores, and no indices are wanted
  bool has_classes;  // else all boxes are of one class

  int64_t boxes_numel;  // 4 num_boxes
};

// Checks in the project's fixed order. `element_bytes` is the size of T.
Status make_problem(int32_t num_boxes, double iou_threshold, int64_t element_bytes, Problem* problem);

// The same for boxes with scores, and with class ids or none.
Status make_scored_problem(int32_t num_boxes, int32_t num_class_ids, double iou_threshold, int64_t element_bytes,
                           Problem* problem);

}  // namespace baracuda::nms
