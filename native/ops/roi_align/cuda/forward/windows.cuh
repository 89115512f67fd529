// SPDX-License-Identifier: Apache-2.0
// The forward's fast path: a CTA owns a box for 32 channels and copies the part of the image that the box's bins touch
// to shared memory, rows of whole 16 bytes; then a lane is a channel, so that weights and control flow are the same for
// the whole warp.
//
// Only rows that some bin weighs are copied. What does not fit at once is pooled in passes of some ph, or of some pw of
// one ph; boxes with a bin that does not fit by itself are pooled by columns.
#pragma once

#include <type_traits>

#include "core/checked.h"
#include "core/cuda_copies.cuh"
#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/roi_align/cuda/forward/columns.cuh"
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
  return (count + kStep - 1) / kStep * kStep;
}

// --- tables ----------------------------------------------------------------------------------------------------------

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
    const int32_t other = __shfl_xor_sync(0xffffffffu, value, step);
    value = other > value ? other : value;
  }
  return value;
}

// By one warp; `own` becomes the rows of the lane's bin.
template <typename C>
__device__ WindowRows tabulate_window_rows(const Problem& p, const BoxTables<C>& tables,
                                           const WindowTables<C>& windows, int64_t r, const Axis<C>& axis,
                                           RowList<C>& list, BinRows* own) {
  constexpr unsigned kAll = 0xffffffffu;
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
                  const uint32_t some = __ballot_sync(kAll, weight != C(0));
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
  fits = __all_sync(kAll, fits) && found <= kMostRowWeights;
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
      const int32_t before = __shfl_up_sync(kAll, end, step);
      if (lane >= step) end += before;
    }
    list.before[base + lane] = rows + end - own;
    rows += __shfl_sync(kAll, end, 31);
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
    const int32_t before = __shfl_up_sync(kAll, end, step);
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
  const bool fits = __all_sync(0xffffffffu, !some || entry.weights >= 0) && weights <= kMostColumnWeights;
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
  constexpr unsigned kAll = 0xffffffffu;
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
      const int32_t bin_first = __shfl_sync(kAll, own.first_slot, ph + pass.phs);
      const int32_t bin_last = __shfl_sync(kAll, own.last_slot, ph + pass.phs);
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
  const int32_t wanted = (p.pooled_h + most - 1) / most;
  most = (p.pooled_h + wanted - 1) / wanted;
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
template <typename T>
__global__ void __launch_bounds__(kWindowTableThreads)
    tabulate_windows(Problem p, const Compute<T>* rois, BoxTables<Compute<T>> tables,
                     WindowTables<Compute<T>> windows, int32_t room) {
  using C = Compute<T>;
  __shared__ RowList<C> list;
  __shared__ WindowColumns columns;
  for (int64_t r = blockIdx.x; r < p.num_rois; r += gridDim.x) {
    const Box<C> box = make_box(rois + 5 * r, p);
    if (threadIdx.x == 0) tables.boxes[r] = box;
    if (box.image < 0) {
      if (threadIdx.x == 0) windows.boxes[r] = {-1, kByColumns, 0, 0, 0, 0, 0, 1};
      continue;
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
    if (threadIdx.x >= 32) continue;
    const WindowBox planned =
        plan_passes<T>(p, box.image, rows, columns, own, room, windows.passes + r * p.pooled_h);
    if (threadIdx.x == 0) windows.boxes[r] = planned;
  }
}

// --- windows ---------------------------------------------------------------------------------------------------------

// A box's tables as the CTA reads them.
template <typename T>
struct WindowShared {
  using C = Compute<T>;
  alignas(16) C column_weights[kMostColumnWeights];
  alignas(16) RowWeight<C> row_weights[kMostRowWeights];
  alignas(16) BinEntry columns[kMostWindowBins];
  BinRows bins[kMostWindowBins];
  PlannedPass passes[kMostWindowBins];
  WindowBox box;  // registers are few
  alignas(16) int32_t rows[kMostRows];
};

// Byte offsets of the CTA's dynamic shared memory.
template <typename T>
struct WindowLayout {
  int32_t collected_at, window_at;

  BARACUDA_HD explicit WindowLayout(const Problem& p) {
    collected_at = static_cast<int32_t>(sizeof(WindowShared<T>));
    // An odd number of elements a lane, so that lanes meet no bank twice.
    window_at = collected_at + (collected_bins(p) | 1) * kWindowChannels * static_cast<int32_t>(sizeof(T));
  }
};

// Some bins of a box and the window that they need, in slots and units.
struct WindowPass {
  int32_t ph, phs, pw, pws;
  int32_t slot, rows, unit, units;
  uint32_t by_row_copies;
};

__device__ __forceinline__ WindowPass whole_rows(const Problem& p, const WindowBox& box, const PlannedPass& planned) {
  return {planned.ph,   planned.phs,    0,         p.pooled_w,       planned.slot,
          planned.rows, box.first_unit, box.units, box.by_row_copies};
}

// The next pass from (ph, pw) on where no passes are planned. `room` holds any bin. Not inlined, so that it costs
// planned passes no registers.
template <typename T>
__device__ __noinline__ void find_pass(const Problem& p, const WindowShared<T>& shared, int32_t ph, int32_t pw,
                                       int32_t room, WindowPass* found) {
  const int32_t units = shared.box.units;
  WindowPass pass{ph, 0, pw, p.pooled_w, 0, 0, shared.box.first_unit, units, shared.box.by_row_copies};
  int32_t first = INT32_MAX, last = -1;
  if (pw == 0) {
    for (; ph + pass.phs < p.pooled_h; ++pass.phs) {
      const BinRows bin = shared.bins[ph + pass.phs];
      if (!bin.none()) {
        const int32_t low = bin.first_slot < first ? bin.first_slot : first;
        const int32_t high = bin.last_slot > last ? bin.last_slot : last;
        if (window_copies<T>(high - low + 1, units) > room) break;
        first = low, last = high;
      }
    }
    pass.slot = last < 0 ? 0 : first;
    pass.rows = last < 0 ? 0 : last - first + 1;
    if (pass.phs > 0) {
      *found = pass;
      return;
    }
  }
  // Some bins of one ph.
  const BinRows bin = shared.bins[ph];
  pass.phs = 1, pass.pws = 0;
  pass.slot = bin.first_slot;
  pass.rows = bin.last_slot - bin.first_slot + 1;
  first = INT32_MAX, last = -1;
  for (; pw + pass.pws < p.pooled_w; ++pass.pws) {
    const PixelRange pixels = shared.columns[pw + pass.pws].pixels;
    if (pixels.first > pixels.last) continue;
    const int32_t low = pixels.first / kUnitPixels<T> < first ? pixels.first / kUnitPixels<T> : first;
    const int32_t high = pixels.last / kUnitPixels<T> > last ? pixels.last / kUnitPixels<T> : last;
    if (window_copies<T>(pass.rows, high - low + 1) > room) break;
    first = low, last = high;
  }
  pass.unit = last < 0 ? 0 : first;
  pass.units = last < 0 ? 0 : last - first + 1;
  if (last >= 0) pass.by_row_copies = copies_divider(pass.units * kUnitCopies<T>);
  *found = pass;
}

// Starts to copy a table of a box, filled up, by one warp: most tables are some 20 copies.
template <typename Entry>
__device__ __forceinline__ void copy_table(Entry* shared, const Entry* table, int32_t count) {
  const int32_t copies = filled_up<Entry>(count) * static_cast<int32_t>(sizeof(Entry)) / kCopyBytes;
#pragma unroll 1
  for (int32_t i = static_cast<int32_t>(threadIdx.x) % 32; i < copies; i += 32) {
    copy_async<kCopyBytes>(reinterpret_cast<char*>(shared) + i * kCopyBytes,
                           reinterpret_cast<const char*>(table) + i * kCopyBytes);
  }
}

// Starts to copy a pass's window, kBytes at a time, as the image's rows are aligned. A lane's places are the same in
// every channel. `rows` are the box's.
template <typename T, int kBytes>
__device__ __forceinline__ void begin_window(const Problem& p, const int32_t* rows, const WindowPass& pass,
                                             int32_t channels, const T* planes, char* window) {
  constexpr int kPixels = kBytes / static_cast<int>(sizeof(T));
  constexpr int kPieces = kCopyBytes / kBytes;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kRounds = (kWindowChannels + kWindowWarps - 1) / kWindowWarps;
  const int64_t plane = static_cast<int64_t>(p.h) * p.w, step = kWindowWarps * plane;
  const int32_t of_row = pass.units * kUnitCopies<T>, copies = pass.rows * of_row;
  const int32_t pitch = window_copies<T>(pass.rows, pass.units) * kCopyBytes;
  // Opaque, so that the compiler does not work out anew for every copy where shared memory begins.
  asm("" : "+l"(window));
#pragma unroll 1
  for (int32_t at = lane; at < copies; at += 32) {
    const int32_t row = static_cast<int32_t>(static_cast<uint32_t>(at) * pass.by_row_copies >> kDividerBits);
    const int32_t column = pass.unit * kUnitPixels<T> + (at - row * of_row) * (kPieces * kPixels);
    const T* from = planes + static_cast<int64_t>(rows[pass.slot + row]) * p.w + column + warp * plane;
    char* to = window + at * kCopyBytes + warp * pitch;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        if (warp + i * kWindowWarps < channels && column + piece * kPixels < p.w) {
          copy_async<kBytes>(to + piece * kBytes, from + piece * kPixels);
        }
      }
      from += step;
      to += kWindowWarps * pitch;
    }
  }
}

