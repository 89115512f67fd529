// SPDX-License-Identifier: Apache-2.0
// Non-maximum suppression on CUDA: which path a call takes. The words of this family stand in native/ops/nms/README.md.
//
//   path       calls                  what is enqueued
//   none       without boxes          a zero for the count, core/cuda_zeros.cuh
//   one block  at most 8192 boxes     a launch of overlaps.cuh, decide.cuh and results.cuh each, two of order.cuh first
//   blocks     all                    the same, overlaps.cuh and decide.cuh once for every 8192 boxes, and between two
//                                     blocks a launch that strikes out what the first of them suppresses
//
// The overlaps of boxes with each other take a launch of the whole device and a bit for each pair, so a block is as
// large as scratch allows; what a block keeps is compared with the boxes behind it at once, and nothing is kept of that
// but a bit for each box.
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/nms/cuda/decide.cuh"
#include "ops/nms/cuda/order.cuh"
#include "ops/nms/cuda/overlaps.cuh"
#include "ops/nms/cuda/results.cuh"
#include "ops/nms/launch.h"

namespace baracuda::nms {
namespace {

template <typename T, typename I>
using CallRequest = Request<Problem, Buffers<T, I>>;

template <bool kClasses, typename C>
Status enqueue_blocks(const Problem& p, const Scratch<C>& scratch, Stream stream) {
  const C bound = bound_of<C>(p.iou_threshold);
  for (int64_t first = 0; first < p.num_boxes; first += kBlockBoxes) {
    const Block block = block_of(p, first);
    const int64_t end = first + block.boxes;
    const bool has_later = end < p.num_boxes;
    BARACUDA_RETURN_IF_FAILED((enqueue_overlaps<kClasses>(block, scratch, bound, stream)));
    BARACUDA_RETURN_IF_FAILED(enqueue_decisions(block, scratch.decisions, has_later, stream));
    if (has_later) {
      BARACUDA_RETURN_IF_FAILED((enqueue_strike_out<kClasses>(end, p.num_boxes, scratch, bound, stream)));
    }
  }
  return Status::kOk;
}

template <typename T, typename I>
Status enqueue_all(const CallRequest<T, I>& call) {
  const Scratch<Compute<T>> scratch(call.p, call.workspace);
  BARACUDA_RETURN_IF_FAILED(enqueue_order(call.p, call.b, scratch, call.stream));
  if (call.p.has_classes) {
    BARACUDA_RETURN_IF_FAILED(enqueue_blocks<true>(call.p, scratch, call.stream));
  } else {
    BARACUDA_RETURN_IF_FAILED(enqueue_blocks<false>(call.p, scratch, call.stream));
  }
  return enqueue_results(call.p, call.b, scratch, call.stream);
}

template <typename T, typename I>
struct NonePath {
  static const char* name() { return "none"; }
  const CallRequest<T, I>& call;
  bool can() const { return call.p.num_boxes == 0; }
  Status enqueue() const { return enqueue_zeros(call.b.count, sizeof(int32_t), call.stream); }
};

template <typename T, typename I>
struct OneBlockPath {
  static const char* name() { return "one block"; }
  const CallRequest<T, I>& call;
  bool can() const { return call.p.num_boxes <= kBlockBoxes; }
  Status enqueue() const { return enqueue_all(call); }
};

template <typename T, typename I>
struct BlocksPath {
  static const char* name() { return "blocks"; }
  const CallRequest<T, I>& call;
  Status enqueue() const { return enqueue_all(call); }
};

template <typename T, typename I>
Status run(const Problem& p, const Buffers<T, I>& b, void* workspace, Stream stream) {
  return Paths<NonePath<T, I>, OneBlockPath<T, I>, BlocksPath<T, I>>::enqueue(
      CallRequest<T, I>{p, b, workspace, stream});
}

template <typename T, typename I>
size_t bytes_of(const Problem& p, const Buffers<T, I>*) {
  return p.num_boxes > 0 ? Scratch<Compute<T>>(p, nullptr).layout.bytes() : 0;
}

}  // namespace

BARACUDA_NMS_TYPES(BARACUDA_PROVIDE_NMS)

}  // namespace baracuda::nms
