// SPDX-License-Identifier: Apache-2.0
// What a valid problem of position-sensitive pooling is, by samples and by averages, forward and backward. No pointers.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/status.h"
#include "ops/roi_align/problem.h"

namespace baracuda::ps_roi {

struct Problem {
  int32_t n, c, h, w;  // c of the output; the input has one map for each of them and each bin
  int32_t num_rois, pooled_h, pooled_w;
  double spatial_scale;  // the f32 argument, exactly

  int64_t input_numel;   // n c pooled_h pooled_w h w
  int64_t output_numel;  // num_rois c pooled_h pooled_w
  int64_t rois_numel;    // 5 num_rois
  // By samples: roi_align's problem with these boxes, by which they are tabulated. Its blocks of boxes mean nothing.
  roi_align::Problem boxes;

  BARACUDA_HD int64_t plane() const { return static_cast<int64_t>(h) * w; }
  BARACUDA_HD int64_t bins() const { return static_cast<int64_t>(pooled_h) * pooled_w; }
};

struct Numbers {
  int32_t n, c, h, w, num_rois, pooled_h, pooled_w;
  float spatial_scale;
  int32_t sampling_ratio;  // by samples
};

// Checks in the project's fixed order. `element_bytes` and `coordinate_bytes` are the sizes of T and of the boxes'
// type; `image` and `bins` are what texts call the tensors.
Status make_problem(const Numbers& numbers, int64_t element_bytes, int64_t coordinate_bytes, const char* image,
                    const char* bins, Problem* problem);

}  // namespace baracuda::ps_roi
