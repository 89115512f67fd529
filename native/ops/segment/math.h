// SPDX-License-Identifier: Apache-2.0
// The formulas of the segment operators, shared by both backends: which segment a row has, what a rule keeps of a
// segment's column and what it makes of it. Adding an operator is adding a Rule here.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/float_math.h"
#include "core/host_device.h"
#include "core/transcendental.h"
#include "ops/segment/rules.h"

namespace baracuda::segment {
namespace {

// An id's bits as an unsigned number: a negative id is a large one, and the upper half of a 64-bit id counts.
BARACUDA_HD uint64_t unsigned_id(int32_t id) { return static_cast<uint32_t>(id); }
BARACUDA_HD uint64_t unsigned_id(int64_t id) { return static_cast<uint64_t>(id); }

// A row's sort key: its segment, or num_segments for a row that belongs to none.
BARACUDA_HD int32_t key_of(uint64_t id, int32_t num_segments) {
  return id < static_cast<uint64_t>(num_segments) ? static_cast<int32_t>(id) : num_segments;
}

// Values are chosen by their bits, never by arithmetic.
template <typename T>
BARACUDA_HD T choose(bool first, T a, T b) {
  return first ? a : b;
}
BARACUDA_HD Half choose(bool first, Half a, Half b) { return Half{first ? a.bits : b.bits}; }
BARACUDA_HD Bfloat16 choose(bool first, Bfloat16 a, Bfloat16 b) { return Bfloat16{first ? a.bits : b.bits}; }
BARACUDA_HD int32_t choose(bool first, int32_t a, int32_t b) {
#if defined(__CUDA_ARCH__)
  return first ? a : b;
#else
  // Beside 16-bit values, compilers turn `?:` into branches.
  const int32_t mask = -static_cast<int32_t>(first);
  return (a & mask) | (b & ~mask);
#endif
}

// A number that compares as the value does: -0 equal to +0, every NaN alike.
BARACUDA_HD int32_t comparable(int32_t x) { return x; }
BARACUDA_HD int64_t comparable(int64_t x) { return x; }
BARACUDA_HD float comparable(float x) { return x; }
BARACUDA_HD double comparable(double x) { return x; }
#if defined(__CUDA_ARCH__)
// One conversion, exact.
BARACUDA_HD float comparable(Half x) { return widen(x); }
BARACUDA_HD float comparable(Bfloat16 x) { return widen(x); }
#else
// The same order in 16 bits, for twice the lanes and without the f16 conversion, which compilers do not vectorise: sign
// and magnitude become two's complement, NaN the smallest number, which no other value has.
constexpr int16_t kNan16 = INT16_MIN;
BARACUDA_HD int16_t comparable_bits(uint16_t bits, int16_t infinity) {
  const int16_t magnitude = static_cast<int16_t>(bits & 0x7fff);
  const int16_t sign = static_cast<int16_t>(-(bits >> 15));
  const int16_t number = static_cast<int16_t>((magnitude ^ sign) - sign);
  return magnitude > infinity ? kNan16 : number;
}
BARACUDA_HD int16_t comparable(Half x) { return comparable_bits(x.bits, 0x7c00); }
BARACUDA_HD int16_t comparable(Bfloat16 x) { return comparable_bits(x.bits, 0x7f80); }
#endif

// No short circuits: the loops over columns must stay free of branches.
template <typename Number>
BARACUDA_HD bool is_nan(Number x) {
  return x != x;
}

// The results of segments without rows.
template <typename T>
struct Limits {
  static BARACUDA_HD T lowest() { return T(1) << (8 * sizeof(T) - 1); }
  static BARACUDA_HD T highest() { return ~lowest(); }
};
template <>
struct Limits<float> {
  static BARACUDA_HD float lowest() { return bits_as<float>(0xff800000u); }
  static BARACUDA_HD float highest() { return bits_as<float>(0x7f800000u); }
};
template <>
struct Limits<double> {
  static BARACUDA_HD double lowest() { return bits_as<double>(static_cast<uint64_t>(0xfff0000000000000u)); }
  static BARACUDA_HD double highest() { return bits_as<double>(static_cast<uint64_t>(0x7ff0000000000000u)); }
};
template <>
struct Limits<Half> {
  static BARACUDA_HD Half lowest() { return Half{0xfc00u}; }
  static BARACUDA_HD Half highest() { return Half{0x7c00u}; }
};
template <>
struct Limits<Bfloat16> {
  static BARACUDA_HD Bfloat16 lowest() { return Bfloat16{0xff80u}; }
  static BARACUDA_HD Bfloat16 highest() { return Bfloat16{0x7f80u}; }
};

// Orders. wins: whether a later row's value replaces the best so far. Rows of a segment are offered in ascending order,
// so the test is strict: an equal value never replaces an earlier one. The first NaN replaces every number.
struct Largest {
  template <typename Number>
  static BARACUDA_HD bool wins(Number later, Number best) {
    return !(later <= best) & (best == best);
  }
  static BARACUDA_HD int32_t ordered(int32_t number) { return number; }
  // What no value loses to.
  template <typename T>
  static BARACUDA_HD T last() {
    return Limits<T>::lowest();
  }
};
struct Smallest {
  template <typename Number>
  static BARACUDA_HD bool wins(Number later, Number best) {
    return !(later >= best) & (best == best);
  }
  static BARACUDA_HD int32_t ordered(int32_t number) { return -number; }
  template <typename T>
  static BARACUDA_HD T last() {
    return Limits<T>::highest();
  }
};
#if !defined(__CUDA_ARCH__)
// NaN is the smallest number; one less, it wraps to the largest.
template <>
BARACUDA_HD bool Largest::wins<int16_t>(int16_t later, int16_t best) {
  return static_cast<int16_t>(later - 1) > static_cast<int16_t>(best - 1);
}
template <>
BARACUDA_HD bool Smallest::wins<int16_t>(int16_t later, int16_t best) {
  return later < best;
}
#endif

// Sums and products of integers wrap around.
template <typename T>
BARACUDA_HD T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}
template <typename T>
BARACUDA_HD T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}
template <typename T>
BARACUDA_HD Compute<T> wide(T x) {
  if constexpr (std::is_integral_v<T>) {
    return x;
  } else {
#if !defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, Half>) return widen_by_bits(x);
#endif
    return widen(x);
  }
}
template <typename T>
BARACUDA_HD T stored(Compute<T> x) {
  if constexpr (std::is_integral_v<T>) {
    return x;
  } else {
#if !defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, Half>) return narrow_by_bits(x);
#endif
    return narrow<T>(x);
  }
}

