// SPDX-License-Identifier: Apache-2.0
// Which rows the bins of each row of a box name, and which columns those of each of its columns, in any of some
// channels: by these ranges a tile finds the boxes, and a warp the bins, that may send it something.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/roi_pool/launch.h"
#include "ops/roi_pool/math.h"

namespace baracuda::roi_pool {
namespace {

// Channels that a tile has together.
constexpr int kTileChannels = 16;
// Rows of bins, and columns, that a box has at most where its ranges are kept; lanes see to them in groups of eight.
constexpr int kMostAcross = 7;
constexpr int kLanesAcross = 8;

// The rows or columns [first, last]; first > last when there is none.
struct alignas(4) Range {
  uint16_t first, last;

  __device__ __forceinline__ bool meets(int32_t begin, int32_t end) const { return first < end && last >= begin; }
};

// Of a box and a group of channels: all its rows, and all its columns.
struct alignas(8) BoxExtent {
  Range rows, columns;
};

// Of each row of bins its rows, then of each column of bins its columns.
struct alignas(8) BinRanges {
  Range of[2 * kMostAcross];
};

inline int64_t channel_groups(const Problem& p) { return ceil_div(p.c, kTileChannels); }

// The workspace of the tiles.
template <typename C>
struct TileScratch {
  WorkspaceLayout layout;
  int32_t* images;     // [num_rois]: a box's image, -1 when it has none
  BoxExtent* extents;  // [groups][num_rois]: nothing of a box without an image
  BinRanges* ranges;   // [groups][num_rois]: anything of a box without an image
  C* partials;         // [blocks][n c h w], where the sum is cut into several blocks

  TileScratch(const Problem& p, void* workspace) {
    const int64_t blocks = p.blocks(), all = channel_groups(p) * p.num_rois;
    images = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.num_rois));
    extents = workspace_array<BoxExtent>(workspace, layout.reserve<BoxExtent>(all));
    ranges = workspace_array<BinRanges>(workspace, layout.reserve<BinRanges>(all));
    partials = workspace_array<C>(workspace, layout.reserve<C>(blocks > 1 ? blocks * p.input_numel : 0));
  }
};

constexpr int kRangeWarps = 4;
// Channels of a box whose loads a warp has under way together.
constexpr int kRangeChannels = 16;

// What is found of a bin, or of several.
struct FoundRanges {
  int32_t first_row, last_row, first_column, last_column;

  __device__ __forceinline__ void add(int32_t row, int32_t column) {
    first_row = min(first_row, row), last_row = max(last_row, row);
    first_column = min(first_column, column), last_column = max(last_column, column);
  }
};

// A warp looks at some channels of a box, a lane at one bin of them or at several.
template <typename C>
__global__ void __launch_bounds__(32 * kRangeWarps)
    find_ranges(const __grid_constant__ Problem p, const C* rois, const int32_t* argmax, int32_t* images,
                BoxExtent* extents, BinRanges* ranges, const __grid_constant__ Divider by_groups,
                const __grid_constant__ Divider by_width) {
  __shared__ FoundRanges all_found[kRangeWarps][kMostAcross * kMostAcross];
  let_kernel_after_start();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  FoundRanges* const found = all_found[threadIdx.x / 32];
  const int bins = static_cast<int>(p.bins()), pooled_h = p.pooled_h, pooled_w = p.pooled_w;
  const uint32_t plane = static_cast<uint32_t>(p.plane());
  const int64_t jobs = static_cast<int64_t>(by_groups.divisor) * p.num_rois;
  for (int64_t job = grid_thread() / 32; job < jobs; job += grid_threads() / 32) {
    const uint32_t r = by_groups.divide(static_cast<uint32_t>(job));
    const int32_t group = static_cast<int32_t>(job) - static_cast<int32_t>(r * by_groups.divisor);
    const int32_t channel = group * kTileChannels, channels = min(p.c - channel, kTileChannels);
    const int32_t image = image_of(rois[5 * static_cast<int64_t>(r)], p.n);
    if (group == 0 && lane == 0) images[r] = image;
    const int32_t* const first = argmax + (static_cast<int64_t>(r) * p.c + channel) * bins;
    for (int bin = lane; bin < bins; bin += 32) {
      FoundRanges all{INT32_MAX, -1, INT32_MAX, -1};
      for (int base = 0; base < (image >= 0 ? channels : 0); base += kRangeChannels) {
        int32_t pixel[kRangeChannels];
#pragma unroll
        for (int k = 0; k < kRangeChannels; ++k) {
          pixel[k] = base + k < channels ? first[(base + k) * bins + bin] : kNoPixel;
        }
#pragma unroll
        for (int k = 0; k < kRangeChannels; ++k) {
          const uint32_t number = static_cast<uint32_t>(pixel[k]);
          if (number >= plane) continue;
          const uint32_t row = by_width.divide(number);
          all.add(static_cast<int32_t>(row), static_cast<int32_t>(number - row * by_width.divisor));
        }
      }
      found[bin] = all;
    }
    __syncwarp();
    // Lanes from 0 on see to a row of bins each, those from kLanesAcross on to a column.
    const bool is_row = lane < kLanesAcross;
    const int at = lane % kLanesAcross, step = is_row ? 1 : pooled_w, count = is_row ? pooled_w : pooled_h;
    int32_t low = UINT16_MAX, high = 0;
    if (at < (is_row ? pooled_h : pooled_w) && lane < 2 * kLanesAcross) {
      for (int i = 0; i < count; ++i) {
        const FoundRanges& one = found[(is_row ? at * pooled_w : at) + i * step];
        low = min(low, is_row ? one.first_row : one.first_column);
        high = max(high, is_row ? one.last_row : one.last_column);
      }
    }
    const int64_t place = static_cast<int64_t>(group) * p.num_rois + r;
    const auto packed = [&] { return Range{static_cast<uint16_t>(low), static_cast<uint16_t>(high)}; };
    if (at < kMostAcross && lane < 2 * kLanesAcross) ranges[place].of[is_row ? at : kMostAcross + at] = packed();
#pragma unroll
    for (int other = kLanesAcross / 2; other > 0; other /= 2) {
      low = min(low, __shfl_xor_sync(kFullWarp, low, other));
      high = max(high, __shfl_xor_sync(kFullWarp, high, other));
    }
    if (lane == 0) extents[place].rows = packed();
    if (lane == kLanesAcross) extents[place].columns = packed();
    __syncwarp();  // what was found is read
  }
}

}  // namespace
}  // namespace baracuda::roi_pool
