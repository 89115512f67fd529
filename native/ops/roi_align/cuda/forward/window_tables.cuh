// SPDX-License-Identifier: Apache-2.0
// What the window kernel needs of the boxes, made in one launch: the rows that a box's bins weigh, and what of the
// image is copied when.
#pragma once

#include <type_traits>

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/roi_align/cuda/tables.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

// Seven warps: a row of a box head's bins each.
constexpr int kWindowWarps = 7;
constexpr int kWindowThreads = 32 * kWindowWarps;
constexpr int kWindowChannels = 32;
template <typename T>
constexpr int kWindowCtas = sizeof(T) == 8 ? 3 : 4;

// What a box may have to be pooled by windows.
constexpr int kMostWindowBins = 32;  // on an axis
constexpr int kMostRows = 128;       // that some bin weighs
constexpr int kMostRowWeights = 256;
constexpr int kMostColumnWeights = 512;
constexpr int kMostSpan = 4096;  // from its first row to its last

// A window's rows are whole units: 16 bytes and four pixels or more.
constexpr int kCopyBytes = 16;
template <typename T>
constexpr int kUnitPixels = sizeof(T) == 2 ? 8 : kWeightGroup;
template <typename T>
constexpr int kUnitCopies = kUnitPixels<T> * static_cast<int>(sizeof(T)) / kCopyBytes;

// Bins whose results are collected in shared memory, to be stored in runs; a row of bins or more. All those of a box
// head; more would take room from windows.
constexpr int32_t kCollectedBins = 49;
BARACUDA_HD int32_t collected_bins(const Problem& p) {
  return p.pooled_h * p.pooled_w <= kCollectedBins ? kCollectedBins : 2 * kCollectedBins;
}

// What a box weighs of one row in one bin; `slot` counts the rows that the box's bins weigh.
template <typename C>
struct alignas(2 * sizeof(C)) RowWeight {
  C weight;
  std::conditional_t<sizeof(C) == sizeof(int64_t), int64_t, int32_t> slot;  // no byte of a pair is left unwritten
};

// A bin's rows: their weights, ascending, and the slots that they span.
struct alignas(16) BinRows {
  int32_t begin, count;
  int32_t first_slot, last_slot;
  __device__ bool none() const { return count == 0; }
};

// A box on each axis. rows or units -1: not to be pooled by windows.
struct WindowRows {
  int32_t rows, weights;
  int32_t most;  // slots that a bin spans
};
struct WindowColumns {
  int32_t units, first, weights;
  int32_t most;  // units that a bin spans
};

// What a box's CTAs look at first: two loads of 16 bytes.
struct alignas(16) WindowBox {
  int32_t image;   // -1: all its bins are 0
  int32_t passes;  // planned ones, or one of the two below
  int32_t rows, row_weights;
  int32_t units, first_unit, column_weights;
  uint32_t by_row_copies;  // divides by the copies of a row of all units, see copies_divider
};
constexpr int32_t kSplitRows = 0;   // a row of bins does not fit: its CTAs find passes as they go
constexpr int32_t kByColumns = -1;  // a bin does not fit

// Some ph of a box and the slots that they need.
struct alignas(16) PlannedPass {
  int32_t ph, phs;
  int32_t slot, rows;
};

// Beside a box's tables: the rows of windows, and what is copied when.
template <typename C>
struct WindowTables {
  int32_t row_capacity, weight_capacity;
  size_t bytes;
  WindowBox* boxes;
  int32_t* rows;          // [num_rois][row_capacity]
  RowWeight<C>* weights;  // [num_rois][weight_capacity]
  BinRows* bins;          // [num_rois][pooled_h]
  PlannedPass* passes;    // [num_rois][pooled_h]

  WindowTables(const Problem& p, void* workspace)
      : row_capacity(static_cast<int32_t>(at_most((int64_t{p.h} + 3) & ~int64_t{3}, kMostRows))),
        weight_capacity(static_cast<int32_t>(at_most(table_capacity(p.h, p.pooled_h), kMostRowWeights))) {
    const int64_t rois = p.input_numel > 0 && p.output_numel > 0 ? p.num_rois : 0;
    WorkspaceLayout layout;
    boxes = workspace_array<WindowBox>(workspace, layout.reserve<WindowBox>(rois));
    rows = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(rois * row_capacity));
    weights = workspace_array<RowWeight<C>>(workspace, layout.reserve<RowWeight<C>>(rois * weight_capacity));
    bins = workspace_array<BinRows>(workspace, layout.reserve<BinRows>(rois * p.pooled_h));
    passes = workspace_array<PlannedPass>(workspace, layout.reserve<PlannedPass>(rois * p.pooled_h));
    bytes = layout.bytes();
  }
};

