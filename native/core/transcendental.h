// SPDX-License-Identifier: Apache-2.0
// exp and log with the same bits on every backend: + - * / and fma alone, in a fixed order. All four err by less than
// one unit in the last place, which tests/native/transcendental.cc holds them to; over every f32 the largest errors are
// 0.924 (exp) and 0.858 (log) units.
#pragma once

#if defined(__CUDACC__)
#include "core/cuda_instructions.cuh"
#endif
#include "core/dtype.h"
#include "core/float_math.h"
#include "core/host_device.h"

namespace baracuda {
namespace {

// 2^k for a normal result, from k's low 32 bits; any k gives some number.
BARACUDA_HD double power_of_two_f64(uint32_t k) { return bits_as<double>(static_cast<uint64_t>(k + 1023u) << 52); }
BARACUDA_HD float power_of_two_f32(uint32_t k) { return bits_as<float>((k + 127u) << 23); }
// Half of k, rounded down, for k as above.
BARACUDA_HD uint32_t half_of(uint32_t k) { return static_cast<uint32_t>(static_cast<int32_t>(k) >> 1); }

// e^x as factor * 2^power.
template <typename Float, typename Unsigned>
struct ScaledExponential {
  Float factor;    // about 2^-1/2 to 2^1/2
  Unsigned power;  // of two's complement
};

// e^x for x of less than 2^10.
BARACUDA_HD ScaledExponential<double, uint64_t> exp_parts(double x) {
  // power = x / log 2 to nearest: adding 1.5 * 2^52 leaves the integer in the low bits.
  constexpr double kShift = 0x1.8p52;
  const double shifted = fma(x, 0x1.71547652b82fep0, kShift);
  const double whole = shifted - kShift;
  // r = x - power log 2 with log 2 in two parts; the first has so few bits that the first difference is exact. What the
  // second one loses is kept.
  const double near = fma(-whole, 0x1.62e42fefa38p-1, x);
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
  return {1.0 + (r + fma(r * r, p, lost)), bits_as<uint64_t>(shifted) - bits_as<uint64_t>(kShift)};
}

// e^x, 0 and infinity where it leaves the range; NaN for NaN.
BARACUDA_HD double exp_of(double x) {
  // Beyond these the result is 0 (below half the smallest subnormal) or infinite; NaN passes both comparisons' else.
  const auto parts = exp_parts(x < -746.0 ? -746.0 : (x > 710.0 ? 710.0 : x));
  // 2^power in two factors, each a normal number; only the last product can round.
  const uint32_t power = static_cast<uint32_t>(parts.power), half = half_of(power);
  const double scaled = parts.factor * power_of_two_f64(half) * power_of_two_f64(power - half);
  return x == x ? scaled : canonical_nan<double>();
}

// The parts of e^x for an f32, in f32 alone and with as many terms: f64 arithmetic is 2 to 64 times slower on GPUs.
BARACUDA_HD ScaledExponential<float, uint32_t> exp_parts(float x) {
  constexpr float kShift = 0x1.8p23f;
  const float shifted = fma(x, 0x1.715476p0f, kShift);
  const float whole = shifted - kShift;
  // Here the first part has all its 24 bits: what is left below 1/2 is a multiple of 2^-25, and exact.
  const float near = fma(-whole, 0x1.62e43p-1f, x);
  const float r = fma(-whole, -0x1.05c61p-29f, near);
  const float lost = fma(-whole, -0x1.05c61p-29f, near - r);
  // The first term left out is below 2^-27 of the result.
  float p = 1.0f / 5040.0f;
  p = fma(p, r, 1.0f / 720.0f);
  p = fma(p, r, 1.0f / 120.0f);
  p = fma(p, r, 1.0f / 24.0f);
  p = fma(p, r, 1.0f / 6.0f);
  p = fma(p, r, 0.5f);
  return {1.0f + (r + fma(r * r, p, lost)), bits_as<uint32_t>(shifted) - bits_as<uint32_t>(kShift)};
}
BARACUDA_HD float exp_of(float x) {
  const auto parts = exp_parts(x < -104.0f ? -104.0f : (x > 89.0f ? 89.0f : x));
  const uint32_t half = half_of(parts.power);
  const float scaled = parts.factor * power_of_two_f32(half) * power_of_two_f32(parts.power - half);
  return x == x ? scaled : canonical_nan<float>();
}

// exp_of from -80 to 80, where the result is normal: one addition to the exponent scales.
BARACUDA_HD double exp_of_normal(double x) {
  const auto parts = exp_parts(x);
  return bits_as<double>(bits_as<uint64_t>(parts.factor) + (parts.power << 52));
}
BARACUDA_HD float exp_of_normal(float x) {
  const auto parts = exp_parts(x);
  return bits_as<float>(bits_as<uint32_t>(parts.factor) + (parts.power << 23));
}

// exp_of for x <= 0 in fewer operations; 0 for NaN. What is scaled down is normal, so that only the product can round.
BARACUDA_HD double exp_of_negative(double x) {
  const auto parts = exp_parts(x >= -746.0 ? x : -746.0);
  return bits_as<double>(bits_as<uint64_t>(parts.factor) + ((parts.power + 64) << 52)) * 0x1p-64;
}
BARACUDA_HD float exp_of_negative(float x) {
#if defined(__CUDA_ARCH__)
  const auto parts = exp_parts(fmaxf(x, -104.0f));
#else
  const auto parts = exp_parts(x >= -104.0f ? x : -104.0f);
#endif
  return bits_as<float>(bits_as<uint32_t>(parts.factor) + ((parts.power + 32) << 23)) * 0x1p-32f;
}

// e^-|x|, or e^-80 if that is more and for NaN.
BARACUDA_HD double decay_of(double x) {
  const double size = x < 0.0 ? -x : x;
  return exp_of_normal(size <= 80.0 ? -size : -80.0);
}
BARACUDA_HD float decay_of(float x) {
#if defined(__CUDA_ARCH__)
  return exp_of_normal(-fminf(fabsf(x), 80.0f));
#else
  const float size = x < 0.0f ? -x : x;
  return exp_of_normal(size <= 80.0f ? -size : -80.0f);
#endif
}

// The natural logarithm of the normal number of these bits, less log 2 times `shift`.
BARACUDA_HD double log_of_bits(uint64_t bits, int32_t shift) {
  // x = 2^k m with m in [sqrt(1/2), sqrt(2)): the mantissa of sqrt(1/2) is what splits the binade.
  constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcdu;
  const uint64_t offset = bits - kRootHalf;
  const int32_t k = static_cast<int32_t>(static_cast<int64_t>(offset) >> 52) - shift;
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
  return fma(static_cast<double>(k), 0x1.62e42fefa38p-1, f - (half - tail));
}

// The natural logarithm; -infinity for 0, NaN below 0 and for NaN.
BARACUDA_HD double log_of(double x) {
  const bool subnormal = x < 0x1p-1022;
  const double finite = log_of_bits(bits_as<uint64_t>(subnormal ? x * 0x1p54 : x), subnormal ? 54 : 0);
  const double special = x == 0.0 ? -bits_as<double>(static_cast<uint64_t>(0x7ff0000000000000u))
                                  : (x > 0.0 ? x : canonical_nan<double>());
  return x > 0.0 && is_finite(x) ? finite : special;
}

// f / (2 + f) for a mantissa less 1, rounded as a division rounds: its steps without the test for other numbers,
// which is a branch. That no mantissa gives other bits is tested with nearly all of them (tests/test_nll_loss.py).
BARACUDA_HD float quotient_of_log(float f) {
  const float divisor = 2.0f + f;
#if defined(__CUDA_ARCH__)
  const float estimate = inverse_estimate(divisor);
  const float inverse = fma(fma(-divisor, estimate, 1.0f), estimate, estimate);
  const float first = f * inverse;
  const float second = fma(fma(-divisor, first, f), inverse, first);
  return fma(fma(-divisor, second, f), inverse, second);
#else
  return f / divisor;
#endif
}

// As for an f64.
BARACUDA_HD float log_of_bits(uint32_t bits, int32_t shift) {
  constexpr uint32_t kRootHalf = 0x3f3504f3u;
  const uint32_t offset = bits - kRootHalf;
  const int32_t k = (static_cast<int32_t>(offset) >> 23) - shift;
  const float m = bits_as<float>((offset & 0x007fffffu) + kRootHalf);
  // The first term left out is below 2^-28 of the result.
  const float f = m - 1.0f, s = quotient_of_log(f), z = s * s;
  float p = 2.0f / 9.0f;
  p = fma(p, z, 2.0f / 7.0f);
  p = fma(p, z, 2.0f / 5.0f);
  p = fma(p, z, 2.0f / 3.0f);
  const float half = 0.5f * f * f;
  const float tail = fma(s, fma(z, p, half), static_cast<float>(k) * -0x1.05c61p-29f);
  return fma(static_cast<float>(k), 0x1.62e43p-1f, f - (half - tail));
}

// The natural logarithm of an f32; its special values are those of the f64.
BARACUDA_HD float log_of(float x) {
  const bool subnormal = x < 0x1p-126f;
  const float finite = log_of_bits(bits_as<uint32_t>(subnormal ? x * 0x1p25f : x), subnormal ? 25 : 0);
  const float special = x == 0.0f ? -bits_as<float>(0x7f800000u) : (x > 0.0f ? x : canonical_nan<float>());
  return x > 0.0f && is_finite(x) ? finite : special;
}

// log_of of a normal number in fewer operations.
BARACUDA_HD double log_of_normal(double x) { return log_of_bits(bits_as<uint64_t>(x), 0); }
BARACUDA_HD float log_of_normal(float x) { return log_of_bits(bits_as<uint32_t>(x), 0); }

}  // namespace
}  // namespace baracuda
