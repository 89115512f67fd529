// SPDX-License-Identifier: Apache-2.0
// The backward of crowded tiles on CUDA, from their lists: a pixel's chunks are summed side by side, and the samples at
// home in such a tile one by one.
#pragma once

#include "ops/grid_sample/cuda_lists.cuh"

namespace baracuda::grid_sample {
namespace {

constexpr int kSumThreads = kTilePixels;
// Channels that a thread sums at once: enough loads in flight, few enough registers.
constexpr int kSumChannels = 8;

template <typename C, typename Index>
struct SumShared {
  Index chunk_starts[kTilePixels + 1];  // chunks of the pixels before
  C partials[kSumChannels][kSumThreads];
};

// The sums of a crowded tile's pixels for up to kSumChannels channels. A thread sums a chunk, 256 of them a round, then
// each pixel's owner adds its chunks in order.
template <typename T, typename Index>
__device__ void sum_crowded_tile(const Problem& p, const TileGrid& tiles, int64_t tile, int32_t channel,
                                 const BackwardBuffers<T>& b, const Storage<Compute<T>, Index>& s,
                                 SumShared<Compute<T>, Index>& shared) {
  using C = Compute<T>;
  const TilePlace place(tiles, tile);
  const int pixel = threadIdx.x;
  const int channels = p.c - channel < kSumChannels ? p.c - channel : kSumChannels;
  const Index* begins = s.begins + tile * (kTilePixels + 1);
  const Index* samples = s.entry_samples + s.records[tile].entries;
  const C* weights = s.entry_weights + s.records[tile].entries;
  const T* gradients = b.grad_output + (static_cast<int64_t>(place.image) * p.c + channel) * p.samples;

  __syncthreads();  // the job before has read what this one overwrites
  shared.chunk_starts[pixel] = (begins[pixel + 1] - begins[pixel] + (kChunk - 1)) / kChunk;
  sum_digits(shared.chunk_starts, &shared.chunk_starts[kTilePixels]);
  const Index chunks = shared.chunk_starts[kTilePixels];
  const Index own_first = shared.chunk_starts[pixel], own_end = shared.chunk_starts[pixel + 1];

  C totals[kSumChannels] = {};
  for (Index base = 0; base < chunks; base += kSumThreads) {
    const Index chunk = base + threadIdx.x;
    if (chunk < chunks) {
      int low = 0, high = kTilePixels;  // the last pixel whose chunks start at or before this one
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        (shared.chunk_starts[middle] <= chunk ? low : high) = middle;
      }
      const Index first = begins[low] + (chunk - shared.chunk_starts[low]) * kChunk;
      const Index end = begins[low + 1] - first < kChunk ? begins[low + 1] : first + kChunk;
      C partials[kSumChannels] = {};
      for (Index i = first; i < end; ++i) {
        const C weight = weights[i];
        const T* gradient = gradients + samples[i];
#pragma unroll
        for (int k = 0; k < kSumChannels; ++k) {
          if (k < channels) partials[k] = fma(weight, widen(gradient[k * p.samples]), partials[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kSumChannels; ++k) shared.partials[k][threadIdx.x] = partials[k];
    }
    __syncthreads();
    const Index from = own_first > base ? own_first : base;
    const Index to = own_end < base + kSumThreads ? own_end : base + kSumThreads;
    for (Index i = from; i < to; ++i) {
#pragma unroll
      for (int k = 0; k < kSumChannels; ++k) totals[k] = totals[k] + shared.partials[k][i - base];
    }
    __syncthreads();
  }
  const int32_t x = place.column + pixel % kTileWidth, y = place.row + pixel / kTileWidth;
  if (x >= p.input_w || y >= p.input_h) return;
  T* output = b.grad_input + (static_cast<int64_t>(place.image) * p.c + channel) * p.pixels +
              static_cast<int64_t>(y) * p.input_w + x;
#pragma unroll
  for (int k = 0; k < kSumChannels; ++k) {
    if (k < channels) output[k * p.pixels] = narrow<T>(totals[k]);
  }
}

// The gradient to one sample's position, all channels.
template <typename T>
__device__ void sum_slopes(const Problem& p, const BackwardBuffers<T>& b, int64_t i, int64_t image, int64_t sample,
                           const Position<Compute<T>>& at) {
  using C = Compute<T>;
  const Taps<C> x_taps = x_slope_taps(at, p), y_taps = y_slope_taps(at, p);
  const int64_t offsets[4] = {0, 1, p.input_w, int64_t{p.input_w} + 1};
  const T* gradient = b.grad_output + image * p.c * p.samples + sample;
  const T* pixel = b.input + image * p.c * p.pixels + static_cast<int64_t>(at.y.low) * p.input_w + at.x.low;
  C x_total = C(0), y_total = C(0);
  for (int32_t first = 0; first < p.c; first += kChannelChunk) {
    const int32_t end = p.c - first < kChannelChunk ? p.c : first + kChannelChunk;
    C x_partial = C(0), y_partial = C(0);
#pragma unroll 4
    for (int32_t k = first; k < end; ++k) {
      C x_slope = C(0), y_slope = C(0);
#pragma unroll
      for (int tap = 0; tap < 4; ++tap) {
        // Where one derivative has a tap of weight 0, the other may still need its value.
        if (x_taps.weight[tap] == C(0) && y_taps.weight[tap] == C(0)) continue;
        const C value = widen(pixel[offsets[tap]]);
        if (x_taps.weight[tap] != C(0)) x_slope = fma(x_taps.weight[tap], value, x_slope);
        if (y_taps.weight[tap] != C(0)) y_slope = fma(y_taps.weight[tap], value, y_slope);
      }
      const C upstream = widen(*gradient);
      x_partial = fma(upstream, x_slope, x_partial);
      y_partial = fma(upstream, y_slope, y_partial);
      gradient += p.samples;
      pixel += p.pixels;
    }
    x_total = x_total + x_partial;
    y_total = y_total + y_partial;
  }
  b.grad_grid[2 * i] = any_tap(x_taps) ? narrow<C>(x_total * pixels_per_unit<C>(p.input_w)) : C(0);
  b.grad_grid[2 * i + 1] = any_tap(y_taps) ? narrow<C>(y_total * pixels_per_unit<C>(p.input_h)) : C(0);
}

// Both gradients: the pixels of crowded tiles and the samples at home in them.
template <typename T, typename Index>
__global__ void __launch_bounds__(kSumThreads)
    sum_crowded(Problem p, TileGrid tiles, BackwardBuffers<T> b, Storage<Compute<T>, Index> s) {
  using C = Compute<T>;
  __shared__ SumShared<C, Index> shared;
  const int64_t crowded = static_cast<int64_t>(s.totals->crowded);
  if (crowded == 0) return;
  const int64_t channel_groups = (p.c + kSumChannels - 1) / kSumChannels;
  const int64_t tile_jobs = crowded * channel_groups;
  const int64_t samples = p.n * p.samples;
  const int64_t jobs = tile_jobs + (samples + kSumThreads - 1) / kSumThreads;
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    if (job < tile_jobs) {
      // A tile's groups follow each other: its lists stay in the caches.
      sum_crowded_tile<T, Index>(p, tiles, s.crowded[job / channel_groups],
                                 static_cast<int32_t>(job % channel_groups) * kSumChannels, b, s, shared);
      continue;
    }
    const int64_t i = (job - tile_jobs) * kSumThreads + threadIdx.x;
    if (i >= samples) continue;
    const Division at(i, p.samples);
    const Position<C> position = locate_sample(b.grid[2 * i], b.grid[2 * i + 1], p);
    const TouchedTiles touched(position, p, tiles, at.quotient);
    if (touched.home < 0 || s.records[touched.home].list == 0) continue;
    sum_slopes(p, b, i, at.quotient, at.remainder, position);
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
