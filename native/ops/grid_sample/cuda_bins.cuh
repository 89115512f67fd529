// SPDX-License-Identifier: Apache-2.0
// The backward's scratch on CUDA and its first step: which samples reach which tile of pixels. A tile has one owner; its
// list is filled by integer atomics in an order that changes from run to run and is undone by sorting.
#pragma once

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

// A tile with more samples than this is crowded: its lists live in the workspace, not in shared memory. 384 hold the
// 280 or so of a smooth map, 1.1 samples a pixel, and let four owners share a multiprocessor.
constexpr int kStaged = 384;

// One tile's state, padded to a sector of its own: neighbours' counters in one sector would wait for each other.
struct alignas(32) TileRecord {
  Counter count;    // samples that have a tap in the tile
  Counter taken;    // crowded: samples listed so far; else: chunks of channels finished, in order
  Counter list;     // crowded: 1 + where its samples are listed; else 0
  Counter entries;  // crowded: where its pixels' contributions start
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
  return p.samples <= INT32_MAX && staged_blocks(p, TileGrid(p)) <= INT32_MAX;
}

template <typename C, typename Index>
struct Storage {
  size_t cleared_bytes;  // from the start
  size_t bytes;
  Totals* totals;
  TileRecord* records;   // [tile]
  Index* staged;         // [tile][kStaged]: samples, with kHome
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
    records = take<TileRecord>(layout, workspace, tiles.total);
    cleared_bytes = layout.bytes();
    staged = take<Index>(layout, workspace, tiles.total * kStaged);
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
struct TouchedTiles {
  int64_t home;  // -1: none
  bool right, below;

  template <typename C>
  __device__ TouchedTiles(const Position<C>& at, const Problem& p, const TileGrid& tiles, int64_t image)
      : home(-1), right(false), below(false) {
    if (at.is_outside()) return;
    const int32_t x = at.x.low < 0 ? 0 : at.x.low, y = at.y.low < 0 ? 0 : at.y.low;
    home = image * tiles.per_image + static_cast<int64_t>(y >> kTileHeightShift) * tiles.columns +
           (x >> kTileWidthShift);
    right = at.x.low >= 0 && x % kTileWidth == kTileWidth - 1 && x + 1 < p.input_w;
    below = at.y.low >= 0 && y % kTileHeight == kTileHeight - 1 && y + 1 < p.input_h;
  }

  // The i-th of up to four tiles, home first, or -1.
  __device__ int64_t tile(int i, const TileGrid& tiles) const {
    const bool exists = home >= 0 && (i % 2 == 0 || right) && (i / 2 == 0 || below);
    return exists ? home + i % 2 + i / 2 * tiles.columns : -1;
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
__device__ Counter append(int64_t tile, TileRecord* records, Counter TileRecord::* counter) {
  const unsigned lane = threadIdx.x % 32;
  const int64_t before = __shfl_up_sync(kFullWarp, tile, 1);
  const unsigned heads = __ballot_sync(kFullWarp, lane == 0 || before != tile);
  const unsigned head = 31 - __clz(heads & (kFullWarp >> (31 - lane)));
  Counter base = 0;
  if (lane == head && tile >= 0) {
    const unsigned later = lane == 31 ? 0 : heads >> (lane + 1);
    const unsigned length = later == 0 ? 32 - lane : static_cast<unsigned>(__ffs(later));
    base = atomicAdd(&(records[tile].*counter), static_cast<Counter>(length));
  }
  return __shfl_sync(kFullWarp, base, head) + (lane - head);
}

constexpr int kBinThreads = 256;

// Stages every sample with its tiles as far as there is room, or, without kStages, only counts. Writes the gradients of
// samples that have no tap.
template <typename C, typename Index, bool kStages>
__global__ void __launch_bounds__(kBinThreads)
    bin_samples(Problem p, TileGrid tiles, const C* grid, C* grad_grid, Storage<C, Index> s) {
  const int64_t total = p.n * p.samples;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kBinThreads; base < total; base += grid_threads()) {
    const int64_t i = base + threadIdx.x;
    TouchedTiles touched{Position<C>{{kOutside, C(0)}, {kOutside, C(0)}}, p, tiles, 0};
    Index sample = 0;
    if (i < total) {
      const Division at(i, p.samples);
      sample = static_cast<Index>(at.remainder);
      touched = TouchedTiles(locate_sample(grid[2 * i], grid[2 * i + 1], p), p, tiles, at.quotient);
      if (touched.home < 0) grad_grid[2 * i] = grad_grid[2 * i + 1] = C(0);
    }
    for (int k = 0; k < 4; ++k) {
      const int64_t tile = touched.tile(k, tiles);
      if (!__any_sync(kFullWarp, tile >= 0)) continue;
      const Counter slot = append(tile, s.records, &TileRecord::count);
      if constexpr (kStages) {
        if (tile >= 0 && slot < kStaged) s.staged[tile * kStaged + slot] = k == 0 ? sample | kHome<Index> : sample;
      }
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
