// SPDX-License-Identifier: Apache-2.0
// What a valid roi_pool problem is, forward and backward: extents and the sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/status.h"

namespace baracuda::roi_pool {

struct Problem {
  int32_t n, c, h, w;
  int32_t num_rois, pooled_h, pooled_w;
  double spatial_scale;  // the f32 argument, exactly; the backward has none

  int64_t input_numel;   // n c h w
  int64_t output_numel;  // num_rois c pooled_h pooled_w, of argmax too
  int64_t rois_numel;    // 5 num_rois
  // The backward sum over boxes is cut into blocks of this many consecutive boxes; the partial sums are added in order.
  int64_t rois_per_block;

  BARACUDA_HD int64_t plane() const { return static_cast<int64_t>(h) * w; }
  BARACUDA_HD int64_t bins() const { return static_cast<int64_t>(pooled_h) * pooled_w; }
  int64_t blocks() const { return num_rois > 0 ? (num_rois - 1) / rois_per_block + 1 : 1; }
};

// Checks in the project's fixed order. `element_bytes` and `coordinate_bytes` are the sizes of T and of the boxes'
// type; `image` and `bins` are what texts call the tensors.
Status make_problem(int32_t n, int32_t c, int32_t h, int32_t w, int32_t num_rois, int32_t pooled_h, int32_t pooled_w,
                    float spatial_scale, int64_t element_bytes, int64_t coordinate_bytes, const char* image,
                    const char* bins, Problem* problem);

}  // namespace baracuda::roi_pool
