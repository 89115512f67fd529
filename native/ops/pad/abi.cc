// SPDX-License-Identifier: Apache-2.0
// The C functions of the pad family, compiled into both libraries.
#include "abi/pad.h"
#include "core/dtype.h"
#include "core/options.h"
#include "ops/pad/launch.h"

namespace baracuda::pad {
namespace {

template <size_t kBytes>
struct WordOfBytes;
template <>
struct WordOfBytes<1> {
  using type = uint8_t;
};
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
template <>
struct WordOfBytes<16> {
  using type = Word128;
};

static_assert(alignof(baracuda_kernels_bits128) == alignof(Word128) && alignof(Word128) == 8);

// What moves an element of T, which may be the bits in which a C function passes one.
template <typename T>
using WordOf = typename WordOfBytes<sizeof(T)>::type;

// Blocks have the same fields, but for the value or the options.
template <class Block>
Shapes forward_shapes(const Block& a, Mode mode) {
  return {mode, a.rank, a.input_shape, a.output_shape, a.pad_low, a.input_strides, a.output_strides, true, false};
}

template <class Block>
Shapes backward_shapes(const Block& a, Mode mode) {
  return {mode, a.rank, a.input_shape, a.output_shape, a.pad_low, a.grad_output_strides, a.grad_input_strides,
          true, false};
}

template <typename T, class Block>
Operands forward_operands(const Problem& p, const Block& a) {
  return {{{"input", a.input, p.source_numel, sizeof(T), false}, {"output", a.output, p.numel, sizeof(T), true}}, 2};
}

template <typename T, class Block>
Status check_forward_overlap(const Block& a) {
  // No mode changes where elements stand.
  return check_overlap(Direction::kForward, forward_shapes(a, Mode::kConstant), a.input, a.output, sizeof(T));
}

template <typename T, class Block>
Operands backward_operands(const Problem& p, const Block& a) {
  return {{{"grad_output", a.grad_output, p.source_numel, sizeof(T), false},
           {"grad_input", a.grad_input, p.numel, sizeof(T), true}},
          2};
}

template <typename T, class Block>
Status check_backward_overlap(const Block& a, const Shapes& shapes) {
  return check_overlap(Direction::kBackward, shapes, a.grad_output, a.grad_input, sizeof(T));
}

template <typename Word>
Status move(const Problem& p, const void* source, void* destination, Word value, void* workspace, Stream stream) {
  const Moves<Word> moves{static_cast<const Word*>(source), static_cast<Word*>(destination), value};
  return pad::launch(p, moves, workspace, stream);
}

// Without an element that has several sources it is a move.
template <typename T>
Status sum(const Problem& p, const void* source, void* destination, void* workspace, Stream stream) {
  if (p.outside != Outside::kSum) return move(p, source, destination, WordOf<T>{}, workspace, stream);
  return pad::launch(p, Sums<T>{static_cast<const T*>(source), static_cast<T*>(destination)}, workspace, stream);
}

// What every operator of the family has.
struct Operator {
  using Problem = pad::Problem;
  static size_t workspace_size(const Problem&) { return 0; }
};

template <typename Value>
struct Constant : Operator {
  using Arguments = PadConstantArguments<Value>;

  static Status make_problem(const Arguments& a, Problem* problem) {
    const Shapes shapes = forward_shapes(a, Mode::kConstant);
    return pad::make_problem(Direction::kForward, shapes, a.output_numel, sizeof(Value), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) { return forward_operands<Value>(p, a); }
  static Status check_overlap(const Problem&, const Arguments& a) { return check_forward_overlap<Value>(a); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return move(p, a.input, a.output, bits_as<WordOf<Value>>(a.value), workspace, stream);
  }
};

template <typename T>
struct ConstantBackward : Operator {
  using Arguments = PadConstantBackwardArguments;

  static Shapes shapes(const Arguments& a) {
    return {Mode::kConstant,      a.rank, a.input_shape, nullptr, a.pad_low, a.grad_output_strides,
            a.grad_input_strides, false,  false};
  }
  static Status make_problem(const Arguments& a, Problem* problem) {
    return pad::make_problem(Direction::kBackward, shapes(a), a.input_numel, sizeof(T), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) { return backward_operands<T>(p, a); }
  static Status check_overlap(const Problem&, const Arguments& a) { return check_backward_overlap<T>(a, shapes(a)); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return move(p, a.grad_output, a.grad_input, WordOf<T>{}, workspace, stream);
  }
};

// A mode that repeats the tensor; these share their blocks.
template <Mode kMode>
struct Repeat {
  template <typename T>
  struct Forward : Operator {
    using Arguments = PadReflectArguments;

