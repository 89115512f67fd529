// SPDX-License-Identifier: Apache-2.0
// The C functions of dequantize_per_channel and its backward, compiled into both libraries.
#include "abi/dequantize.h"
#include "ops/dequantize/launch.h"

namespace baracuda::dequantize {
namespace {

// What the tensor with the most bytes is called.
const char* widest_of(const DequantizePerChannelArguments&) { return "output"; }
const char* widest_of(const DequantizePerChannelBackwardArguments&) { return "grad_output"; }

template <typename T, typename ArgumentBlock>
struct Common {
  using Arguments = ArgumentBlock;
  using Problem = dequantize::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return dequantize::make_problem(a.numel, a.shape, a.axis, widest_of(a), sizeof(T), problem);
  }
  static size_t workspace_size(const Problem&) { return 0; }
};

template <typename T, typename Q>
struct Forward : Common<T, DequantizePerChannelArguments> {
  static Operands operands(const Problem& p, const DequantizePerChannelArguments& a) {
    return {{{"input", a.input, p.numel, sizeof(Q), false},
             {"scale", a.scale, p.channels, sizeof(T), false},
             {"zero_point", a.zero_point, p.channels, sizeof(int32_t), false},
             {"output", a.output, p.numel, sizeof(T), true}},
            4};
  }
  static Status launch(const Problem& p, const DequantizePerChannelArguments& a, void* workspace, Stream stream) {
    const auto buffers = buffers_of<ForwardBuffers<T, Q>>(a.input, a.scale, a.zero_point, a.output);
    return dequantize::launch(p, buffers, workspace, stream);
  }
};

template <typename T>
struct Backward : Common<T, DequantizePerChannelBackwardArguments> {
  static Operands operands(const Problem& p, const DequantizePerChannelBackwardArguments& a) {
    return {{{"scale", a.scale, p.channels, sizeof(T), false},
             {"grad_output", a.grad_output, p.numel, sizeof(T), false},
             {"grad_input", a.grad_input, p.numel, sizeof(T), true, 1}},
            3};
  }
  static Status launch(const Problem& p, const DequantizePerChannelBackwardArguments& a, void* workspace,
                       Stream stream) {
    const auto buffers = buffers_of<BackwardBuffers<T>>(a.grad_output, a.scale, a.grad_input);
    return dequantize::launch(p, buffers, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::dequantize

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_DEQUANTIZE_PER_CHANNEL(dequantize::Forward)
BARACUDA_STAMP_EVERY_DEQUANTIZE_PER_CHANNEL_BACKWARD(dequantize::Backward)
}
