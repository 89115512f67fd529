// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory in the background, for kernels that stage what they read.
#pragma once

#include <cstdint>
#include <cstring>

namespace baracuda {
namespace {

// Copies that complete in the background where the hardware can (sm_80); those of 16 bytes go past the first cache.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes) : "memory");
  }
#else
  memcpy(__builtin_assume_aligned(shared, kBytes), __builtin_assume_aligned(global, kBytes), kBytes);
#endif
}

__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Copies may be waited for in groups.
__device__ __forceinline__ void close_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits for all groups but the last one closed.
__device__ __forceinline__ void wait_for_copies_but_last() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

}  // namespace
}  // namespace baracuda
