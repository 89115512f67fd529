// SPDX-License-Identifier: Apache-2.0
// Every box's bins and weights on its three axes, tabulated in a workspace: the layout and how to read it, for both
// backends. What an axis holds is roi_align's; filling it is the backend's.
#pragma once

#include "core/workspace.h"
#include "ops/roi_align/tables.h"
#include "ops/roi_align_3d/problem.h"

namespace baracuda::roi_align_3d {
namespace {

using roi_align::Axis;
using roi_align::BinEntry;
using roi_align::kNoImage;
using roi_align::PixelRange;
using roi_align::TabulatedAxis;

// A row of rois is (image, x1, y1, z1, x2, y2, z2).
constexpr int kRowNumbers = 7;

template <typename C>
struct Box {
  int32_t image;  // kNoImage: the box contributes nothing
  Axis<C> axes[kAxes];
};

template <typename C>
BARACUDA_HD Box<C> make_box(const C* roi, const Problem& p) {
  Box<C> box;
  const C image = trunc_of(roi[0]);
  bool usable = image >= C(0) && image < static_cast<C>(p.n);
  bool sampled = true;
  for (int a = 0; a < kAxes; ++a) {
    const int x = kAxes - 1 - a;  // the row has x first
    box.axes[a] = roi_align::make_axis(roi[1 + x], roi[4 + x], p.pooled[a], p.extents[a], p.rule, &usable);
    sampled = sampled && box.axes[a].count > 0 && p.extents[a] > 0;
  }
  // n as C may round up; the integer comparison settles the largest batches.
  box.image = usable ? static_cast<int32_t>(image) : kNoImage;
  if (box.image >= p.n || !sampled) box.image = kNoImage;
  return box;
}

// The boxes of a problem in a workspace. A box of no image has no other valid entry.
template <typename C>
struct BoxTables {
  int32_t pooled[kAxes];
  int64_t capacity[kAxes];
  size_t bytes;
  Box<C>* boxes;
  PixelRange* touched;  // [num_rois][kAxes]: the pixels that a box's bins touch
  BinEntry* bins[kAxes];
  C* weights[kAxes];

  BoxTables(const Problem& p, void* workspace) {
    // Nothing is tabulated when there is nothing to read or write.
    const int64_t rois = p.input_numel > 0 && p.output_numel > 0 ? p.num_rois : 0;
    WorkspaceLayout layout;
    boxes = workspace_array<Box<C>>(workspace, layout.reserve<Box<C>>(rois));
    touched = workspace_array<PixelRange>(workspace, layout.reserve<PixelRange>(kAxes * rois));
    for (int a = 0; a < kAxes; ++a) {
      pooled[a] = p.pooled[a];
      capacity[a] = roi_align::table_capacity(p.extents[a], p.pooled[a]);
      bins[a] = workspace_array<BinEntry>(workspace, layout.reserve<BinEntry>(rois * pooled[a]));
      weights[a] = workspace_array<C>(workspace, layout.reserve<C>(rois * capacity[a]));
    }
    bytes = layout.bytes();
  }

  BARACUDA_HD BinEntry* bins_of(int64_t r, int a) const { return bins[a] + r * pooled[a]; }
  BARACUDA_HD C* weights_of(int64_t r, int a) const { return weights[a] + r * capacity[a]; }
  BARACUDA_HD TabulatedAxis<C> axis(int64_t r, int a) const {
    return {&boxes[r].axes[a], bins_of(r, a), weights_of(r, a)};
  }
  // Whether a box adds anything to voxels [first, first + count) of an image.
  BARACUDA_HD bool touches(int64_t r, int32_t image, const int32_t (&first)[kAxes],
                           const int32_t (&count)[kAxes]) const {
    if (boxes[r].image != image) return false;
    bool meets = true;
    for (int a = 0; a < kAxes; ++a) {
      const PixelRange range = touched[kAxes * r + a];
      meets = meets && range.first < first[a] + count[a] && range.last >= first[a];
    }
    return meets;
  }
};

}  // namespace
}  // namespace baracuda::roi_align_3d
