// SPDX-License-Identifier: Apache-2.0
// The general backward, for machines before sm_90 and for shapes that the tile kernel does not take: a block owns a
// tile of some channels, a warp a row of it, a lane a pixel. The block looks at every box once for all its pixels and
// channels.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "ops/roi_align/cuda/tables.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

constexpr int kPixelRows = 8;
constexpr int kPixelColumns = 32;
constexpr int kPixelThreads = kPixelRows * kPixelColumns;
// Channels of a lane: they share the search for bins and weights. More cost registers, and blocks on small maps.
template <typename T>
constexpr int kPixelChannels = sizeof(T) == 8 ? 4 : 8;
// A row's sums over ph are made for this many pw at a time, some channels a lane, so that their loads are under way
// together; then every lane takes them from there.
constexpr int kRowSums = 8;
constexpr int kSumLanes = 32 / kRowSums;
template <typename T>
constexpr int kLaneSums = kPixelChannels<T> / kSumLanes;

// Bins [base, base + 32) of an axis, a lane each.
template <typename C>
__device__ __forceinline__ BinEntry entry_of_lane(const TabulatedAxis<C>& axis, int32_t base, int32_t bins) {
  const int32_t bin = base + static_cast<int32_t>(threadIdx.x % 32);
  return bin < bins ? axis.bins[bin] : BinEntry{{0, -1}, 0};
}
__device__ __forceinline__ BinEntry entry_from(const BinEntry& own, int lane) {
  return {{__shfl_sync(kFullWarp, own.pixels.first, lane), __shfl_sync(kFullWarp, own.pixels.last, lane)},
          __shfl_sync(kFullWarp, own.weights, lane)};
}

// Adds what a box gives a warp's pixels of `count` channels, from `grad` on. `columns` are those of the warp; a lane
// that is not `inside` has none.
template <typename T>
__device__ __forceinline__ void add_box_to_pixels(const Problem& p, const T* grad, const TabulatedAxis<Compute<T>>& y,
                                                  const TabulatedAxis<Compute<T>>& x, int32_t row,
                                                  PixelRange columns, int32_t column, bool inside, int32_t count,
                                                  Compute<T> (&sums)[kPixelChannels<T>]) {
  using C = Compute<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
#pragma unroll 1
  for (int32_t left_w = p.pooled_w; left_w > 0; left_w -= 32) {
    const int32_t base = p.pooled_w - left_w;
    const BinEntry own_x = entry_of_lane(x, base, p.pooled_w);
    const uint32_t met = __ballot_sync(kFullWarp, own_x.pixels.first <= own_x.pixels.last &&
                                                 own_x.pixels.first <= columns.last &&
                                                 own_x.pixels.last >= columns.first);
#pragma unroll 1
    for (int part = 0; part < 32; part += kRowSums) {
      const uint32_t met_here = met >> part & ((1u << kRowSums) - 1);
      if (met_here == 0) continue;
      const bool sums_here = (met_here >> (lane % kRowSums) & 1u) != 0;
      const T* of_lane = grad + base + part + lane % kRowSums + lane / kRowSums * bins;
      C row_sums[kLaneSums<T>] = {};
#pragma unroll 1
      for (int32_t left_h = p.pooled_h; left_h > 0; left_h -= 32) {
        const int32_t y_base = p.pooled_h - left_h;
        const BinEntry own_y = entry_of_lane(y, y_base, p.pooled_h);
        for (uint32_t left = __ballot_sync(kFullWarp, own_y.pixels.has(row)); left != 0; left &= left - 1) {
          const int from = __ffs(static_cast<int>(left)) - 1;
          const C weight = y.weight(y_base + from, entry_from(own_y, from), row);
          if (weight == C(0)) continue;
          const T* at = of_lane + static_cast<int64_t>(y_base + from) * p.pooled_w;
#pragma unroll
          for (int i = 0; i < kLaneSums<T>; ++i) {
            if (sums_here && lane / kRowSums + i * kSumLanes < count) {
              row_sums[i] = fma(weight, widen(at[i * kSumLanes * bins]), row_sums[i]);
            }
          }
        }
      }
      for (uint32_t left = met_here; left != 0; left &= left - 1) {
        const int bin = __ffs(static_cast<int>(left)) - 1;
        const BinEntry entry = entry_from(own_x, part + bin);
        C weight = C(0);
        if (inside && entry.pixels.has(column)) weight = x.weight(base + part + bin, entry, column);
#pragma unroll
        for (int k = 0; k < kPixelChannels<T>; ++k) {
          const C row_sum = __shfl_sync(kFullWarp, row_sums[k / kSumLanes], bin + k % kSumLanes * kRowSums);
          if (weight != C(0)) sums[k] = fma(weight, row_sum, sums[k]);
        }
      }
    }
  }
}

