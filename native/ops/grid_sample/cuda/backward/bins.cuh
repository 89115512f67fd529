// SPDX-License-Identifier: Apache-2.0
// The backward's scratch on CUDA and its first step: which samples reach which tile of pixels. A tile has one owner;
// its list is filled by integer atomics in an order that changes from run to run and is undone by sorting.
#pragma once

#include <type_traits>

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/workspace.h"
#include "ops/grid_sample/launch.h"
#include "ops/grid_sample/math.h"

namespace baracuda::grid_sample {
namespace {

// A row of a tile is a warp and, in f32, a 128-byte line of the image.
constexpr int kTileWidthShift = 5, kTileHeightShift = 3;
constexpr int kTileWidth = 1 << kTileWidthShift, kTileHeight = 1 << kTileHeightShift;
constexpr int kTilePixels = kTileWidth * kTileHeight;

constexpr unsigned kFullWarp = 0xffffffffu;

// Quotient and remainder; 32-bit division takes a fifth of the time of 64-bit.
struct Division {
  int64_t quotient, remainder;

  __device__ Division(int64_t a, int64_t b) {
    if ((a | b) >> 32 == 0) {
      quotient = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
      remainder = static_cast<uint32_t>(a) % static_cast<uint32_t>(b);
    } else {
      quotient = a / b;
      remainder = a % b;
    }
  }
};

// The tiles of all images, numbered image by image.
struct TileGrid {
  int64_t columns, per_image, total;

  explicit TileGrid(const Problem& p)
      : columns((int64_t{p.input_w} + kTileWidth - 1) >> kTileWidthShift),
        per_image(columns * ((int64_t{p.input_h} + kTileHeight - 1) >> kTileHeightShift)),
        total(per_image * p.n) {}
};

// Where a tile lies.
struct TilePlace {
  int32_t image, row, column;

  __device__ TilePlace(const TileGrid& tiles, int64_t tile) {
    const Division among(tile, tiles.per_image), within(among.remainder, tiles.columns);
    image = static_cast<int32_t>(among.quotient);
    row = static_cast<int32_t>(within.quotient << kTileHeightShift);
    column = static_cast<int32_t>(within.remainder << kTileWidthShift);
  }
};

using Counter = unsigned long long;

// Images of so few channels have a kernel of their own: building a tile's lists costs more than their sums.
constexpr int32_t kNarrowChannels = 4;
BARACUDA_HD bool is_narrow(const Problem& p) { return p.c <= kNarrowChannels; }

// A tile with more samples than this is crowded: its lists live in the workspace, not in shared memory. 384 hold the
// 280 or so of a smooth map, 1.1 samples a pixel, and 640 the 450 of a denser random one; f64 has room for fewer.
constexpr int kUsualCapacity = 384;
template <typename C>
constexpr int kLargeCapacity = sizeof(C) == 4 ? 640 : 512;

template <typename C>
int capacity_of(const Problem& p) {
  constexpr int64_t kReached = (kTileWidth + 1) * (kTileHeight + 1);  // places of a first tap in a tile and around it
  constexpr int64_t kUsual = 330;                                     // samples in a tile, when they are even
  // Halved until the products fit.
  int64_t samples = p.samples, pixels = p.pixels;
  for (; samples > INT64_MAX / 1024 || pixels > INT64_MAX / 1024; samples /= 2) pixels /= 2;
  return samples * kReached <= pixels * kUsual ? kUsualCapacity : kLargeCapacity<C>;
}

// One tile's state, padded to a sector of its own: neighbours' counters in one sector would wait for each other.
template <typename Index>
struct alignas(32) TileRecord {
  Counter list;     // crowded: 1 + where its samples are listed; else 0
  Counter entries;  // crowded: where its pixels' contributions start
  Index count;      // samples that have a tap in the tile
  Index taken;      // crowded: samples listed so far; else: chunks of channels finished, in order
};

// Sums over the crowded tiles, and the tickets that the staged tiles' owners draw.
struct alignas(32) Totals {
  Counter crowded;  // tiles
  Counter listed;   // samples
  Counter entries;  // taps
  Counter tickets;
};

// How a list marks the samples that are at home in its tile.
template <typename Index>
constexpr Index kHome = Index{1} << (8 * sizeof(Index) - 1);

// Blocks that stage tiles: one for each tile and chunk of channels.
inline int64_t staged_blocks(const Problem& p, const TileGrid& tiles) {
  return tiles.total * ((p.c + kChannelChunk - 1) / kChannelChunk);
}

// Whether tiles may be staged: a 32-bit Index holds a sample's number in its image with room for kHome, and one launch
// holds the blocks. Larger problems have crowded tiles alone and a 64-bit Index.
inline bool fits_staging(const Problem& p) {
  constexpr int32_t kWidest = INT32_MAX / (kTileHeight + 2);  // 32 bits hold a place in a patch's rows
  return p.samples <= INT32_MAX && p.input_w <= kWidest && staged_blocks(p, TileGrid(p)) <= INT32_MAX;
}

template <typename C, typename Index>
struct Storage {
  size_t cleared_bytes;  // from the start
  size_t bytes;
  Totals* totals;
  TileRecord<Index>* records;  // [tile]
  int capacity;
  Index* staged;         // [tile][capacity]: samples, with kHome
  int64_t* crowded;      // [tile]: the crowded ones
  Index* listed;         // [4 samples]: crowded tiles' samples
  Index* begins;         // [tile][pixel + 1]: where a pixel's contributions begin, from the tile's entries
  Index* entry_samples;  // [4 samples]: contributions by tile, pixel and sample
  C* entry_weights;      // [4 samples]

