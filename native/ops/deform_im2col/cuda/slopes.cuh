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

// How far apart things lie in an input that is laid out, in bytes.
struct LaidStrides {
  int64_t corner[kCorners];  // from the first one
  int64_t pixel, block, group;
  int64_t next_block;        // from the end of a pixel's vectors
  int32_t vectors;           // of a pixel in a block

  LaidStrides(const ChannelBlocks& s, const Problem& p)
      : pixel(int64_t{16} << s.bits),
        block(16 * s.vectors_of_block()),
        group(s.blocks * block),
        next_block(block - pixel),
        vectors(1 << s.bits) {
    for (int k = 0; k < kCorners; ++k) corner[k] = corner_offset(k, p) * pixel;
  }
};

// Reads a sample's corners there, vector by vector.
template <typename T>
struct LaidCorners {
  const LaidStrides& strides;
  const char* first;
  int32_t left;  // vectors of the block

  // `laid` is the group's, `first_pixel` that of the first corner, and channels begin with a block.
  __device__ LaidCorners(const char* laid, int64_t first_pixel, int64_t channel, const LaidStrides& s)
      : strides(s),
        first(laid + channel / (kVectorChannels<T> * s.vectors) * s.block + first_pixel * s.pixel),
        left(s.vectors) {}
  __device__ ChannelVector<T> load(int corner, int) const {
    return load_channels<T>(reinterpret_cast<const uint4*>(first + strides.corner[corner]));
  }
  __device__ void go_on() {
    first += sizeof(uint4);
    if (--left > 0) return;
    first += strides.next_block;
    left = strides.vectors;
  }
};

// The same in planes.
template <typename T>
struct PlaneCorners {
  const T* first;
  const Problem& p;

  __device__ PlaneCorners(const T* input, int64_t first_pixel, int64_t channel, const Problem& problem)
      : first(input + channel * problem.pixels + first_pixel), p(problem) {}
  __device__ ChannelVector<T> load(int k, int count) const {
    ChannelVector<T> vector{};
#pragma unroll
    for (int of = 0; of < kVectorChannels<T>; ++of) {
      if (of < count) vector.channel[of] = first[of * p.pixels + corner_offset(k, p)];
    }
    return vector;
  }
  __device__ void go_on() { first += kVectorChannels<T> * p.pixels; }
};

// What a sample's corners weigh.
template <typename C>
struct SlopeTaps {
  Taps<C> value, y, x;
  bool exists[kCorners];  // whether it weighs anything
};

// add_channel() of a sample whose corners weigh something in all three sums or in none.
template <typename C, class Pixel>
__device__ __forceinline__ void add_plain_channel(const SlopeTaps<C>& taps, C gradient, const Pixel& pixel,
                                                  Slopes<C>* sums) {
  C of_value = C(0), of_y = C(0), of_x = C(0);
#pragma unroll
  for (int corner = 0; corner < kCorners; ++corner) {
    if (!taps.exists[corner]) continue;
    const C at = pixel(corner);
    of_value = fma(taps.value.weight[corner], at, of_value);
    of_y = fma(taps.y.weight[corner], at, of_y);
    of_x = fma(taps.x.weight[corner], at, of_x);
  }
  sums->value = fma(gradient, of_value, sums->value);
  sums->y = fma(gradient, of_y, sums->y);
  sums->x = fma(gradient, of_x, sums->x);
}