// Entries of a table that is copied by units of kCopyBytes.
template <typename Entry>
BARACUDA_HD int32_t filled_up(int32_t count) {
  constexpr int32_t kStep = sizeof(Entry) < kCopyBytes ? kCopyBytes / static_cast<int32_t>(sizeof(Entry)) : 1;
  return groups_of(count, kStep) * kStep;
}

// Collects the rows that a warp tabulates: their weights without the zeros, and which rows they are.
template <typename C>
struct RowList {
  uint32_t seen[kMostSpan / 32];    // rows from the first on, a bit each
  int32_t before[kMostSpan / 32];  // rows seen before a word's
  int32_t counts[kMostWindowBins];  // of a bin's weights
  C weights[kMostRowWeights];
  int32_t rows[kMostRowWeights];
};

// Lane b holds what bin b has.
__device__ __forceinline__ int32_t largest_of_lanes(int32_t value) {
  for (int step = 16; step > 0; step /= 2) {
    const int32_t other = __shfl_xor_sync(kFullWarp, value, step);
    value = other > value ? other : value;
  }
  return value;
}

// By one warp; `own` becomes the rows of the lane's bin.
template <typename C>
__device__ WindowRows tabulate_window_rows(const Problem& p, const BoxTables<C>& tables,
                                           const WindowTables<C>& windows, int64_t r, const Axis<C>& axis,
                                           RowList<C>& list, BinRows* own) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kWords = kMostSpan / 32;
  for (int i = lane; i < kWords; i += 32) list.seen[i] = 0;
  list.counts[lane] = 0;
  __syncwarp();
  int32_t found = 0;
  bool fits = true;
  PixelRange touched = no_pixels();
  tabulate_axis(axis, p.pooled_h, tables.y_bins + r * p.pooled_h, tables.y_weights + r * tables.y_capacity,
                tables.y_capacity, &tables.touched[2 * r],
                [&](int32_t bin, int32_t row, C weight) {
                  const uint32_t some = __ballot_sync(kFullWarp, weight != C(0));
                  const int32_t at = found + __popc(some & ((1u << lane) - 1));
                  if (weight != C(0)) atomicAdd(&list.counts[bin], 1);
                  if (weight != C(0) && at < kMostRowWeights) {
                    list.weights[at] = weight;
                    list.rows[at] = row;
                  }
                  found += __popc(some);
                });
  for (int32_t bin = lane; bin < p.pooled_h; bin += 32) {
    const BinEntry entry = tables.y_bins[r * p.pooled_h + bin];
    fits = fits && entry.weights >= 0;
    touched = join(touched, entry.pixels);
  }
  fits = __all_sync(kFullWarp, fits) && found <= kMostRowWeights;
  const int32_t lowest = -largest_of_lanes(-touched.first);
  const int32_t highest = largest_of_lanes(touched.last);
  fits = fits && static_cast<int64_t>(highest) - lowest < kMostSpan;
  if (!fits) return {-1, 0, 0};
  __syncwarp();
  for (int32_t i = lane; i < found; i += 32) {
    const int32_t row = list.rows[i] - lowest;
    atomicOr(&list.seen[row / 32], 1u << (row % 32));
  }
  __syncwarp();
  int32_t rows = 0;
  for (int base = 0; base < kWords && base * 32 <= highest - lowest; base += 32) {
    const int32_t own = __popc(list.seen[base + lane]);
    int32_t end = own;
    for (int step = 1; step < 32; step *= 2) {
      const int32_t before = __shfl_up_sync(kFullWarp, end, step);
      if (lane >= step) end += before;
    }
    list.before[base + lane] = rows + end - own;
    rows += __shfl_sync(kFullWarp, end, 31);
  }
  if (rows > windows.row_capacity || found > windows.weight_capacity) return {-1, 0, 0};
  __syncwarp();
  const auto slot_of = [&](int32_t i) {
    const int32_t row = list.rows[i] - lowest;
    return list.before[row / 32] + __popc(list.seen[row / 32] & ((1u << (row % 32)) - 1));
  };
  for (int32_t i = lane; i < found; i += 32) {
    const int32_t slot = slot_of(i);
    windows.rows[r * windows.row_capacity + slot] = list.rows[i];
    windows.weights[r * windows.weight_capacity + i] = {list.weights[i], slot};
  }
  // The rest of the last copies, so that these read nothing that nobody wrote.
  if (lane < filled_up<int32_t>(rows) - rows) windows.rows[r * windows.row_capacity + rows + lane] = 0;
  if (lane < filled_up<RowWeight<C>>(found) - found) {
    windows.weights[r * windows.weight_capacity + found + lane] = {C(0), 0};
  }
  const int32_t own_count = list.counts[lane];
  int32_t end = own_count;
  for (int step = 1; step < 32; step *= 2) {
    const int32_t before = __shfl_up_sync(kFullWarp, end, step);
    if (lane >= step) end += before;
  }
  BinRows bin{end - own_count, own_count, 0, -1};
  if (own_count > 0) {
    bin.first_slot = slot_of(bin.begin);
    bin.last_slot = slot_of(end - 1);
  }
  if (lane < p.pooled_h) windows.bins[r * p.pooled_h + lane] = bin;
  *own = bin;
  return {rows, found, largest_of_lanes(bin.last_slot - bin.first_slot + 1)};
}

