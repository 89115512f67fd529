// SPDX-License-Identifier: Apache-2.0
// The forward's fast path: a CTA owns a box for 32 channels and copies the part of the image that the box's bins touch
// to shared memory, rows of whole 16 bytes; then a lane is a channel, so that weights and control flow are the same for
// the whole warp.
//
// Only rows that some bin weighs are copied. What does not fit at once is pooled in passes of some ph, or of some pw of
// one ph; boxes with a bin that does not fit by itself are pooled by columns.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/roi_align/cuda_columns.cuh"
#include "ops/roi_align/cuda_tables.cuh"
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
  int32_t slot;
};

// A bin's rows: their weights, ascending, and the slots that they span.
struct alignas(16) BinRows {
  int32_t begin, count;
  int32_t first_slot, last_slot;
  __device__ bool none() const { return count == 0; }
};

// A box on each axis. rows or units -1: not to be pooled by windows.
struct alignas(16) WindowRows {
  int32_t rows, weights;
  int32_t most;  // slots that a bin spans
  int32_t pad;
};
struct alignas(16) WindowColumns {
  int32_t units, first, weights;
  int32_t most;  // units that a bin spans
};

// Beside a box's tables: the rows of windows.
template <typename C>
struct WindowTables {
  int32_t row_capacity, weight_capacity;
  size_t bytes;
  WindowRows* y;
  WindowColumns* x;
  int32_t* rows;          // [num_rois][row_capacity]
  RowWeight<C>* weights;  // [num_rois][weight_capacity]
  BinRows* bins;          // [num_rois][pooled_h]

  WindowTables(const Problem& p, void* workspace)
      : row_capacity(static_cast<int32_t>(at_most((int64_t{p.h} + 3) & ~int64_t{3}, kMostRows))),
        weight_capacity(static_cast<int32_t>(at_most(table_capacity(p.h, p.pooled_h), kMostRowWeights))) {
    const int64_t rois = p.input_numel > 0 && p.output_numel > 0 ? p.num_rois : 0;
    WorkspaceLayout layout;
    y = workspace_array<WindowRows>(workspace, layout.reserve<WindowRows>(rois));
    x = workspace_array<WindowColumns>(workspace, layout.reserve<WindowColumns>(rois));
    rows = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(rois * row_capacity));
    weights = workspace_array<RowWeight<C>>(workspace, layout.reserve<RowWeight<C>>(rois * weight_capacity));
    bins = workspace_array<BinRows>(workspace, layout.reserve<BinRows>(rois * p.pooled_h));
    bytes = layout.bytes();
  }
};

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

template <typename C>
__device__ void tabulate_window_rows(const Problem& p, const BoxTables<C>& tables, const WindowTables<C>& windows,
                                     int64_t r, const Axis<C>& axis, RowList<C>& list) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x);
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
  if (!fits) {
    if (lane == 0) windows.y[r] = {-1, 0, 0, 0};
    return;
  }
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
  if (rows > windows.row_capacity || found > windows.weight_capacity) {
    if (lane == 0) windows.y[r] = {-1, 0, 0, 0};
    return;
  }
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
  const int32_t most = largest_of_lanes(bin.last_slot - bin.first_slot + 1);
  if (lane == 0) windows.y[r] = {rows, found, most, 0};
}

template <typename T>
__device__ void tabulate_window_columns(const Problem& p, const BoxTables<Compute<T>>& tables,
                                        const WindowTables<Compute<T>>& windows, int64_t r,
                                        const Axis<Compute<T>>& axis) {
  const int lane = static_cast<int>(threadIdx.x);
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
  if (lane != 0) return;
  if (!fits) {
    windows.x[r] = {-1, 0, 0, 0};
  } else if (highest < 0) {
    windows.x[r] = {0, 0, 0, 0};
  } else {
    windows.x[r] = {highest - lowest + 1, lowest, weights, most};
  }
}

