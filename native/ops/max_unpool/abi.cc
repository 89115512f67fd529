// SPDX-License-Identifier: Apache-2.0
// The C functions of maximum unpooling, compiled into both libraries.
#include "abi/max_unpool.h"
#include "ops/max_unpool/launch.h"

namespace baracuda::max_unpool {
namespace {

template <class Block>
Extents extents_of(const Block& a) {
  return {a.n, a.c, {a.d, a.h, a.w}, {a.output_d, a.output_h, a.output_w}};
}

template <typename T, typename I>
struct MaxUnpool {
  using Problem = max_unpool::Problem;
  using Arguments = MaxUnpoolArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return max_unpool::make_problem(extents_of(a), sizeof(T), "input", "output", problem);
  }
  template <class Block>
  static Operands operands(const Problem& p, const Block& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"indices", a.indices, p.input_numel, sizeof(int64_t), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return max_unpool::workspace_size<ForwardBuffers<T>>(p); }
  template <class Block>
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    return max_unpool::launch(p, buffers_of<ForwardBuffers<T>>(a.input, a.indices, a.output), workspace, stream);
  }
};

template <typename T, typename I>
struct MaxUnpoolBackward {
  using Problem = max_unpool::Problem;
  using Arguments = MaxUnpoolBackwardArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return max_unpool::make_problem(extents_of(a), sizeof(T), "grad_input", "grad_output", problem);
  }
  template <class Block>
  static Operands operands(const Problem& p, const Block& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"indices", a.indices, p.input_numel, sizeof(int64_t), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return max_unpool::workspace_size<BackwardBuffers<T>>(p); }
  template <class Block>
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    return max_unpool::launch(p, buffers_of<BackwardBuffers<T>>(a.grad_output, a.indices, a.grad_input), workspace,
                              stream);
  }
};

}  // namespace
}  // namespace baracuda::max_unpool

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_MAX_UNPOOL(max_unpool::MaxUnpool)
BARACUDA_STAMP_EVERY_MAX_UNPOOL_BACKWARD(max_unpool::MaxUnpoolBackward)
}
