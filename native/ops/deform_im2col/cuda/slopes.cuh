// SPDX-License-Identifier: Apache-2.0
// The gradients to offsets and mask on CUDA: a thread adds up a sample's channels.
#pragma once

#include "core/cuda_warp.cuh"
#include "ops/deform_im2col/cuda/laid_input.cuh"
#include "ops/deform_im2col/cuda/samples.cuh"

namespace baracuda::deform_im2col {
namespace {

constexpr int kSlopeThreads = 256, kSlopeWarps = kSlopeThreads / 32;
// Chunks of channels whose sums a block forms side by side, at most.
constexpr int kMostParts = 4;

// Reads a sample's corners in planes, as LaidCorners where the input is laid out.
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

// How many: a power of two, so that a block has whole warps of samples.
inline int slope_parts(const Problem& p) {
  int parts = 1;
  while (parts < kMostParts && int64_t{parts} * kChannelChunk < p.c) parts *= 2;
  return parts;
}

// A warp has 32 samples and every `parts`-th chunk of channels; the block's sums of chunks are added in their order.
template <typename T, bool kLaid>
__global__ void __launch_bounds__(kSlopeThreads, sizeof(T) == 4 ? 3 : 2)
    sum_slopes(const __grid_constant__ Problem p, const __grid_constant__ OffsetBuffers<T> b, const uint4* laid,
               const __grid_constant__ LaidStrides strides, const __grid_constant__ SampleWarps warps, int parts) {
  using C = Compute<T>;
  __shared__ Slopes<C> partial[kSlopeThreads];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int part = warp % parts, together = kSlopeWarps / parts;
  const int64_t chunks = ceil_div(p.c, kChannelChunk);
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * together; base < warps.count;
       base += static_cast<int64_t>(gridDim.x) * together) {
    SamplePlace place;
    const bool exists = warps.find(base + warp / parts, &place, p);
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
    for (int64_t round = 0; round < chunks; round += parts) {
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
    grad_offset[0] = by_offset(sums.y, taps.y, mask, p);
    grad_offset[p.positions] = by_offset(sums.x, taps.x, mask, p);
    if (p.has_mask) b.grad_mask[of_group + place.sample] = by_mask(sums.value, taps.value);
  }
}

}  // namespace
}  // namespace baracuda::deform_im2col
