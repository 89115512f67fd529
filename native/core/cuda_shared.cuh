// SPDX-License-Identifier: Apache-2.0
// A block's shared memory of the size that its launch gives.
#pragma once

namespace baracuda {
namespace {

template <typename T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

}  // namespace
}  // namespace baracuda
