// SPDX-License-Identifier: Apache-2.0
// How a staged tile's values come into shared memory on CUDA: its samples' upstream gradients, a few channels of one
// sample side by side so that they are one load, and its pixels of the input.
#pragma once

#include "ops/grid_sample/cuda_order.cuh"

namespace baracuda::grid_sample {
namespace {

constexpr int kTileThreads = kTilePixels;
constexpr int kTileWarps = kTileThreads / 32;

// Channels of a step: 16 bytes of a place.
template <typename T>
constexpr int kStep = 16 / static_cast<int>(sizeof(T));

// Consecutive values of a place's step: kWords 32-bit words of it.
template <typename T, int kWords>
struct PlaceValues {
  uint32_t words[kWords];
  static constexpr int kCount = kWords * 4 / static_cast<int>(sizeof(T));

  __device__ __forceinline__ void set(int k, T value) {
    if constexpr (sizeof(T) == 2) {
      words[k / 2] = k % 2 == 0 ? value.bits : words[k / 2] | static_cast<uint32_t>(value.bits) << 16;
    } else {
      memcpy(&words[k * (sizeof(T) / 4)], &value, sizeof(T));
    }
  }
  __device__ __forceinline__ Compute<T> get(int k) const {
    if constexpr (sizeof(T) == 2) {
      return widen(T{static_cast<uint16_t>(k % 2 == 0 ? words[k / 2] : words[k / 2] >> 16)});
    } else {
      T value;
      memcpy(&value, &words[k * (sizeof(T) / 4)], sizeof(T));
      return value;
    }
  }
};

// A step of a place.
template <typename T>
struct alignas(16) StepValues : PlaceValues<T, 4> {
  // One load or store.
  __device__ __forceinline__ static StepValues load(const StepValues* from) {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    return {{{all.x, all.y, all.z, all.w}}};
  }
  __device__ __forceinline__ void store(StepValues* to) const {
    *reinterpret_cast<uint4*>(to) = make_uint4(this->words[0], this->words[1], this->words[2], this->words[3]);
  }
};

// The pixels of a tile's input: with the next row and column. Rows of wider values begin at multiples of 16 bytes.
constexpr int kPatchRows = kTileHeight + 1;
template <typename T>
constexpr int kPatchPitch = kTileWidth + (sizeof(T) >= 4 ? 4 : 1);
template <typename T>
constexpr int kPatchPlaces = kPatchPitch<T> * kPatchRows;

// A thread is a pixel, a sample of each of these rounds, and fills a place of each of those.
template <int kCapacity>
constexpr int kRounds = (kCapacity + kTileThreads - 1) / kTileThreads;

template <typename C>
struct alignas(2 * sizeof(C)) Fractions {
  C x, y;
};

// What of a tile's input is staged: the whole patch, or, when that is less, the four pixels of each sample.
template <typename T>
struct PatchLayout {
  int count;     // samples
  int row_step;  // from a tap to that below
  int copies;    // of one pixel, or of kEach
  bool whole;
  bool wide;  // the whole patch, 16 bytes at a time but for its last column

  static constexpr int kEach = 16 / static_cast<int>(sizeof(T));
  static constexpr int kRowCopies = kTileWidth / kEach;
  static constexpr int kWideCopies = kRowCopies * kPatchRows;

  __device__ PatchLayout(const Problem& p, int samples, const T* input)
      : count(samples),
        whole(4 * samples > kPatchPlaces<T>),
        wide(sizeof(T) >= 4 && whole && p.input_w % kEach == 0 && reinterpret_cast<uintptr_t>(input) % 16 == 0) {
    row_step = whole ? kPatchPitch<T> : 2;
    copies = wide ? kWideCopies + kPatchRows : whole ? kPatchPlaces<T> : 4 * samples;
  }
  // Where a copy goes: a place of the patch.
  __device__ __forceinline__ int place(int copy) const {
    if (!wide) return copy;
    if (copy >= kWideCopies) return (copy - kWideCopies) * kPatchPitch<T> + kTileWidth;
    return copy / kRowCopies * kPatchPitch<T> + copy % kRowCopies * kEach;
  }
};

// A step of a tile's input. 16-bit values lie as half places, two loads a tap; wider ones, which are copied in the
// background one by one, plane by plane: neither meets bank conflicts.
template <typename T>
union PatchValues {
  static constexpr bool kPlanes = sizeof(T) >= 4;
  alignas(16) T planes[kPlanes ? kStep<T> : 1][kPatchPlaces<T>];
  alignas(8) PlaceValues<T, 2> halves[kPlanes ? 1 : 2][kPatchPlaces<T>];
  __device__ PatchValues() {}
};

template <typename T, int kCapacity>
struct TileShared {
  // One step is summed while the next arrives. The patches follow the gradients: a first tap outside of the image,
  // whose value nobody uses, may lie before its patch.
  union {
    StepValues<T> gradients[2][kCapacity];  // by slot
    OrderScratch<kCapacity> order;
  };
  PatchValues<T> patches[2];
  Fractions<Compute<T>> fractions[kCapacity];  // by slot, as are the next ones
  uint32_t samples[kCapacity];                 // with kHome
  uint32_t pixels[kPatchPlaces<T>];            // by copy
  int8_t low_x[kCapacity], low_y[kCapacity];   // of the first tap, in the tile
  uint32_t starts[kTilePixels + 1];            // of a pixel's entries; first its count
  uint32_t warp_sums[kTileWarps];
  int64_t item;
  uint16_t entries[4 * kCapacity];  // slot and tap, by pixel, ascending
};

// Notes where the pixels of a tile's input come from: how far from the tile's first pixel, or kNoPixel.
constexpr uint32_t kNoPixel = ~uint32_t{0};

template <typename T, int kCapacity>
__device__ void find_pixels(const Problem& p, const TilePlace& place, const PatchLayout<T>& layout,
                            TileShared<T, kCapacity>& shared) {
  for (int i = threadIdx.x; i < layout.copies; i += kTileThreads) {
    const int to = layout.place(i);
    int row = to / kPatchPitch<T>, column = to % kPatchPitch<T>;
    bool needed = column <= kTileWidth;
    if (!layout.whole) {
      const int slot = i / 4;
      row = shared.low_y[slot] + i / 2 % 2;
      column = shared.low_x[slot] + i % 2;
      needed = (shared.samples[slot] & kHome<uint32_t>) != 0;
    }
    needed = needed && is_pixel(place.row + row, p.input_h) && is_pixel(place.column + column, p.input_w);
    shared.pixels[i] = needed ? static_cast<uint32_t>(row) * p.input_w + column : kNoPixel;
  }
}

// Copies that complete in the background where the hardware can (sm_80).
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes) : "memory");
#else
  memcpy(__builtin_assume_aligned(shared, kBytes), __builtin_assume_aligned(global, kBytes), kBytes);