    static Status make_problem(const Arguments& a, Problem* problem) {
      return pad::make_problem(Direction::kForward, forward_shapes(a, kMode), a.output_numel, sizeof(T), problem);
    }
    static Operands operands(const Problem& p, const Arguments& a) { return forward_operands<T>(p, a); }
    static Status check_overlap(const Problem&, const Arguments& a) { return check_forward_overlap<T>(a); }
    static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
      return move(p, a.input, a.output, WordOf<T>{}, workspace, stream);
    }
  };

  template <typename T>
  struct Backward : Operator {
    using Arguments = PadReflectBackwardArguments;

    static Status make_problem(const Arguments& a, Problem* problem) {
      return pad::make_problem(Direction::kBackward, backward_shapes(a, kMode), a.input_numel, sizeof(T), problem);
    }
    static Operands operands(const Problem& p, const Arguments& a) { return backward_operands<T>(p, a); }
    static Status check_overlap(const Problem&, const Arguments& a) {
      return check_backward_overlap<T>(a, backward_shapes(a, Mode::kConstant));
    }
    static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
      return sum<T>(p, a.grad_output, a.grad_input, workspace, stream);
    }
  };
};

// The options, between the checks that come before them and those that come after.
Status read_options(Direction direction, const baracuda_kernels_pad_options* given, Shapes* shapes,
                    baracuda_kernels_pad_options* options) {
  BARACUDA_RETURN_IF_FAILED(check_host_arrays(direction, *shapes));
  BARACUDA_RETURN_IF_FAILED(check_options_pointer(given));
  BARACUDA_RETURN_IF_FAILED(baracuda::read_options(given, options));
  BARACUDA_RETURN_IF_FAILED(check_range("options->mode", options->mode, 0, kModes - 1));
  shapes->mode = static_cast<Mode>(options->mode);
  shapes->crops = true;
  return Status::kOk;
}

template <typename T>
struct Ex : Operator {
  using Arguments = PadExArguments;

  static Status make_problem(const Arguments& a, Problem* problem) {
    Shapes shapes = forward_shapes(a, Mode::kConstant);
    baracuda_kernels_pad_options options;
    BARACUDA_RETURN_IF_FAILED(read_options(Direction::kForward, a.options, &shapes, &options));
    return pad::make_problem(Direction::kForward, shapes, a.output_numel, sizeof(T), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) { return forward_operands<T>(p, a); }
  static Status check_overlap(const Problem&, const Arguments& a) { return check_forward_overlap<T>(a); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    baracuda_kernels_pad_options options;
    BARACUDA_RETURN_IF_FAILED(baracuda::read_options(a.options, &options));
    WordOf<T> value{};
    if (options.value != nullptr) memcpy(&value, options.value, sizeof value);
    return move(p, a.input, a.output, value, workspace, stream);
  }
};

template <typename T>
struct ExBackward : Operator {
  using Arguments = PadExBackwardArguments;

  static Status make_problem(const Arguments& a, Problem* problem) {
    Shapes shapes = backward_shapes(a, Mode::kConstant);
    baracuda_kernels_pad_options options;
    BARACUDA_RETURN_IF_FAILED(read_options(Direction::kBackward, a.options, &shapes, &options));
    return pad::make_problem(Direction::kBackward, shapes, a.input_numel, sizeof(T), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) { return backward_operands<T>(p, a); }
  static Status check_overlap(const Problem&, const Arguments& a) {
    return check_backward_overlap<T>(a, backward_shapes(a, Mode::kConstant));
  }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return sum<T>(p, a.grad_output, a.grad_input, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::pad

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_PAD_CONSTANT(pad::Constant)
BARACUDA_STAMP_EVERY_PAD_CONSTANT_BACKWARD(pad::ConstantBackward)

BARACUDA_STAMP_EVERY_PAD_REFLECT(pad::Repeat<pad::Mode::kReflect>::Forward)
BARACUDA_STAMP_EVERY_PAD_REFLECT_BACKWARD(pad::Repeat<pad::Mode::kReflect>::Backward)
BARACUDA_STAMP_EVERY_PAD_REPLICATE(pad::Repeat<pad::Mode::kReplicate>::Forward)
BARACUDA_STAMP_EVERY_PAD_REPLICATE_BACKWARD(pad::Repeat<pad::Mode::kReplicate>::Backward)
BARACUDA_STAMP_EVERY_PAD_CIRCULAR(pad::Repeat<pad::Mode::kCircular>::Forward)
BARACUDA_STAMP_EVERY_PAD_CIRCULAR_BACKWARD(pad::Repeat<pad::Mode::kCircular>::Backward)
BARACUDA_STAMP_EVERY_PAD_SYMMETRIC(pad::Repeat<pad::Mode::kSymmetric>::Forward)
BARACUDA_STAMP_EVERY_PAD_SYMMETRIC_BACKWARD(pad::Repeat<pad::Mode::kSymmetric>::Backward)

BARACUDA_STAMP_EVERY_PAD_EX(pad::Ex)
BARACUDA_STAMP_EVERY_PAD_EX_BACKWARD(pad::ExBackward)
}
