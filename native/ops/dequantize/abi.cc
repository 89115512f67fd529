// SPDX-License-Identifier: Apache-2.0
// The C functions of dequantize_per_channel and its backward, compiled into both libraries.
#include "abi/dequantize_per_channel.h"
#include "abi/dequantize_per_channel_backward.h"
#include "ops/dequantize/launch.h"

namespace baracuda::dequantize {
namespace {

template <typename T, typename Q>
struct Forward {
  using Arguments = DequantizePerChannelArguments;
  using Problem = dequantize::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return dequantize::make_problem(a.numel, a.shape, a.axis, "output", sizeof(T), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.numel, sizeof(Q), false},
             {"scale", a.scale, p.channels, sizeof(T), false},
             {"zero_point", a.zero_point, p.channels, sizeof(int32_t), false},
             {"output", a.output, p.numel, sizeof(T), true}},
            4};
  }
  static size_t workspace_size(const Problem&) { return 0; }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    const ForwardBuffers<T, Q> buffers{static_cast<const Q*>(a.input), static_cast<const T*>(a.scale),
                                       static_cast<const int32_t*>(a.zero_point), static_cast<T*>(a.output)};
    return dequantize::launch(p, buffers, workspace, stream);
  }
};

// The macros below take a type without a comma.
template <typename T>
using SignedForward = Forward<T, int8_t>;
template <typename T>
using UnsignedForward = Forward<T, uint8_t>;

template <typename T>
struct Backward {
  using Arguments = DequantizePerChannelBackwardArguments;
  using Problem = dequantize::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return dequantize::make_problem(a.numel, a.shape, a.axis, "grad_output", sizeof(T), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"scale", a.scale, p.channels, sizeof(T), false},
             {"grad_output", a.grad_output, p.numel, sizeof(T), false},
             {"grad_input", a.grad_input, p.numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem&) { return 0; }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    const BackwardBuffers<T> buffers{static_cast<const T*>(a.grad_output), static_cast<const T*>(a.scale),
                                     static_cast<T*>(a.grad_input)};
    return dequantize::launch(p, buffers, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::dequantize

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL(f32_s8, dequantize::SignedForward<float>)
BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL(f32_u8, dequantize::UnsignedForward<float>)
BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL(f64_s8, dequantize::SignedForward<double>)
BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL(f64_u8, dequantize::UnsignedForward<double>)
BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL(f16_s8, dequantize::SignedForward<Half>)
BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL(f16_u8, dequantize::UnsignedForward<Half>)
BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL(bf16_s8, dequantize::SignedForward<Bfloat16>)
BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL(bf16_u8, dequantize::UnsignedForward<Bfloat16>)

BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL_BACKWARD(f32, dequantize::Backward<float>)
BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL_BACKWARD(f64, dequantize::Backward<double>)
BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL_BACKWARD(f16, dequantize::Backward<Half>)
BARACUDA_STAMP_DEQUANTIZE_PER_CHANNEL_BACKWARD(bf16, dequantize::Backward<Bfloat16>)
}
