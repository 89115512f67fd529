// SPDX-License-Identifier: Apache-2.0
// The forward from small images on CUDA: a block copies some channels' planes whole to shared memory, where scattered
// taps cost no sectors of memory, and samples them while the next ones arrive.
#pragma once

#include "core/cuda_copies.cuh"
#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/integer_math.h"
#include "ops/grid_sample/cuda/forward/taps.cuh"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

constexpr int kPlaneThreads = 512;
constexpr int kPlaneBlocks = 2;   // that share a multiprocessor
constexpr int kPlaneBuffers = 2;  // of a block: one is sampled while the other is filled
constexpr int kCopyBytes = 16;

// The images' channels, which lie one after the other, in groups that are copied and sampled together.
struct PlaneGroups {
  int32_t channels;   // of a group but an image's last
  int32_t per_image;  // 0: the planes are not for this kernel
  int32_t buffer_bytes;
};

// Groups of as many channels as fit where planes pay, chosen so that all blocks have much the same to do.
//
// On an H100 scattered taps cost a gather some 28 ns for 1,000 samples of a channel, and planes cost 2.1 ns for 1,000
// pixels of four bytes: the fewest samples let in here favour planes by a tenth. Where samples are far more than
// pixels, nearby ones share their pixels, and it is worth more to share coordinates among more channels. Coordinates in
// f64 are too slow on most devices to be found again for every few channels.
template <typename T>
PlaneGroups plane_groups(const Problem& p, const DeviceTraits& device) {
  static_assert(sizeof(T) <= 4);
  constexpr int kReserved = 1024;  // of each block's shared memory, by the driver
  constexpr int kSampleBytes = 48, kMostSamples = 4, kMostChannels = 16;
  const PlaneGroups none{};
  const int of_block = (device.shared_bytes + kReserved) / kPlaneBlocks - kReserved;
  const int room = of_block / kPlaneBuffers / kCopyBytes * kCopyBytes;
  if (p.pixels == 0 || p.pixels > room) return none;
  // A group may start anywhere between multiples of 16 bytes.
  const int32_t pixels = static_cast<int32_t>(p.pixels);
  const int32_t plane_bytes = pixels * static_cast<int32_t>(sizeof(T));
  const int32_t fitting = (room - kCopyBytes) / plane_bytes, wanted = p.c < kMostChannels ? p.c : kMostChannels;
  const int32_t most = fitting < wanted ? fitting : wanted;
  const int64_t blocks = int64_t{kPlaneBlocks} * device.multiprocessors;
  if (most == 0 || int64_t{p.n} * p.c < 2 * blocks) return none;
  if (p.samples > int64_t{kMostSamples} * pixels || p.samples * kSampleBytes < plane_bytes) return none;
  // Coordinates cost about as much as a channel.
  PlaneGroups best{};
  int64_t least = INT64_MAX;
  for (int32_t channels = 1; channels <= most; ++channels) {
    const int32_t per_image = groups_of(p.c, channels);
    const int64_t cost = ceil_div(int64_t{p.n} * per_image, blocks) * (channels + 1);
    if (cost >= least) continue;
    least = cost;
    best = {channels, per_image, groups_of(channels * plane_bytes + kCopyBytes, kCopyBytes) * kCopyBytes};
  }
  return best;
}

// A group: its image, the first of its channels and how many they are, and which plane of the output is their first.
struct PlaneGroup {
  int64_t plane;
  int32_t image, first, channels;

  __device__ __forceinline__ PlaneGroup(const Problem& p, const PlaneGroups& groups, int64_t number) {
    const Division at(number, groups.per_image);
    first = static_cast<int32_t>(at.remainder) * groups.channels;
    image = static_cast<int32_t>(at.quotient);
    channels = p.c - first < groups.channels ? p.c - first : groups.channels;
    plane = at.quotient * p.c + first;
  }
};

// Where a group's copy starts in its buffer: as far from a multiple of 16 bytes as in memory, so that all but its ends
// moves 16 bytes at a time.
template <typename T>
__device__ __forceinline__ int values_before(const T* planes) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(planes) % kCopyBytes / sizeof(T));
}