  Storage(const Problem& p, void* workspace) {
    const TileGrid tiles(p);
    const int64_t samples = p.n * p.samples;
    WorkspaceLayout layout;
    totals = take<Totals>(layout, workspace, 1);
    records = take<TileRecord<Index>>(layout, workspace, tiles.total);
    cleared_bytes = layout.bytes();
    capacity = capacity_of<C>(p);
    staged = take<Index>(layout, workspace, tiles.total * capacity);
    crowded = take<int64_t>(layout, workspace, tiles.total);
    listed = take<Index>(layout, workspace, 4 * samples);
    begins = take<Index>(layout, workspace, tiles.total * (kTilePixels + 1));
    entry_samples = take<Index>(layout, workspace, 4 * samples);
    entry_weights = take<C>(layout, workspace, 4 * samples);
    bytes = layout.bytes();
  }

 private:
  template <typename U>
  static U* take(WorkspaceLayout& layout, void* workspace, int64_t count) {
    return workspace_array<U>(workspace, layout.reserve<U>(count));
  }
};

// The tiles that have taps of a sample: its home, that of the first tap clamped to the image, and its neighbours.
// Tile is a type that holds any tile's number.
template <typename Tile>
struct TouchedTiles {
  Tile home;  // -1: none
  bool right, below;

  __device__ TouchedTiles() : home(-1), right(false), below(false) {}

  template <typename C>
  __device__ TouchedTiles(const Position<C>& at, const Problem& p, const TileGrid& tiles, int64_t image)
      : home(-1), right(false), below(false) {
    if (at.is_outside()) return;
    const int32_t x = at.x.low < 0 ? 0 : at.x.low, y = at.y.low < 0 ? 0 : at.y.low;
    home = static_cast<Tile>(image) * static_cast<Tile>(tiles.per_image) +
           static_cast<Tile>(y >> kTileHeightShift) * static_cast<Tile>(tiles.columns) + (x >> kTileWidthShift);
    right = at.x.low >= 0 && x % kTileWidth == kTileWidth - 1 && x + 1 < p.input_w;
    below = at.y.low >= 0 && y % kTileHeight == kTileHeight - 1 && y + 1 < p.input_h;
  }

