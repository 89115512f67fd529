// SPDX-License-Identifier: Apache-2.0
// The C functions of affine_grid_2d, its _ex form, affine_grid_3d and their gradients, compiled into both libraries.
#include "abi/affine_grid.h"
#include "core/options.h"
#include "ops/affine_grid/launch.h"

namespace baracuda::affine_grid {
namespace {

template <class Block>
Extents extents_of(const Block& a) {
  return {1, a.output_h, a.output_w};
}
inline Extents extents_of(const AffineGrid3dArguments& a) { return {a.output_d, a.output_h, a.output_w}; }
inline Extents extents_of(const AffineGrid3dBackwardArguments& a) { return {a.output_d, a.output_h, a.output_w}; }

// Block is the arguments.
template <typename T, class Block, int kDimensions>
struct Common {
  using Arguments = Block;
  using Problem = affine_grid::Problem;
  static constexpr int kAxes = kDimensions;

  static Status make_problem(const Arguments& a, Problem* problem) { return make_problem(a, 0, problem); }

 protected:
  static Status make_problem(const Arguments& a, int32_t align_corners, Problem* problem) {
    constexpr bool kIsForward = Block::kGrid != Role::kNone;
    return affine_grid::make_problem(kAxes, a.n, extents_of(a), align_corners, kIsForward ? "grid" : "grad_grid",
                                     kIsForward ? "theta" : "grad_theta", sizeof(T), problem);
  }
};

template <typename T, class Block, int kDimensions>
struct WithOptions : Common<T, Block, kDimensions> {
  static Status make_problem(const Block& a, Problem* problem) {
    BARACUDA_RETURN_IF_FAILED(check_options_pointer(a.options));
    baracuda_kernels_affine_grid_options options;
    BARACUDA_RETURN_IF_FAILED(read_options(a.options, &options));
    return Common<T, Block, kDimensions>::make_problem(a, options.align_corners, problem);
  }
};

template <typename T, class Made>
struct Forward : Made {
  using Arguments = typename Made::Arguments;
  using Buffers = ForwardBuffers<T, Made::kAxes>;

  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"theta", a.theta, p.theta_numel, sizeof(T), false}, {"grid", a.grid, p.grid_numel, sizeof(T), true}}, 2};
  }
  static size_t workspace_size(const Problem& p) { return affine_grid::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return affine_grid::launch(p, buffers_of<Buffers>(a.theta, a.grid), workspace, stream);
  }
};

template <typename T, class Made>
struct Backward : Made {
  using Arguments = typename Made::Arguments;
  using Buffers = BackwardBuffers<T, Made::kAxes>;

  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_grid", a.grad_grid, p.grid_numel, sizeof(T), false},
             {"grad_theta", a.grad_theta, p.theta_numel, sizeof(T), true}},
            2};
  }
  static size_t workspace_size(const Problem& p) { return affine_grid::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return affine_grid::launch(p, buffers_of<Buffers>(a.grad_grid, a.grad_theta), workspace, stream);
  }
};

template <typename T>
using Grid = Forward<T, Common<T, AffineGrid2dArguments, 2>>;
template <typename T>
using GridBackward = Backward<T, Common<T, AffineGrid2dBackwardArguments, 2>>;
template <typename T>
using GridEx = Forward<T, WithOptions<T, AffineGrid2dExArguments, 2>>;
template <typename T>
using GridExBackward = Backward<T, WithOptions<T, AffineGrid2dExBackwardArguments, 2>>;
template <typename T>
using Grid3d = Forward<T, WithOptions<T, AffineGrid3dArguments, 3>>;
template <typename T>
using Grid3dBackward = Backward<T, WithOptions<T, AffineGrid3dBackwardArguments, 3>>;

}  // namespace
}  // namespace baracuda::affine_grid

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_AFFINE_GRID_2D(affine_grid::Grid)
BARACUDA_STAMP_EVERY_AFFINE_GRID_2D_BACKWARD(affine_grid::GridBackward)
BARACUDA_STAMP_EVERY_AFFINE_GRID_2D_EX(affine_grid::GridEx)
BARACUDA_STAMP_EVERY_AFFINE_GRID_2D_EX_BACKWARD(affine_grid::GridExBackward)
BARACUDA_STAMP_EVERY_AFFINE_GRID_3D(affine_grid::Grid3d)
BARACUDA_STAMP_EVERY_AFFINE_GRID_3D_BACKWARD(affine_grid::Grid3dBackward)
}
