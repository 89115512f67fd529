// SPDX-License-Identifier: Apache-2.0
// What both backends compute of connectionist temporal classification: what a sequence is, a state's step, a share.
//
// A target of L labels has 2 L + 1 states: blanks at even ones, label i at state 2 i + 1. Backward a sequence is gone
// through from its end, which is the same walk over reversed labels and times: states and labels below are numbered
// along the walk. Before the first step the walk is in state 0 with probability 1, one step before all others.
#pragma once

#include <cstdint>

#include "core/float_math.h"
#include "core/host_device.h"
#include "core/transcendental.h"
#include "ops/ctc_loss/launch.h"

namespace baracuda::ctc_loss {
namespace {

// Strands in which the shares of blanks are added.
constexpr int kStrands = 32;

BARACUDA_HD int64_t index_at(const void* indices, bool is_wide, int64_t place) {
  return is_wide ? static_cast<const int64_t*>(indices)[place] : static_cast<const int32_t*>(indices)[place];
}

// What a target's length counts for those behind it; beyond the columns all are, and no sum of such numbers wraps.
BARACUDA_HD int64_t columns_of(const Problem& p, int64_t length) {
  return length < 0 ? 0 : (length > p.columns ? int64_t{p.columns} + 1 : length);
}

// One sequence, if its lengths are good.
struct Sequence {
  int64_t first;   // where its target begins
  int32_t steps;
  int32_t labels;  // -1 if it is bad

  BARACUDA_HD int32_t states() const { return 2 * labels + 1; }
  // A time step has one label at most.
  BARACUDA_HD bool has_alignments() const { return steps >= labels; }
};

// `before` are the columns of the sequences before it, where targets are joined.
BARACUDA_HD Sequence sequence_of(const Problem& p, const Sequences& s, int32_t number, int64_t before) {
  const int64_t steps = index_at(s.input_lengths, s.is_wide, number);
  const int64_t labels = index_at(s.target_lengths, s.is_wide, number);
  const int64_t column = p.joined ? before : 0;
  const bool is_good = steps >= 0 && steps <= p.t && labels >= 0 && labels <= p.max_labels && p.num_states > 0 &&
                       column + labels <= p.columns && p.blank < p.c;
  Sequence sequence{};
  sequence.first = p.joined ? column : int64_t{number} * p.columns;
  sequence.steps = is_good ? static_cast<int32_t>(steps) : 0;
  sequence.labels = is_good ? static_cast<int32_t>(labels) : -1;
  return sequence;
}

BARACUDA_HD bool is_class(const Problem& p, int64_t label) { return label >= 0 && label < p.c; }

// The labels of a good sequence along a walk.
template <bool kBackwards>
struct Labels {
  const void* targets;
  bool is_wide;
  Sequence sequence;

  BARACUDA_HD Labels(const Sequences& s, const Sequence& of) : targets(s.targets), is_wide(s.is_wide), sequence(of) {}

  BARACUDA_HD int32_t at(int32_t i) const {
    const int32_t place = kBackwards ? sequence.labels - 1 - i : i;
    return static_cast<int32_t>(index_at(targets, is_wide, sequence.first + place));
  }
  // Whether a walk may come to label i from the label before it without a blank between them.
  BARACUDA_HD bool may_skip(int32_t i) const { return i > 0 && at(i) != at(i - 1); }
};

template <typename C>
BARACUDA_HD C minus_infinity();
template <>
BARACUDA_HD float minus_infinity<float>() {
  return bits_as<float>(0xff800000u);
}
template <>
BARACUDA_HD double minus_infinity<double>() {
  return bits_as<double>(static_cast<uint64_t>(0xfff0000000000000u));
}

// Of a NaN and a number either; callers look for NaNs themselves.
BARACUDA_HD float larger_of(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return a > b ? a : b;
#endif
}
BARACUDA_HD double larger_of(double a, double b) { return a > b ? a : b; }
BARACUDA_HD float smaller_of(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fminf(a, b);
#else
  return a < b ? a : b;
#endif
}
BARACUDA_HD double smaller_of(double a, double b) { return a < b ? a : b; }

// log(e^a + e^b + e^c); NaN if one is. The largest term is 1, so that the sum is 1 to 3, and -infinity needs no branch:
// exp_of_negative of the difference of two is 0, the logarithm 0. A NaN comes in as a number that is added: the choice
// of a result would keep a compiler from forming several at once.
template <typename C>
BARACUDA_HD C log_sum(C a, C b, C c) {
  const C larger = larger_of(a, b), smaller = smaller_of(a, b);
  const C largest = larger_of(larger, c), smallest = smaller_of(smaller, c);
  const C middle = larger_of(smaller, smaller_of(larger, c));
  const C sum = (C(1) + exp_of_negative(middle - largest)) + exp_of_negative(smallest - largest);
  const C nan = (a == a) & (b == b) & (c == c) ? C(0) : canonical_nan<C>();
  return log_of_normal(sum) + (largest + nan);
}

// Before the first step.
template <typename C>
BARACUDA_HD C unstepped(int32_t state) {
  return state == 0 ? C(0) : minus_infinity<C>();
}

// The next alpha, or beta, of a state from those of itself and of the two before it.
template <typename C>
BARACUDA_HD C stepped(C same, C before, C skipped, C log_prob) {
  return log_sum(same, before, skipped) + log_prob;
}

// The loss from the last two states after the last step; `label` is -infinity without labels.
template <typename C>
BARACUDA_HD C loss_of(C blank, C label) {
  return narrow<C>(C(0) - log_sum(blank, label, minus_infinity<C>()));
}

// The probability that an alignment is in a state at a time step. What cannot be reached has none, though its class may
// be impossible, too.
template <typename C>
BARACUDA_HD C share_of(C alpha, C beta, C neg_log_likelihood, C log_prob) {
  const C share = exp_of(((alpha + beta) + neg_log_likelihood) - log_prob);
  return alpha == minus_infinity<C>() || beta == minus_infinity<C>() ? C(0) : share;
}

template <typename T>
BARACUDA_HD T gradient_of(T log_prob, Compute<T> share, Compute<T> grad_output) {
  return narrow<T>((exp_of(widen(log_prob)) - share) * grad_output);
}

// What the gradient of a sequence is at a time step, if it needs no shares.
enum class Row { kShares, kZero, kNan };
template <typename C>
BARACUDA_HD Row row_of(const Problem& p, const Sequence& sequence, int64_t time, C neg_log_likelihood) {
  if (sequence.labels < 0) return Row::kNan;
  if (time >= sequence.steps) return Row::kZero;
  // A loss that a sequence cannot have is not believed: labels are linked in time that grows with their square, which
  // is no more than all states of all steps if there are as many steps.
  if (is_finite(neg_log_likelihood) && sequence.has_alignments()) return Row::kShares;
  return p.zero_infinity && neg_log_likelihood == -minus_infinity<C>() ? Row::kZero : Row::kNan;
}

// Where else a label's class stands in the target.
struct Link {
  int32_t code;  // the next place of the class and 1, 0 without one; complemented if an earlier place has it, too

  static BARACUDA_HD Link of(int32_t next, bool is_first) {
    Link link{};
    link.code = is_first ? next + 1 : ~(next + 1);
    return link;
  }
  BARACUDA_HD bool is_first() const { return code >= 0; }
  // -1 if there is none.
  BARACUDA_HD int32_t next() const { return (code >= 0 ? code : ~code) - 1; }
};

}  // namespace
}  // namespace baracuda::ctc_loss
