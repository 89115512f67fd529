// SPDX-License-Identifier: Apache-2.0
// The backward's scratch on the CPU and its first step: where every sample lies, and for each tile of pixels the
// samples that reach it, in ascending order. Done once per image and shared by all channels.
//
// A stable counting sort by tile, in linear time: a tile has one owner, which then meets the contributions to each of
// its pixels in canonical order.
#pragma once

#include "core/cpu_parallel.h"
#include "core/dtype.h"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/grid_sample/cpu/lanes.h"
#include "ops/grid_sample/math.h"

namespace baracuda::grid_sample {
namespace {

// The largest tile: its sums take 32 KiB of the owner's scratch, its input a little more, and a tenth of the samples
// reaches a second tile.
constexpr int kTileWidthShift = 5, kTileHeightShift = 4;
constexpr int kTileWidth = 1 << kTileWidthShift, kTileHeight = 1 << kTileHeightShift;
constexpr int kTilePixels = kTileWidth * kTileHeight;
// Fewer tiles than this are halved both ways: small maps should also keep some threads busy.
constexpr int64_t kFewTiles = 32;

// Samples dealt by one task: some 10 us. At most kMostBlocks blocks per image, so that the table of counts, one for
// each block and tile, takes no more room than the pixels.
constexpr int64_t kDealtSamples = 2048;
constexpr int64_t kMostBlocks = 128;
// Images, then blocks of channels, are taken together until they have this many pixels and samples: work for many
// threads, while a larger image alone decides what scratch there is.
constexpr int64_t kGroupSize = 65536;

// How a problem is cut.
struct Partition {
  int64_t images;                 // that share the scratch
  int64_t channel_blocks;         // that share the scratch
  int64_t blocks;                 // of samples, in an image
  int64_t block;                  // samples of a block
  int width_shift, height_shift;  // of a tile
  int64_t tile_columns, tiles;    // in an image

  Partition(const Problem& p, int lanes) {
    const int64_t size = p.samples + p.pixels;
    images = at_most(at_least(kGroupSize / size, 1), p.n);
    channel_blocks = at_most(at_least(kGroupSize / size / images, 1), ceil_div(p.c, lanes));
    block = at_least(kDealtSamples, ceil_div(p.samples, kMostBlocks));
    blocks = ceil_div(p.samples, block);
    cut_tiles(p, 0);
    if (images * tiles < kFewTiles) cut_tiles(p, 1);
  }

 private:
  void cut_tiles(const Problem& p, int halvings) {
    width_shift = kTileWidthShift - halvings;
    height_shift = kTileHeightShift - halvings;
    tile_columns = ceil_div(p.input_w, int64_t{1} << width_shift);
    tiles = tile_columns * ceil_div(p.input_h, int64_t{1} << height_shift);
  }
};

// Where an image's samples lie and which of them reach each tile. Image i of a group starts i images into each array.
// Index counts up to four items per sample.
template <typename C, typename Index>
struct TileStorage {
  int32_t* low_x;  // [sample]
  int32_t* low_y;  // [sample]
  C* fraction_x;   // [sample]
  C* fraction_y;   // [sample]

  Index* counts;  // [block][tile]: items, then where the block's items of the tile start
  Index* starts;  // [tile + 1]: where the tile's items start
  Index* items;   // [4 samples]: samples that have a tap in the tile

  // One image's view of a group's arrays.
  TileStorage of_image(const Problem& p, const Partition& cut, int64_t image) const {
    return {low_x + image * p.samples,
            low_y + image * p.samples,
            fraction_x + image * p.samples,
            fraction_y + image * p.samples,
            counts + image * cut.blocks * cut.tiles,
            starts + image * (cut.tiles + 1),
            items + image * 4 * p.samples};
  }
};

inline bool fits_narrow_index(const Problem& p) { return p.samples <= UINT32_MAX / 4; }

template <typename C, typename Index>
struct Storage {
  WorkspaceLayout layout;
  TileStorage<C, Index> tiles;
  C* gradients;  // [image][channel block][sample][lane]: grad_output, side by side
  C* sums;       // [image][sample][axis]: a chunk of channels, between blocks of channels

