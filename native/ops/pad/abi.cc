// SPDX-License-Identifier: Apache-2.0
// The C functions of pad_constant and pad_constant_backward, compiled into both libraries.
#include "abi/pad_constant.h"
#include "abi/pad_constant_backward.h"
#include "core/dtype.h"
#include "ops/pad/launch.h"

namespace baracuda::pad {
namespace {

template <size_t kBytes>
struct WordOfBytes;
template <>
struct WordOfBytes<2> {
  using type = uint16_t;
};
template <>
struct WordOfBytes<4> {
  using type = uint32_t;
};
template <>
struct WordOfBytes<8> {
  using type = uint64_t;
};

// `Value` is how the C function passes one element: the element's type, or the bits of a 16-bit one.
template <typename Value>
using WordOf = typename WordOfBytes<sizeof(Value)>::type;

template <typename Value>
struct Forward {
  using Arguments = PadConstantArguments<Value>;
  using Problem = pad::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return make_forward_problem(a.output_numel, a.rank, a.input_shape, a.output_shape, a.pad_low, a.input_strides,
                                a.output_strides, sizeof(Value), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.source_numel, sizeof(Value), false},
             {"output", a.output, p.numel, sizeof(Value), true}},
            2};
  }
  static size_t workspace_size(const Problem&) { return 0; }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    using Word = WordOf<Value>;
    const Buffers<Word> buffers{static_cast<const Word*>(a.input), static_cast<Word*>(a.output),
                                bits_as<Word>(a.value)};
    return pad::launch(p, buffers, workspace, stream);
  }
};

template <typename Value>
struct Backward {
  using Arguments = PadConstantBackwardArguments;
  using Problem = pad::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return make_backward_problem(a.input_numel, a.rank, a.input_shape, a.pad_low, a.grad_output_strides,
                                 a.grad_input_strides, sizeof(Value), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.source_numel, sizeof(Value), false},
             {"grad_input", a.grad_input, p.numel, sizeof(Value), true}},
            2};
  }
  static size_t workspace_size(const Problem&) { return 0; }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    using Word = WordOf<Value>;
    // Every element of grad_input has a source: the value is never used.
    const Buffers<Word> buffers{static_cast<const Word*>(a.grad_output), static_cast<Word*>(a.grad_input), Word{0}};
    return pad::launch(p, buffers, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::pad

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_PAD_CONSTANT(f32, float, pad::Forward<float>)
BARACUDA_STAMP_PAD_CONSTANT(f64, double, pad::Forward<double>)
BARACUDA_STAMP_PAD_CONSTANT(f16, uint16_t, pad::Forward<uint16_t>)
BARACUDA_STAMP_PAD_CONSTANT(bf16, uint16_t, pad::Forward<uint16_t>)

BARACUDA_STAMP_PAD_CONSTANT_BACKWARD(f32, pad::Backward<float>)
BARACUDA_STAMP_PAD_CONSTANT_BACKWARD(f64, pad::Backward<double>)
BARACUDA_STAMP_PAD_CONSTANT_BACKWARD(f16, pad::Backward<uint16_t>)
BARACUDA_STAMP_PAD_CONSTANT_BACKWARD(bf16, pad::Backward<uint16_t>)
}