// The sums over so many channels, from those on to which `corners` and `gradient` point. kPlain: of a sample that
// add_plain_channel() takes.
template <bool kPlain, typename T, class Corners>
__device__ __forceinline__ Slopes<Compute<T>> sum_channels(Corners corners, const T* gradient, int channels,
                                                           const SlopeTaps<Compute<T>>& taps, const Problem& p) {
  using C = Compute<T>;
  constexpr int kChannels = kVectorChannels<T>;
  Slopes<C> sums{};
  T gradients[kChannels];
  const auto begin_gradients = [&](int count) {
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (k < count) gradients[k] = begin_load_once(gradient + k * p.samples);
    }
    gradient += kChannels * p.samples;
  };
  const auto add_vector = [&](int count, int channels_after) {
    ChannelVector<T> pixels[kCorners];
#pragma unroll
    for (int corner = 0; corner < kCorners; ++corner) {
      if (taps.exists[corner]) pixels[corner] = corners.load(corner, count);
    }
    corners.go_on();
    C own[kChannels];
#pragma unroll
    for (int k = 0; k < kChannels; ++k) own[k] = widen(gradients[k]);
    // The next vector's are on their way while this one is added.
    if (channels_after >= kChannels) begin_gradients(kChannels);
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (k >= count) continue;
      const auto pixel = [&](int corner) -> C { return widen(pixels[corner].channel[k]); };
      if constexpr (kPlain) {
        add_plain_channel(taps, own[k], pixel, &sums);
      } else {
        add_channel(taps.value, taps.y, taps.x, own[k], pixel, &sums);
      }
    }
  };
  if (channels >= kChannels) begin_gradients(kChannels);
#pragma unroll 1
  for (; channels >= kChannels; channels -= kChannels) add_vector(kChannels, channels - kChannels);
  if (channels > 0) {
    begin_gradients(channels);
    add_vector(channels, 0);
  }
  return sums;
}

// A warp has 32 samples and every `parts`-th chunk of channels; the block's sums of chunks are added in their order.
template <typename T, bool kLaid>
__global__ void __launch_bounds__(kSlopeThreads, sizeof(T) == 4 ? 3 : 2)
    sum_slopes(const __grid_constant__ Problem p, const __grid_constant__ OffsetBuffers<T> b, const uint4* laid,
               const __grid_constant__ LaidStrides strides, const __grid_constant__ SlopeShape shape) {
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
    SlopeTaps<C> taps{value_taps(at, p), y_slope_taps(at, p), x_slope_taps(at, p), {}};
    bool is_plain = true;
#pragma unroll
    for (int corner = 0; corner < kCorners; ++corner) {
      const bool in_value = taps.value.weight[corner] != C(0);
      const bool in_y = taps.y.weight[corner] != C(0), in_x = taps.x.weight[corner] != C(0);
      taps.exists[corner] = exists && (in_value || in_y || in_x);
      is_plain = is_plain && in_value == in_y && in_value == in_x;
    }
    is_plain = __all_sync(kFullWarp, is_plain || !exists);
    wait_for_kernel_before();
    Slopes<C> sums{};
    for (int64_t round = 0; round < chunks; round += shape.parts) {
      // Of chunks that do not exist none.
      const int64_t channel = (round + part) * kChannelChunk;
      const int channels = static_cast<int>(at_least(at_most(p.c - channel, kChannelChunk), 0));
      const T* const gradient = b.grad_columns + (place.group * p.c + channel) * p.samples + place.sample;
      const auto add = [&](const auto& corners) {
        return is_plain ? sum_channels<true>(corners, gradient, channels, taps, p)
                        : sum_channels<false>(corners, gradient, channels, taps, p);
      };
      Slopes<C> own;
      if constexpr (kLaid) {
        const char* const of_group = reinterpret_cast<const char*>(laid) + place.group * strides.group;
        own = add(LaidCorners<T>(of_group, first_pixel(at, p), channel, strides));
      } else {
        own = add(PlaneCorners<T>(b.input + place.group * p.c * p.pixels, first_pixel(at, p), channel, p));
      }
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
    grad_offset[0] = by_offset(sums.y, taps.y, mask, p);
    grad_offset[p.positions] = by_offset(sums.x, taps.x, mask, p);
    if (p.has_mask) b.grad_mask[of_group + place.sample] = by_mask(sums.value, taps.value);
  }
}

}  // namespace
}  // namespace baracuda::deform_im2col
