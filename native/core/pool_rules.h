// SPDX-License-Identifier: Apache-2.0
// The ranges of core/pool_windows.h by one rule for fixed and adaptive windows, in few operations of 32 bits, for
// kernels that ask often. Nearly all axes have rules.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/integer_math.h"
#include "core/pool_windows.h"

namespace baracuda {
namespace {

// Place i of an axis has the range from (i step + first) / divisor up to and with (i step + last) / divisor, both
// rounded down, of what lies in [0, limit).
struct PoolRule {
  Divider by;
  int32_t step, first, last, limit;

  BARACUDA_HD PoolRange operator()(int32_t i) const {
    const int32_t at = i * step, low = at + first;
    const int32_t begin = static_cast<int32_t>(by.divide(static_cast<uint32_t>(low > 0 ? low : 0)));
    const int32_t past = static_cast<int32_t>(by.divide(static_cast<uint32_t>(at + last))) + 1;
    const int32_t end = past < limit ? past : limit;
    return {begin < end ? begin : end, end};
  }
};

// What a rule's numbers and the products with its places stay below.
constexpr int64_t kMostInRule = int64_t{1} << 30;

inline int64_t span_of(const PoolAxis& axis) {
  return (static_cast<int64_t>(axis.kernel) - 1) * axis.dilation + 1;
}

// Whether an axis has rules: where all numbers in them stay below 2^31.
inline bool has_rules(const PoolAxis& axis) {
  if (axis.extent < 1 || axis.bins < 1) return false;
  if (axis.is_adaptive()) return static_cast<int64_t>(axis.extent) * axis.bins < kMostInRule;
  return axis.extent + 2 * static_cast<int64_t>(axis.padding) < kMostInRule && axis.stride < kMostInRule / 2 &&
         span_of(axis) < kMostInRule / 2 && static_cast<int64_t>(axis.bins) * axis.stride < kMostInRule;
}

// windows_with() of an axis that has rules.
inline PoolRule rule_of_windows(const PoolAxis& axis) {
  if (axis.is_adaptive()) return {Divider(axis.extent), axis.bins, 0, axis.bins - 1, axis.bins};
  const int32_t first = static_cast<int32_t>(axis.padding - span_of(axis) + axis.stride);
  return {Divider(axis.stride), 1, first, axis.padding, axis.bins};
}

// window_of() of an axis that has rules; what it holds besides where padding counts, then counted from the padding on.
inline PoolRule rule_of_elements(const PoolAxis& axis, bool with_padding = false) {
  if (axis.is_adaptive()) return {Divider(axis.bins), axis.extent, 0, axis.extent - 1, axis.extent};
  const int32_t span = static_cast<int32_t>(span_of(axis)), padding = axis.padding;
  if (with_padding) return {Divider(1), axis.stride, 0, span - 1, axis.extent + 2 * padding};
  return {Divider(1), axis.stride, -padding, span - 1 - padding, axis.extent};
}

// At least as many elements as a window has along an axis, without dilation.
inline int64_t most_elements(const PoolAxis& axis) {
  if (!axis.is_adaptive()) return axis.kernel;
  return axis.extent % axis.bins == 0 ? axis.extent / axis.bins : axis.extent / axis.bins + 2;
}

}  // namespace
}  // namespace baracuda
