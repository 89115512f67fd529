// SPDX-License-Identifier: Apache-2.0
// The gradient by input on CUDA, second half: pixels add what their lists name.
#pragma once

#include "ops/deform_im2col/cuda/lists.cuh"

namespace baracuda::deform_im2col {
namespace {

constexpr int kSumThreads = 256;
// Channels for which a thread reads its pixel's list once.
template <typename C>
constexpr int kSumChannels = 64 / static_cast<int>(sizeof(C));

// A block's pixels: a rectangle, since samples that lie near each other are read for pixels that do.
struct SumTiles {
  int32_t width_shift;
  int64_t columns, per_channel;

  explicit SumTiles(const Problem& p) : width_shift(p.w <= 8 ? 3 : p.w <= 16 ? 4 : 5) {
    const int64_t width = int64_t{1} << width_shift;
    columns = ceil_div(p.w, width);
    per_channel = columns * ceil_div(p.h, kSumThreads / width);
  }
};

// A thread owns a pixel for a block of channels. Pixels of long lists are others' work.
template <typename T, typename Index>
__global__ void __launch_bounds__(kSumThreads)
    sum_short_lists(const __grid_constant__ Problem p, const __grid_constant__ InputBuffers<T> b,
                    Storage<Compute<T>, Index> s, const __grid_constant__ SumTiles tiles) {
  using C = Compute<T>;
  constexpr int kChannels = kSumChannels<C>;
  const int32_t height = kSumThreads >> tiles.width_shift;
  const int32_t in_column = static_cast<int32_t>(threadIdx.x) & ((1 << tiles.width_shift) - 1);
  const int32_t in_row = static_cast<int32_t>(threadIdx.x) >> tiles.width_shift;
  const int64_t channel_blocks = ceil_div(p.c, kChannels), jobs = p.groups * channel_blocks * tiles.per_channel;
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    // Tiles first: what one reads of the columns beside its own stays in the cache for its neighbours.
    const Division by_tile(job, tiles.per_channel), by_row(by_tile.remainder, tiles.columns);
    const Division by_channel(by_tile.quotient, channel_blocks);
    const int64_t x = (by_row.remainder << tiles.width_shift) + in_column, y = by_row.quotient * height + in_row;
    if (x >= p.w || y >= p.h) continue;
    const int64_t group = by_channel.quotient, pixel = y * p.w + x, i = group * p.pixels + pixel;
    const Index count = s.counts[i];
    if (count > kShortList) continue;
    const int64_t channel = by_channel.remainder * kChannels, plane = group * p.c + channel;
    const int64_t channels = p.c - channel;
    const T* const gradients = b.grad_columns + plane * p.samples;
    const C* const weights = s.weights[group * p.samples].weight;
    const Index* const list = s.listed + s.starts[i];
    C sums[kChannels];
#pragma unroll
    for (int k = 0; k < kChannels; ++k) sums[k] = C(0);
    Index next = count > 0 ? list[0] : 0;
    for (Index j = 0; j < count; ++j) {
      const Index corner = next;
      if (j + 1 < count) next = list[j + 1];
      const C weight = weights[corner];
      const T* const gradient = gradients + corner / kCorners;
#pragma unroll
      for (int k = 0; k < kChannels; ++k) {
        if (k < channels) sums[k] = fma(weight, widen(gradient[k * p.samples]), sums[k]);
      }
    }
    T* const grad_input = b.grad_input + plane * p.pixels + pixel;
    // A list of one partial sum, which is added to 0.
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (k < channels) grad_input[k * p.pixels] = narrow<T>(C(0) + sums[k]);
    }
  }
}

constexpr int kLongThreads = 128;

// A block owns a pixel of one channel, a thread forms a partial sum at a time; they are added in their order.
template <typename T, typename Index>
__global__ void __launch_bounds__(kLongThreads)
    sum_long_lists(const __grid_constant__ Problem p, const __grid_constant__ InputBuffers<T> b,
                   Storage<Compute<T>, Index> s) {
  using C = Compute<T>;
  __shared__ C partial[kLongThreads];
  const int64_t jobs = static_cast<int64_t>(s.totals->long_lists) * p.c;
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const Division by_list(job, p.c);
    const int64_t pixel = s.long_lists[by_list.quotient];
    const Division by_group(pixel, p.pixels);
    const int64_t plane = by_group.quotient * p.c + by_list.remainder, count = static_cast<int64_t>(s.counts[pixel]);
    const T* const gradients = b.grad_columns + plane * p.samples;
    const C* const weights = s.weights[by_group.quotient * p.samples].weight;
    const Index* const list = s.listed + s.starts[pixel];
    C total = C(0);
    const int64_t chunks = ceil_div(count, kChunk);
    for (int64_t base = 0; base < chunks; base += kLongThreads) {
      const int64_t begin = (base + threadIdx.x) * kChunk, end = begin + kChunk < count ? begin + kChunk : count;
      C sum = C(0);
      for (int64_t j = begin; j < end; ++j) {
        const Index corner = list[j];
        sum = fma(weights[corner], widen(gradients[corner / kCorners]), sum);
      }
      partial[threadIdx.x] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        for (int64_t k = 0; k < kLongThreads && base + k < chunks; ++k) total = total + partial[k];
      }
      __syncthreads();  // the next round overwrites them
    }
    if (threadIdx.x == 0) b.grad_input[plane * p.pixels + by_group.remainder] = narrow<T>(total);
  }
}

}  // namespace
}  // namespace baracuda::deform_im2col
