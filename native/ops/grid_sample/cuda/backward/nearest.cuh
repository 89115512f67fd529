// SPDX-License-Identifier: Apache-2.0
// The sums of a tile's pixels over nearest samples on CUDA, whose weights are 1, where no pixel has many: its thread
// reads the gradients of its samples itself, as many as can be on their way at once, and no thread waits for another.
#pragma once

#include "ops/grid_sample/cuda/backward/tile_lists.cuh"

namespace baracuda::grid_sample {
namespace {

// A pixel's samples whose gradients are asked for together, as far as there are registers, and their channels: two
// steps.
template <typename T>
constexpr int kNearestTogether = sizeof(T) == 2 ? 2 : 4;
template <typename T>
constexpr int kNearestChannels = kLaidSteps * kStep<T>;

// One sample's gradients in these channels.
template <typename T>
struct NearestValues {
  StepValues<T> steps[kLaidSteps];

  // From the first plane, or, if kLaid, from where they lie side by side.
  template <bool kFull, bool kLaid>
  __device__ __forceinline__ void load(const Problem& p, int channels, const T* gradient) {
    if constexpr (kLaid) {
      const StepValues<T>* const laid = reinterpret_cast<const StepValues<T>*>(gradient);
#pragma unroll
      for (int step = 0; step < kLaidSteps; ++step) {
        if (kFull || step * kStep<T> < channels) steps[step] = StepValues<T>::load(laid + step);
      }
    } else {
      T all[kNearestChannels<T>];
#pragma unroll
      for (int k = 0; k < kNearestChannels<T>; ++k, gradient += p.samples) {
        all[k] = kFull || k < channels ? *gradient : T{};
      }
#pragma unroll
      for (int k = 0; k < kNearestChannels<T>; ++k) steps[k / kStep<T>].set(k % kStep<T>, all[k]);
    }
  }
  __device__ __forceinline__ void add_to(Compute<T> (&sums)[kNearestChannels<T>]) const {
#pragma unroll
    for (int k = 0; k < kNearestChannels<T>; ++k) sums[k] = sums[k] + steps[k / kStep<T>].get(k % kStep<T>);
  }
};

// Sums and writes kNearestChannels channels of a pixel, or, if not kFull, the first `channels` of them. All of its
// samples are kept.
template <bool kFull, bool kLaid, typename T, class Shared>
__device__ __forceinline__ void sum_nearest_channels(const Problem& p, int channels,
                                                     const PixelList<Compute<T>>& list, const T* gradients, T* output,
                                                     const Shared& shared) {
  using C = Compute<T>;
  constexpr int kEach = kLaid ? kNearestChannels<T> : 1;  // from a sample's gradients to the next one's
  C sums[kNearestChannels<T>] = {};
  const int length = list.length();
  const auto load = [&](uint32_t slot) {
    const int64_t sample = shared.samples[slot] & ~kHome<uint32_t>;
    NearestValues<T> values{};
    values.template load<kFull, kLaid>(p, channels, gradients + sample * kEach);
    return values;
  };
  NearestValues<T> values[kNearestTogether<T>];
#pragma unroll
  for (int i = 0; i < kNearestTogether<T>; ++i) {
    if (i < length) values[i] = load(list.offset(i) / kPlaceBytes);
  }
#pragma unroll
  for (int i = 0; i < kNearestTogether<T>; ++i) {
    if (i < length) values[i].add_to(sums);
  }
#pragma unroll
  for (int i = kNearestTogether<T>; i < kKept<C>; ++i) {
    if (i < length) load(list.offset(i) / kPlaceBytes).add_to(sums);
  }
#pragma unroll
  for (int k = 0; k < kNearestChannels<T>; ++k, output += p.pixels) {
    if (kFull || k < channels) *output = narrow<T>(C(0) + sums[k]);
  }
}

// The thread's pixel in `channels` channels, from the first's planes or, if kLaid, from where they and others are laid.
template <bool kLaid, typename T, class Shared>
__device__ __forceinline__ void sum_nearest(const Problem& p, int channels, const PixelList<Compute<T>>& list,
                                            const T* gradients, T* output, const Shared& shared) {
#pragma unroll 1
  for (; channels >= kNearestChannels<T>; channels -= kNearestChannels<T>) {
    sum_nearest_channels<true, kLaid>(p, channels, list, gradients, output, shared);
    gradients += kNearestChannels<T> * p.samples;
    output += kNearestChannels<T> * p.pixels;
  }
  if (channels > 0) sum_nearest_channels<false, kLaid>(p, channels, list, gradients, output, shared);
}

}  // namespace
}  // namespace baracuda::grid_sample
