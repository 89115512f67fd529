// SPDX-License-Identifier: Apache-2.0
// A step of the backward on CUDA: the channels of a sample or pixel that lie side by side and are summed together.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/integer_math.h"
#include "ops/grid_sample/cuda/backward/tiling.cuh"

namespace baracuda::grid_sample {
namespace {

// Channels of a step.
template <typename T>
constexpr int kStep = static_cast<int>(kStepBytes) / static_cast<int>(sizeof(T));

// Consecutive values of a place's step: kWords 32-bit words of it.
template <typename T, int kWords>
struct PlaceValues {
  uint32_t words[kWords];
  static constexpr int kCount = kWords * 4 / static_cast<int>(sizeof(T));

  __device__ __forceinline__ void set(int k, T value) {
    if constexpr (sizeof(T) == 2) {
      words[k / 2] = k % 2 == 0 ? value.bits : words[k / 2] | static_cast<uint32_t>(value.bits) << 16;
    } else {
      memcpy(&words[k * (sizeof(T) / 4)], &value, sizeof(T));
    }
  }
  __device__ __forceinline__ Compute<T> get(int k) const {
    if constexpr (sizeof(T) == 2) {
      return widen(T{static_cast<uint16_t>(k % 2 == 0 ? words[k / 2] : words[k / 2] >> 16)});
    } else {
      T value;
      memcpy(&value, &words[k * (sizeof(T) / 4)], sizeof(T));
      return value;
    }
  }
};

// A step of a place: 16 bytes.
template <typename T>
struct alignas(16) StepValues : PlaceValues<T, 4> {
  // One load or store.
  __device__ __forceinline__ static StepValues load(const StepValues* from) {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    return {{{all.x, all.y, all.z, all.w}}};
  }
  __device__ __forceinline__ void store(StepValues* to) const {
    *reinterpret_cast<uint4*>(to) = make_uint4(this->words[0], this->words[1], this->words[2], this->words[3]);
  }
};

// Where a sample's gradients lie when they are laid: those of the step of `channel`, a multiple of two steps'.
template <typename T>
__device__ __forceinline__ int64_t laid_place(const Problem& p, int64_t image, int32_t channel, int64_t sample) {
  constexpr int kChannels = kLaidSteps * kStep<T>;
  return ((image * groups_of(p.c, kChannels) + channel / kChannels) * p.samples + sample) * kLaidSteps;
}
static_assert(kChannelChunk % (kLaidBytes / 2) == 0);  // a chunk begins with a sector, whatever the element

}  // namespace
}  // namespace baracuda::grid_sample
