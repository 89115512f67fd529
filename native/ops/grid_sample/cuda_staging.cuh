// SPDX-License-Identifier: Apache-2.0
// How a staged tile's values come into shared memory on CUDA: what lies there, and the copies that fill one step of
// channels while the step before is summed.
#pragma once

#include "ops/grid_sample/cuda_bins.cuh"

namespace baracuda::grid_sample {
namespace {

constexpr int kTileThreads = kTilePixels;
constexpr int kTileWarps = kTileThreads / 32;
// A thread is a pixel, and a sample of each of these rounds.
constexpr int kRounds = (kStaged + kTileThreads - 1) / kTileThreads;

// Channels of a step: a sample's values are one 16-byte load.
template <typename C>
constexpr int kStep = 16 / static_cast<int>(sizeof(C));

// Blocks that share a multiprocessor: at f32, 64 registers each.
template <typename C>
constexpr int kResident = sizeof(C) == 4 ? 4 : 3;

// A tile's input with the next row and column; the width makes a row whole 16-byte words.
constexpr int kPatchRows = kTileHeight + 1, kPatchColumns = kTileWidth + 4;

template <typename C>
struct TileShared {
  alignas(16) C gradients[2][kStaged][kStep<C>];
  alignas(16) C patch[2][kStep<C>][kPatchRows][kPatchColumns];
  C weights[4 * kStaged];            // of entries
  C fraction_x[kStaged], fraction_y[kStaged];
  uint32_t samples[kStaged];         // with kHome
  uint32_t starts[kTilePixels + 1];  // first the pixels' counts
  uint32_t warp_sums[kTileWarps];
  int64_t item;
  uint16_t entries[4 * kStaged];     // slots, by pixel, samples ascending
  int8_t low_x[kStaged], low_y[kStaged];  // of the first tap, in the tile
};

// Copies that complete in the background where the hardware can (sm_80).
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes) : "memory");
  }
#else
  memcpy(__builtin_assume_aligned(shared, kBytes), __builtin_assume_aligned(global, kBytes), kBytes);
#endif
}

__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// The 16-bit types come as whole words, which the thread that asked for them takes apart when they are there.
template <typename T>
constexpr bool kPacked = sizeof(T) < sizeof(Compute<T>);

// Where the values of a tile come from; gradients and input are the step's first planes, input the tile's first pixel.
template <typename T>
struct TileSource {
  const T* gradients;
  const T* input;
  bool gradient_words;  // 16-bit types: each gradient lies in an aligned 32-bit word of its plane
  bool input_vectors;   // a row of the image is a whole number of aligned 16-byte vectors

  // The next step's planes.
  __device__ void advance(const Problem& p) {
    gradients += kStep<Compute<T>> * p.samples;
    input += kStep<Compute<T>> * p.pixels;
  }
};

// The 16-byte vector of a patch that a thread loads for each of the channels k, k + kAtOnce, ...
template <typename T>
struct PatchVector {
  static constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
  static constexpr int kInRow = (kPatchColumns + kWidth - 1) / kWidth;
  static constexpr int kInPatch = kInRow * kPatchRows;
  static constexpr int kFitting = kTileThreads / kInPatch;
  static constexpr int kAtOnce = kFitting < kStep<Compute<T>> ? kFitting : kStep<Compute<T>>;
  static_assert(kAtOnce >= 1);
  bool exists;
  int k, row, column;

  __device__ PatchVector(const Problem& p, const TilePlace& place) {
    int thread = static_cast<int>(threadIdx.x);
    // Hides that these numbers stay the same: computed again each step they cost less than the registers that would
    // hold them, for want of which the sums spill. The 16-bit types use them twice a step and have the registers.
    if constexpr (!kPacked<T>) asm volatile("" : "+r"(thread));
    const int vector = thread % kInPatch;
    k = thread / kInPatch;
    row = vector / kInRow;
    column = vector % kInRow * kWidth;
    exists = k < kAtOnce && place.row + row < p.input_h && place.column + column < p.input_w;
  }
};

// The low or high half of a word, widened.
template <typename T>
__device__ __forceinline__ float unpack(uint32_t word, bool high) {
  return widen(T{static_cast<uint16_t>(high ? word >> 16 : word)});
}

