// SPDX-License-Identifier: Apache-2.0
// The C functions of grid_sample_2d, grid_sample_2d_ex and their gradients, compiled into both libraries.
#include <type_traits>

#include "abi/grid_sample.h"
#include "core/options.h"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

// C is the type of coordinates, Block the arguments.
template <typename T, typename C, class Block>
struct Common {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = Block;
  using Problem = RuledProblem;

  static constexpr bool kIsBackward = Block::kOutput == Role::kNone;

  static Status make_problem(const Arguments& a, RuledProblem* problem) { return make_problem(a, {}, problem); }

 protected:
  static Status make_problem(const Arguments& a, const Options& options, RuledProblem* problem) {
    return grid_sample::make_problem(a.n, a.c, a.input_h, a.input_w, a.output_h, a.output_w, options, kIsBackward,
                                     sizeof(T), sizeof(C), problem);
  }
};

template <typename T, typename C, class Block>
struct WithOptions : Common<T, C, Block> {
  static Status make_problem(const Block& a, RuledProblem* problem) {
    BARACUDA_RETURN_IF_FAILED(check_options_pointer(a.options));
    baracuda_kernels_grid_sample_options given;
    BARACUDA_RETURN_IF_FAILED(read_options(a.options, &given));
    const Options options{given.mode, given.padding_mode, given.align_corners, given.gradients, given.shares_input};
    return Common<T, C, Block>::make_problem(a, options, problem);
  }
};

template <typename T, typename C, class Made>
struct Forward : Made {
  using Arguments = typename Made::Arguments;

  static Operands operands(const RuledProblem& p, const Arguments& a) {
    return {{{"input", a.input, p.given_numel(), sizeof(T), false},
             {"grid", a.grid, p.grid_numel, sizeof(C), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const RuledProblem& p) { return grid_sample::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const RuledProblem& p, const Arguments& a, void* workspace, Stream stream) {
    return grid_sample::launch(p, buffers_of<ForwardBuffers<T>>(a.input, a.grid, a.output), workspace, stream);
  }
};

template <typename T, typename C, class Made>
struct Backward : Made {
  using Arguments = typename Made::Arguments;

  // An output that nobody asks for has no elements: its pointer is not looked at.
  static Operands operands(const RuledProblem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"input", a.input, p.given_numel(), sizeof(T), false},
             {"grid", a.grid, p.grid_numel, sizeof(C), false},
             {"grad_input", a.grad_input, p.has_grad_input() ? p.input_numel : 0, sizeof(T), true},
             {"grad_grid", a.grad_grid, p.has_grad_grid() ? p.grid_numel : 0, sizeof(C), true}},
            5};
  }
  static size_t workspace_size(const RuledProblem& p) { return grid_sample::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const RuledProblem& p, const Arguments& a, void* workspace, Stream stream) {
    auto buffers = buffers_of<BackwardBuffers<T>>(a.grad_output, a.input, a.grid, a.grad_input, a.grad_grid);
    if (!p.has_grad_input()) buffers.grad_input = nullptr;
    if (!p.has_grad_grid()) buffers.grad_grid = nullptr;
    return grid_sample::launch(p, buffers, workspace, stream);
  }
};

template <typename T, typename C>
using Sample = Forward<T, C, Common<T, C, GridSample2dArguments>>;
template <typename T, typename C>
using SampleBackward = Backward<T, C, Common<T, C, GridSample2dBackwardArguments>>;
template <typename T, typename C>
using SampleEx = Forward<T, C, WithOptions<T, C, GridSample2dExArguments>>;
template <typename T, typename C>
using SampleExBackward = Backward<T, C, WithOptions<T, C, GridSample2dExBackwardArguments>>;

}  // namespace
}  // namespace baracuda::grid_sample

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_GRID_SAMPLE_2D(grid_sample::Sample)
BARACUDA_STAMP_EVERY_GRID_SAMPLE_2D_BACKWARD(grid_sample::SampleBackward)
BARACUDA_STAMP_EVERY_GRID_SAMPLE_2D_EX(grid_sample::SampleEx)
BARACUDA_STAMP_EVERY_GRID_SAMPLE_2D_EX_BACKWARD(grid_sample::SampleExBackward)
}
