// SPDX-License-Identifier: Apache-2.0
// The rules of embedding bags: sums of weighted rows, and the largest row with its place in the table. Rows that take
// no part are not added.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "ops/segment/math/arithmetic.h"
#include "ops/segment/math/orders.h"
#include "ops/segment/math/rule.h"
#include "ops/segment/rules.h"

namespace baracuda::segment {
namespace {

template <typename T>
struct Rule<rule::BagSum<T>> {
  static constexpr Kind kKind = Kind::kReduce;
  static constexpr int kRows = 1, kSegments = 0;
  using First = Compute<T>;
  using Second = Nothing;
  static constexpr bool kAnyGrouping = false;
  static BARACUDA_HD void none(First& sum, Second&, int32_t) { sum = First(0); }
  // A sum from 0 on is never -0, and a factor of 1 gives the bits of an addition.
  static BARACUDA_HD void add(First& sum, Second&, T x, First factor, int32_t) { sum = fma(factor, wide(x), sum); }
  static BARACUDA_HD void join(First& sum, Second&, First later, Second) { sum = segment::add(sum, later); }
  // `divisor` is 0 only where nothing was added to a mean.
  static BARACUDA_HD T output(First sum, Second, int32_t divisor) {
    return divisor == 0 ? T{} : stored<T>(sum / static_cast<First>(divisor));
  }
};

template <typename T>
struct Rule<rule::BagMax<T>> {
  static constexpr Kind kKind = Kind::kReduce;
  static constexpr int kRows = 1, kSegments = 0;
  using First = T;         // the best value
  using Second = int32_t;  // the row of the table that holds it, -1 before any
  static constexpr bool kAnyGrouping = true;
  static BARACUDA_HD void none(First& best, Second& holder, int32_t) { best = T{}, holder = -1; }
  static BARACUDA_HD void add(First& best, Second& holder, T x, Compute<T>, int32_t row) {
    const bool better = (holder < 0) | Largest::wins(comparable(x), comparable(best));
    best = choose(better, x, best);
    holder = choose(better, row, holder);
  }
  static BARACUDA_HD void join(First& best, Second& holder, First later, Second row) {
    const bool better = (row >= 0) & ((holder < 0) | Largest::wins(comparable(later), comparable(best)));
    best = choose(better, later, best);
    holder = choose(better, row, holder);
  }
  static BARACUDA_HD T output(First best, Second, int32_t) { return best; }
};

// The row of the table that takes no part, as a key: -1 if there is none.
BARACUDA_HD int32_t padding_key(int64_t padding_idx, int32_t num_embeddings) {
  return padding_idx >= 0 && padding_idx < num_embeddings ? static_cast<int32_t>(padding_idx) : -1;
}

}  // namespace
}  // namespace baracuda::segment