// A component that a rule does not need.
struct Nothing {};

// What becomes of the rows of a segment.
enum class Kind {
  kReduce,      // begin, add, join, then output(): one result a segment
  kDistribute,  // begin, add, join, then value(): one result a row
  kMap,         // value() alone
};

// A Rule has: kKind. What it reads: kRows, tensors with a row for each row (`x`, `y`); kSegments, tensors with a row
// for each segment (`s`, `t`). A rule that keeps something of the rows before: First and Second, its two components,
// and
//   begin(first, second, x, y, row)   the first row of a piece
//   add(first, second, x, y, row)     a later one
//   join(first, second, later first, later second)
//   none(first, second, row)          kReduce: what add() of a piece's first row, `row`, makes the same as begin()
//   kAnyGrouping                      whether parts may be joined in any grouping without a change of bits
//   kReadsRowsAgain                   kDistribute: whether value() uses x and y
// `count` is the number of the segment's rows, `row` the row's index. A part's first component begins at 0 for sums, so
// that a sum of -0 alone is +0.
template <class Name>
struct Rule;

template <class Order, typename T>
struct ValueSelection {
  using First = T;  // the best value
  using Second = Nothing;
  static constexpr bool kAnyGrouping = true;
  static BARACUDA_HD void none(First& best, Second&, int32_t) { best = Order::template last<T>(); }
  static BARACUDA_HD void begin(First& best, Second&, T x, T, int32_t) { best = x; }
  static BARACUDA_HD void add(First& best, Second&, T x, T, int32_t) {
    best = choose(Order::wins(comparable(x), comparable(best)), x, best);
  }
  static BARACUDA_HD void join(First& best, Second& nothing, First later, Second) {
    add(best, nothing, later, later, 0);
  }
};

template <class Order, typename T>
struct RowSelection {
  using First = T;         // the best value
  using Second = int32_t;  // the row that holds it
  static constexpr bool kAnyGrouping = true;
  static BARACUDA_HD void none(First& best, Second& holder, int32_t row) {
    best = Order::template last<T>(), holder = row;
  }
  static BARACUDA_HD void begin(First& best, Second& holder, T x, T, int32_t row) { best = x, holder = row; }
  static BARACUDA_HD void add(First& best, Second& holder, T x, T, int32_t row) {
    const bool better = Order::wins(comparable(x), comparable(best));
    best = choose(better, x, best);
    holder = choose(better, row, holder);
  }
  static BARACUDA_HD void join(First& best, Second& holder, First later, Second row) {
    add(best, holder, later, later, row);
  }
};