  // The i-th of up to four tiles, home first, or -1.
  __device__ Tile tile(int i, const TileGrid& tiles) const {
    const bool exists = home >= 0 && (i % 2 == 0 || right) && (i / 2 == 0 || below);
    return exists ? home + i % 2 + i / 2 * static_cast<Tile>(tiles.columns) : Tile{-1};
  }
};

// The pixel of a tile that a tap lies on, or kTilePixels if it lies in another tile or does not exist.
template <typename C>
__device__ int pixel_of_tap(const Position<C>& at, int tap, C weight, const TilePlace& place) {
  const int32_t x = at.x.low + tap % 2 - place.column, y = at.y.low + tap / 2 - place.row;
  const bool here = x >= 0 && x < kTileWidth && y >= 0 && y < kTileHeight;
  return here && weight != C(0) ? y * kTileWidth + x : kTilePixels;
}

// Adds the calling lane to the counter of its tile, -1 for none, and answers what the counter held before it. Runs of
// lanes with one tile make one atomic. Every lane of the warp calls.
template <typename Tile, typename Index>
__device__ Index append(Tile tile, TileRecord<Index>* records, Index TileRecord<Index>::* counter) {
  const unsigned lane = threadIdx.x % 32;
  const Tile before = __shfl_up_sync(kFullWarp, tile, 1);
  const unsigned heads = __ballot_sync(kFullWarp, lane == 0 || before != tile);
  const unsigned head = 31 - __clz(heads & (kFullWarp >> (31 - lane)));
  Index base = 0;
  if (lane == head && tile >= 0) {
    const unsigned later = lane == 31 ? 0 : heads >> (lane + 1);
    const unsigned length = later == 0 ? 32 - lane : static_cast<unsigned>(__ffs(later));
    base = atomicAdd(&(records[tile].*counter), static_cast<Index>(length));
  }
  return __shfl_sync(kFullWarp, base, head) + (lane - head);
}

// The gradient to one sample's position, all channels, of which the values of kSlopeChannels are asked for together.
template <int kSlopeChannels, typename T>
__device__ __forceinline__ void sum_slopes(const Problem& p, const BackwardBuffers<T>& b, int64_t i, int64_t image,
                                           int64_t sample, const Position<Compute<T>>& at) {
  using C = Compute<T>;
  static_assert(kChannelChunk % kSlopeChannels == 0);
  const Taps<C> x_taps = x_slope_taps(at, p), y_taps = y_slope_taps(at, p);
  bool has_all_taps = true;
#pragma unroll
  for (int tap = 0; tap < 4; ++tap) {
    has_all_taps = has_all_taps && x_taps.weight[tap] != C(0) && y_taps.weight[tap] != C(0);
  }
  const T* gradient = b.grad_output + image * p.c * p.samples + sample;
  const T* upper = b.input + image * p.c * p.pixels + static_cast<int64_t>(at.y.low) * p.input_w + at.x.low;
  C x_total = C(0), y_total = C(0), x_partial = C(0), y_partial = C(0);
  for (int32_t first = 0; first < p.c; first += kSlopeChannels) {
    const int32_t channels = p.c - first < kSlopeChannels ? p.c - first : kSlopeChannels;
    if (has_all_taps) {
      T upstream[kSlopeChannels], values[kSlopeChannels][4];
#pragma unroll
      for (int k = 0; k < kSlopeChannels; ++k) {
        if (k >= channels) break;
        const T* lower = upper + p.input_w;
        upstream[k] = *gradient;
        values[k][0] = upper[0];
        values[k][1] = upper[1];
        values[k][2] = lower[0];
        values[k][3] = lower[1];
        gradient += p.samples;
        upper += p.pixels;
      }
#pragma unroll
      for (int k = 0; k < kSlopeChannels; ++k) {
        if (k >= channels) break;
        C x_slope = C(0), y_slope = C(0);
#pragma unroll
        for (int tap = 0; tap < 4; ++tap) {
          x_slope = fma(x_taps.weight[tap], widen(values[k][tap]), x_slope);
          y_slope = fma(y_taps.weight[tap], widen(values[k][tap]), y_slope);
        }
        x_partial = fma(widen(upstream[k]), x_slope, x_partial);
        y_partial = fma(widen(upstream[k]), y_slope, y_partial);
      }
    } else {
      // Borders and the like: few.
#pragma unroll 1
      for (int k = 0; k < channels; ++k) {
        C x_slope = C(0), y_slope = C(0);
#pragma unroll
        for (int tap = 0; tap < 4; ++tap) {
          // Where one derivative has a tap of weight 0, the other may still need its value.
          if (x_taps.weight[tap] == C(0) && y_taps.weight[tap] == C(0)) continue;
          const C value = widen(upper[tap / 2 * int64_t{p.input_w} + tap % 2]);
          if (x_taps.weight[tap] != C(0)) x_slope = fma(x_taps.weight[tap], value, x_slope);
          if (y_taps.weight[tap] != C(0)) y_slope = fma(y_taps.weight[tap], value, y_slope);
        }
        x_partial = fma(widen(*gradient), x_slope, x_partial);
        y_partial = fma(widen(*gradient), y_slope, y_partial);
        gradient += p.samples;
        upper += p.pixels;
      }
    }
    if ((first + kSlopeChannels) % kChannelChunk == 0 || first + kSlopeChannels >= p.c) {
      x_total = x_total + x_partial;
      y_total = y_total + y_partial;
      x_partial = y_partial = C(0);
    }
  }
  b.grad_grid[2 * i] = any_tap(x_taps) ? narrow<C>(x_total * pixels_per_unit<C>(p.input_w)) : C(0);
  b.grad_grid[2 * i + 1] = any_tap(y_taps) ? narrow<C>(y_total * pixels_per_unit<C>(p.input_h)) : C(0);
}

constexpr int kClearThreads = 256;

// Zeros for the counters. A kernel, which the next one need not wait for to load its first samples.
__global__ void __launch_bounds__(kClearThreads) clear_counters(int64_t count, uint4* counters) {
  let_kernel_after_start();
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) counters[i] = make_uint4(0, 0, 0, 0);
}

constexpr int kBinThreads = 256;

// Stages every sample with its tiles as far as there is room, or, without kStages, only counts. Writes the gradients of
// samples that have no tap; with kSlopes, for narrow images, every sample's.
template <typename T, typename Index, bool kStages, bool kSlopes>
__global__ void __launch_bounds__(kBinThreads, kSlopes && sizeof(Compute<T>) == 8 ? 2 : 4)
    bin_samples(Problem p, TileGrid tiles, BackwardBuffers<T> b, Storage<Compute<T>, Index> s) {
  using C = Compute<T>;
  using Tile = std::conditional_t<kStages, int32_t, int64_t>;
  const int64_t total = p.n * p.samples;
  let_kernel_after_start();
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kBinThreads; base < total; base += grid_threads()) {
    const int64_t i = base + threadIdx.x;
    TouchedTiles<Tile> touched;
    Index sample = 0;
    if (i < total) {
      const Division at(i, p.samples);
      sample = static_cast<Index>(at.remainder);
      const Position<C> position = locate_sample(b.grid[2 * i], b.grid[2 * i + 1], p);
      touched = TouchedTiles<Tile>(position, p, tiles, at.quotient);
      if (touched.home < 0) {
        b.grad_grid[2 * i] = b.grad_grid[2 * i + 1] = C(0);
      } else if (kSlopes) {
        sum_slopes<kNarrowChannels>(p, b, i, at.quotient, at.remainder, position);
      }
    }
    wait_for_kernel_before();  // it clears the counters, and knows nothing of what was read and written so far
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Tile tile = touched.tile(k, tiles);
      if (!__any_sync(kFullWarp, tile >= 0)) continue;
      const Index slot = append(tile, s.records, &TileRecord<Index>::count);
      if constexpr (kStages) {
        if (tile >= 0 && slot < s.capacity) {
          s.staged[static_cast<int64_t>(tile) * s.capacity + slot] = k == 0 ? sample | kHome<Index> : sample;
        }
      }
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