template <typename T>
__device__ __forceinline__ void begin_window(const Problem& p, const int32_t* rows, const WindowPass& pass,
                                             int32_t channels, const T* planes, char* window, int32_t piece) {
  if (piece == 16) {
    begin_window<T, 16>(p, rows, pass, channels, planes, window);
  } else if (piece == 8) {
    begin_window<T, 8>(p, rows, pass, channels, planes, window);
  } else if constexpr (sizeof(T) < 8) {
    begin_window<T, 4>(p, rows, pass, channels, planes, window);
  }
}

// Four neighbouring values.
template <typename V>
struct alignas(sizeof(V) * kWeightGroup < 16 ? sizeof(V) * kWeightGroup : 16) Group {
  V value[kWeightGroup];
};

// One channel of a window as its lane sees it.
struct LaneWindow {
  const char* pixels;  // the box's first slot, pixel 0 of the image's row
  int32_t row_bytes;
};

// Bins [pw, end) of one ph, whose rows' weights stay in registers; kRows 0: any number of rows, read anew for every
// four columns. Rows ascending inside a column, then columns ascending.
template <typename T, int kRows>
__device__ __forceinline__ void pool_bins(const WindowShared<T>& shared, const LaneWindow& window,
                                          const BinRows& bin, int32_t pw, int32_t end, T* collected) {
  using C = Compute<T>;
  const RowWeight<C>* row_weights = shared.row_weights + bin.begin;
  int32_t rows[kRows > 0 ? kRows : 1];  // bytes from the first slot
  C weights[kRows > 0 ? kRows : 1];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const RowWeight<C> row = row_weights[i];
    rows[i] = static_cast<int32_t>(row.slot) * window.row_bytes;
    // Opaque, so that the compiler does not work a row's address out anew for every group.
    asm("" : "+r"(rows[i]));
    weights[i] = row.weight;
  }
  int32_t summed = -1;  // the first pixel of the group that `columns` holds: neighbouring bins share one
  C columns[kWeightGroup] = {};
