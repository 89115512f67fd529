// SPDX-License-Identifier: Apache-2.0
// The C functions of the losses of classification, compiled into both libraries.
#include "abi/nll_loss.h"

#include "ops/nll_loss/launch.h"

namespace baracuda::nll_loss {
namespace {

template <class Block>
Scalars scalars_of(const Block& a) {
  return {a.n, a.c, a.d, a.has_weight, a.ignore_index, a.reduction, 0.0};
}
template <class Block>
Scalars smoothed(const Block& a) {
  Scalars scalars = scalars_of(a);
  scalars.label_smoothing = a.label_smoothing;
  return scalars;
}

// An array without elements may have any address.
template <typename T>
const T* weights_at(const Problem& p, const void* weight) {
  return p.has_weight ? static_cast<const T*>(weight) : nullptr;
}

template <typename T, typename C, typename I>
struct NllLoss {
  using Problem = nll_loss::Problem;
  using Arguments = NllLossArguments;
  using Buffers = ForwardBuffers<T, false>;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return nll_loss::make_problem(scalars_of(a), {"input", "output", nullptr}, sizeof(T), sizeof(I), sizeof(C),
                                  problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.logits, sizeof(T), false},
             {"target", a.target, p.elements, sizeof(I), false},
             {"weight", a.weight, p.weights, sizeof(T), false},
             {"output", a.output, p.losses, sizeof(T), true},
             {"total_weight", a.total_weight, 1, sizeof(C), true},
             {"num_dropped", a.num_dropped, 1, sizeof(I), true}},
            6};
  }
  static size_t workspace_size(const Problem& p) { return nll_loss::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    const Buffers buffers{static_cast<const T*>(a.input),
                          {a.target, sizeof(I) == 8},
                          weights_at<T>(p, a.weight),
                          static_cast<T*>(a.output),
                          nullptr,
                          static_cast<C*>(a.total_weight),
                          {a.num_dropped, sizeof(I) == 8}};
    return nll_loss::launch(p, buffers, workspace, stream);
  }
};

template <typename T, typename C, typename I>
struct NllLossBackward {
  using Problem = nll_loss::Problem;
  using Arguments = NllLossBackwardArguments;
  using Buffers = BackwardBuffers<T, false>;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return nll_loss::make_problem(scalars_of(a), {"grad_input", "grad_output", nullptr}, sizeof(T), sizeof(I),
                                  sizeof(C), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.losses, sizeof(T), false},
             {"target", a.target, p.elements, sizeof(I), false},
             {"weight", a.weight, p.weights, sizeof(T), false},
             {"total_weight", a.total_weight, 1, sizeof(C), false},
             {"grad_input", a.grad_input, p.logits, sizeof(T), true}},
            5};
  }
  static size_t workspace_size(const Problem& p) { return nll_loss::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    const Buffers buffers{static_cast<const T*>(a.grad_output),  nullptr,
                          {a.target, sizeof(I) == 8},            weights_at<T>(p, a.weight),
                          nullptr,                               static_cast<const C*>(a.total_weight),
                          static_cast<T*>(a.grad_input)};
    return nll_loss::launch(p, buffers, workspace, stream);
  }
};

template <typename T, typename C, typename I>
struct CrossEntropy {
  using Problem = nll_loss::Problem;
  using Arguments = CrossEntropyArguments;
  using Buffers = ForwardBuffers<T, true>;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return nll_loss::make_problem(smoothed(a), {"input", "output", "log_sum_exp"}, sizeof(T), sizeof(I), sizeof(C),
                                  problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.logits, sizeof(T), false},
             {"target", a.target, p.elements, sizeof(I), false},
             {"weight", a.weight, p.weights, sizeof(T), false},
             {"output", a.output, p.losses, sizeof(T), true},
             {"log_sum_exp", a.log_sum_exp, p.elements, sizeof(C), true},
             {"total_weight", a.total_weight, 1, sizeof(C), true},
             {"num_dropped", a.num_dropped, 1, sizeof(I), true}},
            7};
  }
  static size_t workspace_size(const Problem& p) { return nll_loss::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    const Buffers buffers{static_cast<const T*>(a.input),
                          {a.target, sizeof(I) == 8},
                          weights_at<T>(p, a.weight),
                          static_cast<T*>(a.output),
                          static_cast<C*>(a.log_sum_exp),
                          static_cast<C*>(a.total_weight),
                          {a.num_dropped, sizeof(I) == 8}};
    return nll_loss::launch(p, buffers, workspace, stream);
  }
};

template <typename T, typename C, typename I>
struct CrossEntropyBackward {
  using Problem = nll_loss::Problem;
  using Arguments = CrossEntropyBackwardArguments;
  using Buffers = BackwardBuffers<T, true>;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return nll_loss::make_problem(smoothed(a), {"input", "grad_output", "log_sum_exp"}, sizeof(T), sizeof(I),
                                  sizeof(C), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.losses, sizeof(T), false},
             {"input", a.input, p.logits, sizeof(T), false},
             {"target", a.target, p.elements, sizeof(I), false},
             {"weight", a.weight, p.weights, sizeof(T), false},
             {"log_sum_exp", a.log_sum_exp, p.elements, sizeof(C), false},
             {"total_weight", a.total_weight, 1, sizeof(C), false},
             {"grad_input", a.grad_input, p.logits, sizeof(T), true}},
            7};
  }
  static size_t workspace_size(const Problem& p) { return nll_loss::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    const Buffers buffers{static_cast<const T*>(a.grad_output),        static_cast<const T*>(a.input),
                          {a.target, sizeof(I) == 8},                  weights_at<T>(p, a.weight),
                          static_cast<const C*>(a.log_sum_exp),        static_cast<const C*>(a.total_weight),
                          static_cast<T*>(a.grad_input)};
    return nll_loss::launch(p, buffers, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::nll_loss

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_NLL_LOSS(nll_loss::NllLoss)
BARACUDA_STAMP_EVERY_NLL_LOSS_BACKWARD(nll_loss::NllLossBackward)
BARACUDA_STAMP_EVERY_CROSS_ENTROPY(nll_loss::CrossEntropy)
BARACUDA_STAMP_EVERY_CROSS_ENTROPY_BACKWARD(nll_loss::CrossEntropyBackward)
}