template <typename T>
__device__ WindowColumns tabulate_window_columns(const Problem& p, const BoxTables<Compute<T>>& tables, int64_t r,
                                                 const Axis<Compute<T>>& axis) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  tabulate_axis(axis, p.pooled_w, tables.x_bins + r * p.pooled_w, tables.x_weights + r * tables.x_capacity,
                tables.x_capacity, &tables.touched[2 * r + 1],
                [](int32_t, int32_t, Compute<T>) {});
  __syncwarp();
  const BinEntry entry = lane < p.pooled_w ? tables.x_bins[r * p.pooled_w + lane] : BinEntry{{0, -1}, 0};
  const bool some = entry.pixels.first <= entry.pixels.last;
  const int32_t first = some ? entry.pixels.first / kUnitPixels<T> : INT32_MAX;
  const int32_t last = some ? entry.pixels.last / kUnitPixels<T> : -1;
  const int32_t most = largest_of_lanes(some ? last - first + 1 : 0);
  const int32_t lowest = -largest_of_lanes(-first), highest = largest_of_lanes(last);
  const int32_t weights =
      largest_of_lanes(some ? entry.weights + static_cast<int32_t>(weights_of(entry.pixels)) : 0);
  const bool fits = __all_sync(kFullWarp, !some || entry.weights >= 0) && weights <= kMostColumnWeights;
  if (!fits) return {-1, 0, 0, 0};
  if (highest < 0) return {0, 0, 0, 0};
  return {highest - lowest + 1, lowest, weights, most};
}

// 16-byte copies that a channel's window takes; an odd number apart, lanes meet no conflict.
template <typename T>
__device__ __forceinline__ int32_t window_copies(int32_t rows, int32_t units) {
  return rows * units * kUnitCopies<T> | 1;
}

// at / count is at * divider >> kDividerBits for every copy of a window: at * count is less than two to these bits.
constexpr int kDividerBits = 20;
__device__ __forceinline__ uint32_t copies_divider(int32_t count) {
  return ((1u << kDividerBits) - 1) / static_cast<uint32_t>(count) + 1;
}

// Plans a box's passes, of as many ph each as their number allows, by one warp whose lanes hold bins' rows. `room` is
// what a window may take.
template <typename T>
__device__ WindowBox plan_passes(const Problem& p, int32_t image, const WindowRows& y, const WindowColumns& x,
                                 const BinRows& own, int32_t room, PlannedPass* passes) {
  WindowBox box{image, kByColumns, y.rows, y.weights, x.units, x.first, x.weights, 1};
  if (y.rows == 0 || x.units == 0) {
    box.image = -1;
    return box;
  }
  if (y.rows < 0 || x.units < 0 || window_copies<T>(y.most, x.most) > room) return box;
  const auto from = [&](int32_t ph, int32_t most) {
    PlannedPass pass{ph, 0, 0, 0};
    int32_t first = INT32_MAX, last = -1;
    for (; ph + pass.phs < p.pooled_h && pass.phs < most; ++pass.phs) {
      const int32_t bin_first = __shfl_sync(kFullWarp, own.first_slot, ph + pass.phs);
      const int32_t bin_last = __shfl_sync(kFullWarp, own.last_slot, ph + pass.phs);
      if (bin_first > bin_last) continue;
      const int32_t low = bin_first < first ? bin_first : first, high = bin_last > last ? bin_last : last;
      if (window_copies<T>(high - low + 1, x.units) > room) break;
      first = low, last = high;
    }
    if (last >= 0) pass.slot = first, pass.rows = last - first + 1;
    return pass;
  };
  box.by_row_copies = copies_divider(x.units * kUnitCopies<T>);
  box.passes = kSplitRows;
  int32_t most = from(0, p.pooled_h).phs;
  if (most == 0) return box;
  const int32_t wanted = groups_of(p.pooled_h, most);
  most = groups_of(p.pooled_h, wanted);
  for (int32_t ph = 0; ph < p.pooled_h;) {
    const PlannedPass pass = from(ph, most);
    if (pass.phs == 0) {
      box.passes = kSplitRows;
      return box;
    }
    if (threadIdx.x % 32 == 0) passes[box.passes] = pass;
    ++box.passes;
    ph += pass.phs;
  }
  return box;
}