#pragma unroll 1
  for (; pw < end; ++pw, ++collected) {
    const BinEntry entry = shared.columns[pw];
    const Group<C>* column_weights = reinterpret_cast<const Group<C>*>(shared.column_weights + entry.weights);
    C sum = C(0);
#pragma unroll 1
    for (int32_t pixel = first_in_group(entry.pixels.first); pixel <= entry.pixels.last;
         pixel += kWeightGroup, ++column_weights) {
      const Group<C> weight = *column_weights;
      if (pixel != summed) {
        summed = pixel;
        const char* const pixels = window.pixels + pixel * static_cast<int32_t>(sizeof(T));
#pragma unroll
        for (int k = 0; k < kWeightGroup; ++k) columns[k] = C(0);
        if constexpr (kRows > 0) {
          Group<T> values[kRows];
#pragma unroll
          for (int i = 0; i < kRows; ++i) values[i] = *reinterpret_cast<const Group<T>*>(pixels + rows[i]);
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
#pragma unroll
            for (int k = 0; k < kWeightGroup; ++k) columns[k] = fma(weights[i], widen(values[i].value[k]), columns[k]);
          }
        } else {
#pragma unroll 4
          for (int32_t i = 0; i < bin.count; ++i) {
            const RowWeight<C> row = row_weights[i];
            const char* const at = pixels + static_cast<int32_t>(row.slot) * window.row_bytes;
            const Group<T> values = *reinterpret_cast<const Group<T>*>(at);
#pragma unroll
            for (int k = 0; k < kWeightGroup; ++k) columns[k] = fma(row.weight, widen(values.value[k]), columns[k]);
          }
        }
      }
#pragma unroll
      for (int k = 0; k < kWeightGroup; ++k) {
        if (weight.value[k] != C(0)) sum = fma(weight.value[k], columns[k], sum);
      }
    }
    *collected = narrow<T>(sum);
  }
}

