// SPDX-License-Identifier: Apache-2.0
// The rules whose result is of one row alone: gather, and the gradients that need no other row.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/transcendental.h"
#include "ops/segment/math/arithmetic.h"
#include "ops/segment/math/orders.h"
#include "ops/segment/math/rule.h"
#include "ops/segment/rules.h"

namespace baracuda::segment {
namespace {

// value(s, t, x, count, arg, row), with what kCounts and kArg ask for: the number of the segment's rows, the row that
// the segment's arg names.
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

}  // namespace
}  // namespace baracuda::segment
