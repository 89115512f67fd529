// SPDX-License-Identifier: Apache-2.0
// How gradients of pooling are cut into tiles on CUDA, shared by the pooling families: a block owns a box of a plane's
// elements, and reads once what all windows that may hold some of them have. What is done with it is the families'.
#pragma once

#include <cstdint>

#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "core/pool_rules.h"
#include "core/pool_windows.h"

namespace baracuda {
namespace {

constexpr int kTileThreads = 256;
// Elements and windows along an axis; blocks have tables of them.
constexpr int64_t kMostTileExtent = 512;
constexpr int64_t kMostTileWindows = 1024;
// So many tiles keep every multiprocessor busy; calls with fewer have smaller ones, down to so many elements.
constexpr int64_t kTileBlocks = 528;
constexpr int64_t kFewestTileElements = 1024;
// What a thread does once for a tile is as much as it does for so many of its windows.
constexpr int64_t kRowsOfTile = 3;

// Divider's division, without a case for 1: with l = ceil(log2 d) and m = floor(2^(31 + l) / d) + 1, which 32 bits
// hold, n / d is rounded down from 2 n m / 2^(32 + l) for the same reason.
struct PlainDivider {
  uint32_t divisor, multiplier, shift;

  PlainDivider() = default;
  explicit PlainDivider(int64_t d) : divisor(static_cast<uint32_t>(d)), multiplier(0), shift(0) {
    while ((int64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>((uint64_t{1} << (31 + shift)) / static_cast<uint64_t>(d) + 1);
  }
  BARACUDA_HD uint32_t divide(uint32_t n) const {
    return static_cast<uint32_t>((static_cast<uint64_t>(2 * n) * multiplier) >> 32) >> shift;
  }
};

// At least as many windows as `count` neighbouring elements have along an axis.
inline int64_t most_windows(const PoolAxis& axis, int64_t count) {
  int64_t most = 0;
  if (!axis.is_adaptive()) {
    most = (count - 1 + span_of(axis) - 1) / axis.stride + 1;
  } else if (axis.extent % axis.bins == 0) {
    const int64_t kernel = axis.extent / axis.bins;
    most = (count - 1 + kernel - 1) / kernel + 1;
  } else {
    most = ceil_div(count * axis.bins, axis.extent) + 1;
  }
  return at_most(most, axis.bins);
}

// Numbers of rows of windows, up to kMostWindowRows, by d and h in two operations: with m = floor(2^21 / count) + 1,
// the product n m fits 32 bits, and n m / 2^21 exceeds n / count by at most n / 2^21, which is less than 1 / count.
struct WindowRows {
  uint32_t count, multiplier;  // along h

  WindowRows() = default;
  explicit WindowRows(int32_t rows)
      : count(static_cast<uint32_t>(rows)), multiplier((uint32_t{1} << 21) / count + 1) {}
  BARACUDA_HD uint32_t divide(uint32_t n) const { return n * multiplier >> 21; }
};
constexpr int64_t kMostWindowRows = 2047;  // a block's threads have at most 8 each
static_assert(kMostWindowRows * ((int64_t{1} << 21) + 1) <= UINT32_MAX, "products fit");
static_assert(kMostWindowRows * kMostTileWindows < int64_t{1} << 21, "quotients are exact");

// How a tensor [planes, extents] is cut. Axes are d, h and w. A block's threads stand in rows, of a thread for each
// group of kLanes elements along w, and for windows of a thread for each column.
struct TileShape {
  int32_t extents[3], bins[3];
  int32_t elements[3];  // of a tile; the last one of an axis has what is left
  int32_t windows[3];   // at most, that may hold elements of a tile
  int32_t box[3];       // at most, that may hold an element
  Divider tiles[3];     // of an axis
  Divider groups, columns;
  int32_t group_rows, column_rows;  // that threads stand in
  PlainDivider element_rows;        // of a tile, along h
  WindowRows window_rows;
  int32_t rows;    // of windows that a thread has at most
  int32_t numel;   // elements of a tile
  int64_t blocks;  // 0 where there are no such tiles
};

// What one axis of a tensor is to tiles: pieces of ever fewer elements with their windows.
struct TilePieces {
  static constexpr int kMost = 64;
  int count = 0;
  int32_t elements[kMost], windows[kMost];

  // From at most `first` elements on.
  template <class Most>
  TilePieces(int32_t extent, int64_t first, const Most& most) {
    for (int64_t pieces = ceil_div(extent, at_most(first, kMostTileExtent)); count < kMost;
         pieces = at_most(pieces + at_least(pieces / 4, 1), extent)) {
      elements[count] = static_cast<int32_t>(ceil_div(extent, pieces));
      windows[count] = static_cast<int32_t>(most(elements[count]));
      if (elements[count++] == 1) break;
    }
  }
};

// The tiles with the fewest windows to a thread for their elements, of at most `most_elements`, and of at most
// `most_rows` windows to a thread, which has one of a row. most(axis, count) is at least as many windows as `count`
// neighbouring elements have, all extents are at least 1, and rows are whole groups of `lanes`. There are none where
// already the windows of a group are too many.
template <class Most>
TileShape choose_tiles(int64_t planes, const int32_t (&extents)[3], const int32_t (&bins)[3], int64_t lanes,
                       int64_t most_elements, int64_t most_rows, const Most& most) {
  TileShape shape{};
  const int64_t numel = planes * extents[0] * extents[1] * extents[2];
  most_elements = at_most(most_elements, at_least(numel / kTileBlocks, kFewestTileElements));
  for (int a = 0; a < 3; ++a) {
    shape.extents[a] = extents[a], shape.bins[a] = bins[a];
    shape.box[a] = static_cast<int32_t>(most(a, 1));
  }
  const int64_t least_rows = static_cast<int64_t>(shape.box[0]) * shape.box[1];
  int64_t width = at_most(extents[2], kMostTileExtent), columns = 0;
  while (true) {
    width = groups_of(ceil_div(extents[2], ceil_div(extents[2], width)), lanes) * lanes;
    columns = most(2, width);
    if (width / lanes <= kTileThreads && columns <= kTileThreads &&
        least_rows <= most_rows * (kTileThreads / columns)) {
      break;
    }
    if (width <= lanes) return shape;
    width /= 2;
  }
  const int64_t rows = most_elements / width, together = kTileThreads / columns;
  const TilePieces ds(extents[0], rows, [&](int64_t count) { return most(0, count); });
  const TilePieces hs(extents[1], rows, [&](int64_t count) { return most(1, count); });
  int64_t best_numel = 0, best_rows = 0;
  for (int d = 0; d < ds.count; ++d) {
    for (int h = 0; h < hs.count; ++h) {
      const int64_t in_tile = static_cast<int64_t>(ds.elements[d]) * hs.elements[h];
      const int64_t each = groups_of(static_cast<int64_t>(ds.windows[d]) * hs.windows[h], together);
      if (in_tile > rows || each > most_rows || at_least(ds.windows[d], hs.windows[h]) > kMostTileWindows) continue;
      if (best_numel == 0 || (each + kRowsOfTile) * best_numel < (best_rows + kRowsOfTile) * in_tile) {
        best_numel = in_tile, best_rows = each;
        shape.elements[0] = ds.elements[d], shape.elements[1] = hs.elements[h];
        shape.windows[0] = ds.windows[d], shape.windows[1] = hs.windows[h];
      }
    }
  }
  shape.elements[2] = static_cast<int32_t>(width), shape.windows[2] = static_cast<int32_t>(columns);
  shape.groups = Divider(width / lanes), shape.columns = Divider(columns);
  shape.group_rows = static_cast<int32_t>(kTileThreads / (width / lanes));
  shape.column_rows = static_cast<int32_t>(together);
  shape.element_rows = PlainDivider(shape.elements[1]), shape.window_rows = WindowRows(shape.windows[1]);
  shape.rows = static_cast<int32_t>(best_rows);
  shape.numel = static_cast<int32_t>(best_numel * width);
  shape.blocks = planes;
  for (int a = 0; a < 3; ++a) {
    const int64_t tiles = ceil_div(extents[a], shape.elements[a]);
    shape.tiles[a] = Divider(tiles);
    shape.blocks *= tiles;
  }
  return shape;
}

// A block's tile.
struct Tile {
  uint32_t plane;
  int32_t begin[3], count[3];  // elements

  __device__ __forceinline__ Tile(const TileShape& shape, uint32_t number) {
#pragma unroll
    for (int a = 2; a >= 0; --a) {
      const uint32_t next = shape.tiles[a].divide(number);
      begin[a] = static_cast<int32_t>(number - next * shape.tiles[a].divisor) * shape.elements[a];
      const int32_t rest = shape.extents[a] - begin[a];
      count[a] = rest < shape.elements[a] ? rest : shape.elements[a];
      number = next;
    }
    plane = number;
  }
};

// Which column of threads a thread stands in, and which row.
struct TileThread {
  int32_t row, column;

  __device__ __forceinline__ explicit TileThread(const Divider& columns) {
    row = static_cast<int32_t>(columns.divide(threadIdx.x));
    column = static_cast<int32_t>(threadIdx.x - static_cast<uint32_t>(row) * columns.divisor);
  }
};

}  // namespace
}  // namespace baracuda
