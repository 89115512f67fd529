// SPDX-License-Identifier: Apache-2.0
// The general forward: a warp owns a box's bins for some channels, which share the weights. Lanes are first columns of
// the image, so that rows are read whole, and then bins.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "ops/roi_align/cuda/tables.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

constexpr int kForwardWarps = 4;
template <typename T>
constexpr int kForwardChannels = sizeof(T) == 8 ? 2 : 4;
// Bins of one pass over the box's pixels: two a lane, of at most so many ph.
constexpr int kPassBins = 64;
constexpr int kPassRows = 8;
// Rows whose loads are under way together: a bin of a detection head has some six.
constexpr int kRowGroup = 8;
// A column a lane; the odd word spreads the bins of one column over the banks.
constexpr int kForwardPitch = 33;
// A warp's sums of columns.
template <typename T>
using ColumnStrip = Compute<T>[kPassRows][kForwardChannels<T>][kForwardPitch];

// The bins of one pass.
struct PoolPass {
  int32_t ph, phs, pw, pws;
};

// A bin's weights by pixel. The bin is tabulated.
template <typename C>
__device__ __forceinline__ const C* weights_by_pixel(const TabulatedAxis<C>& axis, const BinEntry& entry) {
  return axis.weights + (static_cast<int64_t>(entry.weights) - first_in_group(entry.pixels.first));
}

// The bins of one box for some channels, a bin a lane, in no hurry: for boxes with bins that are not tabulated.
template <typename T>
__device__ __noinline__ void pool_untabulated(const Problem& p, const TabulatedAxis<Compute<T>>& y,
                                              const TabulatedAxis<Compute<T>>& x, int32_t channels, const T* planes,
                                              T* outputs) {
  using C = Compute<T>;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  for (int64_t i = threadIdx.x % 32; i < channels * bins; i += 32) {
    const int32_t pw = static_cast<int32_t>(i % p.pooled_w), ph = static_cast<int32_t>(i / p.pooled_w % p.pooled_h);
    const T* plane = planes + i / bins * p.h * p.w;
    const PixelRange rows = y.pixels(ph), columns = x.pixels(pw);
    C sum = C(0);
    for (int32_t column = columns.first; column <= columns.last; ++column) {
      const C column_weight = x.weight(pw, column);
      if (column_weight == C(0)) continue;
      C column_sum = C(0);
      for (int32_t row = rows.first; row <= rows.last; ++row) {
        const C weight = y.weight(ph, row);
        if (weight == C(0)) continue;
        column_sum = fma(weight, widen(plane[static_cast<int64_t>(row) * p.w + column]), column_sum);
      }
      sum = fma(column_weight, column_sum, sum);
    }
    outputs[i] = narrow<T>(sum);
  }
}

// One pass of one box. `planes` and `outputs` are the first channel's; `channels` of them exist.
template <typename T>
__device__ __forceinline__ void pool_pass(const Problem& p, const PoolPass& pass, const TabulatedAxis<Compute<T>>& y,
                          const TabulatedAxis<Compute<T>>& x, PixelRange columns, int32_t channels, const T* planes,
                          T* outputs, Compute<T> (*strip)[kForwardChannels<T>][kForwardPitch]) {
  using C = Compute<T>;
  constexpr int kChannels = kForwardChannels<T>;
  constexpr int kSlots = kPassBins / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t plane = static_cast<int64_t>(p.h) * p.w;
  PixelRange reach[kSlots];
  const C* x_weights[kSlots];
  const C(*column_sums_of[kSlots])[kForwardPitch];  // [channel][column] of the bin's ph
  C sums[kSlots][kChannels];
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const int bin = slot * 32 + lane;
    const BinEntry entry = bin < pass.phs * pass.pws ? x.bins[pass.pw + bin % pass.pws] : BinEntry{{0, -1}, 0};
    reach[slot] = entry.pixels;
    x_weights[slot] = weights_by_pixel(x, entry);
    column_sums_of[slot] = strip[bin / pass.pws < kPassRows ? bin / pass.pws : 0];
#pragma unroll
    for (int k = 0; k < kChannels; ++k) sums[slot][k] = C(0);
  }
  for (int32_t left = columns.count(); left > 0; left -= 32) {
    const int32_t first = columns.last - (left - 1), end = left < 32 ? columns.last : first + 31;
    const int32_t column = lane < left ? first + lane : columns.last;
    for (int i = 0; i < pass.phs; ++i) {
      const BinEntry entry = y.bins[pass.ph + i];
      const C* y_weight = weights_by_pixel(y, entry) + entry.pixels.first;
      C column_sums[kChannels] = {};
      const T* pixel = planes + static_cast<int64_t>(entry.pixels.first) * p.w + column;
      // Rows in groups, so that a group's loads are under way together; a row beyond the bin weighs 0.
      for (int32_t rows = entry.pixels.count(); rows > 0; rows -= kRowGroup) {
        C weights[kRowGroup];
        T values[kRowGroup][kChannels];
#pragma unroll
        for (int row = 0; row < kRowGroup; ++row) {
          weights[row] = C(0);
          if (row >= rows) continue;
          weights[row] = y_weight[row];
#pragma unroll
          for (int k = 0; k < kChannels; ++k) values[row][k] = pixel[k < channels ? k * plane : 0];
          pixel += p.w;
        }
#pragma unroll
        for (int row = 0; row < kRowGroup; ++row) {
          if (weights[row] == C(0)) continue;
#pragma unroll
          for (int k = 0; k < kChannels; ++k) {
            column_sums[k] = fma(weights[row], widen(values[row][k]), column_sums[k]);
          }
        }
        y_weight += kRowGroup;
      }
#pragma unroll
      for (int k = 0; k < kChannels; ++k) strip[i][k][lane] = column_sums[k];
    }
    __syncwarp();
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int32_t last = reach[slot].last < end ? reach[slot].last : end;
      for (int32_t at = reach[slot].first > first ? reach[slot].first : first; at <= last; ++at) {
        const C weight = x_weights[slot][at];
        if (weight == C(0)) continue;
#pragma unroll
        for (int k = 0; k < kChannels; ++k) {
          sums[slot][k] = fma(weight, column_sums_of[slot][k][at - first], sums[slot][k]);
        }
      }
    }
    __syncwarp();
  }
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const int bin = slot * 32 + lane;
    if (bin >= pass.phs * pass.pws) continue;
    T* output = outputs + static_cast<int64_t>(pass.ph + bin / pass.pws) * p.pooled_w + pass.pw + bin % pass.pws;
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (k < channels) output[k * bins] = narrow<T>(sums[slot][k]);
    }
  }
}

