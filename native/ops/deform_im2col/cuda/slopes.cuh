// SPDX-License-Identifier: Apache-2.0
// The gradients to offsets and mask on CUDA: a thread adds up a sample's channels.
#pragma once

#include "core/cuda_channel_blocks.cuh"
#include "core/cuda_warp.cuh"
#include "ops/deform_im2col/cuda/samples.cuh"

namespace baracuda::deform_im2col {
namespace {

constexpr int kSlopeThreads = 256, kSlopeWarps = kSlopeThreads / 32;
// Chunks of channels whose sums a block forms side by side, at most.
constexpr int kMostParts = 4;

// How a launch deals out samples: a warp has a tap at a rectangle of positions, and the block's next warp the next tap
// of the same ones, since their corners are mostly the same pixels.
struct SlopeShape {
  int32_t parts;             // a power of two: the warps that have the chunks of one warp's samples in turn
  int32_t width_bits;
  int64_t columns, rectangles, taps, warps;  // rectangles in a row, of one tap; the kernel's taps; warps of samples

  explicit SlopeShape(const Problem& p) : parts(1), width_bits(0) {
    while (parts < kMostParts && int64_t{parts} * kChannelChunk < p.c) parts *= 2;
    // Rows of half a warp: their gradients have whole sectors.
    const int32_t most = p.output_h > 1 ? 4 : 5;
    while (width_bits < most && p.output_w > 1 << width_bits) ++width_bits;
    columns = ceil_div(p.output_w, int64_t{1} << width_bits);
    rectangles = columns * ceil_div(p.output_h, int64_t{32} >> width_bits);
    taps = p.positions > 0 ? p.samples / p.positions : 0;
    warps = p.groups * rectangles * taps;
  }
};

// The corners of a sample, read for a vector of channels at a time.
template <typename T>
struct CornerPixels {
  ChannelVector<T> corner[kCorners];
};

// Where a sample's pixels and gradients are read.
template <typename T>
struct SlopeSource {
  const uint4* laid;        // the group's input with channels side by side, or nullptr: as planes
  const T* planes;          // the group's input
  const T* gradients;       // the sample's, of the group's first channel
  int64_t first;            // pixel of the first corner
  bool reads[kCorners];     // whether a corner weighs anything
};

// add_channel() of a sample whose corners weigh something in all three sums or in none.
template <typename C, class Pixel>
__device__ __forceinline__ void add_plain_channel(const Taps<C>& value, const Taps<C>& y, const Taps<C>& x,
                                                  const bool (&reads)[kCorners], C gradient, const Pixel& pixel,
                                                  Slopes<C>* sums) {
  C of_value = C(0), of_y = C(0), of_x = C(0);
#pragma unroll
  for (int corner = 0; corner < kCorners; ++corner) {
    if (!reads[corner]) continue;
    const C at = pixel(corner);
    of_value = fma(value.weight[corner], at, of_value);
    of_y = fma(y.weight[corner], at, of_y);
    of_x = fma(x.weight[corner], at, of_x);
  }
  sums->value = fma(gradient, of_value, sums->value);
  sums->y = fma(gradient, of_y, sums->y);
  sums->x = fma(gradient, of_x, sums->x);
}

// The sums over channels from `begin` to `end`, which begin at a vector. kPlain: of samples as add_plain_channel() takes.
template <typename T, bool kLaid, bool kPlain, typename C = Compute<T>>
__device__ __forceinline__ Slopes<C> sum_channels(const SlopeSource<T>& from, const Taps<C>& value, const Taps<C>& y,
                                                  const Taps<C>& x, int64_t begin, int64_t end, const Problem& p,
                                                  const ChannelBlocks& blocks) {
  constexpr int kChannels = kVectorChannels<T>;
  Slopes<C> sums{};
  const auto add = [&](const ChannelVector<T> (&pixels)[kCorners], C gradient, int k) {
    const auto pixel = [&](int corner) -> C { return widen(pixels[corner].channel[k]); };
    if constexpr (kPlain) {
      add_plain_channel(value, y, x, from.reads, gradient, pixel, &sums);
    } else {
      add_channel(value, y, x, gradient, pixel, &sums);
    }
  };
  const T* gradients = from.gradients + begin * p.samples;
  int64_t channel = begin;
  while (channel < end) {
    // As far as a place of one block goes.
    const int64_t vector = channel / kChannels, block = vector >> blocks.bits;
    const int64_t stop = kLaid ? at_most(end, ((block + 1) << blocks.bits) * kChannels) : end;
    const uint4* line =
        from.laid + ((block * blocks.places + from.first) << blocks.bits) + (vector & ((1 << blocks.bits) - 1));
#pragma unroll 2
    for (; channel < stop; channel += kChannels, ++line) {
      ChannelVector<T> pixels[kCorners];
      const int left = static_cast<int>(stop - channel);
#pragma unroll
      for (int corner = 0; corner < kCorners; ++corner) {
        if (!from.reads[corner]) continue;
        const int64_t offset = corner_offset(corner, p);
        if constexpr (kLaid) {
          pixels[corner] = load_channels<T>(line + (offset << blocks.bits));
        } else {
#pragma unroll
          for (int k = 0; k < kChannels; ++k) {
            if (k < left) pixels[corner].channel[k] = from.planes[(channel + k) * p.pixels + from.first + offset];
          }
        }
      }
      T gradient[kChannels];
#pragma unroll
      for (int k = 0; k < kChannels; ++k) {
        if (k < left) gradient[k] = load_once(gradients + k * p.samples);
      }
      gradients += kChannels * p.samples;
#pragma unroll
      for (int k = 0; k < kChannels; ++k) {
        if (k < left) add(pixels, widen(gradient[k]), k);
      }
    }
  }
  return sums;
}

// A warp has 32 samples and every `parts`-th chunk of channels; the block's sums of chunks are added in their order.
template <typename T, bool kLaid>
__global__ void __launch_bounds__(kSlopeThreads)
    sum_slopes(const __grid_constant__ Problem p, const __grid_constant__ OffsetBuffers<T> b, const uint4* laid,
               const __grid_constant__ ChannelBlocks blocks, const __grid_constant__ SlopeShape shape) {
  using C = Compute<T>;
  __shared__ Slopes<C> partial[kSlopeThreads];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int part = warp % shape.parts, together = kSlopeWarps / shape.parts;
  const int64_t chunks = ceil_div(p.c, kChannelChunk);
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * together; base < shape.warps;
       base += static_cast<int64_t>(gridDim.x) * together) {
    const int64_t own_warp = base + warp / shape.parts;
    const Division by_rectangle(own_warp, shape.taps), by_group(by_rectangle.quotient, shape.rectangles);
    const Division by_row(by_group.remainder, shape.columns);
    const int64_t column = (by_row.remainder << shape.width_bits) + (lane & ((1 << shape.width_bits) - 1));
    const int64_t row = by_row.quotient * (32 >> shape.width_bits) + (lane >> shape.width_bits);
    const bool exists = own_warp < shape.warps && column < p.output_w && row < p.output_h;
    const SamplePlace place = exists ? SamplePlace(by_group.quotient, by_rectangle.remainder, row, column, p)
                                     : SamplePlace(0, 0, 0, 0, p);
    const Position<C> at = place.locate(b.offset, p);
    const Taps<C> value = value_taps(at, p), y = y_slope_taps(at, p), x = x_slope_taps(at, p);
    const int64_t planes = place.group * p.c;
    SlopeSource<T> from{laid + place.group * blocks.blocks * blocks.vectors_of_block(), b.input + planes * p.pixels,
                        b.grad_columns + planes * p.samples + place.sample, first_pixel(at, p), {}};
    bool is_plain = true;
#pragma unroll
    for (int corner = 0; corner < kCorners; ++corner) {
      const bool in_value = value.weight[corner] != C(0), in_y = y.weight[corner] != C(0);
      const bool in_x = x.weight[corner] != C(0);
      from.reads[corner] = exists && (in_value || in_y || in_x);
      is_plain = is_plain && in_value == in_y && in_value == in_x;
    }
    is_plain = __all_sync(kFullWarp, is_plain || !exists);
    wait_for_kernel_before();
    Slopes<C> sums{};
    for (int64_t round = 0; round < chunks; round += shape.parts) {
      const int64_t begin = (round + part) * kChannelChunk, end = at_most(begin + kChannelChunk, p.c);
      const Slopes<C> own = is_plain ? sum_channels<T, kLaid, true>(from, value, y, x, begin, end, p, blocks)
                                     : sum_channels<T, kLaid, false>(from, value, y, x, begin, end, p, blocks);
      partial[thread] = own;
      __syncthreads();
      if (part == 0) {
        for (int other = 0; other < shape.parts && round + other < chunks; ++other) {
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
