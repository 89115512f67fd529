// SPDX-License-Identifier: Apache-2.0
// What the tile kernel needs of the boxes, made in one launch: every box's weights in the order in which tiles read
// them, and the boxes of every tile.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/roi_align/math.h"

namespace baracuda::roi_align {
namespace {

// Tiles read weights by unit: four columns, or two rows. A unit meets consecutive bins.
constexpr int kUnitColumns = 4;
constexpr int kUnitRows = 2;

// What one bulk copy moves is a whole number of these bytes and lies at a multiple of them.
constexpr int kBulkBytes = 16;

// A lane of a warp is a bin when a box is tabulated, and records have 8 bits for bins.
constexpr int kMostBins = 16;

// The bins that a unit meets, ascending: one entry each, side by side in the box's table and after those of the unit
// before, so that the entries of neighbouring units are one run.
struct UnitRecord {
  uint32_t bits;

  static __device__ UnitRecord make(int start, int first_bin, int count) {
    return {static_cast<uint32_t>(start) << 16 | static_cast<uint32_t>(first_bin) << 8 | static_cast<uint32_t>(count)};
  }
  __device__ int start() const { return static_cast<int>(bits >> 16); }
  __device__ int first_bin() const { return static_cast<int>(bits >> 8 & 0xffu); }
  __device__ int count() const { return static_cast<int>(bits & 0xffu); }
  __device__ int end() const { return start() + count(); }
};

// Every record of an axis that could not be tabulated: its weights are computed where they are used.
constexpr uint32_t kUntabulated = 0xffffffffu;

// One bin's weights on the pixels of a unit; 0 for a pixel that is not the bin's. One aligned load where that is a
// power of two up to 16 bytes.
template <typename C, int kPixels>
struct alignas(sizeof(C) * kPixels < 16 ? sizeof(C) * kPixels : 16) UnitWeights {
  C weight[kPixels];
};

// Entries of one box on an axis. Bins overlap by at most two pixels as long as positions are exact to a pixel, so this
// holds all of them; coordinates so large that rounding reorders samples may pass it.
inline int64_t entry_capacity(int64_t extent, int64_t bins, int64_t unit) {
  return ceil_div(extent + 2 * unit * bins, unit);
}

// Records have 16 bits for an entry's number.
constexpr int64_t kMostEntries = 0xfffe;

// How the records of one axis of a box lie: tile by tile, each tile's side by side and filled up to whole vectors.
// Units beyond the image, as far as the last tile reaches, have records too.
struct RecordPlaces {
  int32_t tile_units, pitch, tiles;

  RecordPlaces(int64_t extent, int32_t unit, int32_t units_of_tile)
      : tile_units(units_of_tile),
        pitch(pitch_of(units_of_tile)),
        tiles(static_cast<int32_t>(ceil_div(extent, int64_t{unit} * units_of_tile))) {}
  BARACUDA_HD static constexpr int32_t pitch_of(int32_t units_of_tile) {
    constexpr int32_t kStep = kBulkBytes / static_cast<int32_t>(sizeof(UnitRecord));
    return groups_of(units_of_tile, kStep) * kStep;
  }
  BARACUDA_HD int32_t count() const { return tiles * pitch; }
  __device__ int32_t place(int32_t unit) const { return unit / tile_units * pitch + unit % tile_units; }
};

// Entries of a kind that one bulk copy moves together.
template <class Entry>
constexpr int32_t kBulkEntries = sizeof(Entry) < kBulkBytes ? kBulkBytes / static_cast<int32_t>(sizeof(Entry)) : 1;

// The boxes of a problem as tiles want them.
template <typename C>
struct TileTables {
  using XEntry = UnitWeights<C, kUnitColumns>;
  using YEntry = UnitWeights<C, kUnitRows>;

  RecordPlaces x_places, y_places;
  int32_t x_capacity, y_capacity;
  Box<C>* boxes;
  UnitRecord* x_records;  // [num_rois][x_places.count()]
  UnitRecord* y_records;  // [num_rois][y_places.count()]
  XEntry* x_entries;      // [num_rois][x_capacity]
  YEntry* y_entries;      // [num_rois][y_capacity]

