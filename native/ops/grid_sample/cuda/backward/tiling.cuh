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

// Places of a first tap in a tile and around it.
constexpr int64_t kReached = (kTileWidth + 1) * (kTileHeight + 1);

// Whether most tiles have few samples, which also have a kernel of their own.
inline bool is_sparse(const Problem& p) {
  constexpr int64_t kExpected = 40;
  return p.samples * kReached / kExpected <= p.pixels;
}

// Samples that a block stages. 512 are two a thread and leave the first cache as large as 384 do.
constexpr int kTileCapacity = 512;

// The same where images have few channels: 384 for maps of up to 1.1 samples a pixel, more for denser ones; f64 has
// room for fewer.
constexpr int kUsualCapacity = 384;
template <typename C>
constexpr int kLargeCapacity = sizeof(C) == 4 ? 640 : 512;

// Samples of a tile that is summed whole: 384 hold the 280 or so of a smooth map, and a tile with more would still be
// under way when the others have ended; a random map of 1.5 samples a pixel has 450 in every tile.
template <typename C>
int most_whole_of(const Problem& p) {
  constexpr int64_t kUsual = 330;  // samples in a tile, when they are even
  // Halved until the products fit.
  int64_t samples = p.samples, pixels = p.pixels;
  for (; samples > INT64_MAX / 1024 || pixels > INT64_MAX / 1024; samples /= 2) pixels /= 2;
  if (samples * kReached <= pixels * kUsual) return kUsualCapacity;
  return is_narrow(p) ? kLargeCapacity<C> : kTileCapacity;
}

// Samples that a tile's list has room for; a tile with more is crowded. Those of an image that is enlarged threefold,
// or whose outside is reflected or moved to its border, fit.
constexpr int kListed = 3072;

// A tile with more samples than are summed whole is summed in parts. A part has at most this many, three quarters of
// what a block stages, or, as some samples reach two parts and a pixel is not cut, a few more.
inline int part_samples_of(const Problem& p, int most_whole) {
  return (is_narrow(p) ? most_whole : kTileCapacity) / 4 * 3;
}
constexpr int kMostParts = groups_of(kListed, kUsualCapacity / 4 * 3);
static_assert(kUsualCapacity <= kTileCapacity && kUsualCapacity <= kLargeCapacity<double>);

// One tile's state, padded to a sector of its own: neighbours' counters in one sector would wait for each other.
template <typename Index>
struct alignas(32) TileRecord {
  Counter list;     // crowded: 1 + where its samples are listed; else 0
  Counter entries;  // crowded: where its pixels' contributions start
  Index count;      // samples that have a tap in the tile
  Index taken;      // crowded: samples listed so far
  Index turns;      // chunks of channels finished, of all parts
  Index state;      // kOverdone and kReserved

  static constexpr Index kOverdone = 1;  // a part has no block that would sum it
  static constexpr Index kReserved = 2;  // crowded, and its list is reserved
};
static_assert(sizeof(TileRecord<uint32_t>) == 32);

// Parts that have blocks: as many as tiles, which is enough for an image that is enlarged on all sides; fewer where a
// tile is little work, because blocks without a part take time too.
inline int64_t most_parts_of(const Problem& p, const TileGrid& tiles) {
  return is_narrow(p) || is_sparse(p) ? ceil_div(tiles.total, 4) : tiles.total;
}

// Sums over the tiles, and the tickets that the staged tiles' owners draw.
struct alignas(32) Totals {
  Counter parts;    // of tiles that are summed in parts
  Counter laid;     // whether the gradients are
  Counter tickets;
  Counter crowded;  // tiles
  Counter listed;   // samples
  Counter entries;  // taps
};

// How a list marks the samples that are at home in its tile.
template <typename Index>
constexpr Index kHome = Index{1} << (8 * sizeof(Index) - 1);

// Blocks that stage tiles: one for each tile, or part of one, and chunk of channels.
inline int64_t staged_blocks(const Problem& p, const TileGrid& tiles) {
  return (tiles.total + most_parts_of(p, tiles)) * ceil_div(p.c, kChannelChunk);
}