template <typename T>
__global__ void __launch_bounds__(kTableThreads)
    tabulate_windows(Problem p, const Compute<T>* rois, BoxTables<Compute<T>> tables,
                     WindowTables<Compute<T>> windows) {
  using C = Compute<T>;
  __shared__ RowList<C> list;
  const int64_t jobs = 2 * static_cast<int64_t>(p.num_rois);
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const int64_t r = job / 2;
    const Box<C> box = make_box(rois + 5 * r, p);
    if (job % 2 == 0 && threadIdx.x == 0) tables.boxes[r] = box;
    if (box.image < 0) {
      // The kernel of large boxes looks at every box's limits before it looks at the box.
      if (threadIdx.x == 0 && job % 2 == 0) windows.y[r] = {};
      if (threadIdx.x == 0 && job % 2 == 1) windows.x[r] = {};
      continue;
    }
    __syncwarp();
    if (job % 2 == 0) {
      tabulate_window_rows(p, tables, windows, r, box.y, list);
    } else {
      tabulate_window_columns<T>(p, tables, windows, r, box.x);
    }
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
};

// 16-byte copies that a channel's window takes; an odd number apart, lanes meet no conflict.
template <typename T>
__device__ __forceinline__ int32_t window_copies(int32_t rows, int32_t units) {
  return rows * units * kUnitCopies<T> | 1;
}

// The next pass from (ph, pw) on. `room` holds any bin; `most` ph are taken at a time.
template <typename T>
__device__ WindowPass next_pass(const Problem& p, const WindowShared<T>& shared, const WindowColumns& x, int32_t ph,
                                int32_t pw, int32_t most, int32_t room) {
  WindowPass pass{ph, 0, pw, p.pooled_w, 0, 0, x.first, x.units};
  int32_t first = INT32_MAX, last = -1;
  if (pw == 0) {
    for (; ph + pass.phs < p.pooled_h && pass.phs < most; ++pass.phs) {
      const BinRows bin = shared.bins[ph + pass.phs];
      if (!bin.none()) {
        const int32_t low = bin.first_slot < first ? bin.first_slot : first;
        const int32_t high = bin.last_slot > last ? bin.last_slot : last;
        if (window_copies<T>(high - low + 1, x.units) > room) break;
        first = low, last = high;
      }
    }
    pass.slot = last < 0 ? 0 : first;
    pass.rows = last < 0 ? 0 : last - first + 1;
    if (pass.phs > 0) return pass;
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
  return pass;
}

// Copies that complete in the background where the hardware can (sm_80); 16 bytes at a time go past the first cache.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes) : "memory");
  }
#else
  memcpy(__builtin_assume_aligned(shared, kBytes), __builtin_assume_aligned(global, kBytes), kBytes);
#endif
}

__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Starts to copy a table of a box, with up to 15 bytes behind it.
template <typename Entry>
__device__ __forceinline__ void copy_table(Entry* shared, const Entry* table, int32_t count) {
  const int32_t copies = (count * static_cast<int32_t>(sizeof(Entry)) + kCopyBytes - 1) / kCopyBytes;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < copies; i += kWindowThreads) {
    copy_async<kCopyBytes>(reinterpret_cast<char*>(shared) + i * kCopyBytes,
                           reinterpret_cast<const char*>(table) + i * kCopyBytes);
  }
}

// Starts to copy a pass's window, kBytes at a time, as the image's rows are aligned. A lane's places are the same in
// every channel.
template <typename T, int kBytes>
__device__ __forceinline__ void begin_window(const Problem& p, const WindowShared<T>& shared, const WindowPass& pass,
                                             int32_t channels, const T* planes, char* window) {
  constexpr int kPixels = kBytes / static_cast<int>(sizeof(T));
  constexpr int kPieces = kCopyBytes / kBytes;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t plane = static_cast<int64_t>(p.h) * p.w;
  const int32_t of_row = pass.units * kUnitCopies<T>, copies = pass.rows * of_row;
  const int32_t pitch = window_copies<T>(pass.rows, pass.units) * kCopyBytes;
  for (int32_t at = lane; at < copies; at += 32) {
    const int32_t row = at / of_row;
    const int32_t column = pass.unit * kUnitPixels<T> + (at - row * of_row) * (kPieces * kPixels);
    const T* from = planes + static_cast<int64_t>(shared.rows[pass.slot + row]) * p.w + column + warp * plane;
    char* to = window + at * kCopyBytes + warp * pitch;
#pragma unroll 5
    for (int32_t channel = warp; channel < channels; channel += kWindowWarps) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        if (column + piece * kPixels < p.w) copy_async<kBytes>(to + piece * kBytes, from + piece * kPixels);
      }
      from += kWindowWarps * plane;
      to += kWindowWarps * pitch;
    }
  }
}