  TileTables(const Problem& p, int32_t x_tile_units, int32_t y_tile_units, void* workspace, WorkspaceLayout* layout)
      : x_places(p.w, kUnitColumns, x_tile_units),
        y_places(p.h, kUnitRows, y_tile_units),
        x_capacity(static_cast<int32_t>(entry_capacity(p.w, p.pooled_w, kUnitColumns))),
        y_capacity(static_cast<int32_t>(entry_capacity(p.h, p.pooled_h, kUnitRows))) {
    const int64_t rois = p.num_rois;
    // A box's entries begin where a bulk copy can.
    x_capacity = groups_of(x_capacity, kBulkEntries<XEntry>) * kBulkEntries<XEntry>;
    y_capacity = groups_of(y_capacity, kBulkEntries<YEntry>) * kBulkEntries<YEntry>;
    boxes = workspace_array<Box<C>>(workspace, layout->reserve<Box<C>>(rois));
    x_records = workspace_array<UnitRecord>(workspace, layout->reserve<UnitRecord>(rois * x_places.count()));
    y_records = workspace_array<UnitRecord>(workspace, layout->reserve<UnitRecord>(rois * y_places.count()));
    x_entries = workspace_array<XEntry>(workspace, layout->reserve<XEntry>(rois * x_capacity));
    y_entries = workspace_array<YEntry>(workspace, layout->reserve<YEntry>(rois * y_capacity));
  }

