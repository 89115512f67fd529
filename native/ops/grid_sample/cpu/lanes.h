// SPDX-License-Identifier: Apache-2.0
// A block of channels as one value: the few vector operations the backward's sums need, in the registers of the
// instruction set that is compiled for, and the way between planes and such blocks. Spelled out because compilers
// vectorise these loops only sometimes.
#pragma once

#include <cstdint>

#include "core/cpu_convert.h"
#include "core/dtype.h"
#include "core/float_math.h"
#include "core/integer_math.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace baracuda::grid_sample {
namespace {

#define BARACUDA_LANES inline __attribute__((always_inline))

// One register, or plain numbers where the instruction set has none with a fused multiply-add.
template <typename C, int kCount>
struct Register {
  C lane[kCount];

  static BARACUDA_LANES Register all(C x) {
    Register r;
    for (int k = 0; k < kCount; ++k) r.lane[k] = x;
    return r;
  }
  static BARACUDA_LANES Register load(const C* from) {
    Register r;
    for (int k = 0; k < kCount; ++k) r.lane[k] = from[k];
    return r;
  }
  BARACUDA_LANES void store(C* to) const {
    for (int k = 0; k < kCount; ++k) to[k] = lane[k];
  }
  static BARACUDA_LANES Register multiply_add(Register a, Register b, Register c) {
    for (int k = 0; k < kCount; ++k) c.lane[k] = fma(a.lane[k], b.lane[k], c.lane[k]);
    return c;
  }
  static BARACUDA_LANES Register add(Register a, Register b) {
    for (int k = 0; k < kCount; ++k) a.lane[k] = a.lane[k] + b.lane[k];
    return a;
  }
  // NaNs become the canonical one.
  static BARACUDA_LANES Register clean(Register a) {
    for (int k = 0; k < kCount; ++k) a.lane[k] = narrow<C>(a.lane[k]);
    return a;
  }
};

// Stamps a register type. CLEAN replaces the NaNs of x by nan.
#define BARACUDA_REGISTER(C, COUNT, TYPE, PREFIX, SUFFIX, CLEAN)                                               \
  template <>                                                                                                  \
  struct Register<C, COUNT> {                                                                                  \
    TYPE x;                                                                                                    \
    static BARACUDA_LANES Register all(C value) { return {PREFIX##set1_##SUFFIX(value)}; }                     \
    static BARACUDA_LANES Register load(const C* from) { return {PREFIX##loadu_##SUFFIX(from)}; }              \
    BARACUDA_LANES void store(C* to) const { PREFIX##storeu_##SUFFIX(to, x); }                                 \
    static BARACUDA_LANES Register multiply_add(Register a, Register b, Register c) {                          \
      return {PREFIX##fmadd_##SUFFIX(a.x, b.x, c.x)};                                                          \
    }                                                                                                          \
    static BARACUDA_LANES Register add(Register a, Register b) { return {PREFIX##add_##SUFFIX(a.x, b.x)}; }    \
    static BARACUDA_LANES Register clean(Register a) {                                                         \
      const TYPE x = a.x, nan = PREFIX##set1_##SUFFIX(canonical_nan<C>());                                     \
      return {CLEAN};                                                                                          \
    }                                                                                                          \
  };

#if defined(__AVX2__) && defined(__FMA__)
BARACUDA_REGISTER(float, 4, __m128, _mm_, ps, _mm_blendv_ps(x, nan, _mm_cmpunord_ps(x, x)))
BARACUDA_REGISTER(float, 8, __m256, _mm256_, ps, _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)))
BARACUDA_REGISTER(double, 4, __m256d, _mm256_, pd, _mm256_blendv_pd(x, nan, _mm256_cmp_pd(x, x, _CMP_UNORD_Q)))
#endif
#if defined(__AVX512F__)
BARACUDA_REGISTER(float, 16, __m512, _mm512_, ps,
                  _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan))
BARACUDA_REGISTER(double, 8, __m512d, _mm512_, pd,
                  _mm512_mask_mov_pd(x, _mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q), nan))
constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif
#undef BARACUDA_REGISTER

// kLanes channels in as many registers as they need.
template <typename C, int kLanes>
struct Lanes {
  static constexpr int kNative = kRegisterBytes / static_cast<int>(sizeof(C));
  static constexpr int kCount = kLanes < kNative ? kLanes : kNative;
  static constexpr int kRegisters = kLanes / kCount;
  using R = Register<C, kCount>;
  R part[kRegisters];

  static BARACUDA_LANES Lanes all(C x) {
    Lanes r;
    for (int i = 0; i < kRegisters; ++i) r.part[i] = R::all(x);
    return r;
  }
  static BARACUDA_LANES Lanes load(const C* from) {
    Lanes r;
    for (int i = 0; i < kRegisters; ++i) r.part[i] = R::load(from + i * kCount);
    return r;
  }
  BARACUDA_LANES void store(C* to) const {
    for (int i = 0; i < kRegisters; ++i) part[i].store(to + i * kCount);
  }
  // this + a b, rounded once
  BARACUDA_LANES Lanes plus_product(Lanes a, Lanes b) const {
    Lanes r;
    for (int i = 0; i < kRegisters; ++i) r.part[i] = R::multiply_add(a.part[i], b.part[i], part[i]);
    return r;
  }
  BARACUDA_LANES Lanes plus(Lanes a) const {
    Lanes r;
    for (int i = 0; i < kRegisters; ++i) r.part[i] = R::add(part[i], a.part[i]);
    return r;
  }
  BARACUDA_LANES Lanes clean() const {
    Lanes r;
    for (int i = 0; i < kRegisters; ++i) r.part[i] = R::clean(part[i]);
    return r;
  }
};

// to[i] = floor(from[i]); compilers keep loops of floor scalar.
template <typename C>
inline void floor_row(const C* from, int64_t count, C* to) {
  int64_t i = 0;
#if defined(__AVX2__)
  constexpr int kCount = 32 / static_cast<int>(sizeof(C));
  for (; i + kCount <= count; i += kCount) {
    if constexpr (sizeof(C) == 4) {
      _mm256_storeu_ps(to + i, _mm256_floor_ps(_mm256_loadu_ps(from + i)));
    } else {
      _mm256_storeu_pd(to + i, _mm256_floor_pd(_mm256_loadu_pd(from + i)));
    }
  }
#endif
  for (; i < count; ++i) to[i] = floor_of(from[i]);
}

// to[i] = the integer nearest to from[i], of two the even one.
template <typename C>
inline void round_row(const C* from, int64_t count, C* to) {
  int64_t i = 0;
#if defined(__AVX2__)
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  constexpr int kCount = 32 / static_cast<int>(sizeof(C));
  for (; i + kCount <= count; i += kCount) {
    if constexpr (sizeof(C) == 4) {
      _mm256_storeu_ps(to + i, _mm256_round_ps(_mm256_loadu_ps(from + i), kNearest));
    } else {
      _mm256_storeu_pd(to + i, _mm256_round_pd(_mm256_loadu_pd(from + i), kNearest));
    }
  }
#endif
  for (; i < count; ++i) to[i] = round_of(from[i]);
}

// to[j][i] = from[i][j] for a square of 4.
template <typename C>
BARACUDA_LANES void transpose4(const C* from, int64_t from_stride, C* to, int64_t to_stride) {
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}

#if defined(__x86_64__)
template <>
BARACUDA_LANES void transpose4<float>(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_stride);
  __m128 c = _mm_loadu_ps(from + 2 * from_stride), d = _mm_loadu_ps(from + 3 * from_stride);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(to, a);
  _mm_storeu_ps(to + to_stride, b);
  _mm_storeu_ps(to + 2 * to_stride, c);
  _mm_storeu_ps(to + 3 * to_stride, d);
}

template <>
BARACUDA_LANES void transpose4<double>(const double* from, int64_t from_stride, double* to, int64_t to_stride) {
  for (int i = 0; i < 4; i += 2) {
    for (int j = 0; j < 4; j += 2) {
      const __m128d a = _mm_loadu_pd(from + i * from_stride + j), b = _mm_loadu_pd(from + (i + 1) * from_stride + j);
      _mm_storeu_pd(to + j * to_stride + i, _mm_unpacklo_pd(a, b));
      _mm_storeu_pd(to + (j + 1) * to_stride + i, _mm_unpackhi_pd(a, b));
    }
  }
}
#endif

#undef BARACUDA_LANES

// Elements that are transposed at a time, a cache line of each plane. Four planes' lines are emptied before the next
// four are touched, because planes often lie a power of two apart and compete for the same few lines of the cache.
constexpr int64_t kSquare = 16;

// elements[i][lane] = lanes[lane][i] for i < count <= kSquare.
template <int kLanes, typename C>
inline void interleave(const C* lanes, int64_t lane_stride, int64_t count, C* elements) {
  static_assert(kLanes % 4 == 0);
  if (count == kSquare) {
    for (int k = 0; k < kLanes; k += 4) {
      for (int64_t i = 0; i < kSquare; i += 4) {
        transpose4(lanes + k * lane_stride + i, lane_stride, elements + i * kLanes + k, kLanes);
      }
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int k = 0; k < kLanes; ++k) elements[i * kLanes + k] = lanes[k * lane_stride + i];
  }
}

// lanes[lane][i] = elements[i][lane] for i < count <= kSquare.
template <int kLanes, typename C>
inline void separate(const C* elements, int64_t count, C* lanes, int64_t lane_stride) {
  static_assert(kLanes % 4 == 0);
  if (count == kSquare) {
    for (int k = 0; k < kLanes; k += 4) {
      for (int64_t i = 0; i < kSquare; i += 4) {
        transpose4(elements + i * kLanes + k, kLanes, lanes + k * lane_stride + i, lane_stride);
      }
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int k = 0; k < kLanes; ++k) lanes[k * lane_stride + i] = elements[i * kLanes + k];
  }
}

// elements[i][lane] = planes[lane][i] for i < count and lane < channels; the other lanes are 0.
template <typename T, int kLanes>
inline void interleave_run(const T* planes, int64_t stride, int64_t count, int64_t channels, Compute<T>* elements) {
  using C = Compute<T>;
  for (int64_t i = 0; i < count; i += kSquare) {
    const int64_t part = at_most(count - i, kSquare);
    if constexpr (sizeof(T) == sizeof(C)) {
      if (channels == kLanes) {
        interleave<kLanes>(planes + i, stride, part, elements + i * kLanes);
        continue;
      }
    }
    C rows[kLanes][kSquare] = {};
    for (int64_t k = 0; k < channels; ++k) widen_row(planes + k * stride + i, rows[k], part);
    interleave<kLanes>(rows[0], kSquare, part, elements + i * kLanes);
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
