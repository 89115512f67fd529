// SPDX-License-Identifier: Apache-2.0
// The C functions of roi_pool and roi_pool_backward, compiled into both libraries.
#include <type_traits>

#include "abi/roi_pool.h"
#include "ops/roi_pool/launch.h"

namespace baracuda::roi_pool {
namespace {

// C is the type of coordinates.
template <typename T, typename C>
struct Forward {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = RoiPoolArguments;
  using Problem = roi_pool::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return roi_pool::make_problem(a.n, a.c, a.h, a.w, a.num_rois, a.pooled_h, a.pooled_w, a.spatial_scale, sizeof(T),
                                  sizeof(C), "input", "output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"output", a.output, p.output_numel, sizeof(T), true},
             {"argmax", a.argmax, p.output_numel, sizeof(int32_t), true}},
            4};
  }
  static size_t workspace_size(const Problem& p) { return roi_pool::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return roi_pool::launch(p, buffers_of<ForwardBuffers<T>>(a.input, a.rois, a.output, a.argmax), workspace, stream);
  }
};

template <typename T, typename C>
struct Backward {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = RoiPoolBackwardArguments;
  using Problem = roi_pool::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    const float no_scale = 1.0f;
    return roi_pool::make_problem(a.n, a.c, a.h, a.w, a.num_rois, a.pooled_h, a.pooled_w, no_scale, sizeof(T),
                                  sizeof(C), "grad_input", "grad_output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"argmax", a.argmax, p.output_numel, sizeof(int32_t), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            4};
  }
  static size_t workspace_size(const Problem& p) { return roi_pool::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return roi_pool::launch(p, buffers_of<BackwardBuffers<T>>(a.grad_output, a.rois, a.argmax, a.grad_input), workspace,
                            stream);
  }
};

}  // namespace
}  // namespace baracuda::roi_pool

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_ROI_POOL(roi_pool::Forward)
BARACUDA_STAMP_EVERY_ROI_POOL_BACKWARD(roi_pool::Backward)
}
