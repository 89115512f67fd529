// SPDX-License-Identifier: Apache-2.0
// What one thread does for a sample on CUDA: its columns, and the gradients to its offsets and its mask.
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
    const Division by_row_of_taps(by_tap.quotient, p.x.taps), by_row(by_tap.remainder, p.output_w);
    group = by_group.quotient;
    sample = by_group.remainder;
    number = number_of(by_tap.quotient, by_tap.remainder, by_row_of_taps.quotient, by_row.quotient, p);
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

// Chunks of channels whose sums a block forms side by side, at most: one for each of its warps.
constexpr int kSlopeWarps = kSampleThreads / 32;

// How many: a power of two, so that a block has whole warps of samples.
inline int slope_parts(const Problem& p) {
  int parts = 1;
  while (parts < kSlopeWarps && int64_t{parts} * kChannelChunk < p.c) parts *= 2;
  return parts;
}

// A warp has 32 samples and every `parts`-th chunk of channels; the block's sums of chunks are added in their order.
template <typename T>
__global__ void __launch_bounds__(kSampleThreads)
    sum_slopes(const __grid_constant__ Problem p, const __grid_constant__ OffsetBuffers<T> b, int parts) {
  using C = Compute<T>;
  __shared__ Slopes<C> partial[kSampleThreads];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int part = warp % parts, samples = kSampleThreads / parts;
  const int64_t total = p.groups * p.samples, chunks = ceil_div(p.c, kChannelChunk);
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * samples; base < total;
       base += static_cast<int64_t>(gridDim.x) * samples) {
    const int64_t i = base + warp / parts * 32 + lane;
    const bool exists = i < total;
    const SamplePlace place(exists ? i : 0, p);
    const Position<C> at = place.locate(b.offset, p);
    const Taps<C> value = value_taps(at, p), y = y_slope_taps(at, p), x = x_slope_taps(at, p);
    const int64_t first = first_pixel(at, p);
    Slopes<C> sums{};
    for (int64_t round = 0; round < chunks; round += parts) {
      const int64_t channel = (round + part) * kChannelChunk;
      const int64_t end = channel + kChannelChunk < p.c ? channel + kChannelChunk : p.c;
      Slopes<C> own{};
      if (exists) {
#pragma unroll 2
        for (int64_t k = place.group * p.c + channel; k < place.group * p.c + end; ++k) {
          const T* const plane = b.input + k * p.pixels;
          add_channel(
              value, y, x, widen(b.grad_columns[k * p.samples + place.sample]),
              [&](int corner) -> C { return widen(plane[first + corner_offset(corner, p)]); }, &own);
        }
      }
      partial[thread] = own;
      __syncthreads();
      if (part == 0) {
        for (int other = 0; other < parts && round + other < chunks; ++other) {
          sums = sum_of(sums, partial[thread + 32 * other]);
        }
      }
      __syncthreads();  // the next round overwrites them
    }
    if (part != 0 || !exists) continue;
    const int64_t of_group = place.group * p.samples;
    const C mask = p.has_mask ? b.mask[of_group + place.sample] : C(1);
    C* const grad_offset = b.grad_offset + 2 * of_group + place.number.offset;
    grad_offset[0] = by_offset(sums.y, y, mask, p);
    grad_offset[p.positions] = by_offset(sums.x, x, mask, p);
    if (p.has_mask) b.grad_mask[of_group + place.sample] = by_mask(sums.value, value);
  }
}

}  // namespace
}  // namespace baracuda::deform_im2col
