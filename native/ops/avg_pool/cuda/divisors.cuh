// SPDX-License-Identifier: Apache-2.0
// By what kernels divide where all windows of a call have the same divisor.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/float_math.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

// The divisor, where all windows have the same; else 0.
inline int64_t common_divisor(const Problem& p) {
  if (p.divisor != 0) return p.divisor;
  int64_t divisor = 1;
  for (const PoolAxis& axis : p.axes) {
    if (axis.is_adaptive()) {
      if (axis.bins == 0 || axis.extent % axis.bins != 0) return 0;
      divisor *= axis.extent / axis.bins;
      continue;
    }
    // The last window counts as much as all others, and without padding so does the first.
    const int64_t end = (static_cast<int64_t>(axis.bins) - 1) * axis.stride - axis.padding + axis.kernel;
    if (end > axis.extent + (p.count_padding ? axis.padding : 0)) return 0;
    if (!p.count_padding && axis.padding > 0) return 0;
    divisor *= axis.kernel;
  }
  return divisor;
}

// What every term is divided by. The reciprocal of a power of two is exact, and so a product has the quotient's bits.
template <typename C>
struct CommonDivisor {
  C divisor, reciprocal;
  bool is_common, is_power, is_small;

  explicit CommonDivisor(const Problem& p)
      : divisor(1), reciprocal(1), is_common(false), is_power(false), is_small(false) {
    const int64_t common = common_divisor(p);
    if (common == 0) return;
    is_common = true;
    divisor = static_cast<C>(common);
    // Up to where the reciprocal itself is a normal number by far.
    is_power = common > 0 && common <= (int64_t{1} << 60) && (common & (common - 1)) == 0;
    is_small = common > 0 && common <= kMostSmall;
    reciprocal = C(1) / divisor;
  }

  static constexpr int64_t kMostSmall = 4096;
};

// Whether divide_by_small() has the quotient's bits. Half's numbers are 0 or at least 2^-24.
template <typename T>
__device__ __forceinline__ bool is_ordinary(float term) {
  const float size = term < 0 ? -term : term;
  if constexpr (std::is_same_v<T, Half>) return size <= 65504.0f;
  // All comparisons, for all terms, are made without branches.
  return ((size == 0) | (size >= 0x1p-100f)) & (size <= 0x1.fffffep127f);
}

// The quotient's bits, but for the sign of zero, in three operations instead of some ten. An integer divisor up to
// 4096 is an odd one times a power of two; that a quotient corrected once by its remainder is the rounded one was seen
// for every odd one and all 2^23 mantissas. From 2^-100 on neither the quotient nor the remainder, which is exact, is
// subnormal.
__device__ __forceinline__ float divide_by_small(float term, const CommonDivisor<float>& by) {
  const float quotient = term * by.reciprocal;
  return fma(fma(-by.divisor, quotient, term), by.reciprocal, quotient);
}

// Divides kCount terms of type T, whose sums tell no zeros apart, by the common divisor.
template <typename T, int kCount>
__device__ __forceinline__ void divide_by_common(const CommonDivisor<Compute<T>>& by, Compute<T>* terms) {
  if (by.is_power) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) terms[k] *= by.reciprocal;
    return;
  }
  if constexpr (sizeof(Compute<T>) == sizeof(float)) {
    bool are_ordinary = by.is_small;
#pragma unroll
    for (int k = 0; k < kCount; ++k) are_ordinary = are_ordinary & is_ordinary<T>(terms[k]);
    if (are_ordinary) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) terms[k] = divide_by_small(terms[k], by);
      return;
    }
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) terms[k] /= by.divisor;
}

}  // namespace
}  // namespace baracuda::avg_pool
