// SPDX-License-Identifier: Apache-2.0
// The forward on CUDA: a thread makes a sample's columns. Planes are read as they lie: a laid out input, as the
// gradients read it, made f32 slower, whose time is that of writing the columns.
#pragma once

#include "ops/deform_im2col/cuda/samples.cuh"

namespace baracuda::deform_im2col {
namespace {

constexpr int kSampleThreads = 128;
// Channels for which a thread finds its sample's weights once.
constexpr int32_t kForwardChannels = 16;

template <typename T>
__global__ void __launch_bounds__(kSampleThreads)
    sample_columns(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T> b) {
  using C = Compute<T>;
  const int64_t total = p.groups * p.samples;
  const int64_t sample_blocks = ceil_div(total, kSampleThreads), jobs = sample_blocks * ceil_div(p.c, kForwardChannels);
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const Division by_block(job, sample_blocks);
    const int64_t i = by_block.remainder * kSampleThreads + threadIdx.x;
    if (i >= total) continue;
    const SamplePlace place(i, p);
    const Position<C> at = place.locate(b.offset, p);
    const Taps<C> taps = place.taps(at, b.mask, p);
    const int64_t channel = by_block.quotient * kForwardChannels, first = first_pixel(at, p);
    const int64_t left = p.c - channel;
    const int32_t channels = left < kForwardChannels ? static_cast<int32_t>(left) : kForwardChannels;
    const T* plane = b.input + (place.group * p.c + channel) * p.pixels;
    T* column = b.columns + (place.group * p.c + channel) * p.samples + place.sample;
#pragma unroll 4
    for (int32_t k = 0; k < channels; ++k) {
      C sum = C(0);
#pragma unroll
      for (int corner = 0; corner < kCorners; ++corner) {
        if (taps.weight[corner] == C(0)) continue;
        sum = fma(taps.weight[corner], widen(plane[k * p.pixels + first + corner_offset(corner, p)]), sum);
      }
      column[k * p.samples] = narrow<T>(sum);
    }
  }
}

}  // namespace
}  // namespace baracuda::deform_im2col