template <class Order, typename T>
struct TieSelection {
  using First = T;         // the best value
  using Second = int32_t;  // how many rows hold an equal one
  static constexpr bool kAnyGrouping = true;
  static BARACUDA_HD bool ties(T a, T b) {
    const auto x = comparable(a), y = comparable(b);
    return (x == y) | (is_nan(x) & is_nan(y));
  }
  static BARACUDA_HD void begin(First& best, Second& count, T x, T, int32_t) { best = x, count = 1; }
  static BARACUDA_HD void add(First& best, Second& count, T x, T, int32_t) { join(best, count, x, 1); }
  static BARACUDA_HD void join(First& best, Second& count, First later, Second more) {
    const bool better = Order::wins(comparable(later), comparable(best)), equal = ties(later, best);
    best = choose(better, later, best);
    count = choose(better, more, count + choose(equal, more, 0));
  }
};

template <typename T>
struct Rule<rule::Sum<T>> {
  static constexpr Kind kKind = Kind::kReduce;
  static constexpr int kRows = 1, kSegments = 0;
  using First = Compute<T>;
  using Second = Nothing;
  static constexpr bool kAnyGrouping = std::is_integral_v<T>;
  static BARACUDA_HD void none(First& sum, Second&, int32_t) { sum = First(0); }
  static BARACUDA_HD void begin(First& sum, Second&, T x, T, int32_t) { sum = segment::add(First(0), wide(x)); }
  static BARACUDA_HD void add(First& sum, Second&, T x, T, int32_t) { sum = segment::add(sum, wide(x)); }
  static BARACUDA_HD void join(First& sum, Second&, First later, Second) { sum = segment::add(sum, later); }
  static BARACUDA_HD T output(First sum, Second, int32_t) { return stored<T>(sum); }
  static BARACUDA_HD T of_no_rows() { return T{}; }
};

template <typename T>
struct Rule<rule::Mean<T>> : Rule<rule::Sum<T>> {
  static BARACUDA_HD T output(Compute<T> sum, Nothing, int32_t count) {
    return stored<T>(sum / static_cast<Compute<T>>(count));
  }
};

template <typename T>
struct Rule<rule::Prod<T>> {
  static constexpr Kind kKind = Kind::kReduce;
  static constexpr int kRows = 1, kSegments = 0;
  using First = Compute<T>;
  using Second = Nothing;
  static constexpr bool kAnyGrouping = std::is_integral_v<T>;
  static BARACUDA_HD void none(First& product, Second&, int32_t) { product = First(1); }
  static BARACUDA_HD void begin(First& product, Second&, T x, T, int32_t) { product = wide(x); }
  static BARACUDA_HD void add(First& product, Second&, T x, T, int32_t) { product = multiply(product, wide(x)); }
  static BARACUDA_HD void join(First& product, Second&, First later, Second) { product = multiply(product, later); }
  static BARACUDA_HD T output(First product, Second, int32_t) { return stored<T>(product); }
  static BARACUDA_HD T of_no_rows() { return stored<T>(First(1)); }
};

template <typename T>
struct Rule<rule::Max<T>> : ValueSelection<Largest, T> {
  static constexpr Kind kKind = Kind::kReduce;
  static constexpr int kRows = 1, kSegments = 0;
  static BARACUDA_HD T output(T best, Nothing, int32_t) { return best; }
  static BARACUDA_HD T of_no_rows() { return Limits<T>::lowest(); }
};
template <typename T>
struct Rule<rule::Min<T>> : ValueSelection<Smallest, T> {
  static constexpr Kind kKind = Kind::kReduce;
  static constexpr int kRows = 1, kSegments = 0;
  static BARACUDA_HD T output(T best, Nothing, int32_t) { return best; }
  static BARACUDA_HD T of_no_rows() { return Limits<T>::highest(); }
};
template <typename T>
struct Rule<rule::MaxWithArg<T>> : RowSelection<Largest, T> {
  static constexpr Kind kKind = Kind::kReduce;
  static constexpr int kRows = 1, kSegments = 0;
  static BARACUDA_HD T output(T best, int32_t, int32_t) { return best; }
  static BARACUDA_HD T of_no_rows() { return Limits<T>::lowest(); }
};
template <typename T>
struct Rule<rule::MinWithArg<T>> : RowSelection<Smallest, T> {
  static constexpr Kind kKind = Kind::kReduce;
  static constexpr int kRows = 1, kSegments = 0;
  static BARACUDA_HD T output(T best, int32_t, int32_t) { return best; }
  static BARACUDA_HD T of_no_rows() { return Limits<T>::highest(); }
};

