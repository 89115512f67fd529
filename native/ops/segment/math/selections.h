// SPDX-License-Identifier: Apache-2.0
// The rules that choose a row's value, max and min, and their gradients.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "ops/segment/math/arithmetic.h"
#include "ops/segment/math/orders.h"
#include "ops/segment/math/rule.h"
#include "ops/segment/rules.h"

namespace baracuda::segment {
namespace {

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

}  // namespace
}  // namespace baracuda::segment
