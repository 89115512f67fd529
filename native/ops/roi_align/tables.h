// SPDX-License-Identifier: Apache-2.0
// Every box's bins and weights, tabulated in a workspace: the layout and how to read it, for both backends. Filling it
// is the backend's.
#pragma once

#include "core/workspace.h"
#include "ops/roi_align/math.h"

namespace baracuda::roi_align {
namespace {

// A bin's pixels on one axis; `weights` is where its weights start in the box's table, or -1 when they did not fit and
// are computed where they are used. Weights come in groups of kWeightGroup pixels, the first of which is a multiple of
// kWeightGroup; pixels of a group that are not the bin's have weight 0. One 16-byte load.
struct alignas(16) BinEntry {
  PixelRange pixels;
  int32_t weights;
  int32_t filler = 0;  // written too, so that the load meets no byte that nobody wrote
};

// Four weights are one 16-byte load of f32.
constexpr int32_t kWeightGroup = 4;

BARACUDA_HD int32_t first_in_group(int32_t pixel) { return pixel & ~(kWeightGroup - 1); }

// Weights that a bin takes in the table.
BARACUDA_HD int64_t weights_of(PixelRange pixels) {
  if (pixels.first > pixels.last) return 0;
  return static_cast<int64_t>(first_in_group(pixels.last)) + kWeightGroup - first_in_group(pixels.first);
}

// Weights kept per box and axis. Bins overlap by at most two pixels as long as positions are exact to a pixel, so this
// holds all of them; coordinates so large that rounding reorders samples may overflow it. Capped so that a table never
// dwarfs its image.
inline int64_t table_capacity(int64_t extent, int64_t bins) {
  const int64_t wanted = (extent + (2 + 2 * (kWeightGroup - 1)) * bins + kWeightGroup - 1) & ~(kWeightGroup - 1);
  return wanted < 4096 ? wanted : 4096;
}

BARACUDA_HD PixelRange no_pixels() { return {INT32_MAX, -1}; }

BARACUDA_HD PixelRange join(PixelRange a, PixelRange b) {
  if (b.first > b.last) return a;
  return {a.first < b.first ? a.first : b.first, a.last > b.last ? a.last : b.last};
}

// A weight that did not fit in the table. Out of line on the host: it is rare, and inlined it slows the loops around.
template <typename T>
#if defined(__CUDACC__)
BARACUDA_HD
#else
[[gnu::noinline]]
#endif
T computed_weight(const Axis<T>& axis, int32_t bin, int32_t pixel) {
  return pixel_weight(axis, bin, pixel);
}

// One axis of one box with its table.
template <typename T>
struct TabulatedAxis {
  const Axis<T>* axis;
  const BinEntry* bins;
  const T* weights;

  BARACUDA_HD PixelRange pixels(int32_t bin) const { return bins[bin].pixels; }
  // For a pixel within the bin's range.
  BARACUDA_HD T weight(int32_t bin, int32_t pixel) const { return weight(bin, bins[bin], pixel); }
  // For a caller that has read the bin's entry.
  BARACUDA_HD T weight(int32_t bin, const BinEntry& entry, int32_t pixel) const {
    if (entry.weights < 0) return computed_weight(*axis, bin, pixel);
    return weights[entry.weights + (pixel - first_in_group(entry.pixels.first))];
  }
};

// The boxes of a problem in a workspace. A box whose image is -1 has no other valid entry.
template <typename T>
struct BoxTables {
  int32_t pooled_h, pooled_w;
  int64_t y_capacity, x_capacity;
  size_t bytes;
  Box<T>* boxes;
  PixelRange* touched;  // [num_rois][2]: the pixels that a box's bins touch, along y and x
  BinEntry* y_bins;
  BinEntry* x_bins;
  T* y_weights;
  T* x_weights;

  BoxTables(const Problem& p, void* workspace)
      : pooled_h(p.pooled_h),
        pooled_w(p.pooled_w),
        y_capacity(table_capacity(p.h, p.pooled_h)),
        x_capacity(table_capacity(p.w, p.pooled_w)) {
    // Nothing is tabulated when there is nothing to read or write.
    const int64_t rois = p.input_numel > 0 && p.output_numel > 0 ? p.num_rois : 0;
    WorkspaceLayout layout;
    boxes = workspace_array<Box<T>>(workspace, layout.reserve<Box<T>>(rois));
    touched = workspace_array<PixelRange>(workspace, layout.reserve<PixelRange>(2 * rois));
    y_bins = workspace_array<BinEntry>(workspace, layout.reserve<BinEntry>(rois * pooled_h));
    x_bins = workspace_array<BinEntry>(workspace, layout.reserve<BinEntry>(rois * pooled_w));
    y_weights = workspace_array<T>(workspace, layout.reserve<T>(rois * y_capacity));
    x_weights = workspace_array<T>(workspace, layout.reserve<T>(rois * x_capacity));
    bytes = layout.bytes();
  }

  BARACUDA_HD TabulatedAxis<T> y(int64_t r) const {
    return {&boxes[r].y, y_bins + r * pooled_h, y_weights + r * y_capacity};
  }
  BARACUDA_HD TabulatedAxis<T> x(int64_t r) const {
    return {&boxes[r].x, x_bins + r * pooled_w, x_weights + r * x_capacity};
  }
  // Whether a box adds anything to a tile of an image.
  BARACUDA_HD bool touches(int64_t r, int32_t image, int32_t row, int32_t rows, int32_t column, int32_t columns) const {
    if (boxes[r].image != image) return false;
    const PixelRange y_range = touched[2 * r], x_range = touched[2 * r + 1];
    return y_range.first < row + rows && y_range.last >= row && x_range.first < column + columns &&
           x_range.last >= column;
  }
};

}  // namespace
}  // namespace baracuda::roi_align
