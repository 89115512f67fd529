// SPDX-License-Identifier: Apache-2.0
// How a staged tile's values come into shared memory on CUDA: its samples' upstream gradients, a few channels of one
// sample side by side so that they are one load, and its pixels of the input.
#pragma once

#include <type_traits>

#include "core/cuda_copies.cuh"
#include "core/integer_math.h"
#include "ops/grid_sample/cuda/backward/order.cuh"
#include "ops/grid_sample/cuda/backward/steps.cuh"

namespace baracuda::grid_sample {
namespace {

constexpr int kTileThreads = kTilePixels;
constexpr int kTileWarps = kTileThreads / 32;

// The pixels of a tile's input: with the next row and column.
constexpr int kPatchColumns = kTileWidth + 1;
constexpr int kPatchPixels = kPatchColumns * (kTileHeight + 1);

// A thread is a pixel, a sample of each of these rounds, and fills a place of each of those.
constexpr int kRounds = groups_of(kTileCapacity, kTileThreads);

template <typename C>
struct alignas(2 * sizeof(C)) Fractions {
  C x, y;
};

// What of a tile's input is staged: the whole patch, or, when that is less, the four pixels of each sample.
struct PatchLayout {
  int count;     // samples
  int row_step;  // from a tap to that below
  int pixels;
  bool whole;

  __device__ explicit PatchLayout(int samples)
      : count(samples),
        row_step(4 * samples > kPatchPixels ? kPatchColumns : 2),
        pixels(4 * samples > kPatchPixels ? kPatchPixels : 4 * samples),
        whole(4 * samples > kPatchPixels) {}
};

// A step of a tile's input. 16-bit values lie as half places, two loads a tap; wider ones, which are copied in the
// background one by one, plane by plane: neither meets bank conflicts.
template <typename T>
union PatchValues {
  static constexpr bool kPlanes = sizeof(T) >= 4;
  T planes[kPlanes ? kStep<T> : 1][kPatchPixels];
  alignas(8) PlaceValues<T, 2> halves[kPlanes ? 1 : 2][kPatchPixels];
  __device__ PatchValues() {}
};

// With kSlopes there is what the gradients to the samples' positions need.
template <typename T, bool kSlopes>
struct TileShared {
  // One step is summed while the next arrives. The patches follow the gradients: a first tap outside of the image,
  // whose value nobody uses, may lie before its patch.
  union {
    StepValues<T> gradients[2][kTileCapacity];  // by slot
    OrderScratch<kTileCapacity> order;
  };
  std::conditional_t<kSlopes, PatchValues<T>, char> patches[2];
  Fractions<Compute<T>> fractions[kTileCapacity];  // by slot, as are the next ones
  uint32_t samples[kTileCapacity];                 // with kHome
  uint32_t pixels[kSlopes ? kPatchPixels : 1];
  int8_t low_x[kTileCapacity], low_y[kTileCapacity];  // of the first tap, in the tile
  uint32_t starts[kTilePixels + 1];                   // of a pixel's entries; first its count
  uint32_t warp_sums[kTileWarps];
  bool laid;  // whether the gradients are; here because the sums need the registers
  alignas(4) uint16_t entries[4 * kTileCapacity];  // slot and tap, by pixel, ascending
};

// Notes where the pixels of a tile's input come from: how far from the tile's first pixel, or kNoPixel.
constexpr uint32_t kNoPixel = ~uint32_t{0};

template <typename T, bool kSlopes>
__device__ void find_pixels(const Problem& p, const TilePlace& place, const PatchLayout& layout,
                            TileShared<T, kSlopes>& shared) {
  for (int i = threadIdx.x; i < layout.pixels; i += kTileThreads) {
    int row = i / kPatchColumns, column = i % kPatchColumns;
    bool needed = true;
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

// Brings in the steps, one after the other: begin() starts the next, finish() waits for it. Before other threads read
// it, the block synchronises.
template <typename T, bool kSlopes>
struct Stager {
  const T* gradients;  // the next step's first planes, or where it and another step are laid
  const T* input;      // from the tile's first pixel on

  // Starts to load a step of `channels` (kStep or more: a full one, 0 or less: none). Buffers alternate, 0 first.
  __device__ __forceinline__ void begin(const Problem& p, const PatchLayout& layout, int channels, int buffer,
                                        TileShared<T, kSlopes>& shared) {
    if (channels >= kStep<T>) {
      load<true>(p, layout, channels, buffer, shared);
    } else if (channels > 0) {
      load<false>(p, layout, channels, buffer, shared);
    }
    if (!shared.laid) {
      gradients += kStep<T> * p.samples;
    } else if (buffer == 1) {
      gradients += kLaidSteps * kStep<T> * p.samples;
    }
    input += kStep<T> * p.pixels;
  }

  __device__ __forceinline__ void finish() const {
    if constexpr (PatchValues<T>::kPlanes) wait_for_copies();
  }

 private:
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
  __device__ __forceinline__ void load(const Problem& p, const PatchLayout& layout, int channels, int buffer,
                                       TileShared<T, kSlopes>& shared) const {
    const bool laid = shared.laid;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int slot = round * kTileThreads + static_cast<int>(threadIdx.x);
      if (slot >= layout.count) continue;
      const int64_t sample = shared.samples[slot] & ~kHome<uint32_t>;
      StepValues<T>& to = shared.gradients[buffer][slot];
      if (laid) {
        const StepValues<T>* from = reinterpret_cast<const StepValues<T>*>(gradients) + sample * kLaidSteps + buffer;
        if constexpr (PatchValues<T>::kPlanes) {
          copy_async<sizeof(StepValues<T>)>(&to, from);
        } else {
          StepValues<T>::load(from).store(&to);
        }
        continue;
      }
      const T* at = gradients + sample;
      if constexpr (PatchValues<T>::kPlanes) {
#pragma unroll
        for (int k = 0; k < kStep<T>; ++k, at += p.samples) {
          if (kFull || k < channels) copy_async<sizeof(T)>(&to.words[k * (sizeof(T) / 4)], at);
        }
      } else {
        gather<kFull>(at, p.samples, channels).store(&to);
      }
    }
    if constexpr (kSlopes) load_patch<kFull>(p, layout, channels, buffer, shared);
  }

  template <bool kFull>
  __device__ __forceinline__ void load_patch(const Problem& p, const PatchLayout& layout, int channels, int buffer,
                                             TileShared<T, kSlopes>& shared) const {
    // Through registers from the last thread on: the first ones wait for more samples.
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (int pixel = PatchValues<T>::kPlanes ? thread : kTileThreads - 1 - thread; pixel < layout.pixels;
         pixel += kTileThreads) {
      if (shared.pixels[pixel] == kNoPixel) continue;
      const T* at = input + shared.pixels[pixel];
      if constexpr (PatchValues<T>::kPlanes) {
#pragma unroll
        for (int k = 0; k < kStep<T>; ++k, at += p.pixels) {
          if (kFull || k < channels) copy_async<sizeof(T)>(&shared.patches[buffer].planes[k][pixel], at);
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
