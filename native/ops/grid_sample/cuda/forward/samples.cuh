// SPDX-License-Identifier: Apache-2.0
// The general forward: one thread a sample for some channels.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "ops/grid_sample/cuda/forward/packets.cuh"
#include "ops/grid_sample/cuda/forward/taps.cuh"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

constexpr int kForwardThreads = 256;
// Channels of a thread: enough to pay for the coordinates, few enough to fill the machine with one image.
constexpr int kForwardChannels = 16;
// Blocks that share a multiprocessor.
template <typename T>
constexpr int kForwardBlocks = sizeof(T) == 8 ? 4 : 5;

template <typename T, class P>
__global__ void __launch_bounds__(kForwardThreads, kForwardBlocks<T>) sample_images(P p, ForwardBuffers<T> b) {
  using C = Compute<T>;
  const int64_t samples = p.n * p.samples;
  const int64_t sample_blocks = groups_of<int64_t>(samples, kForwardThreads);
  const int64_t jobs = sample_blocks * groups_of<uint32_t>(p.c, kForwardChannels);
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const Division cut(job, sample_blocks);
    const int64_t i = cut.remainder * kForwardThreads + threadIdx.x;
    const unsigned lanes = __ballot_sync(kFullWarp, i < samples);
    if (i >= samples) continue;
    const Division at(i, p.samples);
    const int32_t channel = static_cast<int32_t>(cut.quotient) * kForwardChannels;
    const int32_t channels = p.c - channel < kForwardChannels ? p.c - channel : kForwardChannels;
    const C grid_x = b.grid[2 * i], grid_y = b.grid[2 * i + 1];
    const Position<C> position = locate_sample(grid_x, grid_y, p);
    const Taps<C> taps = value_taps(position, p);
    const C start = is_missing(grid_x, grid_y, p) ? canonical_nan<C>() : C(0);
    const int64_t plane = at.quotient * p.c + channel;
    const T* const first_plane = b.input + input_offset(p, at.quotient) + channel * p.pixels;
    const T* pixel = first_plane + static_cast<int64_t>(position.y.low) * p.input_w + position.x.low;
    T* output = b.output + plane * p.samples + at.remainder;
    if constexpr (sizeof(T) <= 4) {
      if (fills_packets(p, b.input) && are_scattered(lanes, pixel)) {
        TapRow<T> upper(first_plane, pixel, taps.weight[0], taps.weight[1]);
        TapRow<T> lower(first_plane, pixel + p.input_w, taps.weight[2], taps.weight[3]);
#pragma unroll 1
        for (int32_t k = 1;; ++k) {
          const TapPair<T> above = upper.taps(), below = lower.taps();
          const T values[4] = {above.first, above.second, below.first, below.second};
          *output = sum_taps(values, taps, start);
          if (k >= channels) break;
          output += p.samples;
          upper.load_next(p.pixels), lower.load_next(p.pixels);
        }
        continue;
      }
    }
    const int64_t offsets[4] = {0, 1, p.input_w, int64_t{p.input_w} + 1};
    int32_t k = 0;
    // The loads of two channels are under way together.
#pragma unroll 1
    for (; k + 2 <= channels; k += 2) {
      T values[2][4];
      load_taps(pixel, offsets, taps, values[0]);
      load_taps(pixel + p.pixels, offsets, taps, values[1]);
      output[0] = sum_taps(values[0], taps, start);
      output[p.samples] = sum_taps(values[1], taps, start);
      pixel += 2 * p.pixels;
      output += 2 * p.samples;
    }
    if (k < channels) {
      T values[4];
      load_taps(pixel, offsets, taps, values);
      *output = sum_taps(values, taps, start);
    }
  }
}

template <typename T, class P>
Status enqueue_samples(const P& p, const ForwardBuffers<T>& b, Stream stream) {
  const int64_t sample_blocks = ceil_div(p.n * p.samples, kForwardThreads);
  return launch_kernel("grid_sample kernel", sample_images<T, P>,
                       blocks_for(sample_blocks * ceil_div(p.c, kForwardChannels), 1), kForwardThreads, 0, stream, p,
                       b);
}

}  // namespace
}  // namespace baracuda::grid_sample
