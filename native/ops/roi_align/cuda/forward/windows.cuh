// SPDX-License-Identifier: Apache-2.0
// The forward's fast path: a CTA owns a box for 32 channels and copies the part of the image that the box's bins touch
// to shared memory, rows of whole 16 bytes; then a lane is a channel, so that weights and control flow are the same for
// the whole warp.
//
// Only rows that some bin weighs are copied. What does not fit at once is pooled in passes of some ph, or of some pw of
// one ph; boxes with a bin that does not fit by itself are pooled by columns.
#pragma once

#include "core/cuda_copies.cuh"
#include "core/cuda_shared.cuh"
#include "core/integer_math.h"
#include "ops/roi_align/cuda/forward/columns.cuh"
#include "ops/roi_align/cuda/forward/window_tables.cuh"

namespace baracuda::roi_align {
namespace {

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
  constexpr int kRounds = groups_of(kWindowChannels, kWindowWarps);
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
    // Of 32 bits without a sign, since the last group may end behind what a row can have.
    const uint32_t end_pixel = static_cast<uint32_t>(entry.pixels.last + 1);
#pragma unroll 1
    for (uint32_t first = static_cast<uint32_t>(first_in_group(entry.pixels.first)); first < end_pixel;
         first += kWeightGroup, ++column_weights) {
      const int32_t pixel = static_cast<int32_t>(first);
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
__device__ __noinline__ void pool_by_columns(const Problem& p, const T* input, T* output,
                                             const BoxTables<Compute<T>>& tables, int64_t r, int32_t channel,
                                             int32_t channels, char* strips) {
  ColumnStrip<T>* const strip = reinterpret_cast<ColumnStrip<T>*>(strips) + threadIdx.x / 32;
  for (int32_t k = static_cast<int32_t>(threadIdx.x) / 32 * kForwardChannels<T>; k < channels;
       k += kWindowWarps * kForwardChannels<T>) {
    const int32_t left = channels - k;
    pool_box(p, input, output, tables, r, channel + k, left < kForwardChannels<T> ? left : kForwardChannels<T>, *strip);
  }
}

// What jobs divide by, and how many bins of whole rows are collected at a time.
struct WindowSteps {
  Divider by_rois, by_width;  // num_rois and pooled_w
  int32_t collected;
};

// Bytes that a copy moves at once, by map: 0 where some map's rows are aligned for none.
struct WindowPieces {
  int32_t of_level[kMostLevels];
};

// `Maps` is a Problem with ForwardBuffers or a LevelsProblem with LevelsForwardBuffers.
template <typename T, class Maps, class Buffers>
__global__ void __launch_bounds__(kWindowThreads, kWindowCtas<T>)
    pool_windows(const __grid_constant__ Maps maps, const __grid_constant__ Buffers b,
                 const __grid_constant__ BoxTables<Compute<T>> tables,
                 const __grid_constant__ WindowTables<Compute<T>> windows,
                 const __grid_constant__ WindowSteps steps, const __grid_constant__ WindowPieces pieces,
                 int32_t room) {
  using C = Compute<T>;
  char* const dynamic = dynamic_shared<char>();
  const Problem& all = sizes_of(maps);
  const WindowLayout<T> layout(all);
  WindowShared<T>& shared = *reinterpret_cast<WindowShared<T>*>(dynamic);
  T* const collected = reinterpret_cast<T*>(dynamic + layout.collected_at);
  char* const window = dynamic + layout.window_at;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int32_t bins = all.pooled_h * all.pooled_w;
  // Boxes innermost: the planes at work at one time then stay in L2, wherever the boxes lie.
  const int32_t job = static_cast<int32_t>(blockIdx.x);
  const int32_t block = static_cast<int32_t>(steps.by_rois.divide(job)), channel = block * kWindowChannels;
  const int64_t r = job - block * all.num_rois;
  const int32_t channels = all.c - channel < kWindowChannels ? all.c - channel : kWindowChannels;
  T* const outputs = b.output + (r * all.c + channel) * bins;
  wait_for_kernel_before();
  const WindowBox box = windows.boxes[r];
  if (box.image < 0) {
    for (int32_t i = thread; i < channels * bins; i += kWindowThreads) outputs[i] = narrow<T>(C(0));
    return;
  }
  const int32_t level = level_of_box(maps, b.rois + 5 * r);
  const Problem& p = problem_of(maps, level);
  if (box.passes == kByColumns) {
    return pool_by_columns(p, input_of(b, level), b.output, tables, r, channel, channels, dynamic);
  }
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
  const int32_t piece = pieces.of_level[level];
  const T* planes = input_of(b, level) + (static_cast<int64_t>(box.image) * p.c + channel) * p.h * p.w;
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
    const int32_t share = groups_of(kept, kWindowWarps);
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

// How a call is pooled by windows, if it `applies`.
struct WindowPlan {
  bool applies = false;
  WindowPieces pieces{};
  int32_t room = 0, jobs = 0;
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

// Bytes that a copy of a map's rows moves at once; 0 where they are aligned for none.
template <typename T>
int32_t piece_of(const Problem& p, const T* input) {
  const uint64_t row_bytes = static_cast<uint64_t>(p.w) * sizeof(T);
  for (int32_t piece = kCopyBytes; piece >= 4 && piece >= static_cast<int32_t>(sizeof(T)); piece /= 2) {
    if (row_bytes % piece == 0 && reinterpret_cast<uintptr_t>(input) % piece == 0) return piece;
  }
  return 0;
}

inline int32_t num_levels_of(const Problem&) { return 1; }
inline int32_t num_levels_of(const LevelsProblem& maps) { return maps.num_levels; }

template <typename T, class Maps, class Buffers>
WindowPlan plan_windows(const Maps& maps, const Buffers& b, const DeviceTraits& device) {
  WindowPlan plan;
  const Problem& p = sizes_of(maps);
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
  plan.applies = true;
  for (int32_t level = 0; level < num_levels_of(maps); ++level) {
    const Problem& one = problem_of(maps, level);
    plan.pieces.of_level[level] = piece_of(one, input_of(b, level));
    if (one.input_numel > 0 && plan.pieces.of_level[level] == 0) plan.applies = false;
  }
  return plan;
}

template <typename T, class Maps, class Buffers>
Status run_windows(const Maps& maps, const Buffers& b, const WindowPlan& plan, void* workspace, Stream stream) {
  static_assert(kWindowWarps * sizeof(ColumnStrip<T>) <= sizeof(WindowShared<T>) + kLeastWindowBytes);
  const Problem& p = sizes_of(maps);
  const BoxTables<Compute<T>> tables(p, workspace);
  const WindowTables<Compute<T>> windows(p, static_cast<char*>(workspace) + tables.bytes);
  const WindowSteps steps{Divider(p.num_rois), Divider(p.pooled_w),
                          collected_bins(p) / p.pooled_w * p.pooled_w};
  BARACUDA_RETURN_IF_FAILED(enqueue_window_tables<T>(maps, b.rois, tables, windows, plan.room, stream));
  constexpr auto kKernel = pool_windows<T, Maps, Buffers>;
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>("roi_align kernel"));
  return launch_early("roi_align kernel", kKernel, static_cast<uint32_t>(plan.jobs), kWindowThreads, plan.shared_bytes,
                      stream, maps, b, tables, windows, steps, plan.pieces, plan.room);
}

}  // namespace
}  // namespace baracuda::roi_align
