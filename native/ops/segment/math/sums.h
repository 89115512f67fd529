// SPDX-License-Identifier: Apache-2.0
// The rules that add or multiply rows: sum, mean, prod, and prod's gradient.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/host_device.h"
#include "ops/segment/math/arithmetic.h"
#include "ops/segment/math/orders.h"
#include "ops/segment/math/rule.h"
#include "ops/segment/rules.h"

namespace baracuda::segment {
namespace {

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

}  // namespace
}  // namespace baracuda::segment
