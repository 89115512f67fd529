// SPDX-License-Identifier: Apache-2.0
// Four pixels of many planes, turned so that each pixel's channels are one vector: a sample's taps are then summed for
// all these channels at once, though images keep their channels in planes.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/cpu_convert.h"
#include "core/dtype.h"
#include "ops/grid_sample/cpu/lanes.h"

namespace baracuda::grid_sample {
namespace {

// Channels of a vector: of a wide block, and of a narrow one. Planes often lie a power of two apart and compete for the
// same few lines of the caches, which hold those of eight.
template <typename C>
constexpr int kQuadLanes = kRegisterBytes > 32 || kRegisterBytes / sizeof(C) == 8 ? 8 : 4;
constexpr int kFewQuadLanes = 4;

// How a quad's pixels lie in a plane: four side by side, or two and two of which the second pair is `below`.
enum class QuadShape { kRow, kSquare };

#if defined(__x86_64__)
template <QuadShape kShape>
inline __attribute__((always_inline)) __m128 load_four(const float* from, int64_t below) {
  if constexpr (kShape == QuadShape::kRow) return _mm_loadu_ps(from);
  double pairs[2];  // of floats, which lie at any multiple of 4
  memcpy(pairs, from, 8);
  memcpy(pairs + 1, from + below, 8);
  return _mm_castpd_ps(_mm_set_pd(pairs[1], pairs[0]));
}

// The bits of four 16-bit elements.
template <QuadShape kShape>
inline __attribute__((always_inline)) __m128i load_four_bits(const void* from, int64_t below) {
  if constexpr (kShape == QuadShape::kRow) return _mm_loadl_epi64(static_cast<const __m128i*>(from));
  int32_t pairs[2];
  memcpy(pairs, from, 4);
  memcpy(pairs + 1, static_cast<const char*>(from) + 2 * below, 4);
  return _mm_set_epi32(0, 0, pairs[1], pairs[0]);
}

template <QuadShape kShape>
inline __attribute__((always_inline)) __m128 load_four(const Bfloat16* from, int64_t below) {
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), load_four_bits<kShape>(from, below)));
}

#if defined(__F16C__)
template <QuadShape kShape>
inline __attribute__((always_inline)) __m128 load_four(const Half* from, int64_t below) {
  return _mm_cvtph_ps(load_four_bits<kShape>(from, below));
}
#endif
#endif

// The pixels of kLanes channels.
template <typename T, int kLanes>
struct Quad {
  using C = Compute<T>;
  Lanes<C, kLanes> pixel[4];

  // `first` is the first pixel in the first plane.
  template <QuadShape kShape>
  static inline __attribute__((always_inline)) Quad load(const T* first, int64_t stride, int64_t below) {
    Quad quad;
#if defined(__AVX2__)
    if constexpr (sizeof(C) == 4 && kLanes == 8) {
      __m256 x[4];
      for (int j = 0; j < 4; ++j) {
        // Lane m of 128 bits is channel 4 m + j.
        x[j] = _mm256_castps128_ps256(load_four<kShape>(first + j * stride, below));
        x[j] = _mm256_insertf128_ps(x[j], load_four<kShape>(first + (4 + j) * stride, below), 1);
      }
      const __m256 a = _mm256_unpacklo_ps(x[0], x[1]), b = _mm256_unpackhi_ps(x[0], x[1]);
      const __m256 c = _mm256_unpacklo_ps(x[2], x[3]), d = _mm256_unpackhi_ps(x[2], x[3]);
      quad.pixel[0].part[0].x = _mm256_shuffle_ps(a, c, _MM_SHUFFLE(1, 0, 1, 0));
      quad.pixel[1].part[0].x = _mm256_shuffle_ps(a, c, _MM_SHUFFLE(3, 2, 3, 2));
      quad.pixel[2].part[0].x = _mm256_shuffle_ps(b, d, _MM_SHUFFLE(1, 0, 1, 0));
      quad.pixel[3].part[0].x = _mm256_shuffle_ps(b, d, _MM_SHUFFLE(3, 2, 3, 2));
      return quad;
    }
    if constexpr (sizeof(C) == 4 && kLanes == 4) {
      __m128 x[4];
      for (int j = 0; j < 4; ++j) x[j] = load_four<kShape>(first + j * stride, below);
      _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
      for (int j = 0; j < 4; ++j) quad.pixel[j].part[0].x = x[j];
      return quad;
    }
#endif
    alignas(64) C values[4][kLanes];
    for (int k = 0; k < kLanes; ++k) {
      const T* const own = first + k * stride;
      for (int j = 0; j < 4; ++j) {
        values[j][k] = widen(own[kShape == QuadShape::kRow || j < 2 ? j : below + j - 2]);
      }
    }
    for (int j = 0; j < 4; ++j) quad.pixel[j] = Lanes<C, kLanes>::load(values[j]);
    return quad;
  }
};

// Calls visit(lanes, channel) for blocks of the channels [0, count), where `lanes` is the number of a block's as a
// constant: wide ones, then narrow ones, then single channels. A block begins at a multiple of its number.
template <typename C, typename Visit>
inline void visit_channel_blocks(int64_t count, Visit visit) {
  int64_t k = 0;
  for (; k + kQuadLanes<C> <= count; k += kQuadLanes<C>) visit(std::integral_constant<int, kQuadLanes<C>>{}, k);
  for (; k + kFewQuadLanes <= count; k += kFewQuadLanes) visit(std::integral_constant<int, kFewQuadLanes>{}, k);
  for (; k < count; ++k) visit(std::integral_constant<int, 1>{}, k);
}

// rows[lane][i] = elements[i][lane] for i < count, kCount at most.
template <int kCount, int kLanes, typename C>
inline void turn(const C (&elements)[kCount][kLanes], int64_t count, C (&rows)[kLanes][kCount]) {
  static_assert(kCount % kSquare == 0);
  if constexpr (kLanes == 1) {
    for (int64_t i = 0; i < count; ++i) rows[0][i] = elements[i][0];
  } else {
    for (int64_t i = 0; i < count; i += kSquare) {
      separate<kLanes>(elements[i], at_most(count - i, kSquare), rows[0] + i, kCount);
    }
  }
}

// Writes sums of kLanes channels to their planes, rounded.
template <typename T, int kCount, int kLanes>
inline void write_turned(const Compute<T> (&sums)[kCount][kLanes], int64_t count, T* outputs, int64_t stride) {
  Compute<T> rows[kLanes][kCount];
  turn(sums, count, rows);
  for (int k = 0; k < kLanes; ++k) narrow_row(rows[k], outputs + k * stride, count);
}

}  // namespace
}  // namespace baracuda::grid_sample
