// SPDX-License-Identifier: Apache-2.0
// What is scanned, shared by both backends: for every operator what an element is before the scan, how two neighbours
// are joined, and what becomes a result.
//
// An operator has
//   State                       what stands for some neighbouring elements of a tile
//   Carry                       what stands for everything in front of a tile
//   State leaf(b, x, spot)      of one element x of b.input
//   State combine(a, b)         of a's elements and b's, which come after them
//   Carry lift(state, first)    of a state whose tile has `first` elements of the row in front of it
//   Carry join(a, b)            as combine
//   T result(b, carry, spot)    what is stored
// and says of itself
//   kStarts                     whether start() is joined to the first tile's results
//   kHasIndices                 whether index_of(carry) is stored, too
//   kHasMaxima                  whether a leaf's m is to become the maximum of its row up to the element, and settle()
//                               is what makes a leaf of it
//   kReadsOthers                whether leaf() and result() read of b more than the element
//   kIsExact                    whether no order of joining shows in the result
//   kHasLinks                   whether combine(a, b) is follow(a, link(a, b), b), whose link needs the m of both alone
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/float_math.h"
#include "core/host_device.h"
#include "core/transcendental.h"
#include "ops/scan/launch.h"

namespace baracuda::scan {
namespace {

// Where an element is: in its tensor, in its row, and along the scan in its tile.
struct Spot {
  int64_t offset, index;
  int32_t at;
};

template <typename T, bool kIsInteger = std::is_integral_v<T>>
struct AccumulatorOf {
  using type = Compute<T>;
};
template <typename T>
struct AccumulatorOf<T, true> {
  using type = std::make_unsigned_t<T>;  // whose overflow is defined
};
template <typename T>
using Accumulator = typename AccumulatorOf<T>::type;

template <typename T>
BARACUDA_HD Accumulator<T> accumulated(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<Accumulator<T>>(x);
  } else {
    return widen(x);
  }
}

template <typename T>
BARACUDA_HD T stored(Accumulator<T> x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x);
  } else {
    return narrow<T>(x);
  }
}

template <typename T>
struct Plain {
  using Element = T;
  using C = Accumulator<T>;
  static constexpr bool kStarts = false, kHasIndices = false, kHasMaxima = false, kHasLinks = false,
                        kReadsOthers = false, kIsExact = std::is_integral_v<T>;
};

template <typename T>
struct Sum : Plain<T> {
  using typename Plain<T>::C;
  using Buffers = SumBuffers<T>;
  struct State {
    C value;
  };
  using Carry = State;
  static constexpr bool kStarts = true;

  BARACUDA_HD explicit Sum(const Problem&) {}
  BARACUDA_HD State leaf(const Buffers&, T x, const Spot&) const { return {accumulated(x)}; }
  BARACUDA_HD State combine(State a, State b) const { return {a.value + b.value}; }
  BARACUDA_HD Carry lift(State a, int64_t) const { return a; }
  BARACUDA_HD Carry join(Carry a, Carry b) const { return combine(a, b); }
  BARACUDA_HD Carry start() const { return {C(0)}; }
  BARACUDA_HD T result(const Buffers&, Carry a, const Spot&) const { return stored<T>(a.value); }
};

template <typename T>
struct Product : Plain<T> {
  using typename Plain<T>::C;
  using Buffers = ProductBuffers<T>;
  struct State {
    C value;
  };
  using Carry = State;

  BARACUDA_HD explicit Product(const Problem&) {}
  BARACUDA_HD State leaf(const Buffers&, T x, const Spot&) const { return {accumulated(x)}; }
  BARACUDA_HD State combine(State a, State b) const { return {a.value * b.value}; }
  BARACUDA_HD Carry lift(State a, int64_t) const { return a; }
  BARACUDA_HD Carry join(Carry a, Carry b) const { return combine(a, b); }
  BARACUDA_HD T result(const Buffers&, Carry a, const Spot&) const { return stored<T>(a.value); }
};

// What elements are compared as.
template <typename T>
BARACUDA_HD auto comparable(T x) {
  if constexpr (std::is_integral_v<T>) {
    return x;
  } else {
    return widen(x);
  }
}

// Maxima or minima, of whose bits none change.
template <typename T>
struct Extremum : Plain<T> {
  using Buffers = ExtremumBuffers<T>;
  struct State {
    T value;
    int32_t at;
  };
  struct Carry {
    T value;
    int64_t place;
  };
  static constexpr bool kHasIndices = true, kIsExact = true;
  bool minimum, reverse;
  int64_t length;

