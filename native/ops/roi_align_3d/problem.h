// SPDX-License-Identifier: Apache-2.0
// What a valid roi_align_3d problem is, forward and backward: extents, options and the sizes derived from them. No
// pointers.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/status.h"
#include "ops/roi_align/problem.h"

namespace baracuda::roi_align_3d {

// Axes stand in the order of memory: z, y, x.
constexpr int kAxes = 3;

struct Numbers {
  int32_t n, c, d, h, w, num_rois, pooled_d, pooled_h, pooled_w;
  float spatial_scale;
  int32_t sampling_ratio, aligned;
};

struct Problem {
  int32_t n, c;
  int32_t extents[kAxes];
  int32_t num_rois;
  int32_t pooled[kAxes];

  int64_t input_numel;   // n c d h w
  int64_t output_numel;  // num_rois c pooled_d pooled_h pooled_w
  int64_t rois_numel;    // 7 num_rois
  // The backward sum over boxes is cut into blocks of this many consecutive boxes; the partial sums are added in order.
  int64_t rois_per_block;
  // How an axis of a box is sampled, as roi_align says it. Of its sizes none means anything.
  roi_align::Problem rule;

  BARACUDA_HD int64_t voxels() const { return int64_t{extents[0]} * extents[1] * extents[2]; }
  BARACUDA_HD int64_t bins() const { return int64_t{pooled[0]} * pooled[1] * pooled[2]; }
};

// Checks in the project's fixed order. `element_bytes` and `coordinate_bytes` are the sizes of T and of the boxes'
// type; `volume` and `bins` are what texts call the tensors.
Status make_problem(const Numbers& numbers, int64_t element_bytes, int64_t coordinate_bytes, const char* volume,
                    const char* bins, Problem* problem);

}  // namespace baracuda::roi_align_3d