// `count` bins of a pass from its row `row` and the column `column` of it on, for the lane's channel.
template <typename T>
__device__ __forceinline__ void pool_run(const WindowShared<T>& shared, const WindowPass& pass,
                                         const LaneWindow& window, int32_t row, int32_t column, int32_t count,
                                         T* collected) {
  for (; count > 0; ++row, column = 0) {
    const int32_t run = pass.pws - column < count ? pass.pws - column : count;
    const int32_t pw = pass.pw + column, pw_end = pw + run;
    const BinRows bin = shared.bins[pass.ph + row];
    // Two samples a bin meet two to four rows.
    switch (bin.count) {
      case 2: pool_bins<T, 2>(shared, window, bin, pw, pw_end, collected); break;
      case 3: pool_bins<T, 3>(shared, window, bin, pw, pw_end, collected); break;
      case 4: pool_bins<T, 4>(shared, window, bin, pw, pw_end, collected); break;
      default: pool_bins<T, 0>(shared, window, bin, pw, pw_end, collected); break;
    }
    collected += run;
    count -= run;
  }
}

// Stores `count` collected results of every channel, `bins` apart in memory.
template <typename T>
__device__ __forceinline__ void store_collected(const T* collected, int32_t pitch, int32_t channels, int32_t count,
                                                int64_t bins, T* outputs) {
  const int32_t all = channels * count;
  if (count == bins && count == pitch) {
    constexpr int kVector = 16 / static_cast<int>(sizeof(T));
    if (reinterpret_cast<uintptr_t>(outputs) % 16 == 0 && all % kVector == 0) {
      for (int32_t i = threadIdx.x; i < all / kVector; i += kWindowThreads) {
        reinterpret_cast<uint4*>(outputs)[i] = reinterpret_cast<const uint4*>(collected)[i];
      }
    } else {
      for (int32_t i = threadIdx.x; i < all; i += kWindowThreads) outputs[i] = collected[i];
    }
    return;
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int32_t channel = warp; channel < channels; channel += kWindowWarps) {
    for (int32_t i = lane; i < count; i += 32) outputs[channel * bins + i] = collected[channel * pitch + i];
  }
}

// A box with a bin that no window holds, by columns. Rare, and not to cost the others registers.
template <typename T>
__device__ __noinline__ void pool_by_columns(const Problem& p, const ForwardBuffers<T>& b,
                                             const BoxTables<Compute<T>>& tables, int64_t r, int32_t channel,
                                             int32_t channels, char* strips) {
  ColumnStrip<T>* const strip = reinterpret_cast<ColumnStrip<T>*>(strips) + threadIdx.x / 32;
  for (int32_t k = static_cast<int32_t>(threadIdx.x) / 32 * kForwardChannels<T>; k < channels;
       k += kWindowWarps * kForwardChannels<T>) {
    const int32_t left = channels - k;
    pool_box(p, b, tables, r, channel + k, left < kForwardChannels<T> ? left : kForwardChannels<T>, *strip);
  }
}

// What jobs divide by, and how many bins of whole rows are collected at a time.
struct WindowSteps {
  Divider by_rois, by_width;  // num_rois and pooled_w
  int32_t collected;
};

