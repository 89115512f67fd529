// SPDX-License-Identifier: Apache-2.0
// The C functions of unsorted_segment_max and unsorted_segment_max_backward, compiled into both libraries.
#include "abi/unsorted_segment_max.h"
#include "abi/unsorted_segment_max_backward.h"
#include "ops/segment/launch.h"

namespace baracuda::segment {
namespace {

// What the tensors are called.
const char* rows_of(const UnsortedSegmentMaxArguments&) { return "input"; }
const char* rows_of(const UnsortedSegmentMaxBackwardArguments&) { return "grad_input"; }
const char* segments_of(const UnsortedSegmentMaxArguments&) { return "output"; }
const char* segments_of(const UnsortedSegmentMaxBackwardArguments&) { return "grad_output"; }

template <typename T, typename ArgumentBlock>
struct Common {
  using Arguments = ArgumentBlock;
  using Problem = segment::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return segment::make_problem(a.num_inputs, a.embedding_dim, a.num_segments, sizeof(T), rows_of(a), segments_of(a),
                                 problem);
  }
};

template <class Rule, typename T, typename I, typename ArgumentBlock>
struct Select : Common<T, ArgumentBlock> {
  using Buffers = SelectBuffers<Rule, T, I>;

  static Operands operands(const Problem& p, const ArgumentBlock& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"segment_ids", a.segment_ids, p.n, sizeof(I), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return segment::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const ArgumentBlock& a, void* workspace, Stream stream) {
    const Buffers buffers{static_cast<const T*>(a.input), static_cast<const I*>(a.segment_ids),
                          static_cast<T*>(a.output)};
    return segment::launch(p, buffers, workspace, stream);
  }
};

template <class Rule, typename T, typename I, typename ArgumentBlock>
struct SelectBackward : Common<T, ArgumentBlock> {
  using Buffers = SelectBackwardBuffers<Rule, T, I>;

  static Operands operands(const Problem& p, const ArgumentBlock& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"input", a.input, p.input_numel, sizeof(T), false},
             {"segment_ids", a.segment_ids, p.n, sizeof(I), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            4};
  }
  static size_t workspace_size(const Problem& p) { return segment::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const ArgumentBlock& a, void* workspace, Stream stream) {
    const Buffers buffers{static_cast<const T*>(a.grad_output), static_cast<const T*>(a.input),
                          static_cast<const I*>(a.segment_ids), static_cast<T*>(a.grad_input)};
    return segment::launch(p, buffers, workspace, stream);
  }
};

template <typename T, typename I>
struct UnsortedMax : Select<Max, T, I, UnsortedSegmentMaxArguments> {};
template <typename T, typename I>
struct UnsortedMaxBackward : SelectBackward<Max, T, I, UnsortedSegmentMaxBackwardArguments> {};

// A stamp takes one name per instance.
template <typename T>
using MaxOp = UnsortedMax<T, int32_t>;
template <typename T>
using MaxOpI64 = UnsortedMax<T, int64_t>;
template <typename T>
using MaxBackwardOp = UnsortedMaxBackward<T, int32_t>;
template <typename T>
using MaxBackwardOpI64 = UnsortedMaxBackward<T, int64_t>;

}  // namespace
}  // namespace baracuda::segment

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_UNSORTED_SEGMENT_MAX(f32, segment::MaxOp<float>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX(f64, segment::MaxOp<double>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX(f16, segment::MaxOp<Half>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX(bf16, segment::MaxOp<Bfloat16>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX(i64idx_f32, segment::MaxOpI64<float>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX(i64idx_f64, segment::MaxOpI64<double>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX(i64idx_f16, segment::MaxOpI64<Half>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX(i64idx_bf16, segment::MaxOpI64<Bfloat16>)

BARACUDA_STAMP_UNSORTED_SEGMENT_MAX_BACKWARD(f32, segment::MaxBackwardOp<float>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX_BACKWARD(f64, segment::MaxBackwardOp<double>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX_BACKWARD(f16, segment::MaxBackwardOp<Half>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX_BACKWARD(bf16, segment::MaxBackwardOp<Bfloat16>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX_BACKWARD(i64idx_f32, segment::MaxBackwardOpI64<float>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX_BACKWARD(i64idx_f64, segment::MaxBackwardOpI64<double>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX_BACKWARD(i64idx_f16, segment::MaxBackwardOpI64<Half>)
BARACUDA_STAMP_UNSORTED_SEGMENT_MAX_BACKWARD(i64idx_bf16, segment::MaxBackwardOpI64<Bfloat16>)
}
