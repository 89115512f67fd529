// SPDX-License-Identifier: Apache-2.0
// The C functions of affine_grid_2d and affine_grid_2d_backward, compiled into both libraries.
#include "abi/affine_grid.h"
#include "ops/affine_grid/launch.h"

namespace baracuda::affine_grid {
namespace {

// What the tensors are called.
const char* grid_of(const AffineGrid2dArguments&) { return "grid"; }
const char* grid_of(const AffineGrid2dBackwardArguments&) { return "grad_grid"; }
const char* theta_of(const AffineGrid2dArguments&) { return "theta"; }
const char* theta_of(const AffineGrid2dBackwardArguments&) { return "grad_theta"; }

template <typename T, typename ArgumentBlock>
struct Common {
  using Arguments = ArgumentBlock;
  using Problem = affine_grid::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return affine_grid::make_problem(a.n, a.output_h, a.output_w, grid_of(a), theta_of(a), sizeof(T), problem);
  }
};

template <typename T>
struct Forward : Common<T, AffineGrid2dArguments> {
  static Operands operands(const Problem& p, const AffineGrid2dArguments& a) {
    return {{{"theta", a.theta, p.theta_numel, sizeof(T), false}, {"grid", a.grid, p.grid_numel, sizeof(T), true}}, 2};
  }
  static size_t workspace_size(const Problem& p) { return affine_grid::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const AffineGrid2dArguments& a, void* workspace, Stream stream) {
    return affine_grid::launch(p, buffers_of<ForwardBuffers<T>>(a.theta, a.grid), workspace, stream);
  }
};

template <typename T>
struct Backward : Common<T, AffineGrid2dBackwardArguments> {
  static Operands operands(const Problem& p, const AffineGrid2dBackwardArguments& a) {
    return {{{"grad_grid", a.grad_grid, p.grid_numel, sizeof(T), false},
             {"grad_theta", a.grad_theta, p.theta_numel, sizeof(T), true}},
            2};
  }
  static size_t workspace_size(const Problem& p) { return affine_grid::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const AffineGrid2dBackwardArguments& a, void* workspace, Stream stream) {
    return affine_grid::launch(p, buffers_of<BackwardBuffers<T>>(a.grad_grid, a.grad_theta), workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::affine_grid

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_AFFINE_GRID_2D(affine_grid::Forward)
BARACUDA_STAMP_EVERY_AFFINE_GRID_2D_BACKWARD(affine_grid::Backward)
}
