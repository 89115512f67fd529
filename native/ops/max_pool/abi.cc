// SPDX-License-Identifier: Apache-2.0
// The C functions of maximum pooling, compiled into both libraries.
#include "abi/max_pool.h"
#include "ops/max_pool/launch.h"

namespace baracuda::max_pool {
namespace {

template <class Block>
Extents extents_of(const Block& a) {
  return {a.n, a.c, {a.d, a.h, a.w}, {a.output_d, a.output_h, a.output_w}};
}

template <class Block>
Windows windows_of(const Block& a) {
  return {{a.kernel_d, a.kernel_h, a.kernel_w},
          {a.stride_d, a.stride_h, a.stride_w},
          {a.padding_d, a.padding_h, a.padding_w},
          {a.dilation_d, a.dilation_h, a.dilation_w}};
}

template <typename T>
struct Forward {
  using Problem = max_pool::Problem;
  template <class Block>
  static Operands operands(const Problem& p, const Block& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"output", a.output, p.output_numel, sizeof(T), true},
             {"indices", a.indices, p.output_numel, sizeof(int64_t), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return max_pool::workspace_size<ForwardBuffers<T>>(p); }
  template <class Block>
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    return max_pool::launch(p, buffers_of<ForwardBuffers<T>>(a.input, a.output, a.indices), workspace, stream);
  }
};

template <typename T>
struct Backward {
  using Problem = max_pool::Problem;
  template <class Block>
  static Operands operands(const Problem& p, const Block& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"indices", a.indices, p.output_numel, sizeof(int64_t), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return max_pool::workspace_size<BackwardBuffers<T>>(p); }
  template <class Block>
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    return max_pool::launch(p, buffers_of<BackwardBuffers<T>>(a.grad_output, a.indices, a.grad_input), workspace,
                            stream);
  }
};

template <typename T, typename I>
struct MaxPool : Forward<T> {
  using Arguments = MaxPoolArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    const Windows windows = windows_of(a);
    return max_pool::make_problem(extents_of(a), &windows, sizeof(T), "input", "output", problem);
  }
};

template <typename T, typename I>
struct MaxPoolBackward : Backward<T> {
  using Arguments = MaxPoolBackwardArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    const Windows windows = windows_of(a);
    return max_pool::make_problem(extents_of(a), &windows, sizeof(T), "grad_input", "grad_output", problem);
  }
};

template <typename T, typename I>
struct AdaptiveMaxPool : Forward<T> {
  using Arguments = AdaptiveMaxPoolArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return max_pool::make_problem(extents_of(a), nullptr, sizeof(T), "input", "output", problem);
  }
};

template <typename T, typename I>
struct AdaptiveMaxPoolBackward : Backward<T> {
  using Arguments = AdaptiveMaxPoolBackwardArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return max_pool::make_problem(extents_of(a), nullptr, sizeof(T), "grad_input", "grad_output", problem);
  }
};

}  // namespace
}  // namespace baracuda::max_pool

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_MAX_POOL(max_pool::MaxPool)
BARACUDA_STAMP_EVERY_MAX_POOL_BACKWARD(max_pool::MaxPoolBackward)
BARACUDA_STAMP_EVERY_ADAPTIVE_MAX_POOL(max_pool::AdaptiveMaxPool)
BARACUDA_STAMP_EVERY_ADAPTIVE_MAX_POOL_BACKWARD(max_pool::AdaptiveMaxPoolBackward)
}
