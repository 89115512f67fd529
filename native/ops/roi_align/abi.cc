// SPDX-License-Identifier: Apache-2.0
// The C functions of roi_align and roi_align_backward, compiled into both libraries.
#include "abi/roi_align.h"
#include "abi/roi_align_backward.h"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

// What the tensors are called.
const char* image_of(const RoiAlignArguments&) { return "input"; }
const char* image_of(const RoiAlignBackwardArguments&) { return "grad_input"; }
const char* bins_of(const RoiAlignArguments&) { return "output"; }
const char* bins_of(const RoiAlignBackwardArguments&) { return "grad_output"; }

template <typename T, typename ArgumentBlock>
struct Common {
  using Arguments = ArgumentBlock;
  using Problem = roi_align::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return roi_align::make_problem(a.n, a.c, a.h, a.w, a.num_rois, a.pooled_h, a.pooled_w, a.spatial_scale,
                                   a.sampling_ratio, a.aligned, sizeof(T), sizeof(Compute<T>), image_of(a), bins_of(a), problem);
  }
};

template <typename T>
struct Forward : Common<T, RoiAlignArguments> {
  static Operands operands(const Problem& p, const RoiAlignArguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(Compute<T>), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return roi_align::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const RoiAlignArguments& a, void* workspace, Stream stream) {
    const ForwardBuffers<T> buffers{static_cast<const T*>(a.input), static_cast<const Compute<T>*>(a.rois),
                                    static_cast<T*>(a.output)};
    return roi_align::launch(p, buffers, workspace, stream);
  }
};

template <typename T>
struct Backward : Common<T, RoiAlignBackwardArguments> {
  static Operands operands(const Problem& p, const RoiAlignBackwardArguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(Compute<T>), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return roi_align::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const RoiAlignBackwardArguments& a, void* workspace, Stream stream) {
    const BackwardBuffers<T> buffers{static_cast<const T*>(a.grad_output), static_cast<const Compute<T>*>(a.rois),
                                     static_cast<T*>(a.grad_input)};
    return roi_align::launch(p, buffers, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::roi_align

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_ROI_ALIGN(f32, roi_align::Forward<float>)
BARACUDA_STAMP_ROI_ALIGN(f64, roi_align::Forward<double>)
BARACUDA_STAMP_ROI_ALIGN(f16, roi_align::Forward<Half>)
BARACUDA_STAMP_ROI_ALIGN(bf16, roi_align::Forward<Bfloat16>)

BARACUDA_STAMP_ROI_ALIGN_BACKWARD(f32, roi_align::Backward<float>)
BARACUDA_STAMP_ROI_ALIGN_BACKWARD(f64, roi_align::Backward<double>)
BARACUDA_STAMP_ROI_ALIGN_BACKWARD(f16, roi_align::Backward<Half>)
BARACUDA_STAMP_ROI_ALIGN_BACKWARD(bf16, roi_align::Backward<Bfloat16>)
}