  __device__ UnitRecord x_record(int64_t r, int32_t unit) const {
    return x_records[r * x_places.count() + x_places.place(unit)];
  }
  __device__ UnitRecord y_record(int64_t r, int32_t unit) const {
    return y_records[r * y_places.count() + y_places.place(unit)];
  }
};

// The work of a launch: which boxes touch which tile, the tiles in descending order of their box counts, and the
// counter that hands them out. Bits, not lists: ascending order for free, and num_rois / 8 bytes a tile.
struct TileWork {
  int32_t rows, columns;  // pixels of a tile
  int32_t row_tiles, column_tiles, channel_blocks;
  int32_t tiles;         // images x row tiles x column tiles
  Divider across, down;  // by column_tiles and row_tiles
  int32_t mask_words;    // per tile
  int32_t box_blocks;    // S of the canonical order
  uint32_t* masks;       // [tiles][mask_words]
  int32_t* counts;       // [tiles]
  int32_t* order;        // [tiles]
  int32_t* next;         // [2]: the work counter, and the ticket of the ordering; 0 at the start
};

// Where a tile lies, in tiles.
struct TileAt {
  int32_t image, row, column;
};
__device__ __forceinline__ TileAt tile_at(const TileWork& work, int32_t tile) {
  const uint32_t above = work.across.divide(static_cast<uint32_t>(tile)), image = work.down.divide(above);
  return {static_cast<int32_t>(image), static_cast<int32_t>(above) - static_cast<int32_t>(image) * work.row_tiles,
          tile - static_cast<int32_t>(above) * work.column_tiles};
}

// --- weights --------------------------------------------------------------------------------------------------------

// A bin's units [first, last]; first > last when it has none.
struct UnitRange {
  int32_t first, last;
  __device__ int32_t count() const { return last >= first ? last - first + 1 : 0; }
};

// What a unit meets of `bins` bins, lane b holding bin b's units.
__device__ __forceinline__ UnitRecord record_of(int32_t unit, int32_t bins, const UnitRange& own) {
  int start = 0, first = 0, count = 0;
  for (int32_t bin = 0; bin < bins; ++bin) {
    const UnitRange range{__shfl_sync(kFullWarp, own.first, bin), __shfl_sync(kFullWarp, own.last, bin)};
    if (range.last < range.first) continue;
    const int32_t before = unit - range.first;
    start += before < 0 ? 0 : before > range.count() ? range.count() : before;
    if (unit < range.first || unit > range.last) continue;
    if (count == 0) first = bin;
    ++count;
  }
  return UnitRecord::make(start, first, count);
}

// One warp tabulates one axis of one box.
template <typename C, int kPixels>
__device__ void tabulate_units(const Axis<C>& axis, int32_t bins, const RecordPlaces& places, int32_t capacity,
                               UnitRecord* records, UnitWeights<C, kPixels>* entries) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const PixelRange pixels = lane < bins ? bin_pixels(axis, lane) : PixelRange{0, -1};
  UnitRange own{0, -1};
  if (pixels.first <= pixels.last) own = {pixels.first / kPixels, pixels.last / kPixels};
  int32_t end = own.count();  // of the bin's entries, all bins side by side
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int32_t before = __shfl_up_sync(kFullWarp, end, step);
    if (lane >= step) end += before;
  }
  const int32_t total = __shfl_sync(kFullWarp, end, 31);
  // Where rounding is coarser than a bin, neighbours may change places, and a unit's bins need not be consecutive.
  const int32_t first_before = __shfl_up_sync(kFullWarp, own.first, 1);
  const int32_t last_before = __shfl_up_sync(kFullWarp, own.last, 1);
  const uint32_t some = __ballot_sync(kFullWarp, own.count() > 0);
  const bool follows = own.count() > 0 && lane > 0 && (some >> (lane - 1) & 1u) != 0;
  const bool rises = __all_sync(kFullWarp, !follows || (own.first >= first_before && own.last >= last_before));
  const bool falls = __all_sync(kFullWarp, !follows || (own.first <= first_before && own.last <= last_before));
  const uint32_t gapless = some == 0 ? 0 : some >> (__ffs(static_cast<int>(some)) - 1);
  if (total > capacity || (gapless & (gapless + 1)) != 0 || !(rises || falls)) {
    for (int32_t i = lane; i < places.count(); i += 32) records[i].bits = kUntabulated;
    return;
  }
  // Units that no bin touches need no search; those that some touch are few and mostly fit a warp.
  UnitRange touched{own.count() > 0 ? own.first : INT32_MAX, own.count() > 0 ? own.last : -1};
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const int32_t first = __shfl_xor_sync(kFullWarp, touched.first, step);
    const int32_t last = __shfl_xor_sync(kFullWarp, touched.last, step);
    touched.first = first < touched.first ? first : touched.first;
    touched.last = last > touched.last ? last : touched.last;
  }
  for (int32_t i = lane; i < places.count(); i += 32) {
    const int32_t tile = i / places.pitch, within = i - tile * places.pitch;
    const int32_t unit = tile * places.tile_units + within;
    const bool fills_up = within >= places.tile_units;
    if (fills_up || unit < touched.first || unit > touched.last) {
      records[i] = UnitRecord::make(fills_up || unit < touched.first ? 0 : total, 0, 0);
    }
  }
  UnitRecord held{0};  // of unit touched.first + lane
  for (int32_t base = touched.first; base <= touched.last; base += 32) {
    const UnitRecord record = record_of(base + lane, bins, own);
    if (base == touched.first) held = record;
    if (base + lane <= touched.last) records[places.place(base + lane)] = record;
  }
  const bool all_held = touched.last - touched.first < 32;
  // A weight a lane and step, bin by bin; a division and a bisection each.
  const int32_t weights = total * kPixels;
  for (int32_t base = 0; base < weights; base += 32) {
    const int32_t entry = (base + lane) / kPixels;
    int owner = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      if (entry >= __shfl_sync(kFullWarp, end, owner + step - 1)) owner += step;
    }
    const int32_t owner_first = __shfl_sync(kFullWarp, own.first, owner);
    const int32_t owner_begin = __shfl_sync(kFullWarp, end - own.count(), owner);
    const int32_t unit = owner_first + entry - owner_begin;
    const UnitRecord here{__shfl_sync(kFullWarp, held.bits, (unit - touched.first) & 31)};
    const UnitRecord record = all_held ? here : record_of(unit, bins, own);
    const PixelRange range{__shfl_sync(kFullWarp, pixels.first, owner), __shfl_sync(kFullWarp, pixels.last, owner)};
    if (base + lane >= weights) continue;
    const int32_t pixel = unit * kPixels + lane % kPixels;
    entries[record.start() + owner - record.first_bin()].weight[lane % kPixels] =
        range.has(pixel) ? pixel_weight(axis, owner, pixel) : C(0);
  }
  // The rest of the last copy, so that it reads nothing that nobody wrote.
  const int32_t end_of_copies = (total + kBulkEntries<UnitWeights<C, kPixels>> - 1) &
                                -kBulkEntries<UnitWeights<C, kPixels>>;
  const int32_t rest = weights + lane;
  if (rest < end_of_copies * kPixels) entries[rest / kPixels].weight[rest % kPixels] = C(0);
}

