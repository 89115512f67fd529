// SPDX-License-Identifier: Apache-2.0
// The C functions of connectionist temporal classification, compiled into both libraries.
#include "abi/ctc_loss.h"

#include "ops/ctc_loss/launch.h"

namespace baracuda::ctc_loss {
namespace {

template <class Block>
Scalars scalars_of(const Block& a, int32_t zero_infinity) {
  return {a.t, a.n, a.c, a.target_rows, a.target_columns, a.num_states, a.blank, zero_infinity};
}

template <typename I, class Block>
Sequences sequences_of(const Block& a) {
  return {a.targets, a.input_lengths, a.target_lengths, sizeof(I) == 8};
}

template <typename T, typename C, typename I>
struct CtcLoss {
  using Problem = ctc_loss::Problem;
  using Arguments = CtcLossArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return ctc_loss::make_problem(scalars_of(a, 0), "log_probs", sizeof(T), sizeof(I), sizeof(C), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"log_probs", a.log_probs, p.log_probs, sizeof(T), false},
             {"targets", a.targets, p.targets, sizeof(I), false},
             {"input_lengths", a.input_lengths, p.n, sizeof(I), false},
             {"target_lengths", a.target_lengths, p.n, sizeof(I), false},
             {"neg_log_likelihood", a.neg_log_likelihood, p.n, sizeof(C), true},
             {"log_alpha", a.log_alpha, p.log_alpha, sizeof(C), true}},
            6};
  }
  static size_t workspace_size(const Problem& p) { return ctc_loss::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    const ForwardBuffers<T> buffers{static_cast<const T*>(a.log_probs), sequences_of<I>(a),
                                    static_cast<C*>(a.neg_log_likelihood), static_cast<C*>(a.log_alpha)};
    return ctc_loss::launch(p, buffers, workspace, stream);
  }
};

template <typename T, typename C, typename I>
struct CtcLossBackward {
  using Problem = ctc_loss::Problem;
  using Arguments = CtcLossBackwardArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return ctc_loss::make_problem(scalars_of(a, a.zero_infinity), "grad_log_probs", sizeof(T), sizeof(I), sizeof(C),
                                  problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.n, sizeof(C), false},
             {"log_probs", a.log_probs, p.log_probs, sizeof(T), false},
             {"targets", a.targets, p.targets, sizeof(I), false},
             {"input_lengths", a.input_lengths, p.n, sizeof(I), false},
             {"target_lengths", a.target_lengths, p.n, sizeof(I), false},
             {"neg_log_likelihood", a.neg_log_likelihood, p.n, sizeof(C), false},
             {"log_alpha", a.log_alpha, p.log_alpha, sizeof(C), false},
             {"grad_log_probs", a.grad_log_probs, p.log_probs, sizeof(T), true}},
            8};
  }
  static size_t workspace_size(const Problem& p) { return ctc_loss::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    const BackwardBuffers<T> buffers{static_cast<const C*>(a.grad_output),
                                     static_cast<const T*>(a.log_probs),
                                     sequences_of<I>(a),
                                     static_cast<const C*>(a.neg_log_likelihood),
                                     static_cast<const C*>(a.log_alpha),
                                     static_cast<T*>(a.grad_log_probs)};
    return ctc_loss::launch(p, buffers, workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::ctc_loss

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_CTC_LOSS(ctc_loss::CtcLoss)
BARACUDA_STAMP_EVERY_CTC_LOSS_BACKWARD(ctc_loss::CtcLossBackward)
}
