// SPDX-License-Identifier: Apache-2.0
// The C functions of scans, compiled into both libraries.
#include "abi/scan.h"
#include "ops/scan/launch.h"

namespace baracuda::scan {
namespace {

template <typename T, class Block, bool kIsBackward = false, bool kIsMinimum = false>
struct Scan {
  using Arguments = Block;
  using Problem = scan::Problem;
  static constexpr bool kHasIndices = Block::kIndices != Role::kNone;

  static Status make_problem(const Arguments& a, Problem* problem) {
    const int64_t bytes = kHasIndices ? sizeof(int64_t) : sizeof(T);
    const char* const widest = kHasIndices ? "indices" : kIsBackward ? "grad_input" : "output";
    BARACUDA_RETURN_IF_FAILED(
        scan::make_problem({a.outer, a.length, a.inner, a.reverse}, kIsBackward, bytes, widest, problem));
    problem->minimum = kIsMinimum;
    return Status::kOk;
  }
};

// Sums, products and logarithms of sums.
template <typename T, class Buffers>
struct Forward : Scan<T, CumsumArguments> {
  using Block = CumsumArguments;
  static Operands operands(const Problem& p, const Block& a) {
    return {{{"input", a.input, p.numel, sizeof(T), false}, {"output", a.output, p.numel, sizeof(T), true, 0}}, 2};
  }
  static size_t workspace_size(const Problem& p) { return scan::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    return scan::launch(p, buffers_of<Buffers>(a.input, a.output), workspace, stream);
  }
};

template <typename T>
struct CumulativeSum : Forward<T, SumBuffers<T>> {};
template <typename T>
struct CumulativeProduct : Forward<T, ProductBuffers<T>> {};
template <typename T>
struct LogCumulativeSum : Forward<T, LogSumBuffers<T>> {};

template <typename T, bool kIsMinimum>
struct CumulativeExtremum : Scan<T, CummaxArguments, false, kIsMinimum> {
  using Block = CummaxArguments;
  static Operands operands(const Problem& p, const Block& a) {
    return {{{"input", a.input, p.numel, sizeof(T), false},
             {"output", a.output, p.numel, sizeof(T), true},
             {"indices", a.indices, p.numel, sizeof(int64_t), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return scan::workspace_size<ExtremumBuffers<T>>(p); }
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    return scan::launch(p, buffers_of<ExtremumBuffers<T>>(a.input, a.output, a.indices), workspace, stream);
  }
};
template <typename T, typename I>
struct CumulativeMaximum : CumulativeExtremum<T, false> {};
template <typename T, typename I>
struct CumulativeMinimum : CumulativeExtremum<T, true> {};

// The gradients of products and logarithms of sums.
template <typename T, class Buffers>
struct Backward : Scan<T, CumprodBackwardArguments, true> {
  using Block = CumprodBackwardArguments;
  static Operands operands(const Problem& p, const Block& a) {
    return {{{"grad_output", a.grad_output, p.numel, sizeof(T), false},
             {"input", a.input, p.numel, sizeof(T), false},
             {"output", a.output, p.numel, sizeof(T), false},
             {"grad_input", a.grad_input, p.numel, sizeof(T), true}},
            4};
  }
  static size_t workspace_size(const Problem& p) { return scan::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    return scan::launch(p, buffers_of<Buffers>(a.grad_output, a.input, a.output, a.grad_input), workspace, stream);
  }
};
template <typename T>
struct CumulativeProductBackward : Backward<T, ProductGradientBuffers<T>> {};
template <typename T>
struct LogCumulativeSumBackward : Backward<T, LogSumGradientBuffers<T>> {};

template <typename T, typename I>
struct CumulativeExtremumBackward : Scan<T, CummaxminBackwardArguments, true> {
  using Block = CummaxminBackwardArguments;
  static Operands operands(const Problem& p, const Block& a) {
    return {{{"grad_output", a.grad_output, p.numel, sizeof(T), false},
             {"indices", a.indices, p.numel, sizeof(int64_t), false},
             {"grad_input", a.grad_input, p.numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return scan::workspace_size<ExtremumGradientBuffers<T>>(p); }
  static Status launch(const Problem& p, const Block& a, void* workspace, Stream stream) {
    return scan::launch(p, buffers_of<ExtremumGradientBuffers<T>>(a.grad_output, a.indices, a.grad_input), workspace,
                        stream);
  }
};

}  // namespace
}  // namespace baracuda::scan

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_CUMSUM(scan::CumulativeSum)
BARACUDA_STAMP_EVERY_CUMPROD(scan::CumulativeProduct)
BARACUDA_STAMP_EVERY_CUMPROD_BACKWARD(scan::CumulativeProductBackward)
BARACUDA_STAMP_EVERY_LOGCUMSUMEXP(scan::LogCumulativeSum)
BARACUDA_STAMP_EVERY_LOGCUMSUMEXP_BACKWARD(scan::LogCumulativeSumBackward)
BARACUDA_STAMP_EVERY_CUMMAX(scan::CumulativeMaximum)
BARACUDA_STAMP_EVERY_CUMMIN(scan::CumulativeMinimum)
BARACUDA_STAMP_EVERY_CUMMAXMIN_BACKWARD(scan::CumulativeExtremumBackward)
}