// Starts to copy a group's planes to a buffer.
template <typename T>
__device__ __forceinline__ void copy_planes(const T* planes, int count, T* buffer) {
  constexpr int kEach = kCopyBytes / static_cast<int>(sizeof(T));
  const int thread = static_cast<int>(threadIdx.x), before = values_before(planes);
  T* const copy = buffer + before;
  const int ahead = (kEach - before) % kEach, head = ahead < count ? ahead : count;
  const int chunks = (count - head) / kEach, tail = head + chunks * kEach;
#pragma unroll 4
  for (int i = thread; i < chunks; i += kPlaneThreads) {
    copy_async<kCopyBytes>(copy + head + i * kEach, planes + head + i * kEach);
  }
  if (thread < head) copy[thread] = planes[thread];
  if (thread < count - tail) copy[tail + thread] = planes[tail + thread];
}

template <typename C>
struct Coordinates {
  C x, y;

  __device__ __forceinline__ static Coordinates load(const C* grid, int sample, int samples) {
    return sample < samples ? Coordinates{grid[2 * sample], grid[2 * sample + 1]} : Coordinates{};
  }
};

template <typename T, class P>
__global__ void __launch_bounds__(kPlaneThreads, kPlaneBlocks)
    sample_planes(P p, PlaneGroups groups, ForwardBuffers<T> b) {
  using C = Compute<T>;
  uint4* const words = dynamic_shared<uint4>();
  const int pixels = static_cast<int>(p.pixels), samples = static_cast<int>(p.samples);
  const int64_t count = int64_t{p.n} * groups.per_image;
  const int offsets[4] = {0, 1, p.input_w, p.input_w + 1};
  const auto buffer_at = [&](int buffer) {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(words) + buffer * groups.buffer_bytes);
  };
  int64_t number = blockIdx.x;
  int buffer = 0;
  PlaneGroup group(p, groups, number), next = group;
  const auto planes_of = [&](const PlaneGroup& of) {
    return b.input + input_offset(p, of.image) + int64_t{of.first} * pixels;
  };
  copy_planes(planes_of(group), group.channels * pixels, buffer_at(buffer));
  close_copies();
  for (; number < count; group = next, buffer ^= 1) {
    number += gridDim.x;
    if (number < count) {
      next = PlaneGroup(p, groups, number);
      copy_planes(planes_of(next), next.channels * pixels, buffer_at(buffer ^ 1));
    }
    close_copies();
    // Coordinates are on their way while others are waited for or at work.
    const C* const grid = b.grid + 2 * int64_t{group.image} * p.samples;
    int i = static_cast<int>(threadIdx.x);
    Coordinates<C> ahead = Coordinates<C>::load(grid, i, samples);
    wait_for_copies_but_last();
    __syncthreads();
    const T* const copy = buffer_at(buffer) + values_before(planes_of(group));
    T* output = b.output + group.plane * p.samples + i;
#pragma unroll 1
    for (; i < samples; i += kPlaneThreads, output += kPlaneThreads) {
      const Coordinates<C> at = ahead;
      ahead = Coordinates<C>::load(grid, i + kPlaneThreads, samples);
      const Position<C> position = locate_sample(at.x, at.y, p);
      const Taps<C> taps = value_taps(position, p);
      const C start = is_missing(at.x, at.y, p) ? canonical_nan<C>() : C(0);
      const T* pixel = copy + (position.y.low * p.input_w + position.x.low);
#pragma unroll 2
      for (int k = 0; k < group.channels; ++k, pixel += pixels) {
        T values[4];
        load_taps(pixel, offsets, taps, values);
        output[static_cast<int64_t>(k) * samples] = sum_taps(values, taps, start);
      }
    }
    __syncthreads();  // the copies after the next ones overwrite these planes
  }
}

template <typename T, class P>
Status enqueue_planes(const P& p, const ForwardBuffers<T>& b, const PlaneGroups& groups,
                      const DeviceTraits& device, Stream stream) {
  const size_t bytes = size_t{kPlaneBuffers} * groups.buffer_bytes;
  const int64_t blocks = int64_t{kPlaneBlocks} * device.multiprocessors, count = int64_t{p.n} * groups.per_image;
  BARACUDA_RETURN_IF_FAILED((allow_shared_bytes<sample_planes<T, P>>("grid_sample plane kernel")));
  return launch_kernel("grid_sample plane kernel", sample_planes<T, P>, blocks_for(at_most(count, blocks), 1),
                       kPlaneThreads, bytes, stream, p, groups, b);
}

}  // namespace
}  // namespace baracuda::grid_sample
