// SPDX-License-Identifier: Apache-2.0
// What one thread finds of a sample on CUDA, and the columns that it makes of it.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "ops/deform_im2col/launch.h"
#include "ops/deform_im2col/math.h"

namespace baracuda::deform_im2col {
namespace {

constexpr int kSampleThreads = 128;
// Channels for which a thread finds its sample's weights once.
constexpr int32_t kForwardChannels = 16;

// A sample among those of all groups.
struct SamplePlace {
  int64_t group, sample;
  SampleNumber number;

  __device__ SamplePlace(int64_t i, const Problem& p) {
    const Division by_group(i, p.samples), by_tap(by_group.remainder, p.positions);
    const Division by_row(by_tap.remainder, p.output_w);
    *this = SamplePlace(by_group.quotient, by_tap.quotient, by_row.quotient, by_row.remainder, p);
  }
  __device__ SamplePlace(int64_t of_group, int64_t tap, int64_t y, int64_t x, const Problem& p) : group(of_group) {
    const int64_t position = y * p.output_w + x;
    sample = tap * p.positions + position;
    number = number_of(tap, position, Division(tap, p.x.taps).quotient, y, p);
  }

  template <typename C>
  __device__ Position<C> locate(const C* offset, const Problem& p) const {
    return locate_sample(number, offset + 2 * group * p.samples, p);
  }
  template <typename C>
  __device__ Taps<C> taps(const Position<C>& at, const C* mask, const Problem& p) const {
    return column_taps(at, p.has_mask ? mask + group * p.samples : nullptr, sample, p);
  }
};

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