// --- masks ----------------------------------------------------------------------------------------------------------

// The pixels that an axis of a box may touch, from its outermost samples: positions are monotone from the first sample
// to the last, so none lies beyond. Empty when both lie beyond the same end.
template <typename C>
__device__ PixelRange reach(const Axis<C>& axis, int32_t bins) {
  const C a = sample_position(axis, 0, 0), b = sample_position(axis, bins - 1, axis.count - 1);
  const C low = a < b ? a : b, high = a < b ? b : a;
  const C extent = static_cast<C>(axis.extent);
  if (high < C(-1) || low > extent) return {0, -1};
  const int32_t first = tap_at(low, axis.extent).low, last = tap_at(high, axis.extent).low + 1;
  return {first, last};
}

// A box as the mask test sees it.
struct BoxReach {
  int32_t image;
  PixelRange y, x;
};

// Blocks that mark tiles; each works out where all boxes lie, a window of them at a time. The others
// tabulate, which takes most instructions: blocks of half the size spread them over twice as many multiprocessors.
constexpr int kPrepareThreads = 512;
constexpr int kPrepareWarps = kPrepareThreads / 32;
constexpr int kMarkBlocks = 64;
constexpr int kBoxesOfThread = 2;  // their loads are under way together
constexpr int kWindow = kBoxesOfThread * kPrepareThreads;
// Tiles are ordered by box count in this many classes; only the heavy ones must start early.
constexpr int kOrderClasses = 256;

// Orders the tiles, heavy ones first, in one block. Integer counters only; the order changes speed, never bits.
__device__ void order_tiles(const TileWork& work, int32_t* classes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = static_cast<int>(threadIdx.x); i < kOrderClasses; i += kPrepareThreads) classes[i] = 0;
  __syncthreads();
  // Calls visit(tile, its class), with the loads of some tiles under way together.
  const auto for_each_tile = [&](const auto& visit) {
    constexpr int kTilesOfThread = 4;
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    for (int32_t base = thread; base < work.tiles; base += kTilesOfThread * kPrepareThreads) {
      int32_t counts[kTilesOfThread];
#pragma unroll
      for (int k = 0; k < kTilesOfThread; ++k) {
        const int32_t tile = base + k * kPrepareThreads;
        counts[k] = __ldcg(&work.counts[tile < work.tiles ? tile : base]);
      }
#pragma unroll
      for (int k = 0; k < kTilesOfThread; ++k) {
        const int32_t tile = base + k * kPrepareThreads;
        if (tile >= work.tiles) break;
        visit(tile, kOrderClasses - 1 - (counts[k] < kOrderClasses ? counts[k] : kOrderClasses - 1));
      }
    }
  };
  for_each_tile([&](int32_t, int32_t tile_class) { atomicAdd(&classes[tile_class], 1); });
  __syncthreads();
  if (threadIdx.x < 32) {  // from the tiles of each class to where the class starts
    int32_t base = 0;
    for (int part = 0; part < kOrderClasses / 32; ++part) {
      const int32_t own = classes[part * 32 + lane];
      int32_t end = own;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int32_t before = __shfl_up_sync(kFullWarp, end, step);
        if (lane >= step) end += before;
      }
      classes[part * 32 + lane] = base + end - own;
      base += __shfl_sync(kFullWarp, end, 31);
    }
  }
  __syncthreads();
  for_each_tile([&](int32_t tile, int32_t tile_class) { work.order[atomicAdd(&classes[tile_class], 1)] = tile; });
}

