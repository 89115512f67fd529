// SPDX-License-Identifier: Apache-2.0
// exp and log with the same bits on every backend: + - * / and fma alone, in a fixed order. The errors stated here are
// bounds that the tests hold them to, over every exponent.
#pragma once

#include "core/dtype.h"
#include "core/float_math.h"
#include "core/host_device.h"

namespace baracuda {
namespace {

// 2^k for -1022 <= k <= 1023.
BARACUDA_HD double power_of_two(int32_t k) { return bits_as<double>(static_cast<uint64_t>(k + 1023) << 52); }

// e^x within 1 unit in the last place, 0 and infinity where it leaves the range; NaN for NaN.
BARACUDA_HD double exp_of(double x) {
  // Beyond these the result is 0 (below half the smallest subnormal) or infinite; NaN passes both comparisons' else.
  const double clamped = x < -746.0 ? -746.0 : (x > 710.0 ? 710.0 : x);
  // k = x / log 2 to nearest: adding 1.5 * 2^52 leaves the integer in the low bits.
  constexpr double kShift = 0x1.8p52;
  const double shifted = fma(clamped, 0x1.71547652b82fep0, kShift);
  const double whole = shifted - kShift;
  // r = x - k log 2 with log 2 in two parts; the first has so few bits that the first difference is exact. What the
  // second one loses is kept.
  const double near = fma(-whole, 0x1.62e42fefa38p-1, clamped);
  const double r = fma(-whole, 0x1.ef35793c7673p-45, near);
  const double lost = fma(-whole, 0x1.ef35793c7673p-45, near - r);
  // e^r - 1 - r over r^2, the Taylor series: |r| <= 0.3466, the first term left out is below 2^-58 of the result.
  double p = 1.0 / 6227020800.0;
  p = fma(p, r, 1.0 / 479001600.0);
  p = fma(p, r, 1.0 / 39916800.0);
  p = fma(p, r, 1.0 / 3628800.0);
  p = fma(p, r, 1.0 / 362880.0);
  p = fma(p, r, 1.0 / 40320.0);
  p = fma(p, r, 1.0 / 5040.0);
  p = fma(p, r, 1.0 / 720.0);
  p = fma(p, r, 1.0 / 120.0);
  p = fma(p, r, 1.0 / 24.0);
  p = fma(p, r, 1.0 / 6.0);
  p = fma(p, r, 0.5);
  const double result = 1.0 + (r + fma(r * r, p, lost));
  // 2^k in two factors, each a normal number; only the last product can round.
  const int32_t k = static_cast<int32_t>(bits_as<uint64_t>(shifted) & 0xffffffffu);
  const int32_t half = k >> 1;
  const double scaled = x == x ? result * power_of_two(half) * power_of_two(k - half) : canonical_nan<double>();
  return scaled;
}

// Rounded once from the above: within 0.51 units in the last place.
BARACUDA_HD float exp_of(float x) { return static_cast<float>(exp_of(static_cast<double>(x))); }

// The natural logarithm within 1 unit in the last place; -infinity for 0, NaN below 0 and for NaN.
BARACUDA_HD double log_of(double x) {
  const bool subnormal = x < 0x1p-1022;
  const uint64_t bits = bits_as<uint64_t>(subnormal ? x * 0x1p54 : x);
  // x = 2^k m with m in [sqrt(1/2), sqrt(2)): the mantissa of sqrt(1/2) is what splits the binade.
  constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcdu;
  const uint64_t offset = bits - kRootHalf;
  const int32_t k = static_cast<int32_t>(static_cast<int64_t>(offset) >> 52) - (subnormal ? 54 : 0);
  const double m = bits_as<double>((offset & 0x000fffffffffffffu) + kRootHalf);
  // log m = 2 atanh(s), s = f / (2 + f), = f - s (f - R) with R = 2 s^2 (1/3 + s^2 / 5 + ...): |s| <= 0.1716, the first
  // term left out is below 2^-57 of the result.
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  double p = 2.0 / 23.0;
  p = fma(p, z, 2.0 / 21.0);
  p = fma(p, z, 2.0 / 19.0);
  p = fma(p, z, 2.0 / 17.0);
  p = fma(p, z, 2.0 / 15.0);
  p = fma(p, z, 2.0 / 13.0);
  p = fma(p, z, 2.0 / 11.0);
  p = fma(p, z, 2.0 / 9.0);
  p = fma(p, z, 2.0 / 7.0);
  p = fma(p, z, 2.0 / 5.0);
  p = fma(p, z, 2.0 / 3.0);
  // 2 s = f - s f, and s f = f^2/2 - s f^2/2: the large part is exact but for one rounding.
  const double half = 0.5 * f * f;
  const double tail = fma(s, fma(z, p, half), static_cast<double>(k) * 0x1.ef35793c7673p-45);
  const double finite = fma(static_cast<double>(k), 0x1.62e42fefa38p-1, f - (half - tail));
  const double special = x == 0.0 ? -bits_as<double>(static_cast<uint64_t>(0x7ff0000000000000u))
                                  : (x > 0.0 ? x : canonical_nan<double>());
  return x > 0.0 && is_finite(x) ? finite : special;
}

BARACUDA_HD float log_of(float x) { return static_cast<float>(log_of(static_cast<double>(x))); }

}  // namespace
}  // namespace baracuda
