// SPDX-License-Identifier: Apache-2.0
// The C functions of grid_sample_3d and its gradients, compiled into both libraries.
#include <type_traits>

#include "abi/grid_sample_3d.h"
#include "core/options.h"
#include "ops/grid_sample_3d/launch.h"

namespace baracuda::grid_sample_3d {
namespace {

// C is the type of coordinates, Block the arguments.
template <typename T, typename C, class Block>
struct Common {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = Block;
  using Problem = grid_sample_3d::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    BARACUDA_RETURN_IF_FAILED(check_options_pointer(a.options));
    baracuda_kernels_grid_sample_options given;
    BARACUDA_RETURN_IF_FAILED(read_options(a.options, &given));
    const Extents extents{a.n, a.c, a.input_d, a.input_h, a.input_w, a.output_d, a.output_h, a.output_w};
    const grid_sample::Options options{given.mode, given.padding_mode, given.align_corners, given.gradients,
                                       given.shares_input};
    const bool is_backward = Block::kOutput == Role::kNone;
    return grid_sample_3d::make_problem(extents, options, is_backward, sizeof(T), sizeof(C), problem);
  }
};

template <typename T, typename C>
struct Sample : Common<T, C, GridSample3dArguments> {
  static Operands operands(const Problem& p, const GridSample3dArguments& a) {
    return {{{"input", a.input, p.given_numel(), sizeof(T), false},
             {"grid", a.grid, p.grid_numel, sizeof(C), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return grid_sample_3d::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const GridSample3dArguments& a, void* workspace, Stream stream) {
    return grid_sample_3d::launch(p, buffers_of<ForwardBuffers<T>>(a.input, a.grid, a.output), workspace, stream);
  }
};

template <typename T, typename C>
struct SampleBackward : Common<T, C, GridSample3dBackwardArguments> {
  // An output that nobody asks for has no elements: its pointer is not looked at.
  static Operands operands(const Problem& p, const GridSample3dBackwardArguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"input", a.input, p.given_numel(), sizeof(T), false},
             {"grid", a.grid, p.grid_numel, sizeof(C), false},
             {"grad_input", a.grad_input, p.has_grad_input() ? p.input_numel : 0, sizeof(T), true},
             {"grad_grid", a.grad_grid, p.has_grad_grid() ? p.grid_numel : 0, sizeof(C), true}},
            5};
  }
  static size_t workspace_size(const Problem& p) { return grid_sample_3d::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const GridSample3dBackwardArguments& a, void* workspace, Stream stream) {
    auto buffers = buffers_of<BackwardBuffers<T>>(a.grad_output, a.input, a.grid, a.grad_input, a.grad_grid);
    if (!p.has_grad_input()) buffers.grad_input = nullptr;
    if (!p.has_grad_grid()) buffers.grad_grid = nullptr;
    return grid_sample_3d::launch(p, buffers, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::grid_sample_3d

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_GRID_SAMPLE_3D(grid_sample_3d::Sample)
BARACUDA_STAMP_EVERY_GRID_SAMPLE_3D_BACKWARD(grid_sample_3d::SampleBackward)
}
