// SPDX-License-Identifier: Apache-2.0
// The formulas of losses of classification that both backends share: which elements count, sums of exponentials and how
// they are joined, losses, gradients, and sums in pairs.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/float_math.h"
#include "core/host_device.h"
#include "core/transcendental.h"
#include "ops/nll_loss/launch.h"
#include "ops/nll_loss/problem.h"

namespace baracuda::nll_loss {
namespace {

// The cuts of a sum of exponentials over classes. Images: few enough classes for a thread's registers. Rows: as many
// as make a warp's work on a piece long beside joining it.
constexpr int kImagePiece = 32;
constexpr int kStrands = 32, kRowSteps = 16, kRowPiece = kStrands * kRowSteps;
// Pieces of a row that are joined at once, by strands as classes are.
constexpr int kRowPieces = 1024;

BARACUDA_HD int64_t index_at(const Indices<const void>& indices, int64_t i) {
  return indices.is_wide ? static_cast<const int64_t*>(indices.data)[i] : static_cast<const int32_t*>(indices.data)[i];
}

// 32 bits hold no more.
BARACUDA_HD void store_count(const Indices<void>& to, int64_t count) {
  if (to.is_wide) {
    *static_cast<int64_t*>(to.data) = count;
  } else {
    *static_cast<int32_t*>(to.data) = static_cast<int32_t>(count < INT32_MAX ? count : INT32_MAX);
  }
}

// Whether an element has a loss; one that has none and is not to be ignored is dropped.
BARACUDA_HD bool counts(const Problem& p, int64_t target) {
  return target >= 0 && target < p.c && target != p.ignore_index;
}
BARACUDA_HD bool is_dropped(const Problem& p, int64_t target) {
  return (target < 0 || target >= p.c) && target != p.ignore_index;
}

template <typename T>
BARACUDA_HD Compute<T> weight_of(const T* weight, int64_t target) {
  return weight != nullptr ? widen(weight[target]) : Compute<T>(1);
}

// Widens in loops over elements on the host, which compilers vectorise so and not with the processor's instruction.
template <typename T>
BARACUDA_HD Compute<T> widen_lane(T x) {
  return widen(x);
}
#if !defined(__CUDA_ARCH__)
template <>
BARACUDA_HD float widen_lane<Half>(Half x) {
  return widen_by_bits(x);
}
#endif

// The larger one; NaN is larger than every number. Which of two zeros, no result depends on.
template <typename C>
BARACUDA_HD C larger_of(C a, C b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (sizeof(C) == 4) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
  }
#endif
  return ((b > a) | (b != b)) ? b : a;
}

template <typename C>
BARACUDA_HD C lowest() {
  return sizeof(C) == 4 ? static_cast<C>(bits_as<float>(0xff800000u))
                        : static_cast<C>(bits_as<double>(static_cast<uint64_t>(0xfff0000000000000u)));
}

// What is known of some classes of an element: their largest logit, and sums relative to it.
template <typename C>
struct Classes {
  C largest;
  C sum;     // of e^(x - largest)
  C weight;  // of weights, where labels are smoothed
  C gap;     // of weight (largest - x)