// Whether tiles may be staged: a 32-bit Index holds a sample's number in its image with room for kHome, and one launch
// holds the blocks. Larger problems have crowded tiles alone and a 64-bit Index.
inline bool fits_staging(const Problem& p) {
  constexpr int32_t kWidest = INT32_MAX / (kTileHeight + 2);  // 32 bits hold a place in a patch's rows
  return p.samples <= INT32_MAX && p.input_w <= kWidest && staged_blocks(p, TileGrid(p)) <= INT32_MAX;
}

// Gradients of more bytes are not laid: the copy would be a burden.
constexpr int64_t kMostLaid = int64_t{1} << 29;
// Bytes of a step: channels of a sample that lie side by side. Laid gradients have two steps side by side, which are a
// sector.
constexpr int64_t kStepBytes = 16;
constexpr int kLaidSteps = 2;
constexpr int64_t kLaidBytes = kLaidSteps * kStepBytes;

// Bytes of the gradients when they are laid, or 0 if they never are.
inline int64_t laid_bytes(const Problem& p, int64_t element_bytes) {
  const int64_t sectors = ceil_div(p.c * element_bytes, kLaidBytes), most = kMostLaid / kLaidBytes;
  // Extents are at least 1 here; each product fits before it is taken.
  if (is_narrow(p) || sectors > most / p.n || p.samples > most / (sectors * p.n)) return 0;
  return p.n * sectors * p.samples * kLaidBytes;
}

template <typename C, typename Index>
struct Storage {
  size_t cleared_bytes;  // from the start
  size_t bytes;
  int most_whole, part_samples;  // samples of a tile that is not cut, and of a part
  Totals* totals;
  TileRecord<Index>* records;  // [tile]
  int64_t* crowded;            // [tile]: the crowded ones
  // Where tiles are staged:
  int64_t most_parts;
  int64_t* parts;              // [part]: of any tiles; kMostParts times a tile, plus the part's number
  Index* staged;               // [tile][kListed]: samples, with kHome
  void* laid;                  // [image][two steps][sample][step]: gradients; nullptr: there is no room
  // Of crowded tiles, where nobody needs what is staged any more:
  Index* listed;         // [4 samples]: crowded tiles' samples
  Index* begins;         // [tile][pixel + 1]: where a pixel's contributions begin, from the tile's entries
  Index* entry_samples;  // [4 samples]: contributions by tile, pixel and sample
  C* entry_weights;      // [4 samples]

  // `laid_size` is laid_bytes() where they may be laid.
  Storage(const Problem& p, int64_t laid_size, void* workspace) {
    constexpr bool kStages = sizeof(Index) == 4;
    const TileGrid tiles(p);
    const int64_t samples = p.n * p.samples;
    WorkspaceLayout layout;
    totals = take<Totals>(layout, workspace, 1);
    records = take<TileRecord<Index>>(layout, workspace, tiles.total);
    cleared_bytes = layout.bytes();
    most_whole = most_whole_of<C>(p);
    part_samples = part_samples_of(p, most_whole);
    crowded = take<int64_t>(layout, workspace, tiles.total);
    WorkspaceLayout staging = layout;
    most_parts = kStages ? most_parts_of(p, tiles) : 0;
    parts = take<int64_t>(staging, workspace, most_parts);
    staged = take<Index>(staging, workspace, kStages ? tiles.total * kListed : 0);
    laid = take<char>(staging, workspace, laid_size);
    if (laid_size == 0) laid = nullptr;
    listed = take<Index>(layout, workspace, 4 * samples);
    begins = take<Index>(layout, workspace, tiles.total * (kTilePixels + 1));
    entry_samples = take<Index>(layout, workspace, 4 * samples);
    entry_weights = take<C>(layout, workspace, 4 * samples);
    bytes = staging.bytes() > layout.bytes() ? staging.bytes() : layout.bytes();
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

// The pixels of a tile that a block sums: consecutive ones, column by column, because a smooth map's samples that reach
// two such ranges are fewer than with rows.
struct TileRange {
  int begin, end;

  __device__ static TileRange whole() { return {0, kTilePixels}; }
  // A pixel's number, column by column.
  __device__ static int number(int row, int column) { return column * kTileHeight + row; }
  __device__ bool holds(int row, int column) const {
    const int pixel = number(row, column);
    return pixel >= begin && pixel < end;
  }
  // A pixel of the tile, row by row, or kTilePixels if it is not in the range.
  __device__ int within(int pixel) const {
    return holds(pixel / kTileWidth, pixel % kTileWidth) ? pixel : kTilePixels;
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