// Starts to load the patches of one step.
template <typename T>
__device__ __forceinline__ void stage_patch(const Problem& p, const TilePlace& place, int buffer, int channels,
                                            const TileSource<T>& source, TileShared<Compute<T>>& shared,
                                            uint4* vectors) {
  using C = Compute<T>;
  if (source.input_vectors) {
    const PatchVector<T> at(p, place);
    if (!at.exists) return;
    const T* from = source.input + static_cast<int64_t>(at.row) * p.input_w + at.column;
    if constexpr (kPacked<T>) {
      static_assert(PatchVector<T>::kAtOnce == kStep<C>, "one vector a thread");
      if (at.k < channels) copy_async<16>(&vectors[threadIdx.x], from + at.k * p.pixels);
    } else {
#pragma unroll 1
      for (int k = at.k; k < channels; k += PatchVector<T>::kAtOnce) {
        copy_async<16>(&shared.patch[buffer][k][at.row][at.column], from + k * p.pixels);
      }
    }
    return;
  }
#pragma unroll 1
  for (int element = threadIdx.x; element < kPatchRows * kPatchColumns; element += kTileThreads) {
    const int row = element / kPatchColumns, column = element % kPatchColumns;
    if (place.row + row >= p.input_h || place.column + column >= p.input_w) continue;
    const T* from = source.input + static_cast<int64_t>(row) * p.input_w + column;
    C* to = &shared.patch[buffer][0][row][column];
#pragma unroll 1
    for (int k = 0; k < channels; ++k, from += p.pixels, to += kPatchRows * kPatchColumns) {
      if constexpr (kPacked<T>) {
        *to = widen(*from);
      } else {
        copy_async<sizeof(T)>(to, from);
      }
    }
  }
}

// Starts to load one step: the gradients of the staged samples and the tile's input. `channels` counts only in a step
// that is not kFull.
template <bool kFull, typename T>
__device__ __forceinline__ void stage_step(const Problem& p, const TilePlace& place, int count, int buffer,
                                           int channels, const TileSource<T>& source,
                                           TileShared<Compute<T>>& shared, uint4* vectors) {
  using C = Compute<T>;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int slot = round * kTileThreads + threadIdx.x;
    if (slot >= count) continue;
    const uint32_t sample = shared.samples[slot] & ~kHome<uint32_t>;
    C* to = shared.gradients[buffer][slot];
#pragma unroll
    for (int k = 0; k < kStep<C>; ++k) {
      if (!kFull && k >= channels) break;
      const T* plane = source.gradients + k * p.samples;
      if constexpr (!kPacked<T>) {
        copy_async<sizeof(T)>(to + k, plane + sample);
      } else if (source.gradient_words) {
        copy_async<4>(to + k, plane + (sample & ~1u));
      } else {
        to[k] = widen(plane[sample]);
      }
    }
  }
  stage_patch(p, place, buffer, kFull ? kStep<C> : channels, source, shared, vectors);
}

// Waits for this thread's copies of a step and, for 16-bit types, widens what came in words. Before other threads read
// it, the block synchronises.
template <typename T>
__device__ __forceinline__ void receive_step(const Problem& p, const TilePlace& place, int count, int buffer,
                                             int channels, const TileSource<T>& source,
                                             TileShared<Compute<T>>& shared, const uint4* vectors) {
  wait_for_copies();
  if constexpr (kPacked<T>) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int slot = round * kTileThreads + threadIdx.x;
      if (slot >= count || !source.gradient_words) continue;
      const bool high = shared.samples[slot] % 2 != 0;
      const uint4 words = *reinterpret_cast<const uint4*>(shared.gradients[buffer][slot]);
      *reinterpret_cast<float4*>(shared.gradients[buffer][slot]) =
          make_float4(unpack<T>(words.x, high), unpack<T>(words.y, high), unpack<T>(words.z, high),
                      unpack<T>(words.w, high));
    }
    const PatchVector<T> at(p, place);
    if (!source.input_vectors || !at.exists || at.k >= channels) return;
    const uint4 words = vectors[threadIdx.x];
    float4* to = reinterpret_cast<float4*>(&shared.patch[buffer][at.k][at.row][at.column]);
    to[0] = make_float4(unpack<T>(words.x, false), unpack<T>(words.x, true), unpack<T>(words.y, false),
                        unpack<T>(words.y, true));
    if (at.column + 4 >= kPatchColumns) return;
    to[1] = make_float4(unpack<T>(words.z, false), unpack<T>(words.z, true), unpack<T>(words.w, false),
                        unpack<T>(words.w, true));
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
