// SPDX-License-Identifier: Apache-2.0
// A sample's value from its taps on CUDA.
#pragma once

#include "core/float_math.h"
#include "ops/grid_sample/math.h"

namespace baracuda::grid_sample {
namespace {

// Loads the taps that exist; `pixel` is the first one. The others stay as they are.
template <typename T, typename Offset>
__device__ __forceinline__ void load_taps(const T* pixel, const Offset (&offsets)[4], const Taps<Compute<T>>& taps,
                                          T (&values)[4]) {
#pragma unroll
  for (int tap = 0; tap < 4; ++tap) {
    if (taps.weight[tap] != Compute<T>(0)) values[tap] = pixel[offsets[tap]];
  }
}

// Their sum in order.
template <typename T>
__device__ __forceinline__ T sum_taps(const T (&values)[4], const Taps<Compute<T>>& taps, Compute<T> start) {
  Compute<T> sum = start;
#pragma unroll
  for (int tap = 0; tap < 4; ++tap) {
    if (taps.weight[tap] != Compute<T>(0)) sum = fma(taps.weight[tap], widen(values[tap]), sum);
  }
  return narrow<T>(sum);
}

}  // namespace
}  // namespace baracuda::grid_sample