template <typename T>
__global__ void __launch_bounds__(kWindowThreads, kWindowCtas<T>)
    pool_windows(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T> b,
                 const __grid_constant__ BoxTables<Compute<T>> tables,
                 const __grid_constant__ WindowTables<Compute<T>> windows,
                 const __grid_constant__ WindowSteps steps, int32_t piece, int32_t room) {
  using C = Compute<T>;
  extern __shared__ __align__(16) char dynamic[];
  const WindowLayout<T> layout(p);
  WindowShared<T>& shared = *reinterpret_cast<WindowShared<T>*>(dynamic);
  T* const collected = reinterpret_cast<T*>(dynamic + layout.collected_at);
  char* const window = dynamic + layout.window_at;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int32_t bins = p.pooled_h * p.pooled_w;
  // Boxes innermost: the planes at work at one time then stay in L2, wherever the boxes lie.
  const int32_t job = static_cast<int32_t>(blockIdx.x);
  const int32_t block = static_cast<int32_t>(steps.by_rois.divide(job)), channel = block * kWindowChannels;
  const int64_t r = job - block * p.num_rois;
  const int32_t channels = p.c - channel < kWindowChannels ? p.c - channel : kWindowChannels;
  T* const outputs = b.output + (r * p.c + channel) * bins;
  wait_for_kernel_before();
  const WindowBox box = windows.boxes[r];
  if (box.image < 0) {
    for (int32_t i = thread; i < channels * bins; i += kWindowThreads) outputs[i] = narrow<T>(C(0));
    return;
  }
  if (box.passes == kByColumns) return pool_by_columns(p, b, tables, r, channel, channels, dynamic);
  if (thread == 0) shared.box = box;
  switch (warp) {
    case 0: copy_table(shared.rows, windows.rows + r * windows.row_capacity, box.rows); break;
    case 1: copy_table(shared.bins, windows.bins + r * p.pooled_h, p.pooled_h); break;
    case 2: copy_table(shared.columns, tables.x_bins + r * p.pooled_w, p.pooled_w); break;
    case 3: copy_table(shared.passes, windows.passes + r * p.pooled_h, box.passes); break;
    case 4: copy_table(shared.row_weights, windows.weights + r * windows.weight_capacity, box.row_weights); break;
    case 5: copy_table(shared.column_weights, tables.x_weights + r * tables.x_capacity, box.column_weights); break;
  }
  // The first window does not wait for the tables: it reads where its rows are by itself.
  const int32_t* rows = windows.rows + r * windows.row_capacity;
  const auto find = [&](int32_t ph, int32_t pw) {
    WindowPass found;
    find_pass(p, shared, ph, pw, room, &found);
    return found;
  };
  WindowPass pass;
  if (box.passes != kSplitRows) {
    pass = whole_rows(p, box, windows.passes[r * p.pooled_h]);
  } else {
    wait_for_copies();
    __syncthreads();
    pass = find(0, 0);
  }
  const T* planes = b.input + (static_cast<int64_t>(box.image) * p.c + channel) * p.h * p.w;
  // Collected bins are stored while the next window is under way.
  int32_t next = 1, first = 0, kept = 0, kept_at = 0;
  for (bool done = false;;) {
    const bool opens = first == 0 && !done;
    if (opens) begin_window(p, rows, pass, channels, planes, window, piece);
    if (kept > 0) store_collected(collected, kept | 1, channels, kept, bins, outputs + kept_at);
    if (done) break;
    if (opens) wait_for_copies();
    __syncthreads();
    rows = shared.rows;
    const bool whole_row = pass.pws == p.pooled_w;
    const int32_t all = pass.phs * pass.pws, room_for = whole_row ? steps.collected : collected_bins(p);
    kept = all - first < room_for ? all - first : room_for;
    kept_at = pass.ph * p.pooled_w + pass.pw + first;
    const int32_t share = (kept + kWindowWarps - 1) / kWindowWarps;
    const int32_t begin = warp * share < kept ? warp * share : kept;
    const int32_t end = begin + share < kept ? begin + share : kept;
    const int32_t of_row = pass.units * kUnitCopies<T>;
    const int32_t outside = pass.slot * of_row + pass.unit * kUnitCopies<T>;
    const LaneWindow own{window + (lane * window_copies<T>(pass.rows, pass.units) - outside) * kCopyBytes,
                         of_row * kCopyBytes};
    // A pass of less than a row has one.
    const int32_t row = whole_row ? static_cast<int32_t>(steps.by_width.divide(first + begin)) : 0;
    pool_run(shared, pass, own, row, first + begin - row * pass.pws, end - begin,
             collected + lane * (kept | 1) + begin);
    first += kept;
    if (first == all) {
      first = 0;
      const WindowBox& box = shared.box;
      if (box.passes != kSplitRows) {
        done = next == box.passes;
        if (!done) pass = whole_rows(p, box, shared.passes[next++]);
      } else {
        const bool row_ends = pass.pw + pass.pws == p.pooled_w;
        const int32_t ph = row_ends ? pass.ph + pass.phs : pass.ph, pw = row_ends ? 0 : pass.pw + pass.pws;
        done = ph == p.pooled_h;
        if (!done) pass = find(ph, pw);
      }
    }
    __syncthreads();
  }
}

