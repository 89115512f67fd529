// SPDX-License-Identifier: Apache-2.0
// Tiles of voxels, each of which has one owner in the backward, and the scratch in which a tile's samples are listed.
#pragma once

#include "core/cuda_division.cuh"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/grid_sample/cuda/backward/tiling.cuh"
#include "ops/grid_sample_3d/launch.h"
#include "ops/grid_sample_3d/math.h"

namespace baracuda::grid_sample_3d {
namespace {

using grid_sample::Counter;
using grid_sample::TileRecord;

// A row of a tile is a sector of an f32 volume; a thread owns a voxel.
constexpr int kTileWidthShift = 3, kTileHeightShift = 3, kTileDepthShift = 2;
constexpr int kTileWidth = 1 << kTileWidthShift, kTileHeight = 1 << kTileHeightShift;
constexpr int kTileDepth = 1 << kTileDepthShift;
constexpr int kTileVoxels = kTileWidth * kTileHeight * kTileDepth;

// The tiles of all volumes, numbered volume by volume.
struct TileGrid {
  int64_t columns, rows, per_volume, total;

  explicit TileGrid(const Problem& p)
      : columns(groups_of_bits(int64_t{p.input_w}, kTileWidthShift)),
        rows(groups_of_bits(int64_t{p.input_h}, kTileHeightShift)),
        per_volume(columns * rows * groups_of_bits(int64_t{p.input_d}, kTileDepthShift)),
        total(per_volume * p.n) {}
};

// Where a tile lies.
struct TilePlace {
  int32_t volume, plane, row, column;

  __device__ TilePlace(const TileGrid& tiles, int64_t tile) {
    const Division among(tile, tiles.per_volume), across(among.remainder, tiles.columns);
    const Division down(across.quotient, tiles.rows);
    volume = static_cast<int32_t>(among.quotient);
    plane = static_cast<int32_t>(down.quotient << kTileDepthShift);
    row = static_cast<int32_t>(down.remainder << kTileHeightShift);
    column = static_cast<int32_t>(across.remainder << kTileWidthShift);
  }
};

// The tiles that have taps of a sample: its home, that of the first tap clamped to the volume, and its neighbours. A
// tap of weight 0 needs no tile.
struct TouchedTiles {
  int64_t home;  // -1: none
  bool right, below, behind;

  __device__ TouchedTiles() : home(-1), right(false), below(false), behind(false) {}

  template <typename C>
  __device__ TouchedTiles(const Position<C>& at, const Problem& p, const TileGrid& tiles, int64_t volume)
      : TouchedTiles() {
    if (at.is_outside()) return;
    const int32_t x = at.x.low < 0 ? 0 : at.x.low, y = at.y.low < 0 ? 0 : at.y.low, z = at.z.low < 0 ? 0 : at.z.low;
    const int64_t plane = volume * (tiles.per_volume / (tiles.columns * tiles.rows)) + (z >> kTileDepthShift);
    home = (plane * tiles.rows + (y >> kTileHeightShift)) * tiles.columns + (x >> kTileWidthShift);
    right = crosses(at.x, p.input_w, kTileWidth);
    below = crosses(at.y, p.input_h, kTileHeight);
    behind = crosses(at.z, p.input_d, kTileDepth);
  }

  // The i-th of up to eight tiles, home first, or -1.
  __device__ int64_t tile(int i, const TileGrid& tiles) const {
    const bool exists =
        home >= 0 && (i % 2 == 0 || right) && (i / 2 % 2 == 0 || below) && (i / 4 == 0 || behind);
    return exists ? home + i % 2 + (i / 2 % 2 + i / 4 * tiles.rows) * tiles.columns : -1;
  }

 private:
  template <typename C>
  __device__ static bool crosses(const AxisPosition<C>& at, int32_t extent, int32_t side) {
    return at.low >= 0 && at.low % side == side - 1 && at.low + 1 < extent && at.fraction != C(0);
  }
};

// Sums over all tiles, and over the long lists.
struct alignas(16) Totals {
  Counter listed;      // samples
  Counter long_lists;  // lists that are too long to be sorted in shared memory
};

// How many chunks of channels have sums of their own before they are added up; none of one.
inline int64_t slope_chunks(const Problem& p) {
  const int64_t chunks = ceil_div(p.c, kChannelChunk);
  return p.has_grad_grid() && p.has_slopes() && chunks > 1 ? chunks : 0;
}

// Index holds a sample's number in its volume.
template <typename C, typename Index>
struct Storage {
  size_t cleared_bytes;  // from the start
  size_t bytes;
  Totals* totals;
  TileRecord<Index>* records;  // [tile]: `list` is where its samples stand, `taken` how many do so far
  int64_t* long_lists;         // [tile]: the tiles that have one
  Index* listed;               // [8 samples]: by tile, then ascending
  Index* other;                // [8 samples]: long lists, while they are sorted
  C* slopes;                   // [chunk][sample][axis]: sums of chunks of channels, where there are several

  Storage(const Problem& p, void* workspace) {
    const TileGrid tiles(p);
    const int64_t samples = p.n * p.samples;
    WorkspaceLayout layout;
    totals = take<Totals>(layout, workspace, 2);  // so that records begin at 32 bytes
    records = take<TileRecord<Index>>(layout, workspace, tiles.total);
    cleared_bytes = layout.bytes();
    long_lists = take<int64_t>(layout, workspace, tiles.total);
    listed = take<Index>(layout, workspace, kTaps * samples);
    other = take<Index>(layout, workspace, kTaps * samples);
    slopes = take<C>(layout, workspace, slope_chunks(p) * p.grid_numel);
    bytes = layout.bytes();
  }

 private:
  template <typename U>
  static U* take(WorkspaceLayout& layout, void* workspace, int64_t count) {
    return workspace_array<U>(workspace, layout.reserve<U>(count));
  }
};

}  // namespace
}  // namespace baracuda::grid_sample_3d