// Marks the boxes of tiles block, block + kMarkBlocks, ...
template <typename C>
__device__ void mark_tiles(const Problem& p, const C* rois, const TileWork& work, int32_t block, BoxReach* window) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int32_t tile = block + static_cast<int32_t>(threadIdx.x) * kMarkBlocks; tile < work.tiles;
       tile += kPrepareThreads * kMarkBlocks) {
    work.counts[tile] = 0;
  }
  for (int32_t first = 0; first < p.num_rois; first += kWindow) {
    const int32_t boxes = p.num_rois - first < kWindow ? p.num_rois - first : kWindow;
    __syncthreads();
    C coordinates[kBoxesOfThread][5];
#pragma unroll
    for (int k = 0; k < kBoxesOfThread; ++k) {
      const int32_t i = static_cast<int32_t>(threadIdx.x) + k * kPrepareThreads;
      const C* roi = rois + 5 * (static_cast<int64_t>(first) + (i < boxes ? i : 0));
#pragma unroll
      for (int j = 0; j < 5; ++j) coordinates[k][j] = roi[j];
    }
#pragma unroll
    for (int k = 0; k < kBoxesOfThread; ++k) {
      const int32_t i = static_cast<int32_t>(threadIdx.x) + k * kPrepareThreads;
      if (i >= boxes) break;
      const Box<C> box = make_box(coordinates[k], p);
      window[i].image = box.image;
      if (box.image < 0) continue;
      window[i].y = reach(box.y, p.pooled_h);
      window[i].x = reach(box.x, p.pooled_w);
    }
    __syncthreads();
    const int32_t words = static_cast<int32_t>(ceil_div(boxes, 32));
    for (int32_t tile = block; tile < work.tiles; tile += kMarkBlocks) {
      const TileAt at = tile_at(work, tile);
      const int32_t column = at.column * work.columns, row = at.row * work.rows;
      int32_t count = 0;
      for (int32_t word = warp; word < words; word += kPrepareWarps) {
        const int32_t i = word * 32 + lane;
        bool touched = false;
        if (i < boxes && window[i].image == at.image) {
          const PixelRange y = window[i].y, x = window[i].x;
          touched = y.first < row + work.rows && y.last >= row && x.first < column + work.columns && x.last >= column;
        }
        const uint32_t mask = __ballot_sync(kFullWarp, touched);
        if (lane == 0) work.masks[static_cast<int64_t>(tile) * work.mask_words + first / 32 + word] = mask;
        count += __popc(mask);
      }
      if (lane == 0 && count > 0) atomicAdd(&work.counts[tile], count);
    }
  }
}

// Counters of TileWork::next.
constexpr int kCounters = 2;

// The first kMarkBlocks blocks mark tiles, and the one that finishes last orders them; the others tabulate, an axis of
// a box a warp. Launched early: nothing but the counters is another kernel's.
template <typename C>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_boxes(Problem p, const C* rois, TileTables<C> tables, TileWork work) {
  __shared__ BoxReach window[kWindow];
  if (blockIdx.x >= kMarkBlocks) {
    const int64_t job = (static_cast<int64_t>(blockIdx.x) - kMarkBlocks) * kPrepareWarps + threadIdx.x / 32;
    const int64_t r = job / 2;
    if (r >= p.num_rois) return wait_for_kernel_before();
    const Box<C> box = make_box(rois + 5 * r, p);
    if (job % 2 == 0) {
      if (threadIdx.x % 32 == 0) tables.boxes[r] = box;
      if (box.image < 0) return wait_for_kernel_before();
      tabulate_units(box.y, p.pooled_h, tables.y_places, tables.y_capacity,
                     tables.y_records + r * tables.y_places.count(), tables.y_entries + r * tables.y_capacity);
    } else if (box.image >= 0) {
      tabulate_units(box.x, p.pooled_w, tables.x_places, tables.x_capacity,
                     tables.x_records + r * tables.x_places.count(), tables.x_entries + r * tables.x_capacity);
    }
    return wait_for_kernel_before();
  }
  mark_tiles(p, rois, work, static_cast<int32_t>(blockIdx.x), window);
  __shared__ bool last;
  __threadfence();
  wait_for_kernel_before();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&work.next[1], 1) == kMarkBlocks - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  order_tiles(work, reinterpret_cast<int32_t*>(window));
}

}  // namespace
}  // namespace baracuda::roi_align
