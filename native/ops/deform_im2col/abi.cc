// SPDX-License-Identifier: Apache-2.0
// The C functions of deform_im2col and its gradients, compiled into both libraries.
#include <type_traits>

#include "abi/deform_im2col.h"
#include "ops/deform_im2col/launch.h"

namespace baracuda::deform_im2col {
namespace {

template <class Block>
Numbers numbers_of(const Block& a) {
  return {a.n,
          a.offset_groups,
          a.c,
          a.h,
          a.w,
          a.output_h,
          a.output_w,
          {a.kernel_h, a.stride_h, a.padding_h, a.dilation_h},
          {a.kernel_w, a.stride_w, a.padding_w, a.dilation_w},
          a.has_mask};
}

// C is the type of offsets and mask, Block the arguments.
template <typename T, typename C, class Block>
struct Common {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = Block;
  using Problem = deform_im2col::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    const char* const input = Block::kInput != Role::kNone ? "input" : "grad_input";
    const char* const columns = Block::kColumns != Role::kNone ? "columns" : "grad_columns";
    return deform_im2col::make_problem(numbers_of(a), input, columns, sizeof(T), sizeof(C), problem);
  }
};

template <typename T, typename C>
struct Forward : Common<T, C, DeformIm2colArguments> {
  using Buffers = ForwardBuffers<T>;

  static Operands operands(const Problem& p, const DeformIm2colArguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"offset", a.offset, p.offset_numel, sizeof(C), false},
             {"mask", a.mask, p.mask_numel, sizeof(C), false},
             {"columns", a.columns, p.columns_numel, sizeof(T), true}},
            4};
  }
  static size_t workspace_size(const Problem& p) { return deform_im2col::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const DeformIm2colArguments& a, void* workspace, Stream stream) {
    return deform_im2col::launch(p, buffers_of<Buffers>(a.input, a.offset, a.mask, a.columns), workspace, stream);
  }
};

template <typename T, typename C>
struct Backward : Common<T, C, DeformIm2colBackwardArguments> {
  using Buffers = InputBuffers<T>;

  static Operands operands(const Problem& p, const DeformIm2colBackwardArguments& a) {
    return {{{"grad_columns", a.grad_columns, p.columns_numel, sizeof(T), false},
             {"offset", a.offset, p.offset_numel, sizeof(C), false},
             {"mask", a.mask, p.mask_numel, sizeof(C), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            4};
  }
  static size_t workspace_size(const Problem& p) { return deform_im2col::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const DeformIm2colBackwardArguments& a, void* workspace, Stream stream) {
    return deform_im2col::launch(p, buffers_of<Buffers>(a.grad_columns, a.offset, a.mask, a.grad_input), workspace,
                                 stream);
  }
};

template <typename T, typename C>
struct OffsetBackward : Common<T, C, DeformIm2colOffsetBackwardArguments> {
  using Buffers = OffsetBuffers<T>;

  static Operands operands(const Problem& p, const DeformIm2colOffsetBackwardArguments& a) {
    return {{{"grad_columns", a.grad_columns, p.columns_numel, sizeof(T), false},
             {"input", a.input, p.input_numel, sizeof(T), false},
             {"offset", a.offset, p.offset_numel, sizeof(C), false},
             {"mask", a.mask, p.mask_numel, sizeof(C), false},
             {"grad_offset", a.grad_offset, p.offset_numel, sizeof(C), true},
             {"grad_mask", a.grad_mask, p.mask_numel, sizeof(C), true}},
            6};
  }
  static size_t workspace_size(const Problem& p) { return deform_im2col::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const DeformIm2colOffsetBackwardArguments& a, void* workspace,
                       Stream stream) {
    return deform_im2col::launch(
        p, buffers_of<Buffers>(a.grad_columns, a.input, a.offset, a.mask, a.grad_offset, a.grad_mask), workspace,
        stream);
  }
};

}  // namespace
}  // namespace baracuda::deform_im2col

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_DEFORM_IM2COL(deform_im2col::Forward)
BARACUDA_STAMP_EVERY_DEFORM_IM2COL_BACKWARD(deform_im2col::Backward)
BARACUDA_STAMP_EVERY_DEFORM_IM2COL_OFFSET_BACKWARD(deform_im2col::OffsetBackward)
}
