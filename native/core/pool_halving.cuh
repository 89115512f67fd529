// SPDX-License-Identifier: Apache-2.0
// How gradients of pooling by windows of three elements that begin at every second one are cut into tiles on CUDA,
// shared by the pooling families: a block keeps its windows in shared memory, a thread has four elements of 2 x 2 rows.
//
// With u = place + padding, a place of even u = 2 m is in windows m - 1 and m, one of odd u = 2 m + 1 in window m
// alone. So two neighbouring places, a pair, have windows m - 1 and m, and four of a row have three.
#pragma once

#include <cstdint>

#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "core/pool_rules.h"
#include "core/pool_tiles.cuh"
#include "core/pool_windows.h"

namespace baracuda {
namespace {

// Elements of a row that a thread has at once.
constexpr int kHalvingLanes = 4;
// Threads along w, at most, and blocks of rows that a thread has one after the other.
constexpr int64_t kHalvingGroups = 64;
constexpr int64_t kHalvingEach = 4;
// Pairs of rows of a tile, at most: what shared memory holds of narrow rows.
constexpr int64_t kHalvingPairs = 512;
// So many windows a thread asks for at once.
constexpr int kHalvingBatch = 4;

// What a thread writes at once: up to 16 bytes, or 32 by two stores.
template <typename T>
struct alignas(sizeof(T) == 2 ? 8 : 16) HalvingLanes {
  T lanes[kHalvingLanes];
};

template <typename C>
struct alignas(2 * sizeof(C)) HalvingCouple {
  C first, second;
};

// Axes are d, h and w. Where windows along d are single elements, slices are planes, and d has one pair.
struct HalvingShape {
  int32_t extents[3], bins[3], paddings[2];
  int32_t pairs[2];  // of places along d and h, of a tile
  int32_t rows;      // of a tile's windows
  int32_t groups;    // of kHalvingLanes elements, of a tile
  int32_t all_groups;
  int32_t group_rows, column_rows;  // that threads stand in
  Divider by_pieces, by_tiles_h, by_tiles_d, by_slices, by_groups, by_columns, by_pairs_h;
  WindowRows windows_h;
  uint32_t blocks;
  bool has_depth, is_odd;  // windows along d; padding along w

  // An even number, for loads of two; the last of a row is never read.
  BARACUDA_HD int32_t pitch() const { return 2 * groups + 2; }
  BARACUDA_HD int32_t cells() const { return rows * pitch(); }
  BARACUDA_HD uint32_t plane_bins() const {
    return static_cast<uint32_t>(bins[0]) * static_cast<uint32_t>(bins[1]) * static_cast<uint32_t>(bins[2]);
  }
};

inline bool is_halving(const PoolAxis& axis) {
  return has_rules(axis) && axis.kernel == 3 && axis.stride == 2 && axis.padding <= 1 && axis.dilation == 1;
}
// Of windows that are single elements.
inline bool is_single(const PoolAxis& axis) {
  return has_rules(axis) && axis.kernel == 1 && axis.stride == 1 && axis.bins == axis.extent;
}

template <typename T>
bool has_halving(const PoolAxis* axes, const T* grad_input) {
  return (is_halving(axes[0]) || is_single(axes[0])) && is_halving(axes[1]) && is_halving(axes[2]) &&
         axes[2].extent % kHalvingLanes == 0 &&
         reinterpret_cast<uintptr_t>(grad_input) % alignof(HalvingLanes<T>) == 0;
}

// Of axes with has_halving(), and fewer than 2^31 elements and windows.
inline HalvingShape halving_shape(const PoolAxis* axes, int64_t all_planes) {
  const PoolAxis &d = axes[0], &h = axes[1], &w = axes[2];
  const bool has_depth = is_halving(d);
  const int64_t slices = has_depth ? 1 : d.extent, planes = all_planes * slices;
  const auto pairs_of = [](const PoolAxis& axis) { return ceil_div(int64_t{axis.extent} + axis.padding, 2); };
  const int64_t all_d = has_depth ? pairs_of(d) : 1, all_h = pairs_of(h), all_groups = w.extent / kHalvingLanes;
  const int64_t pieces = ceil_div(all_groups, kHalvingGroups), groups = ceil_div(all_groups, pieces);
  const int64_t group_rows = kTileThreads / groups, columns = 2 * groups + 1;
  // As many blocks of rows as threads have one after the other, fewer where multiprocessors would have none.
  const int64_t each = at_most(group_rows * kHalvingEach, kHalvingPairs);
  const int64_t most = at_least(at_most(planes * pieces * all_d * all_h / kTileBlocks, each), 1);
  int64_t pairs_d = 1, pairs_h = has_depth ? 1 : most;
  while (has_depth && 2 * pairs_d * pairs_h <= most && (pairs_d < all_d || pairs_h < all_h)) {
    const bool takes_d = pairs_h >= all_h || (pairs_d < pairs_h && pairs_d < all_d);
    (takes_d ? pairs_d : pairs_h) *= 2;
  }
  const int64_t tiles_d = ceil_div(all_d, pairs_d), tiles_h = ceil_div(all_h, pairs_h);
  pairs_d = ceil_div(all_d, tiles_d), pairs_h = ceil_div(all_h, tiles_h);
  const int64_t windows_d = has_depth ? pairs_d + 1 : 1, windows_h = pairs_h + 1;
  const auto small = [](int64_t number) { return static_cast<int32_t>(number); };
  return {{has_depth ? d.extent : 1, h.extent, w.extent},
          {has_depth ? d.bins : 1, h.bins, w.bins},
          {d.padding, h.padding},
          {small(pairs_d), small(pairs_h)},
          small(windows_d * windows_h),
          small(groups),
          small(all_groups),
          small(group_rows),
          small(kTileThreads / columns),
          Divider(pieces),
          Divider(tiles_h),
          Divider(tiles_d),
          Divider(slices),
          Divider(groups),
          Divider(columns),
          Divider(pairs_h),
          WindowRows(small(windows_h)),
          static_cast<uint32_t>(planes * pieces * tiles_d * tiles_h),
          has_depth,
          w.padding % 2 != 0};
}

// A block's tile: its first pairs and group, which also say its first windows.
struct HalvingTile {
  uint32_t plane;
  int32_t pair_d, pair_h, group;
  uint32_t window_d, window_h, window_w;  // one before the first is a large number

