// SPDX-License-Identifier: Apache-2.0
// The gradient by input on CUDA, second half: pixels add what their lists name, from gradients that lie with their
// channels side by side.
#pragma once

#include "core/cuda_channel_blocks.cuh"
#include "ops/deform_im2col/cuda/lists.cuh"

namespace baracuda::deform_im2col {
namespace {

// What is laid out at a time: so little that it is read from the cache of an H100, each half of which keeps its own
// copy of what its multiprocessors read, and so much that a launch is worth its time.
constexpr int64_t kLaidBytes = 20 << 20;

// The gradients of all groups, which are laid out some blocks of channels at a time.
struct LaidGradients {
  ChannelBlocks blocks;
  int64_t all, together;  // blocks of all groups; those of one time, as many each time but the last

  template <typename T>
  static LaidGradients of(const Problem& p) {
    LaidGradients laid{channel_blocks<T>(p.c, p.samples, kLaidBytes), 0, 1};
    laid.all = p.groups * laid.blocks.blocks;
    const int64_t most = at_least(kLaidBytes / 16 / laid.blocks.vectors_of_block(), 1);
    laid.together = ceil_div(laid.all, ceil_div(laid.all, most));
    return laid;
  }
  int64_t vectors() const { return together * blocks.vectors_of_block(); }
};

constexpr int kSumThreads = 256;
// Corners whose gradients a thread asks for together.
constexpr int kSumCorners = 4;

// A block's pixels: a rectangle, since samples that lie near each other are read for pixels that do.
struct SumTiles {
  int32_t width_bits, height;
  int64_t columns, per_block;  // of channels

  SumTiles(const Problem& p, const ChannelBlocks& blocks) : width_bits(0) {
    const int32_t most = blocks.bits > kSectorBits ? 3 : 4;
    while (width_bits < most && p.w > 1 << width_bits) ++width_bits;
    height = kSumThreads >> blocks.bits >> width_bits;
    columns = ceil_div(p.w, int64_t{1} << width_bits);
    per_block = columns * ceil_div(p.h, height);
  }
};

// A thread owns a pixel for a vector of channels. Pixels of long lists are others' work.
template <typename T, typename Index>
__global__ void __launch_bounds__(kSumThreads)
    sum_short_lists(const __grid_constant__ Problem p, T* grad_input, const __grid_constant__ LaidGradients laid,
                    int64_t first, int64_t count, Storage<Compute<T>, Index> s,
                    const __grid_constant__ SumTiles tiles) {
  using C = Compute<T>;
  constexpr int kChannels = kVectorChannels<T>;
  const int32_t bits = laid.blocks.bits;
  const int32_t vector = static_cast<int32_t>(threadIdx.x) & ((1 << bits) - 1);
  const int32_t in_tile = static_cast<int32_t>(threadIdx.x) >> bits;
  const int32_t in_column = in_tile & ((1 << tiles.width_bits) - 1), in_row = in_tile >> tiles.width_bits;
  const int64_t jobs = count * tiles.per_block;
  wait_for_kernel_before();
  let_kernel_after_start();
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const Division by_block(job, tiles.per_block), by_row(by_block.remainder, tiles.columns);
    const Division by_group(first + by_block.quotient, laid.blocks.blocks);
    const int64_t x = (by_row.remainder << tiles.width_bits) + in_column, y = by_row.quotient * tiles.height + in_row;
    const bool exists = x < p.w && y < p.h;
    const int64_t group = by_group.quotient, pixel = y * p.w + x, i = group * p.pixels + pixel;
    const Index length = exists ? s.counts[i] : 0;
    const Corner<C, Index>* const list = s.listed + (exists ? s.starts[i] : 0);
    const bool is_short = length <= kShortList;
    const int corners = is_short ? static_cast<int>(length) : 0;
    Corner<C, Index> next[kSumCorners];
#pragma unroll
    for (int k = 0; k < kSumCorners; ++k) {
      if (k < corners) next[k] = list[k];
    }
    const char* const gradients =
        reinterpret_cast<const char*>(s.laid + by_block.quotient * laid.blocks.vectors_of_block() + vector);
    const uint32_t of_sample = uint32_t{16} << bits;  // bytes
    C sums[kChannels];
#pragma unroll
    for (int k = 0; k < kChannels; ++k) sums[k] = C(0);
    for (int j = 0; j < corners; j += kSumCorners) {
      ChannelVector<T> found[kSumCorners];
      C weights[kSumCorners];
#pragma unroll
      for (int k = 0; k < kSumCorners; ++k) {
        if (j + k >= corners) continue;
        weights[k] = next[k].weight;
        const uint64_t offset = uint64_t{next[k].number / kCorners} * of_sample;
        found[k] = load_channels<T>(reinterpret_cast<const uint4*>(gradients + offset));
      }
#pragma unroll
      for (int k = 0; k < kSumCorners; ++k) {
        if (j + kSumCorners + k < corners) next[k] = list[j + kSumCorners + k];
      }
#pragma unroll
      for (int k = 0; k < kSumCorners; ++k) {
        if (j + k >= corners) continue;
#pragma unroll
        for (int of = 0; of < kChannels; ++of) sums[of] = fma(weights[k], widen(found[k].channel[of]), sums[of]);
      }
    }
    if (!exists || !is_short) continue;
    const int64_t channel = ((by_group.remainder << bits) + vector) * kChannels;
    T* const own = grad_input + (group * p.c + channel) * p.pixels + pixel;
    // A list of one partial sum, which is added to 0.
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (channel + k < p.c) own[k * p.pixels] = narrow<T>(C(0) + sums[k]);
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
    const Corner<C, Index>* const list = s.listed + s.starts[pixel];
    C total = C(0);
    const int64_t chunks = ceil_div(count, kChunk);
    for (int64_t base = 0; base < chunks; base += kLongThreads) {
      const int64_t begin = (base + threadIdx.x) * kChunk, end = begin + kChunk < count ? begin + kChunk : count;
      C sum = C(0);
      for (int64_t j = begin; j < end; ++j) {
        const Corner<C, Index> corner = list[j];
        sum = fma(corner.weight, widen(gradients[corner.number / kCorners]), sum);
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