// --- launch ----------------------------------------------------------------------------------------------------------

// How a call is pooled by windows; `piece` 0: it is not.
struct WindowPlan {
  int32_t piece = 0, room = 0, jobs = 0;
  size_t shared_bytes = 0;
};

// Below this a detection head's rows of bins hardly fit.
constexpr int64_t kLeastWindowBytes = 24 << 10;
// A window's copies are counted exactly, see copies_divider: no machine has more shared memory than this.
constexpr int64_t kMostWindowBytes = (int64_t{1} << (kDividerBits / 2)) * kWindowChannels * kCopyBytes;

// CTAs that share a multiprocessor's memory. Box heads of f32 gain more from larger windows than from a fourth CTA;
// with more bins sums take longer than copies, and windows of 16-bit values are large enough.
template <typename T>
int window_ctas(const Problem& p) {
  return sizeof(T) == 4 && p.pooled_h * p.pooled_w <= kCollectedBins ? 3 : kWindowCtas<T>;
}

template <typename T>
WindowPlan plan_windows(const Problem& p, const T* input, const DeviceTraits& device) {
  WindowPlan plan;
  const int64_t jobs = ceil_div(p.c, kWindowChannels) * p.num_rois;
  if (p.input_numel == 0 || p.output_numel == 0 || jobs > (int64_t{1} << 30)) return plan;
  if (p.pooled_h > kMostWindowBins || p.pooled_w > kMostWindowBins) return plan;
  plan.jobs = static_cast<int32_t>(jobs);
  for (int ctas = window_ctas<T>(p); ctas >= 1 && plan.room == 0; --ctas) {
    const int64_t bytes = (static_cast<int64_t>(device.shared_bytes) + 1024) / ctas / 16 * 16 - 1024;
    const int64_t window = at_most(bytes - WindowLayout<T>(p).window_at, kMostWindowBytes);
    if (window < kLeastWindowBytes) continue;
    plan.shared_bytes = static_cast<size_t>(bytes);
    plan.room = static_cast<int32_t>(window / (kWindowChannels * kCopyBytes));
  }
  if (plan.room == 0) return plan;
  const uint64_t row_bytes = static_cast<uint64_t>(p.w) * sizeof(T);
  for (int32_t piece = kCopyBytes; piece >= 4 && piece >= static_cast<int32_t>(sizeof(T)); piece /= 2) {
    if (row_bytes % piece == 0 && reinterpret_cast<uintptr_t>(input) % piece == 0) {
      plan.piece = piece;
      break;
    }
  }
  return plan;
}

template <typename T>
Status run_windows(const Problem& p, const ForwardBuffers<T>& b, const WindowPlan& plan,
                   const BoxTables<Compute<T>>& tables, void* workspace, Stream stream) {
  static_assert(kWindowWarps * sizeof(ColumnStrip<T>) <= sizeof(WindowShared<T>) + kLeastWindowBytes);
  const WindowTables<Compute<T>> windows(p, static_cast<char*>(workspace) + tables.bytes);
  const WindowSteps steps{Divider(p.num_rois), Divider(p.pooled_w),
                          collected_bins(p) / p.pooled_w * p.pooled_w};
  BARACUDA_RETURN_IF_FAILED(launch_kernel("roi_align table kernel", tabulate_windows<T>,
                                          blocks_for(p.num_rois, 1), kWindowTableThreads, 0, stream, p, b.rois,
                                          tables, windows, plan.room));
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes("roi_align kernel", pool_windows<T>, plan.shared_bytes));
  return launch_early("roi_align kernel", pool_windows<T>, static_cast<uint32_t>(plan.jobs), kWindowThreads,
                      plan.shared_bytes, stream, p, b, tables, windows, steps, plan.piece, plan.room);
}

}  // namespace
}  // namespace baracuda::roi_align