  Storage(const Problem& p, const Partition& cut, int lanes, void* workspace) {
    const int64_t samples = cut.images * p.samples;
    tiles.low_x = take<int32_t>(workspace, samples);
    tiles.low_y = take<int32_t>(workspace, samples);
    tiles.fraction_x = take<C>(workspace, samples);
    tiles.fraction_y = take<C>(workspace, samples);
    tiles.counts = take<Index>(workspace, cut.images * cut.blocks * cut.tiles);
    tiles.starts = take<Index>(workspace, cut.images * (cut.tiles + 1));
    tiles.items = take<Index>(workspace, 4 * samples);
    gradients = take<C>(workspace, samples * cut.channel_blocks * lanes);
    sums = take<C>(workspace, 2 * samples);
  }

 private:
  template <typename U>
  U* take(void* workspace, int64_t count) {
    return workspace_array<U>(workspace, layout.reserve<U>(count));
  }
};

// Samples placed at a time, so that each step is a loop that compilers vectorise.
constexpr int64_t kPlaced = 128;

// Moves positions as `rule` wants it: what source_of() does with each, by selections instead of branches.
template <typename C>
void pad_positions(const C* coordinates, int64_t count, int64_t stride, int32_t extent, const Rule& rule,
                   C* positions) {
  const C last = static_cast<C>(extent - 1);
  if (rule.padding == Padding::kReflection) {
    const C edge = rule.aligns_corners ? C(0) : C(-0.5);
    const C span = static_cast<C>(rule.aligns_corners ? extent - 1 : extent), period = span * C(2);
    int near = 1;
    for (int64_t i = 0; i < count; ++i) {
      const C distance = positions[i] - edge;
      near &= (distance < period) & (-distance < period);
    }
    if (near == 0) {  // a remainder is wanted, or a coordinate is missing
      for (int64_t i = 0; i < count; ++i) positions[i] = source_of(coordinates[i * stride], extent, rule).position;
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const C signed_distance = positions[i] - edge;
      const C distance = signed_distance < C(0) ? -signed_distance : signed_distance;
      const C mirrored = distance < span ? distance : period - distance;
      const C position = mirrored + edge;
      const C above = position > C(0) ? position : C(0);
      positions[i] = above >= last ? last : above;
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const C coordinate = coordinates[i * stride];
    const C above = positions[i] > C(0) ? positions[i] : C(0);
    const C clipped = above >= last ? last : above;
    positions[i] = coordinate == coordinate ? clipped : canonical_nan<C>();
  }
}

// One axis of `count` samples, kPlaced at most; `coordinates` is the first one's, `stride` elements apart. What
// locate() does with each.
template <typename C>
void place_axis(const C* coordinates, int64_t count, int64_t stride, int32_t extent, const Rule& rule, int32_t* lows,
                C* fractions) {
  C positions[kPlaced], floors[kPlaced];
  for (int64_t i = 0; i < count; ++i) positions[i] = position_of(coordinates[i * stride], extent, rule);
  if (rule.padding != Padding::kZeros) pad_positions(coordinates, count, stride, extent, rule, positions);
  const bool is_nearest = rule.mode == Mode::kNearest, is_padded = rule.padding != Padding::kZeros;
  if (is_nearest) {
    round_row(positions, count, floors);
  } else {
    floor_row(positions, count, floors);
  }
  for (int64_t i = 0; i < count; ++i) {
    const AxisPosition<C> at = place(positions[i], floors[i], extent);
    lows[i] = at.low;
    fractions[i] = at.fraction;
  }
  // The last pixel's number as C may round up.
  const C last = static_cast<C>(extent - 1);
  for (int64_t i = 0; i < count && is_padded; ++i) {
    const bool is_last = floors[i] >= last;
    lows[i] = is_last ? extent - 1 : lows[i];
    fractions[i] = is_last ? C(0) : fractions[i];
  }
  for (int64_t i = 0; i < count && is_nearest; ++i) {
    lows[i] = lows[i] < 0 ? kOutside : lows[i];
    fractions[i] = C(0);
  }
}

// Calls visit(tile) for each tile that has one of a sample's taps.
template <typename Visit>
inline __attribute__((always_inline)) void visit_tiles(int32_t low_x, int32_t low_y, const Problem& p,
                                                       const Partition& cut, Visit visit) {
  if (low_x == kOutside || low_y == kOutside) return;
  const int32_t left = low_x < 0 ? 0 : low_x, right = low_x + 1 < p.input_w ? low_x + 1 : low_x;
  const int32_t top = low_y < 0 ? 0 : low_y, bottom = low_y + 1 < p.input_h ? low_y + 1 : low_y;
  const int64_t first_column = left >> cut.width_shift, last_column = right >> cut.width_shift;
  const int64_t first_row = top >> cut.height_shift, last_row = bottom >> cut.height_shift;
  visit(first_row * cut.tile_columns + first_column);
  if (first_column != last_column) visit(first_row * cut.tile_columns + last_column);
  if (first_row == last_row) return;
  visit(last_row * cut.tile_columns + first_column);
  if (first_column != last_column) visit(last_row * cut.tile_columns + last_column);
}

// Places the samples [first, end) of an image, counts their items by tile and writes the gradients of those outside,
// unless `grad_grid` is NULL.
template <typename C, typename Index>
void place_block(const RuledProblem& p, const Partition& cut, const C* grid, int64_t first, int64_t end,
                 const TileStorage<C, Index>& s, Index* counts, C* grad_grid) {
  for (int64_t i = first; i < end; i += kPlaced) {
    const int64_t count = at_most(end - i, kPlaced);
    place_axis(grid + 2 * i, count, 2, p.input_w, p.rule, s.low_x + i, s.fraction_x + i);
    place_axis(grid + 2 * i + 1, count, 2, p.input_h, p.rule, s.low_y + i, s.fraction_y + i);
  }
  for (int64_t tile = 0; tile < cut.tiles; ++tile) counts[tile] = 0;
  // Neighbours mostly share a tile: its count stays in a register.
  int64_t current = 0;
  Index count = 0;
  for (int64_t i = first; i < end; ++i) {
    if (grad_grid != nullptr && (s.low_x[i] == kOutside || s.low_y[i] == kOutside)) {
      grad_grid[2 * i] = grad_grid[2 * i + 1] = C(0);
    }
    visit_tiles(s.low_x[i], s.low_y[i], p, cut, [&](int64_t tile) {
      if (tile != current) {
        counts[current] = count;
        count = counts[tile];
        current = tile;
      }
      ++count;
    });
  }
  counts[current] = count;
}

// Turns an image's counts into starts: tiles ascending, in a tile blocks ascending.
template <typename Index>
void sum_counts(const Partition& cut, Index* counts, Index* starts) {
  Index sum = 0;
  for (int64_t tile = 0; tile < cut.tiles; ++tile) {
    starts[tile] = sum;
    for (int64_t block = 0; block < cut.blocks; ++block) {
      const Index count = counts[block * cut.tiles + tile];
      counts[block * cut.tiles + tile] = sum;
      sum += count;
    }
  }
  starts[cut.tiles] = sum;
}

// Writes the items of the samples [first, end) to their tiles.
template <typename C, typename Index>
void deal_block(const Problem& p, const Partition& cut, const TileStorage<C, Index>& s, int64_t first, int64_t end,
                Index* starts) {
  int64_t current = 0;
  Index place = starts[0];
  for (int64_t i = first; i < end; ++i) {
    visit_tiles(s.low_x[i], s.low_y[i], p, cut, [&](int64_t tile) {
      if (tile != current) {
        starts[current] = place;
        place = starts[tile];
        current = tile;
      }
      s.items[place++] = static_cast<Index>(i);
    });
  }
}

// Places and deals the samples of `images` images; `grid` and `grad_grid`, which may be NULL, are the first one's.
template <typename C, typename Index>
void deal_samples(const RuledProblem& p, const Partition& cut, const C* grid, int64_t images,
                  const TileStorage<C, Index>& storage, C* grad_grid) {
  // Some eight simple steps a sample in each pass.
  parallel_for(images * cut.blocks, grain_for(8 * cut.block), [&](int64_t task) {
    const int64_t image = task / cut.blocks, block = task % cut.blocks;
    const TileStorage<C, Index> s = storage.of_image(p, cut, image);
    place_block(p, cut, grid + image * p.samples * 2, block * cut.block, at_most((block + 1) * cut.block, p.samples), s,
                s.counts + block * cut.tiles, grad_grid == nullptr ? nullptr : grad_grid + image * p.samples * 2);
  });
  parallel_for(images, grain_for(cut.blocks * cut.tiles), [&](int64_t image) {
    const TileStorage<C, Index> s = storage.of_image(p, cut, image);
    sum_counts(cut, s.counts, s.starts);
  });
  parallel_for(images * cut.blocks, grain_for(8 * cut.block), [&](int64_t task) {
    const int64_t image = task / cut.blocks, block = task % cut.blocks;
    const TileStorage<C, Index> s = storage.of_image(p, cut, image);
    deal_block(p, cut, s, block * cut.block, at_most((block + 1) * cut.block, p.samples),
               s.counts + block * cut.tiles);
  });
}

}  // namespace
}  // namespace baracuda::grid_sample