// Tiles of a map, and blocks of channels.
struct PixelTiles {
  int64_t across, down, channels;
  template <typename T>
  static PixelTiles of(const Problem& p) {
    return {ceil_div(p.w, kPixelColumns), ceil_div(p.h, kPixelRows), ceil_div(p.c, kPixelChannels<T>)};
  }
};

template <typename T>
__global__ void __launch_bounds__(kPixelThreads, 2)
    sum_pixels(Problem p, BackwardBuffers<T> b, BoxTables<Compute<T>> tables, PixelTiles tiles, int64_t jobs) {
  using C = Compute<T>;
  constexpr int kChannels = kPixelChannels<T>;
  constexpr int kWords = kPixelThreads / 32;
  __shared__ uint32_t touched[kWords];  // of some boxes, whether each touches the tile
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    // Blocks of channels come first: they share the boxes.
    const int64_t tile = job / tiles.channels;
    const int32_t channel = static_cast<int32_t>(job % tiles.channels) * kChannels;
    const int32_t first_column = static_cast<int32_t>(tile % tiles.across) * kPixelColumns;
    const int32_t first_row = static_cast<int32_t>(tile / tiles.across % tiles.down) * kPixelRows;
    const int32_t image = static_cast<int32_t>(tile / tiles.across / tiles.down);
    const int32_t columns = p.w - first_column < kPixelColumns ? p.w - first_column : kPixelColumns;
    const int32_t rows = p.h - first_row < kPixelRows ? p.h - first_row : kPixelRows;
    const bool row_inside = thread / kPixelColumns < rows, inside = row_inside && thread % kPixelColumns < columns;
    const int32_t column = first_column + (inside ? thread % kPixelColumns : 0);
    const int32_t row = first_row + (row_inside ? thread / kPixelColumns : 0);
    const int32_t count = p.c - channel < kChannels ? p.c - channel : kChannels;
    C sums[kChannels] = {}, totals[kChannels] = {};
    int64_t block_end = p.rois_per_block;  // of the boxes whose sum is `sums`
    for (int64_t base = 0; base < p.num_rois; base += kPixelThreads) {
      const int64_t mine = base + thread;
      const bool touches =
          mine < p.num_rois && tables.touches(mine, image, first_row, rows, first_column, columns);
      const uint32_t mask = __ballot_sync(kFullWarp, touches);
      __syncthreads();  // the masks before are read
      if (thread % 32 == 0) touched[thread / 32] = mask;
      __syncthreads();
      for (int word = 0; word < kWords; ++word) {
        for (uint32_t left = touched[word]; left != 0; left &= left - 1) {
          const int64_t r = base + word * 32 + __ffs(static_cast<int>(left)) - 1;
          if (r >= block_end) {
            block_end = (r / p.rois_per_block + 1) * p.rois_per_block;
#pragma unroll
            for (int k = 0; k < kChannels; ++k) {
              totals[k] = totals[k] + sums[k];
              sums[k] = C(0);
            }
          }
          if (!row_inside || !tables.touches(r, image, row, 1, first_column, columns)) continue;
          const T* grad = b.grad_output + (r * p.c + channel) * p.pooled_h * p.pooled_w;
          add_box_to_pixels(p, grad, tables.y(r), tables.x(r), row, {first_column, first_column + columns - 1}, column,
                            inside, count, sums);
        }
      }
    }
    if (!inside) continue;
    // Blocks of boxes without one here would add 0, which changes no bits: no sum is -0.
    const int64_t plane = static_cast<int64_t>(p.h) * p.w;
    const int64_t pixel = static_cast<int64_t>(row) * p.w + column;
    T* at = b.grad_input + (static_cast<int64_t>(image) * p.c + channel) * plane + pixel;
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (k < count) at[k * plane] = narrow<T>(totals[k] + sums[k]);
    }
  }
}

template <typename T>
Status enqueue_pixels(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  const BoxTables<Compute<T>> tables(p, workspace);
  Problem sized = p;
  if (p.output_numel == 0) {
    sized.num_rois = 0;  // nothing is tabulated and every pixel's sum is empty
  } else {
    BARACUDA_RETURN_IF_FAILED(tabulate(p, b.rois, tables, stream));
  }
  const PixelTiles tiles = PixelTiles::of<T>(p);
  const int64_t jobs = p.n * tiles.down * tiles.across * tiles.channels;
  return launch_kernel("roi_align_backward pixel kernel", sum_pixels<T>, blocks_for(jobs, 1), kPixelThreads, 0, stream,
                       sized, b, tables, tiles, jobs);
}

}  // namespace
}  // namespace baracuda::roi_align
