// SPDX-License-Identifier: Apache-2.0
// What CUDA kernels of all families say of a warp.
#pragma once

#include <cstdint>

namespace baracuda {
namespace {

// All lanes, where an instruction asks which ones take part.
constexpr unsigned kFullWarp = 0xffffffffu;

#if defined(__CUDACC__)
// The least and the most of all lanes' numbers, in every lane: one instruction from sm_80 on.
__device__ __forceinline__ int32_t least_of_warp(int32_t number) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_min_sync(kFullWarp, number);
#else
  for (int other = 16; other > 0; other /= 2) number = min(number, __shfl_xor_sync(kFullWarp, number, other));
  return number;
#endif
}

__device__ __forceinline__ int32_t most_of_warp(int32_t number) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kFullWarp, number);
#else
  for (int other = 16; other > 0; other /= 2) number = max(number, __shfl_xor_sync(kFullWarp, number, other));
  return number;
#endif
}
#endif

}  // namespace
}  // namespace baracuda
