// SPDX-License-Identifier: Apache-2.0
// Upstream gradients with a sample's channels side by side on CUDA: where neighbouring samples lie in different tiles,
// a tile would read a sector of memory for each value.
#pragma once

#include "ops/grid_sample/cuda_bins.cuh"

namespace baracuda::grid_sample {
namespace {

constexpr int kInterleaveThreads = 256;

// A half of a sample's block of channels.
template <typename T>
struct alignas(16) HalfBlock {
  T values[kBlockBytes / 2 / sizeof(T)];
};

// Copies grad_output to blocks of channels, if that pays.
template <typename T>
__global__ void __launch_bounds__(kInterleaveThreads)
    interleave_channels(Problem p, const T* grad_output, Storage<Compute<T>, uint32_t> s) {
  constexpr int kChannels = kBlockBytes / static_cast<int>(sizeof(T)), kHalf = kChannels / 2;
  let_kernel_after_start();
  wait_for_kernel_before();
  if (!is_scattered(p, *s.totals)) return;
  const int64_t sample_blocks = (p.samples + kInterleaveThreads - 1) / kInterleaveThreads;
  const int32_t channel_blocks = (p.c + kChannels - 1) / kChannels;
  const int64_t jobs = int64_t{p.n} * channel_blocks * sample_blocks;
  const bool is_odd = threadIdx.x % 2 != 0;
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const Division at(job, sample_blocks), of_image(at.quotient, channel_blocks);
    const int64_t sample = at.remainder * kInterleaveThreads + threadIdx.x;
    const int32_t channel = static_cast<int32_t>(of_image.remainder) * kChannels;
    const T* from = grad_output + (of_image.quotient * p.c + channel) * p.samples + sample;
    HalfBlock<T> halves[2];
#pragma unroll
    for (int k = 0; k < kChannels; ++k, from += p.samples) {
      halves[k / kHalf].values[k % kHalf] = sample < p.samples && channel + k < p.c ? *from : T{};
    }
    // Two lanes write a sample's block together, first the even one's: whole sectors.
    uint4 own[2], other;
    memcpy(own, halves, sizeof(own));
    const uint4 given = is_odd ? own[0] : own[1];
    other.x = __shfl_xor_sync(kFullWarp, given.x, 1);
    other.y = __shfl_xor_sync(kFullWarp, given.y, 1);
    other.z = __shfl_xor_sync(kFullWarp, given.z, 1);
    other.w = __shfl_xor_sync(kFullWarp, given.w, 1);
    uint4* to = s.blocks + (at.quotient * p.samples + sample - is_odd) * 2 + is_odd;
    if (sample - is_odd < p.samples) to[0] = is_odd ? other : own[0];
    if (sample - is_odd + 1 < p.samples) to[2] = is_odd ? own[1] : other;
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
