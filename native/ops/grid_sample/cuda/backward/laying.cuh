// SPDX-License-Identifier: Apache-2.0
// The gradients of scattered samples on CUDA, laid side by side: a sample's channels of two steps are a sector, so that
// a tile whose samples are no neighbours does not read one for each of its channels.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "ops/grid_sample/cuda/backward/steps.cuh"

namespace baracuda::grid_sample {
namespace {

constexpr int kBinThreads = 256;

// Whether most samples are in another tile than the one after them. Laying reads and writes every gradient once;
// without, gradients of samples that are alone are read a sector each, eight times their bytes in f32. What the block
// finds depends on the grid alone. Every thread calls.
template <class P, typename C>
__device__ bool is_scattered(const P& p, const TileGrid& tiles, const C* grid) {
  __shared__ int apart;
  if (threadIdx.x == 0) apart = 0;
  __syncthreads();
  const int64_t total = p.n * p.samples;
  const Division at(total / kBinThreads * threadIdx.x, p.samples);
  int found = 0;
  if (p.samples > 1) {
    const int64_t next = at.remainder + 1 < p.samples ? at.remainder + 1 : at.remainder - 1;
    const C* const own = grid + 2 * (at.quotient * p.samples + at.remainder);
    const C* const other = grid + 2 * (at.quotient * p.samples + next);
    const TouchedTiles<int64_t> own_tiles(locate_sample(own[0], own[1], p), p, tiles, at.quotient);
    const TouchedTiles<int64_t> other_tiles(locate_sample(other[0], other[1], p), p, tiles, at.quotient);
    if (own_tiles.home >= 0 && other_tiles.home >= 0) found = own_tiles.home == other_tiles.home ? -1 : 1;
  }
  if (found != 0) atomicAdd(&apart, found);
  __syncthreads();
  return apart > 0;
}

// Gradients that a thread asks for together.
constexpr int kLaidTogether = 8;
constexpr int kLaidSamples = kBinThreads / kLaidSteps;

// Lays all gradients if the samples are scattered, and notes it. `blocks` blocks call, the first of the launch.
template <typename T, class P>
__device__ void lay_gradients(const P& p, const TileGrid& tiles, const BackwardBuffers<T>& b, StepValues<T>* laid,
                              uint32_t blocks, Totals* totals) {
  constexpr int kChannels = kLaidSteps * kStep<T>, kTogether = kLaidTogether / kStep<T>;
  const bool scattered = is_scattered(p, tiles, b.grid);
  wait_for_kernel_before();
  if (!scattered) return;
  if (blockIdx.x == 0 && threadIdx.x == 0) totals->laid = 1;
  // A thread has a step of a sample, so that a warp writes as it lies what it reads as halves of lines.
  const int half = static_cast<int>(threadIdx.x) % kLaidSteps;
  const int64_t groups = groups_of<int64_t>(p.samples, kLaidSamples);
  const int64_t parts = groups_of<int64_t>(p.c, kChannels * kTogether);
  const int64_t jobs = p.n * parts * groups;
  for (int64_t job = blockIdx.x; job < jobs; job += blocks) {
    // From the last image on: the first tiles' owners, which come next, find the first image's in the cache.
    const Division within(jobs - 1 - job, groups), among(within.quotient, parts);
    const int64_t sample = within.remainder * kLaidSamples + threadIdx.x / kLaidSteps;
    if (sample >= p.samples) continue;
    const int64_t image = among.quotient;
    const int32_t first = static_cast<int32_t>(among.remainder) * (kChannels * kTogether);
    const int32_t own = first + half * kStep<T>, channels = p.c - own;
    const T* gradient = b.grad_output + (image * p.c + own) * p.samples + sample;
    StepValues<T>* to = laid + laid_place<T>(p, image, first, sample) + half;
    T all[kTogether][kStep<T>];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
#pragma unroll
      for (int k = 0; k < kStep<T>; ++k, gradient += p.samples) {
        all[i][k] = i * kChannels + k < channels ? *gradient : T{};
      }
      gradient += (kChannels - kStep<T>) * p.samples;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i, to += kLaidSteps * p.samples) {
      if (i * kChannels >= channels) break;
      StepValues<T> values{};
#pragma unroll
      for (int k = 0; k < kStep<T>; ++k) values.set(k, all[i][k]);
      values.store(to);
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
