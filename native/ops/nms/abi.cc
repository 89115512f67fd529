// SPDX-License-Identifier: Apache-2.0
// The C functions of non-maximum suppression, compiled into both libraries.
#include "abi/nms.h"

#include "ops/nms/launch.h"

namespace baracuda::nms {
namespace {

// Of boxes that stand in the order of their scores.
template <typename T>
struct InOrder {
  using Arguments = NmsArguments;
  using Problem = nms::Problem;
  // No indices are wanted: any type does.
  using Buffers = nms::Buffers<T, int32_t>;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return nms::make_problem(a.num_boxes, static_cast<double>(a.iou_thresh), sizeof(T), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"boxes", a.boxes, p.boxes_numel, sizeof(T), false},
             {"keep_mask", a.keep_mask, p.num_boxes, sizeof(uint8_t), true},
             {"count", a.count, 1, sizeof(int32_t), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return nms::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    Buffers buffers{};
    buffers.boxes = static_cast<const T*>(a.boxes);
    buffers.count = static_cast<int32_t*>(a.count);
    buffers.keep_mask = static_cast<uint8_t*>(a.keep_mask);
    return nms::launch(p, buffers, workspace, stream);
  }
};

template <typename T, typename I>
struct WithScores {
  using Arguments = NmsWithScoresArguments;
  using Problem = nms::Problem;
  using Buffers = nms::Buffers<T, I>;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return make_scored_problem(a.num_boxes, a.num_class_ids, a.iou_threshold, sizeof(T), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"boxes", a.boxes, p.boxes_numel, sizeof(T), false},
             {"scores", a.scores, p.num_boxes, sizeof(T), false},
             {"class_ids", a.class_ids, a.num_class_ids, sizeof(I), false},
             {"keep", a.keep, p.num_boxes, sizeof(I), true},
             {"count", a.count, 1, sizeof(int32_t), true},
             {"keep_mask", a.keep_mask, p.num_boxes, sizeof(uint8_t), true}},
            6};
  }
  static size_t workspace_size(const Problem& p) { return nms::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    // An array without elements may have any address.
    const void* const class_ids = p.has_classes ? a.class_ids : nullptr;
    return nms::launch(p, buffers_of<Buffers>(a.boxes, a.scores, class_ids, a.keep, a.count, a.keep_mask), workspace,
                       stream);
  }
};

}  // namespace
}  // namespace baracuda::nms

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_NMS(nms::InOrder)
BARACUDA_STAMP_EVERY_NMS_WITH_SCORES(nms::WithScores)
}
