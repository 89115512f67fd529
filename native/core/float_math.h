// SPDX-License-Identifier: Apache-2.0
// The float operations that shared formulas may use beside + - * / and comparisons: each gives the same bits on x86 and
// CUDA. Library exp, log, pow, fmin and fmax do not and stay out.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"

namespace baracuda {
namespace {

BARACUDA_HD double fma(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

BARACUDA_HD float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#elif defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  // Without the instruction: the product is exact in double; the sum is rounded to odd, which keeps what the second
  // rounding needs to know (53 bits >= 24 + 2). Knuth's two-sum gives the first rounding's error exactly.
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  const double sum = product + addend;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (addend - back);
  uint64_t bits = bits_as<uint64_t>(sum);
  // An inexact sum with an even last bit moves one step towards the exact value. NaN compares false and stays.
  if ((error > 0 || error < 0) && (bits & 1u) == 0) bits += ((error > 0) == (sum > 0)) ? 1 : -1;
  return static_cast<float>(bits_as<double>(bits));
#endif
}

BARACUDA_HD float floor_of(float x) { return ::floorf(x); }
BARACUDA_HD double floor_of(double x) { return ::floor(x); }
BARACUDA_HD float ceil_of(float x) { return ::ceilf(x); }
BARACUDA_HD double ceil_of(double x) { return ::ceil(x); }
BARACUDA_HD float trunc_of(float x) { return ::truncf(x); }
BARACUDA_HD double trunc_of(double x) { return ::trunc(x); }

// Ties to even: the library's own float environment rounds so.
BARACUDA_HD float round_of(float x) { return ::nearbyintf(x); }
BARACUDA_HD double round_of(double x) { return ::nearbyint(x); }

// What is left of x after whole multiples of y towards zero; exact.
BARACUDA_HD float remainder_of(float x, float y) { return ::fmodf(x, y); }
BARACUDA_HD double remainder_of(double x, double y) { return ::fmod(x, y); }

// x - x is 0 for finite x and NaN for infinity and NaN.
template <typename T>
BARACUDA_HD bool is_finite(T x) {
  return x - x == T(0);
}

}  // namespace
}  // namespace baracuda
