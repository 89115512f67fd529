// SPDX-License-Identifier: Apache-2.0
// The backward of crowded tiles on CUDA, from their lists: a pixel's chunks are summed side by side, and the samples at
// home in such a tile one by one.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "ops/grid_sample/cuda/backward/list_sort.cuh"
#include "ops/grid_sample/cuda/backward/slopes.cuh"

namespace baracuda::grid_sample {
namespace {

constexpr int kSumThreads = kTilePixels;
constexpr int kSumWarps = kSumThreads / 32;
// Channels of a job, and lanes that sum a chunk: first each loads some of its contributions in all channels, then each
// adds them to its channel.
constexpr int kSumChannels = 8;
// Contributions that a lane loads at once: a warp is alone with its chunks and waits for all of them.
template <typename C>
constexpr int kSumDepth = 16 / static_cast<int>(sizeof(C));
template <typename C>
constexpr int kSumStep = kSumDepth<C> * kSumChannels;
// Chunks that a warp sums at once, and those of a round.
constexpr int kWarpChunks = 32 / kSumChannels;
template <typename C>
constexpr int kRoundChunks = 512 / static_cast<int>(sizeof(C));

template <typename C, typename Index>
struct SumShared {
  Index chunk_starts[kTilePixels + 1];  // chunks of the pixels before
  C partials[kSumChannels][kRoundChunks<C>];
  // [contribution][channel], a chunk's eight banks from the one before.
  static constexpr int kRow = kSumChannels + 1;
  C values[kSumWarps][kWarpChunks][kSumStep<C> * kRow + kSumChannels];
};

// The sums of a crowded tile's pixels for up to kSumChannels channels. A few lanes sum a chunk, some of them a round,
// then each pixel's owner adds its chunks in order.
template <typename T, typename Index>
__device__ void sum_crowded_tile(const Problem& p, const TileGrid& tiles, int64_t tile, int32_t channel,
                                 const BackwardBuffers<T>& b, const Storage<Compute<T>, Index>& s,
                                 SumShared<Compute<T>, Index>& shared) {
  using C = Compute<T>;
  constexpr int kDepth = kSumDepth<C>, kRound = kRoundChunks<C>, kRow = SumShared<C, Index>::kRow;
  const TilePlace place(tiles, tile);
  const int pixel = threadIdx.x, warp = threadIdx.x / 32;
  const int part = threadIdx.x % 32 / kSumChannels, member = threadIdx.x % kSumChannels;
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
  for (Index base = 0; base < chunks; base += kRound) {
    for (int group = warp; group < kRound / kWarpChunks; group += kSumWarps) {
      if (base + group * kWarpChunks >= chunks) break;
      const Index chunk = base + group * kWarpChunks + part;
      const Index* chunk_samples = samples;
      const C* chunk_weights = weights;
      int length = 0;
      if (chunk < chunks) {
        int low = 0, high = kTilePixels;  // the last pixel whose chunks start at or before this one
        while (high - low > 1) {
          const int middle = (low + high) / 2;
          (shared.chunk_starts[middle] <= chunk ? low : high) = middle;
        }
        const Index first = begins[low] + (chunk - shared.chunk_starts[low]) * kChunk;
        const Index left = begins[low + 1] - first;
        length = left < kChunk ? static_cast<int>(left) : kChunk;
        chunk_samples += first;
        chunk_weights += first;
      }
      int longest = length;
#pragma unroll
      for (int distance = 16; distance >= kSumChannels; distance /= 2) {
        const int other = __shfl_xor_sync(kFullWarp, longest, distance);
        longest = other > longest ? other : longest;
      }
      C* const values = shared.values[warp][part];
      Index next[kDepth];
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        const int i = d * kSumChannels + member;
        next[d] = i < length ? chunk_samples[i] : 0;
      }
      C partial = C(0);
      for (int done = 0; done < longest; done += kSumStep<C>) {
        C own_weights[kDepth];
        T gathered[kDepth][kSumChannels];
#pragma unroll
        for (int d = 0; d < kDepth; ++d) {
          const int i = done + d * kSumChannels + member;
          own_weights[d] = i < length ? chunk_weights[i] : C(0);
          const T* gradient = gradients + next[d];
#pragma unroll
          for (int k = 0; k < kSumChannels; ++k, gradient += p.samples) {
            gathered[d][k] = i < length && k < channels ? *gradient : T{};
          }
        }
#pragma unroll
        for (int d = 0; d < kDepth; ++d) {
          const int i = done + kSumStep<C> + d * kSumChannels + member;
          next[d] = i < length ? chunk_samples[i] : 0;
        }
#pragma unroll
        for (int d = 0; d < kDepth; ++d) {
#pragma unroll
          for (int k = 0; k < kSumChannels; ++k) {
            values[(d * kSumChannels + member) * kRow + k] = widen(gathered[d][k]);
          }
        }
        __syncwarp();
#pragma unroll
        for (int d = 0; d < kDepth; ++d) {
          if (done + d * kSumChannels >= longest) break;
#pragma unroll
          for (int j = 0; j < kSumChannels; ++j) {
            const C weight = __shfl_sync(kFullWarp, own_weights[d], part * kSumChannels + j);
            const C value = values[(d * kSumChannels + j) * kRow + member];
            if (done + d * kSumChannels + j < length) partial = fma(weight, value, partial);
          }
        }
        __syncwarp();
      }
      shared.partials[member][group * kWarpChunks + part] = partial;
    }
    __syncthreads();
    const Index from = own_first > base ? own_first : base;
    const Index to = own_end < base + kRound ? own_end : base + kRound;
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

// Channels of a sample whose values are asked for together: few samples, and nothing else to wait for.
template <typename C>
constexpr int kCrowdedSlopeChannels = 32 / static_cast<int>(sizeof(C));

// Both gradients: the pixels of crowded tiles and, where they are asked for, the samples at home in them.
template <typename T, typename Index, class P>
__global__ void __launch_bounds__(kSumThreads, 2)
    sum_crowded(P p, TileGrid tiles, BackwardBuffers<T> b, Storage<Compute<T>, Index> s) {
  using C = Compute<T>;
  __shared__ SumShared<C, Index> shared;
  wait_for_kernel_before();
  const int64_t crowded = static_cast<int64_t>(s.totals->crowded);
  if (crowded == 0) return;
  const int64_t channel_groups = groups_of(p.c, kSumChannels);
  const int64_t tile_jobs = crowded * channel_groups;
  const int64_t samples = p.n * p.samples;
  // A narrow problem's slopes are there already.
  const bool has_slopes = !is_narrow(p) && (kHasBoth<P> || b.grad_grid != nullptr);
  const int64_t jobs = !has_slopes ? tile_jobs : tile_jobs + groups_of<int64_t>(samples, kSumThreads);
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
    const TouchedTiles<int64_t> touched(position, p, tiles, at.quotient);
    if (touched.home < 0 || s.records[touched.home].list == 0) continue;
    sum_slopes<kCrowdedSlopeChannels<C>>(p, b, i, at.quotient, at.remainder, position);
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
