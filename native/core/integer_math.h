// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic for extents and positions, shared by both backends: rounded division, bounds, and division by a
// number that is constant during a launch.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace baracuda {
namespace {

// How many groups of `b` hold `a`: a >= 0, b > 0.
BARACUDA_HD constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
// ceil_div() in fewer operations, for numbers so small that a + b - 1 fits their own type.
template <typename I>
BARACUDA_HD constexpr I groups_of(I a, I b) {
  return (a + b - 1) / b;
}
// groups_of() with groups of 2^bits.
template <typename I>
BARACUDA_HD constexpr I groups_of_bits(I a, int32_t bits) {
  return (a + (I{1} << bits) - 1) >> bits;
}
BARACUDA_HD constexpr int64_t at_most(int64_t a, int64_t limit) { return a < limit ? a : limit; }
BARACUDA_HD constexpr int64_t at_least(int64_t a, int64_t limit) { return a > limit ? a : limit; }

// Division of n < 2^31 by a constant d in [1, 2^31). With l = ceil(log2 d) and m = floor(2^(31 + l) / d) + 1, m d
// exceeds 2^(31 + l) by at most d <= 2^l, so n m / 2^(31 + l) exceeds n / d by less than 1 / d.
struct Divider {
  uint32_t divisor, multiplier, shift;

  Divider() = default;
  explicit Divider(int64_t d) : divisor(static_cast<uint32_t>(d)), multiplier(0), shift(0) {
    if (d == 1) return;
    while ((int64_t{2} << shift) < d) ++shift;  // l - 1
    multiplier = static_cast<uint32_t>((uint64_t{1} << (32 + shift)) / static_cast<uint64_t>(d) + 1);
  }
  BARACUDA_HD uint32_t divide(uint32_t n) const {
    if (divisor == 1) return n;
    return static_cast<uint32_t>((static_cast<uint64_t>(n) * multiplier) >> 32) >> shift;
  }
  BARACUDA_HD uint32_t remainder(uint32_t n) const { return n - divide(n) * divisor; }
};

}  // namespace
}  // namespace baracuda
