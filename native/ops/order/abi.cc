// SPDX-License-Identifier: Apache-2.0
// The C functions of order statistics, compiled into both libraries.
#include "abi/order.h"
#include "ops/order/launch.h"

namespace baracuda::order {
namespace {

template <typename T, class Block, class Buffers>
struct Reduction {
  using Arguments = Block;
  using Problem = order::Problem;
  static Status make_rows(const Scalars& scalars, Problem* problem) {
    return order::make_problem(scalars, sizeof(T), "input", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.numel, sizeof(T), false},
             {"output", a.output, p.rows, sizeof(T), true},
             {"indices", a.indices, p.rows, sizeof(int64_t), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return order::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return order::launch(p, buffers_of<Buffers>(a.input, a.output, a.indices), workspace, stream);
  }
};

template <typename T, typename I>
struct Kthvalue : Reduction<T, KthvalueArguments, SelectionBuffers<T>> {
  static Status make_problem(const KthvalueArguments& a, Problem* problem) {
    BARACUDA_RETURN_IF_FAILED(Kthvalue::make_rows({a.outer, a.length, a.inner, a.k}, problem));
    problem->choice = Choice::kKth;
    return Status::kOk;
  }
};

template <typename T, Choice kChoice>
struct MedianOf : Reduction<T, MedianArguments, SelectionBuffers<T>> {
  static Status make_problem(const MedianArguments& a, Problem* problem) {
    BARACUDA_RETURN_IF_FAILED(MedianOf::make_rows({a.outer, a.length, a.inner}, problem));
    problem->choice = kChoice;
    return Status::kOk;
  }
};
template <typename T, typename I>
struct Median : MedianOf<T, Choice::kMedian> {};
template <typename T, typename I>
struct Nanmedian : MedianOf<T, Choice::kNanmedian> {};

template <typename T, typename I>
struct Mode : Reduction<T, MedianArguments, ModeBuffers<T>> {
  static Status make_problem(const MedianArguments& a, Problem* problem) {
    // 32 bits count the elements of a row.
    return Mode::make_rows({a.outer, a.length, a.inner, 1, 1, UINT32_MAX}, problem);
  }
};

template <typename T, typename I>
struct ValueSelectingReductionBackward {
  using Arguments = ValueSelectingReductionBackwardArguments;
  using Problem = order::Problem;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return order::make_problem({a.outer, a.length, a.inner, 1, 0}, sizeof(T), "grad_input", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.rows, sizeof(T), false},
             {"indices", a.indices, p.rows, sizeof(int64_t), false},
             {"grad_input", a.grad_input, p.numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem&) { return 0; }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return order::launch(p, buffers_of<GradientBuffers<T>>(a.grad_output, a.indices, a.grad_input), workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::order

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_KTHVALUE(order::Kthvalue)
BARACUDA_STAMP_EVERY_MEDIAN(order::Median)
BARACUDA_STAMP_EVERY_NANMEDIAN(order::Nanmedian)
BARACUDA_STAMP_EVERY_MODE(order::Mode)
BARACUDA_STAMP_EVERY_VALUE_SELECTING_REDUCTION_BACKWARD(order::ValueSelectingReductionBackward)
}
