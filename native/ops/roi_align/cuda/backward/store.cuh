// SPDX-License-Identifier: Apache-2.0
// How a consumer warp of the tile kernel stores its sums.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "ops/roi_align/cuda/backward/box_sums.cuh"

namespace baracuda::roi_align {
namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Rounds a finite number to T: narrow without its test for NaN.
template <typename T>
__device__ __forceinline__ T narrow_finite(Compute<T> x) {
  if constexpr (sizeof(T) == sizeof(Compute<T>)) {
    return x;
  } else if constexpr (std::is_same<T, Half>::value) {
    return Half{__half_as_ushort(__float2half_rn(x))};
  } else {
    const uint32_t bits = __float_as_uint(x);
    return Bfloat16{static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
  }
}

// Stores a warp's two rows, all finite, through its strip, so that a store covers runs of pixels instead of one lane's
// channel.
template <class P, typename Out>
__device__ __forceinline__ void store_rows(const Problem& p, Out* output, const TileItem& item, int pair, int lane,
                                           typename P::C* strip, const Sums<P>& sums) {
  using C = typename P::C;
  // Opaque, so that the compiler does not keep what follows from them in registers while boxes are summed.
  int32_t width = p.w, height = p.h;
  asm volatile("" : "+r"(width), "+r"(height), "+r"(lane));
  const int64_t plane = static_cast<int64_t>(width) * height;
  struct alignas(16) OutVector {
    Out value[16 / sizeof(Out)];
  };
  using Four = UnitWeights<C, kUnitColumns>;
  constexpr int kPitch = kStripPitch<P>;
  constexpr int kPart = kStripColumns<P>;
  constexpr int kVector = 16 / sizeof(Out);
  constexpr int kRuns = kPart / kVector;  // 16-byte runs across the part
  constexpr int kStep = 32 / kRuns;       // channels a round
  const bool vectors = (width * sizeof(Out)) % 16 == 0 && (plane * sizeof(Out)) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(output) % 16 == 0;
  const int64_t corner = (static_cast<int64_t>(item.image) * p.c + item.channel) * plane +
                         (static_cast<int64_t>(item.row) + pair * kUnitRows) * width + item.column;
#pragma unroll
  for (int i = 0; i < kUnitRows; ++i) {
    if (item.row + pair * kUnitRows + i >= height) break;
#pragma unroll
    for (int k = 0; k < P::kChannelsPerLane; ++k) {
      const int channels = item.channels - k * 32 < 32 ? item.channels - k * 32 : 32;
      Out* base = output + corner + i * static_cast<int64_t>(width) + k * 32 * plane;
#pragma unroll
      for (int part = 0; part < P::kColumns; part += kPart, base += kPart) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < kPart; j += kUnitColumns) {
          Four four;
#pragma unroll
          for (int m = 0; m < kUnitColumns; ++m) four.weight[m] = C(0) + sums.value[k][i][part + j + m];
          *reinterpret_cast<Four*>(strip + lane * kPitch + j) = four;
        }
        __syncwarp();
        const int columns = width - item.column - part < kPart ? width - item.column - part : kPart;
        if (vectors && columns == kPart) {
          const C* from = strip + lane / kRuns * kPitch + lane % kRuns * kVector;
          Out* to = base + lane / kRuns * plane + lane % kRuns * kVector;
#pragma unroll 1
          for (int channel = lane / kRuns; channel < channels; channel += kStep) {
            OutVector v;
#pragma unroll
            for (int m = 0; m < kVector; ++m) v.value[m] = narrow_finite<Out>(from[m]);
            *reinterpret_cast<OutVector*>(to) = v;
            from += kStep * kPitch;
            to += kStep * plane;
          }
        } else {
#pragma unroll 1
          for (int at = lane; at < 32 * kPart; at += 32) {
            const int channel = at / kPart, column = at % kPart;
            if (channel < channels && column < columns) {
              base[channel * plane + column] = narrow_finite<Out>(strip[channel * kPitch + column]);
            }
          }
        }
      }
    }
  }
  __syncwarp();  // before a lane keeps sums of the next box where others still read
}

#endif  // sm_90

}  // namespace
}  // namespace baracuda::roi_align
