// SPDX-License-Identifier: Apache-2.0
// The C functions of affine_grid_2d and affine_grid_2d_backward, compiled into both libraries.
#include "abi/affine_grid_2d.h"
#include "abi/affine_grid_2d_backward.h"
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
    const ForwardBuffers<T> buffers{static_cast<const T*>(a.theta), static_cast<T*>(a.grid)};
    return affine_grid::launch(p, buffers, workspace, stream);
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
    const BackwardBuffers<T> buffers{static_cast<const T*>(a.grad_grid), static_cast<T*>(a.grad_theta)};
    return affine_grid::launch(p, buffers, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::affine_grid

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_AFFINE_GRID_2D(f32, affine_grid::Forward<float>)
BARACUDA_STAMP_AFFINE_GRID_2D(f64, affine_grid::Forward<double>)

BARACUDA_STAMP_AFFINE_GRID_2D_BACKWARD(f32, affine_grid::Backward<float>)
BARACUDA_STAMP_AFFINE_GRID_2D_BACKWARD(f64, affine_grid::Backward<double>)
}
