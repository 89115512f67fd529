// SPDX-License-Identifier: Apache-2.0
// The C functions of average pooling, compiled into both libraries.
#include "abi/avg_pool.h"
#include "ops/avg_pool/launch.h"

namespace baracuda::avg_pool {
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
          a.count_include_pad,
          a.divisor_override};
}

template <typename T>
struct Forward {
  using Problem = avg_pool::Problem;
  template <class Block>
  static Operands operands(const Problem& p, const Block& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            2};
  }
  static size_t workspace_size(const Problem& p) { return avg_pool::workspace_size<ForwardBuffers<T>>(p); }
  template <class Block>
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    return avg_pool::launch(p, buffers_of<ForwardBuffers<T>>(a.input, a.output), workspace, stream);
  }
};

template <typename T>
struct Backward {
  using Problem = avg_pool::Problem;
  template <class Block>
  static Operands operands(const Problem& p, const Block& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            2};
  }
  static size_t workspace_size(const Problem& p) { return avg_pool::workspace_size<BackwardBuffers<T>>(p); }
  template <class Block>
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    return avg_pool::launch(p, buffers_of<BackwardBuffers<T>>(a.grad_output, a.grad_input), workspace, stream);
  }
};

template <typename T>
struct AvgPool : Forward<T> {
  using Arguments = AvgPoolArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    const Windows windows = windows_of(a);
    return avg_pool::make_problem(extents_of(a), &windows, sizeof(T), "input", "output", problem);
  }
};

template <typename T>
struct AvgPoolBackward : Backward<T> {
  using Arguments = AvgPoolBackwardArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    const Windows windows = windows_of(a);
    return avg_pool::make_problem(extents_of(a), &windows, sizeof(T), "grad_input", "grad_output", problem);
  }
};

template <typename T>
struct AdaptiveAvgPool : Forward<T> {
  using Arguments = AdaptiveAvgPoolArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return avg_pool::make_problem(extents_of(a), nullptr, sizeof(T), "input", "output", problem);
  }
};

template <typename T>
struct AdaptiveAvgPoolBackward : Backward<T> {
  using Arguments = AdaptiveAvgPoolBackwardArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return avg_pool::make_problem(extents_of(a), nullptr, sizeof(T), "grad_input", "grad_output", problem);
  }
};

}  // namespace
}  // namespace baracuda::avg_pool

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_AVG_POOL(avg_pool::AvgPool)
BARACUDA_STAMP_EVERY_AVG_POOL_BACKWARD(avg_pool::AvgPoolBackward)
BARACUDA_STAMP_EVERY_ADAPTIVE_AVG_POOL(avg_pool::AdaptiveAvgPool)
BARACUDA_STAMP_EVERY_ADAPTIVE_AVG_POOL_BACKWARD(avg_pool::AdaptiveAvgPoolBackward)
}