// All bins of one box for up to kForwardChannels channels, by one warp.
template <typename T>
__device__ __forceinline__ void pool_box(const Problem& p, const T* input, T* output,
                                         const BoxTables<Compute<T>>& tables, int64_t r, int32_t channel,
                                         int32_t channels, ColumnStrip<T>& strip) {
  using C = Compute<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  T* outputs = output + (r * p.c + channel) * bins;
  const int32_t image = p.input_numel > 0 ? tables.boxes[r].image : -1;
  if (image < 0) {
    for (int64_t i = lane; i < channels * bins; i += 32) outputs[i] = narrow<T>(C(0));
    return;
  }
  const T* planes = input + (static_cast<int64_t>(image) * p.c + channel) * p.h * p.w;
  const TabulatedAxis<C> y = tables.y(r), x = tables.x(r);
  bool tabulated = true;
  for (int64_t bin = lane; bin < p.pooled_h; bin += 32) tabulated = tabulated && y.bins[bin].weights >= 0;
  for (int64_t bin = lane; bin < p.pooled_w; bin += 32) tabulated = tabulated && x.bins[bin].weights >= 0;
  if (!__all_sync(kFullWarp, tabulated)) {
    pool_untabulated(p, y, x, channels, planes, outputs);
    return;
  }
  const PixelRange columns = tables.touched[2 * r + 1];
  PoolPass pass;
  for (int32_t left_w = p.pooled_w; left_w > 0; left_w -= kPassBins) {
    pass.pw = p.pooled_w - left_w;
    pass.pws = left_w < kPassBins ? left_w : kPassBins;
    const int32_t most = kPassBins / pass.pws < kPassRows ? kPassBins / pass.pws : kPassRows;
    for (int32_t left_h = p.pooled_h; left_h > 0; left_h -= most) {
      pass.ph = p.pooled_h - left_h;
      pass.phs = left_h < most ? left_h : most;
      pool_pass(p, pass, y, x, columns, channels, planes, outputs, strip);
    }
  }
}

// `Maps` is a Problem with ForwardBuffers or a LevelsProblem with LevelsForwardBuffers. Of several maps the tables of
// boxes on one without pixels say so.
template <typename T, class Maps, class Buffers>
__global__ void __launch_bounds__(kForwardWarps * 32)
    pool_boxes(const __grid_constant__ Maps maps, const __grid_constant__ Buffers b,
               const __grid_constant__ BoxTables<Compute<T>> tables) {
  __shared__ ColumnStrip<T> strips[kForwardWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const Problem& all = sizes_of(maps);
  const int64_t jobs = ceil_div(all.c, kForwardChannels<T>) * all.num_rois;
  for (int64_t job = static_cast<int64_t>(blockIdx.x) * kForwardWarps + warp; job < jobs;
       job += static_cast<int64_t>(gridDim.x) * kForwardWarps) {
    // Boxes innermost: the planes at work at one time then stay in L2, wherever the boxes lie.
    const int32_t channel = static_cast<int32_t>(job / all.num_rois) * kForwardChannels<T>;
    const int32_t left = all.c - channel;
    const int64_t r = job % all.num_rois;
    const int32_t level = level_of_box(maps, b.rois + 5 * r);
    pool_box(problem_of(maps, level), input_of(b, level), b.output, tables, r, channel,
             left < kForwardChannels<T> ? left : kForwardChannels<T>, strips[warp]);
  }
}

template <typename T, class Maps, class Buffers>
Status enqueue_columns(const Maps& maps, const Buffers& b, void* workspace, Stream stream) {
  const Problem& all = sizes_of(maps);
  const BoxTables<Compute<T>> tables(all, workspace);
  if (all.input_numel > 0) BARACUDA_RETURN_IF_FAILED(tabulate(maps, b.rois, tables, stream));
  const int64_t jobs = all.output_numel > 0 ? ceil_div(all.c, kForwardChannels<T>) * all.num_rois : 0;
  return launch_kernel("roi_align kernel", pool_boxes<T, Maps, Buffers>, blocks_for(jobs, kForwardWarps),
                       kForwardWarps * 32, 0, stream, maps, b, tables);
}

}  // namespace
}  // namespace baracuda::roi_align
