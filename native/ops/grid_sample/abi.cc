// SPDX-License-Identifier: Apache-2.0
// The C functions of grid_sample_2d and grid_sample_2d_backward, compiled into both libraries.
#include <type_traits>

#include "abi/grid_sample.h"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

// What the tensor of samples is called.
const char* samples_of(const GridSample2dArguments&) { return "output"; }
const char* samples_of(const GridSample2dBackwardArguments&) { return "grad_output"; }

// C is the type of coordinates.
template <typename T, typename C, typename ArgumentBlock>
struct Common {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = ArgumentBlock;
  using Problem = grid_sample::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return grid_sample::make_problem(a.n, a.c, a.input_h, a.input_w, a.output_h, a.output_w, samples_of(a), sizeof(T),
                                     sizeof(C), problem);
  }
};

template <typename T, typename C>
struct Forward : Common<T, C, GridSample2dArguments> {
  static Operands operands(const Problem& p, const GridSample2dArguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"grid", a.grid, p.grid_numel, sizeof(C), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return grid_sample::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const GridSample2dArguments& a, void* workspace, Stream stream) {
    return grid_sample::launch(p, buffers_of<ForwardBuffers<T>>(a.input, a.grid, a.output), workspace, stream);
  }
};

template <typename T, typename C>
struct Backward : Common<T, C, GridSample2dBackwardArguments> {
  static Operands operands(const Problem& p, const GridSample2dBackwardArguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"input", a.input, p.input_numel, sizeof(T), false},
             {"grid", a.grid, p.grid_numel, sizeof(C), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true},
             {"grad_grid", a.grad_grid, p.grid_numel, sizeof(C), true}},
            5};
  }
  static size_t workspace_size(const Problem& p) { return grid_sample::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const GridSample2dBackwardArguments& a, void* workspace, Stream stream) {
    const auto buffers = buffers_of<BackwardBuffers<T>>(a.grad_output, a.input, a.grid, a.grad_input, a.grad_grid);
    return grid_sample::launch(p, buffers, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::grid_sample

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_GRID_SAMPLE_2D(grid_sample::Forward)
BARACUDA_STAMP_EVERY_GRID_SAMPLE_2D_BACKWARD(grid_sample::Backward)
}