  __device__ __forceinline__ explicit HalvingTile(const HalvingShape& shape) {
    const uint32_t tile_h = shape.by_pieces.divide(blockIdx.x), tile_d = shape.by_tiles_h.divide(tile_h);
    plane = shape.by_tiles_d.divide(tile_d);
    group = static_cast<int32_t>(blockIdx.x - tile_h * shape.by_pieces.divisor) * shape.groups;
    pair_h = static_cast<int32_t>(tile_h - tile_d * shape.by_tiles_h.divisor) * shape.pairs[1];
    pair_d = static_cast<int32_t>(tile_d - plane * shape.by_tiles_d.divisor) * shape.pairs[0];
    window_d = static_cast<uint32_t>(shape.has_depth ? pair_d - 1 : 0);
    window_h = static_cast<uint32_t>(pair_h - 1);
    window_w = static_cast<uint32_t>(2 * group - 1 + (shape.is_odd ? 1 : 0));
  }
};

// The window in a row and column of a tile's windows.
struct HalvingWindow {
  uint32_t d, h, w;
  bool is_there;

  __device__ __forceinline__ HalvingWindow(const HalvingShape& shape, const HalvingTile& tile, uint32_t row,
                                           int32_t column) {
    const uint32_t slab = shape.windows_h.divide(row);
    d = tile.window_d + slab;
    h = tile.window_h + row - slab * shape.windows_h.count;
    w = tile.window_w + static_cast<uint32_t>(column);
    is_there = (row < static_cast<uint32_t>(shape.rows)) & (d < static_cast<uint32_t>(shape.bins[0])) &
               (h < static_cast<uint32_t>(shape.bins[1])) & (w < static_cast<uint32_t>(shape.bins[2]));
  }

  __device__ __forceinline__ uint32_t number(const HalvingShape& shape) const {
    return (d * static_cast<uint32_t>(shape.bins[1]) + h) * static_cast<uint32_t>(shape.bins[2]) + w;
  }
};

// The windows of a block of 2 x 2 rows of four elements, or of 1 x 2, as `cells` keep something of each.
template <typename C, int kSlices>
__device__ __forceinline__ void load_halving(const C* cells, int32_t pitch, int32_t slab, C (&found)[kSlices][2][3]) {
#pragma unroll
  for (int d = 0; d < kSlices; ++d) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const C* const row = cells + d * slab + h * pitch;
      const HalvingCouple<C> couple = *reinterpret_cast<const HalvingCouple<C>*>(row);
      found[d][h][0] = couple.first, found[d][h][1] = couple.second, found[d][h][2] = row[2];
    }
  }
}

// A thread's blocks of rows, one after the other. use(cell, z, y) gets the first of a block's cells, and the first
// places of its pairs, of which some may be outside.
template <class Use>
__device__ __forceinline__ void walk_halving(const HalvingShape& shape, const HalvingTile& tile,
                                             const TileThread& thread, const Use& use) {
  const int32_t pitch = shape.pitch(), slab = static_cast<int32_t>(shape.windows_h.count) * pitch;
  for (int32_t block = thread.row; block < shape.pairs[0] * shape.pairs[1]; block += shape.group_rows) {
    const int32_t d = static_cast<int32_t>(shape.by_pairs_h.divide(static_cast<uint32_t>(block)));
    const int32_t h = block - d * shape.pairs[1];
    use(d * slab + h * pitch + 2 * thread.column, shape.has_depth ? 2 * (tile.pair_d + d) - shape.paddings[0] : 0,
        2 * (tile.pair_h + h) - shape.paddings[1]);
  }
}

// Whether element `lane` of four is in window `column` of their three; kOdd is 1 where the padding along w is odd.
template <int kOdd>
constexpr bool is_in_column(int lane, int column) {
  const int u = lane + kOdd, last = u / 2 + 1 - kOdd;
  return column == last || (u % 2 == 0 && column == last - 1);
}

}  // namespace
}  // namespace baracuda