  static BARACUDA_HD Classes none() { return {lowest<C>(), C(0), C(0), C(0)}; }
};

// Adds weight (largest - x) to a gap: nothing where both are the same infinity, and nothing for a weight of 0, which
// infinity must not turn into NaN.
template <typename C>
BARACUDA_HD C widened(C gap, C weight, C largest, C x) {
  return (x == largest) | (weight == C(0)) ? gap : fma(weight, largest - x, gap);
}

// e^(x - largest), or e^-80 if that is more: beside the largest term, which is 1, not one bit of a sum of 2^31 terms
// depends on that. It is e^-80, too, where one of both is NaN or both are the same infinity: then the largest of all is
// finite and these classes matter as little, or it is not, and the sum is not looked at.
template <typename C>
BARACUDA_HD C term_of(C x, C largest) {
  return decay_of(x - largest);
}

// Of classes and those behind them.
template <bool kSmooths, typename C>
BARACUDA_HD Classes<C> joined(const Classes<C>& a, const Classes<C>& b) {
  const bool grows = b.largest > a.largest;
  const C high = grows ? b.largest : a.largest, low = grows ? a.largest : b.largest;
  const C of_low = grows ? a.sum : b.sum, of_high = grows ? b.sum : a.sum;
  Classes<C> all{larger_of(a.largest, b.largest), fma(of_low, term_of(low, high), of_high), C(0), C(0)};
  if (kSmooths) {
    all.weight = a.weight + b.weight;
    all.gap = (grows ? b.gap : a.gap) + widened(grows ? a.gap : b.gap, grows ? a.weight : b.weight, high, low);
  }
  return all;
}

// What one of several pieces gives to the sums that are relative to the largest of all.
template <bool kSmooths, typename C>
BARACUDA_HD void add_piece(const Classes<C>& piece, C largest, Classes<C>* all) {
  all->sum = fma(piece.sum, term_of(piece.largest, largest), all->sum);
  if (kSmooths) {
    all->weight += piece.weight;
    all->gap += widened(piece.gap, piece.weight, largest, piece.largest);
  }
}

// Adds one class to a strand whose largest logit is known.
template <bool kSmooths, typename T>
BARACUDA_HD void add_class(Compute<T> x, const T* weight, int64_t number, Classes<Compute<T>>* strand) {
  using C = Compute<T>;
  strand->sum += term_of(x, strand->largest);
  if (kSmooths) {
    const C of_class = weight_of(weight, number);
    strand->weight += of_class;
    strand->gap = widened(strand->gap, of_class, strand->largest, x);
  }
}

// The logarithm of all classes' sum, relative to the largest; NaN where that is not finite.
template <typename C>
BARACUDA_HD C log_sum_of(const Classes<C>& all) {
  return is_finite(all.largest) ? log_of(all.sum) : canonical_nan<C>();
}

// `x` is the target's logit.
template <bool kSmooths, typename C>
BARACUDA_HD C loss_of(const Problem& p, const Classes<C>& all, C log_sum, C x, C weight) {
  const C of_target = weight * (log_sum - (x - all.largest));
  if (!kSmooths) return of_target;
  return fma(static_cast<C>(p.each), fma(all.weight, log_sum, all.gap), static_cast<C>(p.alone) * of_target);
}

// An element's gradient with respect to each logit is scale p, p being the class's probability, and what a class has
// beside that. This is kept with its sign: of -fma(a, b, c) GCC makes -(a b) - c, whose zero may have the other sign.
template <typename C>
struct Slopes {
  C scale = C(0);
  C of_target = C(0);  // more for the target's class
  C of_weight = C(0);  // times its weight more for every class

  Slopes() = default;

  // `gradient` is that of the loss; `all_weights` is looked at where labels are smoothed.
  BARACUDA_HD Slopes(const Problem& p, C gradient, C weight, C all_weights) {
    scale = weight * gradient;
    if (p.smooths()) {
      const C each = static_cast<C>(p.each) * gradient;
      scale = static_cast<C>(p.alone) * scale;
      of_target = -scale;
      of_weight = -each;
      scale = fma(each, all_weights, scale);
    } else {
      of_target = -scale;
    }
  }

  template <bool kSmooths>
  BARACUDA_HD C at(C x, C log_sum_exp, bool is_target, C weight) const {
    const C share = exp_of(x - log_sum_exp);
    if (!kSmooths) return is_target ? fma(scale, share, of_target) : scale * share;
    return fma(scale, share, is_target ? fma(of_weight, weight, of_target) : of_weight * weight);
  }
};

// A term of a sum in pairs, of which none is a negative zero: what is not there can then be a zero.
template <typename C>
BARACUDA_HD C as_term(C x) {
  return x + C(0);
}

// The result of a reduction.
template <typename T>
BARACUDA_HD T reduced(const Problem& p, Compute<T> sum, Compute<T> total_weight) {
  return narrow<T>(p.reduction == Reduction::kMean ? sum / total_weight : sum);
}

// The gradient of an element's loss from that of the one loss.
template <typename C>
BARACUDA_HD C shared_gradient(const Problem& p, C gradient, const C* total_weight) {
  return p.reduction == Reduction::kMean ? gradient / *total_weight : gradient;
}

}  // namespace
}  // namespace baracuda::nll_loss
