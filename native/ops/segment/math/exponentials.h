// SPDX-License-Identifier: Apache-2.0
// The rules that add up exponentials: logsumexp, softmax, and the gradients of both.
#pragma once

#include <cstdint>

#include "core/float_math.h"
#include "core/host_device.h"
#include "core/transcendental.h"
#include "ops/segment/math/arithmetic.h"
#include "ops/segment/math/orders.h"
#include "ops/segment/math/rule.h"
#include "ops/segment/rules.h"

namespace baracuda::segment {
namespace {

// The sum of e^(x - largest), relative to the largest value so far. Where x equals the largest the term is 1, also if
// both are infinite.
template <typename T>
struct ExponentialSum {
  using First = Compute<T>;   // the largest value
  using Second = Compute<T>;  // the sum
  static constexpr int kRows = 1, kSegments = 0;
  static constexpr bool kAnyGrouping = false;
  static BARACUDA_HD void begin(First& largest, Second& sum, T x, T, int32_t) { largest = wide(x), sum = Second(1); }
  static BARACUDA_HD void add(First& largest, Second& sum, T x, T, int32_t) { join(largest, sum, wide(x), Second(1)); }
  static BARACUDA_HD void join(First& largest, Second& sum, First later, Second more) {
    take(sum, step_to(largest, later), more);
  }

  // A join in two steps, of which the first needs no sum. The lower of two sums is scaled by e^(lower - higher).
  struct Step {
    First factor;  // positive
    bool grows;    // whether the later part has the larger value
  };
  // No sum is above 2^31 and the higher one is at least 1, so none of its bits depends on what e^-80 or less adds.
  // Where the largest is NaN the sum may be any number.
  static BARACUDA_HD Step step_to(First& largest, First later) {
    const bool grows = Largest::wins(later, largest);
    const First factor = choose(later == largest, First(1), decay_of(later - largest));
    largest = choose(grows, later, largest);
    return {factor, grows};
  }
  static BARACUDA_HD void take(Second& sum, Step step, Second more) {
    sum = fma(choose(step.grows, sum, more), step.factor, choose(step.grows, more, sum));
  }
};

template <typename T>
struct Rule<rule::LogSumExp<T>> : ExponentialSum<T> {
  static constexpr Kind kKind = Kind::kReduce;
  static BARACUDA_HD T output(Compute<T> largest, Compute<T> sum, int32_t) {
    return stored<T>(largest + log_of(sum));
  }
  static BARACUDA_HD T of_no_rows() { return Limits<T>::lowest(); }
};

template <typename T>
struct Rule<rule::Softmax<T>> : ExponentialSum<T> {
  static constexpr Kind kKind = Kind::kDistribute;
  static constexpr bool kReadsRowsAgain = true;
  static BARACUDA_HD T value(Compute<T> largest, Compute<T> sum, T, T x, T, int32_t) {
    const Compute<T> term = choose(wide(x) == largest, Compute<T>(1), exp_of_negative(wide(x) - largest));
    return stored<T>(term / choose(is_nan(largest), canonical_nan<Compute<T>>(), sum));
  }
};

// t is the logsumexp: exact enough, so that a row needs no other row.
template <typename T>
struct Rule<rule::LogSumExpGradient<T>> {
  static constexpr Kind kKind = Kind::kMap;
  static constexpr int kRows = 1, kSegments = 2;
  static constexpr bool kCounts = false, kArg = false;
  static BARACUDA_HD T value(T s, T t, T x, int32_t, int64_t, int64_t) {
    const Compute<T> term = choose(wide(x) == wide(t), Compute<T>(1), exp_of(wide(x) - wide(t)));
    return stored<T>(wide(s) * term);
  }
};

// A logsumexp that was rounded to 16 bits is off by as much as its exponent allows, a quarter where it is 1000, and so
// would be the exponent of every row: the sum is formed anew. Where the largest value is infinite, the logsumexp is it.
template <typename T>
struct GradientOfSum : ExponentialSum<T> {
  static constexpr Kind kKind = Kind::kDistribute;
  static constexpr int kSegments = 1;
  static constexpr bool kReadsRowsAgain = true;
  static BARACUDA_HD T value(Compute<T> largest, Compute<T> sum, T s, T x, T, int32_t) {
    const Compute<T> term = choose(wide(x) == largest, Compute<T>(1), exp_of_negative(wide(x) - largest));
    const Compute<T> all = choose(is_finite(largest), sum, Compute<T>(1));
    return stored<T>(wide(s) * (term / choose(is_nan(largest), canonical_nan<Compute<T>>(), all)));
  }
};
template <>
struct Rule<rule::LogSumExpGradient<Half>> : GradientOfSum<Half> {};
template <>
struct Rule<rule::LogSumExpGradient<Bfloat16>> : GradientOfSum<Bfloat16> {};

// x is the softmax, y its gradient.
template <typename T>
struct Rule<rule::SoftmaxGradient<T>> {
  static constexpr Kind kKind = Kind::kDistribute;
  static constexpr int kRows = 2, kSegments = 0;
  using First = Compute<T>;  // the sum of x y
  using Second = Nothing;
  static constexpr bool kAnyGrouping = false, kReadsRowsAgain = true;
  static BARACUDA_HD void begin(First& sum, Second&, T x, T y, int32_t) { sum = fma(wide(x), wide(y), First(0)); }
  static BARACUDA_HD void add(First& sum, Second&, T x, T y, int32_t) { sum = fma(wide(x), wide(y), sum); }
  static BARACUDA_HD void join(First& sum, Second&, First later, Second) { sum += later; }
  static BARACUDA_HD T value(First sum, Second, T, T x, T y, int32_t) { return stored<T>(wide(x) * (wide(y) - sum)); }
};

}  // namespace
}  // namespace baracuda::segment
