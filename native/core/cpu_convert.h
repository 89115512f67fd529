// SPDX-License-Identifier: Apache-2.0
// Conversions of whole rows for CPU kernels, with the bits of core/dtype.h element by element. Here because compilers
// do not vectorise the half-precision instructions by themselves.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace baracuda {
namespace {

template <typename T>
inline void widen_row(const T* from, Compute<T>* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = widen(from[i]);
}

template <typename T>
inline void narrow_row(const Compute<T>* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = narrow<T>(from[i]);
}

#if defined(__F16C__)
// As wide as the compiler's own vectors: a wide load of what two narrow stores wrote waits for both.
#if defined(__AVX512F__)
constexpr int64_t kHalfLanes = 16;
// The forms without a mask start from an undefined register, which GCC 12 takes for a mistake of ours.
constexpr __mmask16 kAllLanes = 0xffff;

inline void widen_lanes(const Half* from, float* to) {
  _mm512_storeu_ps(to, _mm512_maskz_cvtph_ps(kAllLanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}

inline void narrow_lanes(const float* from, Half* to) {
  const __m512 x = _mm512_loadu_ps(from);
  const __m512 nan = _mm512_set1_ps(canonical_nan<float>());
  const __m512 clean = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x, nan);
  const __m256i rounded = _mm512_maskz_cvtps_ph(kAllLanes, clean, _MM_FROUND_TO_NEAREST_INT);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
}
#else
constexpr int64_t kHalfLanes = 8;

inline void widen_lanes(const Half* from, float* to) {
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

inline void narrow_lanes(const float* from, Half* to) {
  const __m256 x = _mm256_loadu_ps(from);
  const __m256 nan = _mm256_set1_ps(canonical_nan<float>());
  const __m256 clean = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(clean, _MM_FROUND_TO_NEAREST_INT));
}
#endif

template <>
inline void widen_row<Half>(const Half* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kHalfLanes <= count; i += kHalfLanes) widen_lanes(from + i, to + i);
  if (i == count) return;
  Half rest[kHalfLanes] = {};
  float widened[kHalfLanes];
  memcpy(rest, from + i, static_cast<size_t>(count - i) * sizeof(Half));
  widen_lanes(rest, widened);
  memcpy(to + i, widened, static_cast<size_t>(count - i) * sizeof(float));
}

template <>
inline void narrow_row<Half>(const float* from, Half* to, int64_t count) {
  int64_t i = 0;
  for (; i + kHalfLanes <= count; i += kHalfLanes) narrow_lanes(from + i, to + i);
  if (i == count) return;
  float rest[kHalfLanes] = {};
  Half narrowed[kHalfLanes];
  memcpy(rest, from + i, static_cast<size_t>(count - i) * sizeof(float));
  narrow_lanes(rest, narrowed);
  memcpy(to + i, narrowed, static_cast<size_t>(count - i) * sizeof(Half));
}
#endif

}  // namespace
}  // namespace baracuda