#endif
}

__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Brings in the steps, one after the other: begin() starts the next, finish() waits for it. Before other threads read
// it, the block synchronises. With kBlocks gradients come from blocks of channels, two steps each.
template <typename T, int kCapacity, bool kBlocks>
struct Stager {
  const T* gradients;  // the next step's first planes or blocks
  const T* input;      // from the tile's first pixel on

  // Starts to load a step of `channels` (kStep or more: a full one, 0 or less: none).
  __device__ __forceinline__ void begin(const Problem& p, const PatchLayout<T>& layout, int channels, int buffer,
                                        TileShared<T, kCapacity>& shared) {
    if (channels >= kStep<T>) {
      load<true>(p, layout, channels, buffer, shared);
    } else if (channels > 0) {
      load<false>(p, layout, channels, buffer, shared);
    }
    if (kBlocks) {
      gradients += buffer * kBlock * p.samples;  // odd steps, in buffer 1, end a block
    } else {
      gradients += kStep<T> * p.samples;
    }
    input += kStep<T> * p.pixels;
  }

  __device__ __forceinline__ void finish() const {
    if constexpr (PatchValues<T>::kPlanes) wait_for_copies();
  }

 private:
  static constexpr int kBlock = kBlockBytes / static_cast<int>(sizeof(T));
  static_assert(kBlock == 2 * kStep<T> && (PatchValues<T>::kPlanes || !kBlocks));

  // A place's values through registers.
  template <bool kFull>
  __device__ __forceinline__ static StepValues<T> gather(const T* at, int64_t plane, int channels) {
    T all[kStep<T>];
#pragma unroll
    for (int k = 0; k < kStep<T>; ++k, at += plane) all[k] = kFull || k < channels ? *at : T{};
    StepValues<T> values{};
#pragma unroll
    for (int k = 0; k < kStep<T>; ++k) values.set(k, all[k]);
    return values;
  }

  template <bool kFull>
  __device__ __forceinline__ void load(const Problem& p, const PatchLayout<T>& layout, int channels, int buffer,
                                       TileShared<T, kCapacity>& shared) const {
#pragma unroll
    for (int round = 0; round < kRounds<kCapacity>; ++round) {
      const int slot = round * kTileThreads + static_cast<int>(threadIdx.x);
      if (slot >= layout.count) continue;
      const int64_t sample = shared.samples[slot] & ~kHome<uint32_t>;
      const T* at = gradients + (kBlocks ? sample * kBlock + buffer * kStep<T> : sample);
      StepValues<T>& to = shared.gradients[buffer][slot];
      if constexpr (kBlocks) {
        copy_async<sizeof(to)>(&to, at);
      } else if constexpr (PatchValues<T>::kPlanes) {
#pragma unroll
        for (int k = 0; k < kStep<T>; ++k, at += p.samples) {
          if (kFull || k < channels) copy_async<sizeof(T)>(&to.words[k * (sizeof(T) / 4)], at);
        }
      } else {
        gather<kFull>(at, p.samples, channels).store(&to);
      }
    }
    // From the last thread on: the first ones have more samples.
#pragma unroll 1
    for (int i = kTileThreads - 1 - static_cast<int>(threadIdx.x); i < layout.copies; i += kTileThreads) {
      if (shared.pixels[i] == kNoPixel) continue;
      const T* at = input + shared.pixels[i];
      const int pixel = layout.place(i);
      if constexpr (PatchValues<T>::kPlanes) {
        T* const to = &shared.patches[buffer].planes[0][pixel];
        if (layout.wide && i < PatchLayout<T>::kWideCopies) {
#pragma unroll
          for (int k = 0; k < kStep<T>; ++k, at += p.pixels) {
            if (kFull || k < channels) copy_async<16>(to + k * kPatchPlaces<T>, at);
          }
        } else {
#pragma unroll
          for (int k = 0; k < kStep<T>; ++k, at += p.pixels) {
            if (kFull || k < channels) copy_async<sizeof(T)>(to + k * kPatchPlaces<T>, at);
          }
        }
      } else {
        const StepValues<T> values = gather<kFull>(at, p.pixels, channels);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          *reinterpret_cast<uint2*>(&shared.patches[buffer].halves[half][pixel]) =
              make_uint2(values.words[2 * half], values.words[2 * half + 1]);
        }
      }
    }
  }
};

}  // namespace
}  // namespace baracuda::grid_sample
