// SPDX-License-Identifier: Apache-2.0
// Tiles of pixels, each of which has one owner in the backward, and the scratch in which a tile's samples are listed.
#pragma once

#include <type_traits>

#include "core/cuda_division.cuh"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/grid_sample/launch.h"
#include "ops/grid_sample/math.h"

namespace baracuda::grid_sample {
namespace {

// A row of a tile is a warp and, in f32, a 128-byte line of the image.
constexpr int kTileWidthShift = 5, kTileHeightShift = 3;
constexpr int kTileWidth = 1 << kTileWidthShift, kTileHeight = 1 << kTileHeightShift;
constexpr int kTilePixels = kTileWidth * kTileHeight;

// The tiles of all images, numbered image by image.
struct TileGrid {
  int64_t columns, per_image, total;

  explicit TileGrid(const Problem& p)
      : columns(groups_of_bits(int64_t{p.input_w}, kTileWidthShift)),
        per_image(columns * groups_of_bits(int64_t{p.input_h}, kTileHeightShift)),
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

// Whether both gradients are asked for, whatever a problem of the type says.
template <class P>
constexpr bool kHasBoth = std::is_same_v<P, Problem>;

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
  return tiles.total * ceil_div(p.c, kChannelChunk);
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

}  // namespace
}  // namespace baracuda::grid_sample