  BARACUDA_HD explicit Extremum(const Problem& p) : minimum(p.minimum), reverse(p.reverse), length(p.length) {}
  // Whether b, which comes after a, takes over: the last of equals does, and the last NaN before all others.
  BARACUDA_HD bool takes_over(T a, T b) const {
    const auto next = comparable(b), best = comparable(a);
    return (minimum ? next <= best : next >= best) || next != next;
  }
  BARACUDA_HD State leaf(const Buffers&, T x, const Spot& spot) const { return {x, spot.at}; }
  BARACUDA_HD State combine(State a, State b) const { return takes_over(a.value, b.value) ? b : a; }
  BARACUDA_HD Carry lift(State a, int64_t first) const { return {a.value, first + a.at}; }
  BARACUDA_HD Carry join(Carry a, Carry b) const { return takes_over(a.value, b.value) ? b : a; }
  BARACUDA_HD T result(const Buffers&, Carry a, const Spot&) const { return a.value; }
  BARACUDA_HD int64_t index_of(Carry a) const { return reverse ? length - 1 - a.place : a.place; }
};

// The neighbours of an element in the row whose gradient is scanned, whose own direction is the other one.
struct Neighbours {
  int64_t length, inner;
  int64_t step;  // from an element to the next

  BARACUDA_HD explicit Neighbours(const Problem& p) : length(p.length), inner(p.inner), step(p.reverse ? 1 : -1) {}
  BARACUDA_HD bool has_next(const Spot& spot) const { return spot.index != (step > 0 ? length - 1 : 0); }
  BARACUDA_HD bool has_last(const Spot& spot) const { return spot.index != (step > 0 ? 0 : length - 1); }
  BARACUDA_HD int64_t next(const Spot& spot) const { return spot.offset + step * inner; }
  BARACUDA_HD int64_t last(const Spot& spot) const { return spot.offset - step * inner; }
};

// s = gradient + next s', where next is the factor behind and s' the one before along the scan.
template <typename T>
struct ProductGradient : Plain<T> {
  using typename Plain<T>::C;
  using Buffers = ProductGradientBuffers<T>;
  struct State {
    C factor, sum;
  };
  using Carry = State;
  static constexpr bool kReadsOthers = true;
  Neighbours neighbours;

  BARACUDA_HD explicit ProductGradient(const Problem& p) : neighbours(p) {}
  BARACUDA_HD State leaf(const Buffers& b, T x, const Spot& spot) const {
    const bool has_next = neighbours.has_next(spot);
    return {has_next ? widen(b.factors[neighbours.next(spot)]) : C(1), widen(x)};
  }
  BARACUDA_HD State combine(State a, State b) const { return {b.factor * a.factor, fma(b.factor, a.sum, b.sum)}; }
  BARACUDA_HD Carry lift(State a, int64_t) const { return a; }
  BARACUDA_HD Carry join(Carry a, Carry b) const { return combine(a, b); }
  BARACUDA_HD T result(const Buffers& b, Carry a, const Spot& spot) const {
    const C before = neighbours.has_last(spot) ? widen(b.products[neighbours.last(spot)]) : C(1);
    return narrow<T>(before * a.sum);
  }
};

// The sum over elements that follow each other and have one index.
template <typename T>
struct ExtremumGradient : Plain<T> {
  using typename Plain<T>::C;
  using Buffers = ExtremumGradientBuffers<T>;
  struct State {
    C sum;
    int32_t goes_on;  // whether what is in front has the same index
  };
  using Carry = State;
  static constexpr bool kReadsOthers = true;
  Neighbours neighbours;

  BARACUDA_HD explicit ExtremumGradient(const Problem& p) : neighbours(p) {}
  BARACUDA_HD State leaf(const Buffers& b, T x, const Spot& spot) const {
    const bool goes_on =
        neighbours.has_next(spot) && b.indices[neighbours.next(spot)] == b.indices[spot.offset];
    return {widen(x), goes_on ? 1 : 0};
  }
  BARACUDA_HD State combine(State a, State b) const {
    return {b.goes_on != 0 ? a.sum + b.sum : b.sum, a.goes_on & b.goes_on};
  }
  BARACUDA_HD Carry lift(State a, int64_t) const { return a; }
  BARACUDA_HD Carry join(Carry a, Carry b) const { return combine(a, b); }
  BARACUDA_HD T result(const Buffers& b, Carry a, const Spot& spot) const {
    return b.indices[spot.offset] == spot.index ? narrow<T>(C(0) + a.sum) : T{};
  }
};

