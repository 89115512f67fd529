// SPDX-License-Identifier: Apache-2.0
// Planes laid out anew in scratch with their channels side by side, for kernels that read all channels of scattered
// places: of a plane such a read takes one element of a sector, of a block of channels the whole sector.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/dtype.h"
#include "core/integer_math.h"

namespace baracuda {
namespace {

// Channels in a vector of 16 bytes.
template <typename T>
constexpr int kVectorChannels = 16 / static_cast<int>(sizeof(T));
// A place has a cache line in a block, and no less than a sector.
constexpr int32_t kLineBits = 3, kSectorBits = 1;

// How the channels of a group lie: [block of channels][place][vector]. Channels beyond the last are 0.
struct ChannelBlocks {
  int64_t channels, places, blocks;
  int32_t bits;  // a place of a block has 2^bits vectors

  BARACUDA_HD int64_t vectors_of_block() const { return places << bits; }
};

// Blocks are narrower than a line where there are fewer channels, and where a block would pass `wanted_bytes`.
template <typename T>
ChannelBlocks channel_blocks(int64_t channels, int64_t places, int64_t wanted_bytes) {
  ChannelBlocks s{channels, places, 0, kLineBits};
  while (s.bits > 0 && int64_t{kVectorChannels<T>} << (s.bits - 1) >= channels) --s.bits;
  while (s.bits > kSectorBits && s.vectors_of_block() > wanted_bytes / 16) --s.bits;
  s.blocks = ceil_div(channels, int64_t{kVectorChannels<T>} << s.bits);
  return s;
}

// A vector's channels.
template <typename T>
struct alignas(16) ChannelVector {
  T channel[kVectorChannels<T>];
};

template <typename T>
__device__ __forceinline__ ChannelVector<T> load_channels(const uint4* from) {
  const uint4 bits = *from;
  ChannelVector<T> vector;
  memcpy(&vector, &bits, sizeof vector);
  return vector;
}

// What is read once leaves the cache first: what is laid out shall stay there.
template <typename T>
__device__ __forceinline__ T load_once(const T* from) {
  if constexpr (sizeof(T) == 2) {
    return bits_as<T>(__ldcs(reinterpret_cast<const unsigned short*>(from)));
  } else {
    return __ldcs(from);
  }
}

// The same, not put off: it is on its way while what came before is worked on.
template <typename T>
__device__ __forceinline__ T begin_load_once(const T* from) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 2) {
    uint16_t bits;
    asm volatile("ld.global.cs.u16 %0, [%1];" : "=h"(bits) : "l"(from));
    return bits_as<T>(bits);
  } else if constexpr (sizeof(T) == 4) {
    uint32_t bits;
    asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(bits) : "l"(from));
    return bits_as<T>(bits);
  } else {
    uint64_t bits;
    asm volatile("ld.global.cs.u64 %0, [%1];" : "=l"(bits) : "l"(from));
    return bits_as<T>(bits);
  }
#else
  return *from;
#endif
}

constexpr int kLayThreads = 256, kLayPlaces = 128;

// Lays out blocks of all groups from number `first` on, a tile of places at a time. Where it is launched early, the
// planes must be older than the kernel before: they are on their way while that one drains.
template <typename T>
__global__ void __launch_bounds__(kLayThreads)
    lay_channels(const T* planes, const __grid_constant__ ChannelBlocks s, int64_t first, int64_t count, uint4* laid) {
  constexpr int kVector = kVectorChannels<T>, kMost = kVector << kLineBits;
  constexpr int kRows = kLayThreads / kLayPlaces;
  // Loads of a thread that are on their way together.
  constexpr int kTogether = 16;
  // Threads that write lines read places and vectors side by side, which an odd number of words keeps in their banks.
  constexpr int kPitch = kLayPlaces + (sizeof(T) == 2 ? 2 : 1);
  __shared__ T tile[kMost][kPitch];
  const int thread = static_cast<int>(threadIdx.x), width = kVector << s.bits;
  const int own = thread % kLayPlaces, own_row = thread / kLayPlaces;
  const int64_t tiles = ceil_div(s.places, kLayPlaces);
  for (int64_t job = blockIdx.x; job < count * tiles; job += gridDim.x) {
    const Division by_block(job, tiles), by_group(first + by_block.quotient, s.blocks);
    const int64_t channel = by_group.remainder * width, start = by_block.remainder * kLayPlaces;
    const bool exists = start + own < s.places;
    const int rows = exists ? static_cast<int>(at_most(s.channels - channel, width)) : 0;
    const T* from = planes + (by_group.quotient * s.channels + channel + own_row) * s.places + start + own;
#pragma unroll 1
    for (int row = own_row; row < width; row += kTogether * kRows) {
      T values[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k, from += kRows * s.places) {
        values[k] = T{};
        if (row + kRows * k < rows) values[k] = load_once(from);
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if (row + kRows * k < width) tile[row + kRows * k][own] = values[k];
      }
    }
    wait_for_kernel_before();
    let_kernel_after_start();
    __syncthreads();
    uint4* const lines = laid + ((by_block.quotient * s.places + start) << s.bits);
    const int left = static_cast<int>(at_most(s.places - start, kLayPlaces));
#pragma unroll 4
    for (int i = thread; i < left << s.bits; i += kLayThreads) {
      const int vector = i & ((1 << s.bits) - 1), place = i >> s.bits;
      ChannelVector<T> channels;
#pragma unroll
      for (int k = 0; k < kVector; ++k) channels.channel[k] = tile[vector * kVector + k][place];
      uint4 bits;
      memcpy(&bits, &channels, sizeof bits);
      lines[i] = bits;
    }
    __syncthreads();  // the next tile overwrites this one
  }
}

// Blocks of the launch that lays out so many.
inline uint32_t blocks_to_lay(const ChannelBlocks& s, int64_t count) {
  return blocks_for(count * ceil_div(s.places, kLayPlaces), 1);
}

}  // namespace
}  // namespace baracuda
