// SPDX-License-Identifier: Apache-2.0
// The sum that a gradient element is, in its one order, shared by both backends: the preimages of all its axes
// ascending in row-major order, cut every 256 terms.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"
#include "ops/pad/problem.h"

namespace baracuda::pad {
namespace {

constexpr uint32_t kTermsInPartial = 256;

BARACUDA_HD PaddedAxis padded_axis(const Axis& axis) {
  return {static_cast<uint32_t>(axis.kept), static_cast<uint32_t>(axis.origin - axis.low),
          static_cast<uint32_t>(axis.source_extent), static_cast<uint32_t>(axis.rule.period),
          static_cast<uint32_t>(axis.rule.mirror)};
}

// Adds terms in order. A single term is no sum: it keeps its bits.
template <typename T>
class Sum {
 public:
  BARACUDA_HD void add(T term) {
    last_ = term;
    partial_ += widen(term);
    if (++terms_ % kTermsInPartial != 0) return;
    total_ += partial_;
    partial_ = 0;
  }
  BARACUDA_HD T result() const { return terms_ == 1 ? last_ : narrow<T>(total_ + partial_); }

 private:
  T last_{};
  Compute<T> total_ = 0, partial_ = 0;
  uint64_t terms_ = 0;
};

// One axis of a sum: where the terms are, and what a step of one source index is.
struct Steps {
  Preimages places;
  int64_t stride;
};

BARACUDA_HD int64_t place_of(const Preimages& places, uint32_t k) {
  const int64_t pair = static_cast<int64_t>(places.even) + places.odd;
  return places.first + (k / 2) * pair + (k % 2 != 0 ? places.even : 0);
}

// Calls visit(place) for the places of one axis, ascending; `source` is its index 0.
template <typename Visit>
BARACUDA_HD void for_each_place(const Steps& axis, int64_t source, const Visit& visit) {
  int64_t at = source + static_cast<int64_t>(axis.places.first) * axis.stride;
  for (uint32_t k = 0; k < axis.places.count; ++k) {
    visit(at);
    at += static_cast<int64_t>(k % 2 == 0 ? axis.places.even : axis.places.odd) * axis.stride;
  }
}

// Adds the terms of one axis.
template <typename T, typename Load>
BARACUDA_HD void add_along(const Steps& axis, int64_t source, const Load& load, Sum<T>* sum) {
  for_each_place(axis, source, [&](int64_t place) { sum->add(load(place)); });
}

// Calls row(source) for every combination of the places of `count` axes, the outermost first, in ascending order.
template <typename Row>
BARACUDA_HD void for_each_row(const Steps* axes, int32_t count, int64_t source, const Row& row) {
  uint32_t at[kMaxRank] = {};
  for (;;) {
    int64_t place = source;
    for (int32_t a = 0; a < count; ++a) place += place_of(axes[a].places, at[a]) * axes[a].stride;
    row(place);
    int32_t a = count - 1;
    for (; a >= 0 && ++at[a] == axes[a].places.count; --a) at[a] = 0;
    if (a < 0) return;
  }
}

// The sum over the product of 1 to kMaxRank axes, the outermost first.
template <typename T, typename Load>
BARACUDA_HD T sum_over(const Steps* axes, int32_t count, int64_t source, const Load& load) {
  Sum<T> sum;
  const auto along = [&](int64_t row) { add_along(axes[count - 1], row, load, &sum); };
  for_each_row(axes, count - 1, source, along);
  return sum.result();
}

}  // namespace
}  // namespace baracuda::pad
