// SPDX-License-Identifier: Apache-2.0
// How the backward's planes are cut into tiles, what a block's shared memory holds of one, and where a tile lies.
#pragma once

#include "core/cuda_division.cuh"
#include "ops/roi_pool/cuda/ranges.cuh"

namespace baracuda::roi_pool {
namespace {

constexpr int kTileWarps = 8;
constexpr int kTileThreads = 32 * kTileWarps;
// Where a tile has fewer channels than a warp lanes, a warp sees to several parts of it at once.
constexpr int kParts = 32 / kTileChannels;
// The parts of a tile, a warp's beside each other.
constexpr int kPartRows = 4;
constexpr int kPartColumns = kTileWarps / kPartRows * kParts;
// Boxes that are brought in together, so that the warps of a block wait for each other seldom: as many as these bytes
// hold. A batch is added while the two after it are under way.
constexpr int kBatchBytes = 25600;
constexpr int kMostBatch = 8;
constexpr int kRangeBytes = (sizeof(BinRanges) + 15) / 16 * 16;  // of a staged box
constexpr int kBatches = 3;  // wait_for_copies_but_last() fits this number alone
// Boxes that a block looks at before it adds what it has listed: a warp 128 of them.
constexpr int kLooks = 4;
constexpr int kListed = 32 * kLooks * kTileWarps;
// A warp's pixels of all its channels on their way out: 128 bytes of a channel, so many columns of each part. An odd
// pitch, so that neither way has bank conflicts.
template <typename C>
constexpr int kStripColumns = 128 / static_cast<int>(sizeof(C)) / kParts;
template <typename C>
constexpr int kStripPitch = kParts* kStripColumns<C> + 1;
// Parts of more rows are never wanted, and `TilePart` divides by widths up to kMostWidth for at most 64.
constexpr int kMostPartRows = 24;
constexpr int32_t kMostWidth = 8192;

// How planes are cut into tiles, evenly, and what a block's shared memory holds. Any cut gives the same sums.
struct Tiling {
  int32_t part_rows, part_columns;
  int32_t rows, row_tiles, columns, column_tiles;
  int32_t groups;
  int32_t box_bytes, batch;  // of a staged box; boxes of a batch
  uint32_t multiplier;       // see TilePart
  int64_t tiles, jobs;

  // The offsets of what shared memory holds, and its end.
  size_t ring, listed, totals, bytes;

  template <typename T>
  static Tiling of(const Problem& p, const DeviceTraits& device) {
    using C = Compute<T>;
    Tiling t{};
    t.groups = static_cast<int32_t>(channel_groups(p));
    t.multiplier = static_cast<uint32_t>((uint64_t{1} << 32) / static_cast<uint64_t>(p.w) + 1);
    const int64_t bins = kTileChannels * p.bins();
    t.box_bytes = static_cast<int32_t>(bins * (4 + sizeof(T)) + kRangeBytes);
    // A device of little shared memory has a third of it for batches.
    const int64_t bytes_of_batch = at_most(kBatchBytes, device.shared_bytes / 3 / kBatches);
    t.batch = static_cast<int32_t>(at_most(at_least(bytes_of_batch / t.box_bytes, 1), kMostBatch));
    const size_t strips = kTileWarps * kTileChannels * kStripPitch<C> * sizeof(C);
    const size_t batches = kBatches * static_cast<size_t>(t.batch) * t.box_bytes;
    const size_t others = (batches > strips ? batches : strips) + kListed * sizeof(int32_t) + kTileWarps * sizeof(int);
    const size_t row_bytes = kTileWarps * 32 * sizeof(C);
    t.cut(p, device.multiprocessors, static_cast<int32_t>((device.shared_bytes - others) / row_bytes) - 1);
    t.ring = (static_cast<size_t>(t.part_rows) * t.part_columns + 1) * row_bytes;
    t.bytes = t.ring + others;
    t.totals = t.bytes - kTileWarps * sizeof(int);
    t.listed = t.totals - kListed * sizeof(int32_t);
    return t;
  }

 private:
  // Of the cuts whose parts have at most so many pixels, the one that takes least: as many rounds as give every
  // multiprocessor its tiles, and in each as many boxes as boxes of some 20 pixels make meet a tile.
  void cut(const Problem& p, int64_t multiprocessors, int32_t most_pixels) {
    constexpr int32_t kBoxPixels = 20;
    const int64_t planes = static_cast<int64_t>(groups) * p.n * p.blocks();
    int64_t least = INT64_MAX;
    for (int32_t wanted = 1; wanted <= (most_pixels < kMostPartRows ? most_pixels : kMostPartRows); ++wanted) {
      for (int32_t more = 0; more < 2; ++more) {
        Tiling t{};
        split(p.h, kPartRows * wanted, 0, &t.rows, &t.row_tiles);
        t.part_rows = static_cast<int32_t>(ceil_div(t.rows, kPartRows));
        split(p.w, kPartColumns * (most_pixels / t.part_rows), more, &t.columns, &t.column_tiles);
        t.part_columns = static_cast<int32_t>(ceil_div(t.columns, kPartColumns));
        t.tiles = static_cast<int64_t>(t.row_tiles) * t.column_tiles;
        const int64_t rounds = ceil_div(t.tiles * planes, multiprocessors);
        const int64_t took = rounds * (t.rows + kBoxPixels) * (t.columns + kBoxPixels);
        if (took >= least) continue;
        least = took;
        part_rows = t.part_rows, part_columns = t.part_columns;
        rows = t.rows, row_tiles = t.row_tiles, columns = t.columns, column_tiles = t.column_tiles;
        tiles = t.tiles;
      }
    }
    jobs = tiles * planes;
  }

  // Into pieces of at most `most`, or as many `more`, none of them empty.
  static void split(int32_t extent, int32_t most, int32_t more, int32_t* size, int32_t* count) {
    *size = static_cast<int32_t>(ceil_div(extent, ceil_div(extent, most) + more));
    *count = static_cast<int32_t>(ceil_div(extent, *size));
  }
};

// Where a tile lies.
struct TilePlace {
  int64_t block;
  int32_t image, group, channel, channels, row, rows, column, columns;

  // Tiles innermost: those of a plane read the same bins.
  __device__ TilePlace(const Problem& p, const Tiling& tiling, int64_t job) {
    const Division of_plane(job, tiling.tiles), of_group(of_plane.quotient, tiling.groups);
    const Division of_image(of_group.quotient, p.n), down(of_plane.remainder, tiling.column_tiles);
    block = of_image.quotient;
    image = static_cast<int32_t>(of_image.remainder);
    group = static_cast<int32_t>(of_group.remainder);
    channel = group * kTileChannels;
    channels = min(p.c - channel, kTileChannels);
    row = static_cast<int32_t>(down.quotient) * tiling.rows;
    rows = min(p.h - row, tiling.rows);
    column = static_cast<int32_t>(down.remainder) * tiling.columns;
    columns = min(p.w - column, tiling.columns);
  }
};

}  // namespace
}  // namespace baracuda::roi_pool
