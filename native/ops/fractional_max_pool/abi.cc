// SPDX-License-Identifier: Apache-2.0
// The C functions of fractional maximum pooling, compiled into both libraries.
#include "abi/fractional_max_pool.h"
#include "ops/fractional_max_pool/launch.h"

namespace baracuda::fractional_max_pool {
namespace {

template <class Block>
Extents extents_of(const Block& a) {
  return {a.n,
          a.c,
          {a.d, a.h, a.w},
          {a.output_d, a.output_h, a.output_w},
          {a.kernel_d, a.kernel_h, a.kernel_w}};
}

template <typename T, typename I>
struct FractionalMaxPool {
  using Arguments = FractionalMaxPoolArguments;
  using Problem = fractional_max_pool::Problem;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return fractional_max_pool::make_problem(extents_of(a), &a.num_samples, sizeof(T), "input", "output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"random_samples", a.random_samples, p.sample_numel, sizeof(T), false},
             {"output", a.output, p.output_numel, sizeof(T), true},
             {"indices", a.indices, p.output_numel, sizeof(int64_t), true}},
            4};
  }
  static size_t workspace_size(const Problem& p) { return fractional_max_pool::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return fractional_max_pool::launch(
        p, buffers_of<ForwardBuffers<T>>(a.input, a.random_samples, a.output, a.indices), workspace, stream);
  }
};

template <typename T, typename I>
struct FractionalMaxPoolBackward {
  using Arguments = FractionalMaxPoolBackwardArguments;
  using Problem = fractional_max_pool::Problem;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return fractional_max_pool::make_problem(extents_of(a), nullptr, sizeof(T), "grad_input", "grad_output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"indices", a.indices, p.output_numel, sizeof(int64_t), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return fractional_max_pool::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return fractional_max_pool::launch(p, buffers_of<BackwardBuffers<T>>(a.grad_output, a.indices, a.grad_input),
                                       workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::fractional_max_pool

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_FRACTIONAL_MAX_POOL(fractional_max_pool::FractionalMaxPool)
BARACUDA_STAMP_EVERY_FRACTIONAL_MAX_POOL_BACKWARD(fractional_max_pool::FractionalMaxPoolBackward)
}
