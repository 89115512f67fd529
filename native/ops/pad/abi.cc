// SPDX-License-Identifier: Apache-2.0
// The C functions of the pad family, compiled into both libraries.
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

// What moves an element of T, or of the bits in which a C function passes one.
template <typename T>
using WordOf = typename WordOfBytes<sizeof(T)>::type;

// Every operator's block has the same fields, but for the value and, forward or backward, for their names.
template <class Block>
Shapes shapes_of(const Block& a, Mode mode) {
  return {mode, a.rank, a.input_shape, a.output_shape, a.pad_low, a.input_strides, a.output_strides, true, false};
}

template <class Block, typename Word>
Operands forward_operands(const Problem& p, const Block& a) {
  return {{{"input", a.input, p.source_numel, sizeof(Word), false}, {"output", a.output, p.numel, sizeof(Word), true}}, 2};
}

template <class Block, typename T>
Operands backward_operands(const Problem& p, const Block& a) {
  return {{{"grad_output", a.grad_output, p.source_numel, sizeof(T), false},
           {"grad_input", a.grad_input, p.numel, sizeof(T), true}},
          2};
}

template <typename Word, class Block>
Status move(const Problem& p, const Block& a, Word value, void* workspace, Stream stream) {
  const Moves<Word> moves{static_cast<const Word*>(a.input), static_cast<Word*>(a.output), value};
  return pad::launch(p, moves, workspace, stream);
}

template <typename Value>
struct Constant {
  using Arguments = PadConstantArguments<Value>;
  using Problem = pad::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return make_forward_problem(shapes_of(a, Mode::kConstant), a.output_numel, sizeof(Value), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) { return forward_operands<Arguments, Value>(p, a); }
  static size_t workspace_size(const Problem&) { return 0; }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return move(p, a, bits_as<WordOf<Value>>(a.value), workspace, stream);
  }
};

template <typename T>
struct ConstantBackward {
  using Arguments = PadConstantBackwardArguments;
  using Problem = pad::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    const Shapes shapes{Mode::kConstant, a.rank, a.input_shape, nullptr, a.pad_low, a.grad_output_strides,
                        a.grad_input_strides, false, false};
    return make_backward_problem(shapes, a.input_numel, sizeof(T), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) { return backward_operands<Arguments, T>(p, a); }
  static size_t workspace_size(const Problem&) { return 0; }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    using Word = WordOf<T>;
    // Every element of grad_input has a source: the value is never used.
    const Moves<Word> moves{static_cast<const Word*>(a.grad_output), static_cast<Word*>(a.grad_input), Word{0}};
    return pad::launch(p, moves, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::pad

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_PAD_CONSTANT(f32, float, pad::Constant<float>)
BARACUDA_STAMP_PAD_CONSTANT(f64, double, pad::Constant<double>)
BARACUDA_STAMP_PAD_CONSTANT(f16, uint16_t, pad::Constant<uint16_t>)
BARACUDA_STAMP_PAD_CONSTANT(bf16, uint16_t, pad::Constant<uint16_t>)

BARACUDA_STAMP_PAD_CONSTANT_BACKWARD(f32, pad::ConstantBackward<float>)
BARACUDA_STAMP_PAD_CONSTANT_BACKWARD(f64, pad::ConstantBackward<double>)
BARACUDA_STAMP_PAD_CONSTANT_BACKWARD(f16, pad::ConstantBackward<Half>)
BARACUDA_STAMP_PAD_CONSTANT_BACKWARD(bf16, pad::ConstantBackward<Bfloat16>)
}