// The gradient of a selection: all of the segment's to the row that holds the value.
template <class Order, typename T>
struct FirstGradient : RowSelection<Order, T> {
  static constexpr Kind kKind = Kind::kDistribute;
  static constexpr int kRows = 1, kSegments = 1;
  static constexpr bool kReadsRowsAgain = false;
  static BARACUDA_HD T value(T, int32_t holder, T s, T, T, int32_t row) { return choose(holder == row, s, T{}); }
};
template <typename T>
struct Rule<rule::MaxGradient<T>> : FirstGradient<Largest, T> {};
template <typename T>
struct Rule<rule::MinGradient<T>> : FirstGradient<Smallest, T> {};

// An equal part to each row that holds it.
template <class Order, typename T>
struct EvenGradient : TieSelection<Order, T> {
  static constexpr Kind kKind = Kind::kDistribute;
  static constexpr int kRows = 1, kSegments = 1;
  static constexpr bool kReadsRowsAgain = true;
  static BARACUDA_HD T value(T best, int32_t count, T s, T x, T, int32_t) {
    const T part = stored<T>(wide(s) / static_cast<Compute<T>>(count));
    return choose(TieSelection<Order, T>::ties(x, best), part, T{});
  }
};
template <typename T>
struct Rule<rule::MaxEvenGradient<T>> : EvenGradient<Largest, T> {};
template <typename T>
struct Rule<rule::MinEvenGradient<T>> : EvenGradient<Smallest, T> {};

template <typename T>
struct Rule<rule::ProdGradient<T>> {
  static constexpr Kind kKind = Kind::kDistribute;
  static constexpr int kRows = 1, kSegments = 1;
  using First = Compute<T>;  // the product of what is not 0
  using Second = int32_t;    // how many are
  static constexpr bool kAnyGrouping = false, kReadsRowsAgain = true;
  static BARACUDA_HD void begin(First& product, Second& zeros, T x, T, int32_t) {
    const First factor = wide(x);
    zeros = factor == 0;
    product = choose(factor == 0, First(1), factor);
  }
  static BARACUDA_HD void add(First& product, Second& zeros, T x, T, int32_t) {
    const First factor = wide(x);
    zeros += factor == 0;
    product *= choose(factor == 0, First(1), factor);
  }
  static BARACUDA_HD void join(First& product, Second& zeros, First later, Second more) {
    product *= later, zeros += more;
  }
  static BARACUDA_HD T value(First product, int32_t zeros, T s, T x, T, int32_t) {
    const First factor = wide(x);
    const First others = choose(factor == 0, product, product / factor);
    const bool counts = (zeros == 0) | ((zeros == 1) & (factor == 0));
    return stored<T>(choose(counts, others * wide(s), First(0)));
  }
};

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

// Maps: value(s, t, x, count, arg, row).
template <typename T>
struct Rule<rule::Gather<T>> {
  static constexpr Kind kKind = Kind::kMap;
  static constexpr int kRows = 0, kSegments = 1;
  static constexpr bool kCounts = false, kArg = false;
  static BARACUDA_HD T value(T s, T, T, int32_t, int64_t, int64_t) { return s; }
};
template <typename T>
struct Rule<rule::MeanGradient<T>> {
  static constexpr Kind kKind = Kind::kMap;
  static constexpr int kRows = 0, kSegments = 1;
  static constexpr bool kCounts = true, kArg = false;
  static BARACUDA_HD T value(T s, T, T, int32_t count, int64_t, int64_t) {
    return stored<T>(wide(s) / static_cast<Compute<T>>(count));
  }
};
template <typename T>
struct Rule<rule::ArgGradient<T>> {
  static constexpr Kind kKind = Kind::kMap;
  static constexpr int kRows = 0, kSegments = 1;
  static constexpr bool kCounts = false, kArg = true;
  static BARACUDA_HD T value(T s, T, T, int32_t, int64_t arg, int64_t row) { return choose(arg == row, s, T{}); }
};
// t is the logsumexp.
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

}  // namespace
}  // namespace baracuda::segment
