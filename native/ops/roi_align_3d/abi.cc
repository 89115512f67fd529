// SPDX-License-Identifier: Apache-2.0
// The C functions of roi_align_3d and of its gradient, compiled into both libraries.
#include <type_traits>

#include "abi/roi_align_3d.h"
#include "ops/roi_align_3d/launch.h"

namespace baracuda::roi_align_3d {
namespace {

template <class Block>
Numbers numbers_of(const Block& a) {
  return {a.n,        a.c,        a.d,        a.h,           a.w,              a.num_rois,
          a.pooled_d, a.pooled_h, a.pooled_w, a.spatial_scale, a.sampling_ratio, a.aligned};
}

// C is the type of coordinates.
template <typename T, typename C>
struct Forward {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = RoiAlign3dArguments;
  using Problem = roi_align_3d::Problem;
  using Buffers = ForwardBuffers<T>;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return roi_align_3d::make_problem(numbers_of(a), sizeof(T), sizeof(C), "input", "output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return roi_align_3d::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return roi_align_3d::launch(p, buffers_of<Buffers>(a.input, a.rois, a.output), workspace, stream);
  }
};

template <typename T, typename C>
struct Backward {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = RoiAlign3dBackwardArguments;
  using Problem = roi_align_3d::Problem;
  using Buffers = BackwardBuffers<T>;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return roi_align_3d::make_problem(numbers_of(a), sizeof(T), sizeof(C), "grad_input", "grad_output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return roi_align_3d::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return roi_align_3d::launch(p, buffers_of<Buffers>(a.grad_output, a.rois, a.grad_input), workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::roi_align_3d

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_ROI_ALIGN_3D(roi_align_3d::Forward)
BARACUDA_STAMP_EVERY_ROI_ALIGN_3D_BACKWARD(roi_align_3d::Backward)
}