// A sum of e^(x - m), whose m only grows along the scan.
template <typename C>
struct Scaled {
  C m, sum;
};

// The larger one; NaN is larger than every number.
template <typename C>
BARACUDA_HD C larger(C a, C b) {
  return b > a || b != b ? b : a;
}

template <typename T>
struct LogSum : Plain<T> {
  using typename Plain<T>::C;
  using Buffers = LogSumBuffers<T>;
  using State = Scaled<C>;
  using Carry = State;
  static constexpr bool kHasMaxima = true, kHasLinks = true;

  BARACUDA_HD explicit LogSum(const Problem&) {}
  BARACUDA_HD State leaf(const Buffers&, T x, const Spot&) const { return {widen(x), widen(x)}; }
  // Infinities differ from themselves by NaN.
  BARACUDA_HD State settle(State a) const { return {a.m, a.sum == a.m ? C(1) : exp_of_negative(a.sum - a.m)}; }
  BARACUDA_HD State combine(State a, State b) const {
    if (a.m == b.m) return {b.m, a.sum + b.sum};
    return {b.m, fma(a.sum, exp_of_negative(a.m - b.m), b.sum)};
  }
  BARACUDA_HD C link(State a, State b) const { return a.m == b.m ? C(1) : exp_of_negative(a.m - b.m); }
  BARACUDA_HD State follow(State a, C link, State b) const { return {b.m, fma(a.sum, link, b.sum)}; }
  BARACUDA_HD Carry lift(State a, int64_t) const { return a; }
  BARACUDA_HD Carry join(Carry a, Carry b) const { return combine(a, b); }
  BARACUDA_HD T result(const Buffers&, Carry a, const Spot&) const { return narrow<T>(a.m + log_of(a.sum)); }
};

// m is -output, which grows against the forward's direction.
template <typename T>
struct LogSumGradient : Plain<T> {
  using typename Plain<T>::C;
  using Buffers = LogSumGradientBuffers<T>;
  using State = Scaled<C>;
  using Carry = State;
  static constexpr bool kHasLinks = true, kReadsOthers = true;

  BARACUDA_HD explicit LogSumGradient(const Problem&) {}
  BARACUDA_HD State leaf(const Buffers& b, T x, const Spot& spot) const {
    return {-widen(b.logarithms[spot.offset]), widen(x)};
  }
  BARACUDA_HD State combine(State a, State b) const {
    if (a.m == b.m) return {b.m, a.sum + b.sum};
    return {b.m, fma(a.sum, exp_of(a.m - b.m), b.sum)};
  }
  BARACUDA_HD C link(State a, State b) const { return a.m == b.m ? C(1) : exp_of(a.m - b.m); }
  BARACUDA_HD State follow(State a, C link, State b) const { return {b.m, fma(a.sum, link, b.sum)}; }
  BARACUDA_HD Carry lift(State a, int64_t) const { return a; }
  BARACUDA_HD Carry join(Carry a, Carry b) const { return combine(a, b); }
  BARACUDA_HD T result(const Buffers& b, Carry a, const Spot& spot) const {
    const C term = widen(b.terms[spot.offset]);
    if (term < C(0) && !is_finite(term)) return T{};
    return narrow<T>(exp_of(term + a.m) * a.sum);
  }
};

template <class Buffers>
struct OperatorOf;
template <typename T>
struct OperatorOf<SumBuffers<T>> {
  using type = Sum<T>;
};
template <typename T>
struct OperatorOf<ProductBuffers<T>> {
  using type = Product<T>;
};
template <typename T>
struct OperatorOf<ExtremumBuffers<T>> {
  using type = Extremum<T>;
};
template <typename T>
struct OperatorOf<LogSumBuffers<T>> {
  using type = LogSum<T>;
};
template <typename T>
struct OperatorOf<ProductGradientBuffers<T>> {
  using type = ProductGradient<T>;
};
template <typename T>
struct OperatorOf<LogSumGradientBuffers<T>> {
  using type = LogSumGradient<T>;
};
template <typename T>
struct OperatorOf<ExtremumGradientBuffers<T>> {
  using type = ExtremumGradient<T>;
};

// What a tile in front of which `carry` stands makes of one of its states.
template <class Op>
BARACUDA_HD typename Op::Carry carried(const Op& op, int64_t tile, typename Op::Carry carry, typename Op::State state) {
  const typename Op::Carry lifted = op.lift(state, tile * kTile);
  if (tile > 0) return op.join(carry, lifted);
  if constexpr (Op::kStarts) return op.join(op.start(), lifted);
  return lifted;
}

}  // namespace
}  // namespace baracuda::scan
