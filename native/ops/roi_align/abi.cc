// SPDX-License-Identifier: Apache-2.0
// The C functions of roi_align and roi_align_backward, compiled into both libraries.
#include <type_traits>

#include "abi/roi_align.h"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

// What the tensors are called.
const char* image_of(const RoiAlignArguments&) { return "input"; }
const char* image_of(const RoiAlignBackwardArguments&) { return "grad_input"; }
const char* bins_of(const RoiAlignArguments&) { return "output"; }
const char* bins_of(const RoiAlignBackwardArguments&) { return "grad_output"; }

// C is the type of coordinates.
template <typename T, typename C, typename ArgumentBlock>
struct Common {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = ArgumentBlock;
  using Problem = roi_align::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return roi_align::make_problem(a.n, a.c, a.h, a.w, a.num_rois, a.pooled_h, a.pooled_w, a.spatial_scale,
                                   a.sampling_ratio, a.aligned, sizeof(T), sizeof(C), image_of(a), bins_of(a), problem);
  }
};

template <typename T, typename C>
struct Forward : Common<T, C, RoiAlignArguments> {
  static Operands operands(const Problem& p, const RoiAlignArguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return roi_align::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const RoiAlignArguments& a, void* workspace, Stream stream) {
    return roi_align::launch(p, buffers_of<ForwardBuffers<T>>(a.input, a.rois, a.output), workspace, stream);
  }
};

template <typename T, typename C>
struct Backward : Common<T, C, RoiAlignBackwardArguments> {
  static Operands operands(const Problem& p, const RoiAlignBackwardArguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return roi_align::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const RoiAlignBackwardArguments& a, void* workspace, Stream stream) {
    return roi_align::launch(p, buffers_of<BackwardBuffers<T>>(a.grad_output, a.rois, a.grad_input), workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::roi_align

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_ROI_ALIGN(roi_align::Forward)
BARACUDA_STAMP_EVERY_ROI_ALIGN_BACKWARD(roi_align::Backward)
}
