// SPDX-License-Identifier: Apache-2.0
// The C functions of grid_sample_2d and grid_sample_2d_backward, compiled into both libraries.
#include "abi/grid_sample_2d.h"
#include "abi/grid_sample_2d_backward.h"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

// What the tensor of samples is called.
const char* samples_of(const GridSample2dArguments&) { return "output"; }
const char* samples_of(const GridSample2dBackwardArguments&) { return "grad_output"; }

template <typename T, typename ArgumentBlock>
struct Common {
  using Arguments = ArgumentBlock;
  using Problem = grid_sample::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return grid_sample::make_problem(a.n, a.c, a.input_h, a.input_w, a.output_h, a.output_w, samples_of(a), sizeof(T),
                                     sizeof(Compute<T>), problem);
  }
};

template <typename T>
struct Forward : Common<T, GridSample2dArguments> {
  static Operands operands(const Problem& p, const GridSample2dArguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"grid", a.grid, p.grid_numel, sizeof(Compute<T>), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return grid_sample::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const GridSample2dArguments& a, void* workspace, Stream stream) {
    const ForwardBuffers<T> buffers{static_cast<const T*>(a.input), static_cast<const Compute<T>*>(a.grid),
                                    static_cast<T*>(a.output)};
    return grid_sample::launch(p, buffers, workspace, stream);
  }
};

template <typename T>
struct Backward : Common<T, GridSample2dBackwardArguments> {
  static Operands operands(const Problem& p, const GridSample2dBackwardArguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"input", a.input, p.input_numel, sizeof(T), false},
             {"grid", a.grid, p.grid_numel, sizeof(Compute<T>), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true},
             {"grad_grid", a.grad_grid, p.grid_numel, sizeof(Compute<T>), true}},
            5};
  }
  static size_t workspace_size(const Problem& p) { return grid_sample::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const GridSample2dBackwardArguments& a, void* workspace, Stream stream) {
    const BackwardBuffers<T> buffers{static_cast<const T*>(a.grad_output), static_cast<const T*>(a.input),
                                     static_cast<const Compute<T>*>(a.grid), static_cast<T*>(a.grad_input),
                                     static_cast<Compute<T>*>(a.grad_grid)};
    return grid_sample::launch(p, buffers, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::grid_sample

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_GRID_SAMPLE_2D(f32, grid_sample::Forward<float>)
BARACUDA_STAMP_GRID_SAMPLE_2D(f64, grid_sample::Forward<double>)
BARACUDA_STAMP_GRID_SAMPLE_2D(f16, grid_sample::Forward<Half>)
BARACUDA_STAMP_GRID_SAMPLE_2D(bf16, grid_sample::Forward<Bfloat16>)

BARACUDA_STAMP_GRID_SAMPLE_2D_BACKWARD(f32, grid_sample::Backward<float>)
BARACUDA_STAMP_GRID_SAMPLE_2D_BACKWARD(f64, grid_sample::Backward<double>)
BARACUDA_STAMP_GRID_SAMPLE_2D_BACKWARD(f16, grid_sample::Backward<Half>)
BARACUDA_STAMP_GRID_SAMPLE_2D_BACKWARD(bf16, grid_sample::Backward<Bfloat16>)
}
