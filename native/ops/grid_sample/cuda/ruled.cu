// SPDX-License-Identifier: Apache-2.0
// The kernels of samples that follow a rule: other taps than bilinear ones, other padding than zeros, corners that are
// aligned, or one gradient alone. Which path a call takes: dispatch.cu.
#include "ops/grid_sample/cuda/ruled.h"

#include "core/cuda_zeros.cuh"
#include "ops/grid_sample/cuda/paths.cuh"

namespace baracuda::grid_sample {
namespace {

template <typename T>
Status run_ruled(const RuledProblem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return run_paths(p, b, workspace, stream);
}

// Where positions do not count, the gradient to the grid is 0 and nothing has to look at it.
template <typename T>
Status run_ruled(const RuledProblem& p, const BackwardBuffers<T>& given, void* workspace, Stream stream) {
  if (p.has_slopes() || p.gradients != Gradients::kBoth) return run_paths(p, given, workspace, stream);
  BARACUDA_RETURN_IF_FAILED(enqueue_zeros(given.grad_grid, p.grid_numel * sizeof(Compute<T>), stream));
  RuledProblem of_input = p;
  of_input.gradients = Gradients::kOfInput;
  BackwardBuffers<T> b = given;
  b.grad_grid = nullptr;
  return run_paths(of_input, b, workspace, stream);
}

}  // namespace

#define BARACUDA_PROVIDE_RULED(T)                                                                                    \
  template <>                                                                                                        \
  Status launch_ruled<ForwardBuffers<T>>(const RuledProblem& p, const ForwardBuffers<T>& b, void* workspace,         \
                                         Stream stream) {                                                            \
    return run_ruled(p, b, workspace, stream);                                                                       \
  }                                                                                                                  \
  template <>                                                                                                        \
  Status launch_ruled<BackwardBuffers<T>>(const RuledProblem& p, const BackwardBuffers<T>& b, void* workspace,       \
                                          Stream stream) {                                                           \
    return run_ruled(p, b, workspace, stream);                                                                       \
  }
BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_RULED)
#undef BARACUDA_PROVIDE_RULED

}  // namespace baracuda::grid_sample