// A warp an axis of a box.
constexpr int kWindowTableThreads = 64;

// One box's tables, by a block.
template <typename T>
__device__ __forceinline__ void tabulate_window(const Problem& p, const Box<Compute<T>>& box, int64_t r,
                                                const BoxTables<Compute<T>>& tables,
                                                const WindowTables<Compute<T>>& windows, int32_t room,
                                                RowList<Compute<T>>& list, WindowColumns& columns) {
  if (threadIdx.x == 0) tables.boxes[r] = box;
  if (box.image < 0) {
    if (threadIdx.x == 0) windows.boxes[r] = {-1, kByColumns, 0, 0, 0, 0, 0, 1};
    return;
  }
  __syncthreads();  // the box before is planned
  WindowRows rows{};
  BinRows own{};
  if (threadIdx.x < 32) {
    rows = tabulate_window_rows(p, tables, windows, r, box.y, list, &own);
  } else {
    const WindowColumns found = tabulate_window_columns<T>(p, tables, r, box.x);
    if (threadIdx.x == 32) columns = found;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const WindowBox planned = plan_passes<T>(p, box.image, rows, columns, own, room, windows.passes + r * p.pooled_h);
  if (threadIdx.x == 0) windows.boxes[r] = planned;
}

template <typename T>
__global__ void __launch_bounds__(kWindowTableThreads)
    tabulate_windows(Problem p, const Compute<T>* rois, BoxTables<Compute<T>> tables,
                     WindowTables<Compute<T>> windows, int32_t room) {
  __shared__ RowList<Compute<T>> list;
  __shared__ WindowColumns columns;
  for (int64_t r = blockIdx.x; r < p.num_rois; r += gridDim.x) {
    tabulate_window<T>(p, make_box(rois + 5 * r, p), r, tables, windows, room, list, columns);
  }
}

template <typename T>
__global__ void __launch_bounds__(kWindowTableThreads)
    tabulate_windows_of_levels(const __grid_constant__ LevelsProblem maps, const Compute<T>* rois,
                               BoxTables<Compute<T>> tables, WindowTables<Compute<T>> windows, int32_t room) {
  __shared__ RowList<Compute<T>> list;
  __shared__ WindowColumns columns;
  for (int64_t r = blockIdx.x; r < maps.all.num_rois; r += gridDim.x) {
    const int32_t level = level_of(rois + 5 * r, maps);
    const Box<Compute<T>> box = box_of(maps, level, rois + 5 * r);
    tabulate_window<T>(maps.levels[level], box, r, tables, windows, room, list, columns);
  }
}

template <typename T>
Status enqueue_window_tables(const Problem& p, const Compute<T>* rois, const BoxTables<Compute<T>>& tables,
                             const WindowTables<Compute<T>>& windows, int32_t room, Stream stream) {
  return launch_kernel("roi_align table kernel", tabulate_windows<T>, blocks_for(p.num_rois, 1), kWindowTableThreads, 0,
                       stream, p, rois, tables, windows, room);
}
template <typename T>
Status enqueue_window_tables(const LevelsProblem& maps, const Compute<T>* rois, const BoxTables<Compute<T>>& tables,
                             const WindowTables<Compute<T>>& windows, int32_t room, Stream stream) {
  return launch_kernel("roi_align_levels table kernel", tabulate_windows_of_levels<T>, blocks_for(maps.all.num_rois, 1),
                       kWindowTableThreads, 0, stream, maps, rois, tables, windows, room);
}

}  // namespace
}  // namespace baracuda::roi_align