template <typename T>
__device__ __forceinline__ void begin_window(const Problem& p, const WindowShared<T>& shared, const WindowPass& pass,
                                             int32_t channels, const T* planes, char* window, int32_t piece) {
  if (piece == 16) {
    begin_window<T, 16>(p, shared, pass, channels, planes, window);
  } else if (piece == 8) {
    begin_window<T, 8>(p, shared, pass, channels, planes, window);
  } else if constexpr (sizeof(T) < 8) {
    begin_window<T, 4>(p, shared, pass, channels, planes, window);
  }
}

// Four neighbouring values.
template <typename V>
struct alignas(sizeof(V) * kWeightGroup < 16 ? sizeof(V) * kWeightGroup : 16) Group {
  V value[kWeightGroup];
};

// One channel of a window as its lane sees it.
template <typename T>
struct LaneWindow {
  const char* pixels;  // the window's first slot, pixel 0 of the image's row
  int32_t row_bytes;

  __device__ __forceinline__ const char* row(int32_t slot) const { return pixels + slot * row_bytes; }
};

// Bins [pw, end) of one ph, whose rows' weights stay in registers; kRows 0: any number of rows, read anew for every
// four columns. Rows ascending inside a column, then columns ascending.
template <typename T, int kRows>
__device__ __forceinline__ void pool_bins(const WindowShared<T>& shared, const LaneWindow<T>& window,
                                          const BinRows& bin, int32_t slot, int32_t pw, int32_t end, T* collected) {
  using C = Compute<T>;
  const RowWeight<C>* row_weights = shared.row_weights + bin.begin;
  const char* rows[kRows > 0 ? kRows : 1];
  C weights[kRows > 0 ? kRows : 1];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const RowWeight<C> row = row_weights[i];
    rows[i] = window.row(row.slot - slot);
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
        const int32_t at = pixel * static_cast<int32_t>(sizeof(T));
#pragma unroll
        for (int k = 0; k < kWeightGroup; ++k) columns[k] = C(0);
        if constexpr (kRows > 0) {
          Group<T> values[kRows];
#pragma unroll
          for (int i = 0; i < kRows; ++i) values[i] = *reinterpret_cast<const Group<T>*>(rows[i] + at);
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
#pragma unroll
            for (int k = 0; k < kWeightGroup; ++k) columns[k] = fma(weights[i], widen(values[i].value[k]), columns[k]);
          }
        } else {
#pragma unroll 2
          for (int32_t i = 0; i < bin.count; ++i) {
            const RowWeight<C> row = row_weights[i];
            const Group<T> values = *reinterpret_cast<const Group<T>*>(window.row(row.slot - slot) + at);
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

// Bins [begin, end) of a pass, counted from its first, for the lane's channel.
template <typename T>
__device__ __forceinline__ void pool_run(const WindowShared<T>& shared, const WindowPass& pass,
                                         const LaneWindow<T>& window, int32_t begin, int32_t end, T* collected) {
  while (begin < end) {
    const int32_t row = begin / pass.pws;
    const int32_t stop = (row + 1) * pass.pws < end ? (row + 1) * pass.pws : end;
    const int32_t pw = pass.pw + begin - row * pass.pws, pw_end = pw + stop - begin;
    const BinRows bin = shared.bins[pass.ph + row];
    // Two samples a bin meet two to four rows.
    switch (bin.count) {
      case 2: pool_bins<T, 2>(shared, window, bin, pass.slot, pw, pw_end, collected); break;
      case 3: pool_bins<T, 3>(shared, window, bin, pass.slot, pw, pw_end, collected); break;
      case 4: pool_bins<T, 4>(shared, window, bin, pass.slot, pw, pw_end, collected); break;
      default: pool_bins<T, 0>(shared, window, bin, pass.slot, pw, pw_end, collected); break;
    }
    collected += stop - begin;
    begin = stop;
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

// Whether a box is pooled by windows.
template <typename T>
__device__ __forceinline__ bool fits_windows(const WindowRows& y, const WindowColumns& x, int32_t room) {
  return y.rows >= 0 && x.units >= 0 && window_copies<T>(y.most, x.most) <= room;
}

template <typename T>
__global__ void __launch_bounds__(kWindowThreads, kWindowCtas<T>)
    pool_windows(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T> b,
                 const __grid_constant__ BoxTables<Compute<T>> tables,
                 const __grid_constant__ WindowTables<Compute<T>> windows, int32_t jobs, int32_t piece, int32_t room) {
  using C = Compute<T>;
  extern __shared__ __align__(16) char dynamic[];
  const WindowLayout<T> layout(p);
  WindowShared<T>& shared = *reinterpret_cast<WindowShared<T>*>(dynamic);
  T* const collected = reinterpret_cast<T*>(dynamic + layout.collected_at);
  char* const window = dynamic + layout.window_at;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int32_t bins = p.pooled_h * p.pooled_w;
  wait_for_kernel_before();
  for (int32_t job = static_cast<int32_t>(blockIdx.x); job < jobs; job += static_cast<int32_t>(gridDim.x)) {
    // Boxes innermost: the planes at work at one time then stay in L2, wherever the boxes lie.
    const int32_t block = job / p.num_rois, channel = block * kWindowChannels;
    const int64_t r = job - block * p.num_rois;
    const int32_t channels = p.c - channel < kWindowChannels ? p.c - channel : kWindowChannels;
    T* outputs = b.output + (r * p.c + channel) * bins;
    const int32_t image = tables.boxes[r].image;
    const WindowRows y = windows.y[r];
    const WindowColumns x = windows.x[r];
    if (image < 0 || y.rows == 0 || x.units == 0) {
      for (int32_t i = thread; i < channels * bins; i += kWindowThreads) outputs[i] = narrow<T>(C(0));
      continue;
    }
    if (!fits_windows<T>(y, x, room)) continue;
    const T* planes = b.input + (static_cast<int64_t>(image) * p.c + channel) * p.h * p.w;
    __syncthreads();  // others may still read the tables of the job before
    copy_table(shared.column_weights, tables.x_weights + r * tables.x_capacity, x.weights);
    copy_table(shared.row_weights, windows.weights + r * windows.weight_capacity, y.weights);
    copy_table(shared.rows, windows.rows + r * windows.row_capacity, y.rows);
    copy_table(shared.columns, tables.x_bins + r * p.pooled_w, p.pooled_w);
    copy_table(shared.bins, windows.bins + r * p.pooled_h, p.pooled_h);
    wait_for_copies();
    __syncthreads();
    // Passes of as many ph each as the number of passes allows.
    int32_t most = next_pass(p, shared, x, 0, 0, p.pooled_h, room).phs;
    const int32_t passes = (p.pooled_h + most - 1) / most;
    most = (p.pooled_h + passes - 1) / passes;
    WindowPass pass = next_pass(p, shared, x, 0, 0, most, room);
    // Collected bins are stored while the next window is under way.
    int32_t first = 0, kept = 0, kept_at = 0;
    for (bool done = false;;) {
      const bool opens = first == 0 && !done;
      if (opens) begin_window(p, shared, pass, channels, planes, window, piece);
      if (kept > 0) store_collected(collected, kept | 1, channels, kept, bins, outputs + kept_at);
      if (done) break;
      if (opens) wait_for_copies();
      __syncthreads();
      const int32_t all = pass.phs * pass.pws, room_for = collected_bins(p) / pass.pws * pass.pws;
      kept = all - first < room_for ? all - first : room_for;
      kept_at = pass.ph * p.pooled_w + pass.pw + first;
      const int32_t share = (kept + kWindowWarps - 1) / kWindowWarps;
      const int32_t begin = warp * share < kept ? warp * share : kept;
      const int32_t end = begin + share < kept ? begin + share : kept;
      const LaneWindow<T> own{window + (lane * window_copies<T>(pass.rows, pass.units) -
                                        pass.unit * kUnitCopies<T>) * kCopyBytes,
                              pass.units * kUnitCopies<T> * kCopyBytes};
      pool_run(shared, pass, own, first + begin, first + end, collected + lane * (kept | 1) + begin);
      first += kept;
      if (first == all) {
        first = 0;
        const bool row_ends = pass.pw + pass.pws == p.pooled_w;
        const int32_t ph = row_ends ? pass.ph + pass.phs : pass.ph, pw = row_ends ? 0 : pass.pw + pass.pws;
        done = ph == p.pooled_h;
        if (!done) pass = next_pass(p, shared, x, ph, pw, most, room);
      }
      __syncthreads();
    }
  }
}

// The boxes that pool_windows leaves out, by columns; mostly there are none.
template <typename T>
__global__ void __launch_bounds__(kForwardWarps * 32)
    pool_large_boxes(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T> b,
                     const __grid_constant__ BoxTables<Compute<T>> tables,
                     const __grid_constant__ WindowTables<Compute<T>> windows, int32_t room) {
  __shared__ ColumnStrip<T> strips[kForwardWarps];
  wait_for_kernel_before();
  const auto left_out = [&](int64_t r) {
    return !fits_windows<T>(windows.y[r], windows.x[r], room) && tables.boxes[r].image >= 0;
  };
  // Some boxes a thread and step, so that their loads are under way together.
  constexpr int kBoxes = 4;
  bool some = false;
  for (int64_t first = threadIdx.x; first < p.num_rois; first += kBoxes * kForwardWarps * 32) {
    WindowRows y[kBoxes];
    WindowColumns x[kBoxes];
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) {
      const int64_t r = first + i * (kForwardWarps * 32) < p.num_rois ? first + i * (kForwardWarps * 32) : first;
      y[i] = windows.y[r], x[i] = windows.x[r];
    }
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) {
      const int64_t r = first + i * (kForwardWarps * 32);
      if (!fits_windows<T>(y[i], x[i], room) && r < p.num_rois) some = some || tables.boxes[r].image >= 0;
    }
  }
  if (__syncthreads_or(some) == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t jobs = ceil_div(p.c, kForwardChannels<T>) * p.num_rois;
  for (int64_t job = static_cast<int64_t>(blockIdx.x) * kForwardWarps + warp; job < jobs;
       job += static_cast<int64_t>(gridDim.x) * kForwardWarps) {
    const int64_t r = job % p.num_rois;
    if (!left_out(r)) continue;
    const int32_t channel = static_cast<int32_t>(job / p.num_rois) * kForwardChannels<T>;
    const int32_t left = p.c - channel;
    pool_box(p, b, tables, r, channel, left < kForwardChannels<T> ? left : kForwardChannels<T>, strips[warp]);
  }
}

// --- launch ----------------------------------------------------------------------------------------------------------

// How a call is pooled by windows; `piece` 0: it is not.
struct WindowPlan {
  int32_t piece = 0, room = 0, jobs = 0;
  size_t shared_bytes = 0;
};

template <typename T>
WindowPlan plan_windows(const Problem& p, const T* input, const DeviceTraits& device) {
  WindowPlan plan;
  const int64_t jobs = ceil_div(p.c, kWindowChannels) * p.num_rois;
  if (p.input_numel == 0 || p.output_numel == 0 || jobs > (int64_t{1} << 30)) return plan;
  if (p.pooled_h > kMostWindowBins || p.pooled_w > kMostWindowBins) return plan;
  plan.jobs = static_cast<int32_t>(jobs);
  // Below this a detection head's rows of bins hardly fit.
  constexpr int64_t kLeast = 24 << 10;
  for (int ctas = kWindowCtas<T>; ctas >= 1 && plan.room == 0; --ctas) {
    const int64_t bytes = (static_cast<int64_t>(device.shared_bytes) + 1024) / ctas / 16 * 16 - 1024;
    const int64_t window = bytes - WindowLayout<T>(p).window_at;
    if (window < kLeast) continue;
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
                   const BoxTables<Compute<T>>& tables, void* workspace, int multiprocessors, Stream stream) {
  const WindowTables<Compute<T>> windows(p, static_cast<char*>(workspace) + tables.bytes);
  BARACUDA_RETURN_IF_FAILED(launch_kernel("roi_align table kernel", tabulate_windows<T>,
                                          blocks_for(2 * static_cast<int64_t>(p.num_rois), 1), kTableThreads, 0,
                                          stream, p, b.rois, tables, windows));
  BARACUDA_RETURN_IF_FAILED(launch_early("roi_align large box kernel", pool_large_boxes<T>,
                                         static_cast<uint32_t>(4 * multiprocessors), kForwardWarps * 32, 0, stream, p,
                                         b, tables, windows, plan.room));
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes("roi_align kernel", pool_windows<T>, plan.shared_bytes));
  return launch_early("roi_align kernel", pool_windows<T>, static_cast<uint32_t>(plan.jobs), kWindowThreads,
                      plan.shared_bytes, stream, p, b, tables, windows, plan.jobs, plan.piece, plan.room);
}

}  // namespace
}  // namespace baracuda::roi_align
