// SPDX-License-Identifier: Apache-2.0
// What a valid roi_align problem is, forward and backward: extents, options and the sizes derived from them. No
// pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::roi_align {

struct Problem {
  int32_t n, c, h, w;
  int32_t num_rois, pooled_h, pooled_w;
  double spatial_scale;  // the f32 argument, exactly
  int32_t sampling_ratio;
  bool aligned;

  int64_t input_numel;   // n c h w
  int64_t output_numel;  // num_rois c pooled_h pooled_w
  int64_t rois_numel;    // 5 num_rois
  // The backward sum over boxes is cut into blocks of this many consecutive boxes; the partial sums are added in order.
  int64_t rois_per_block;
};

// A sample's index plus one half is exact in f32 up to here.
constexpr int32_t kMaxSamplingRatio = 1 << 20;
// The gradient of the boxes takes every sample of a bin by itself, where the others add them up along each axis first:
// more would be hours of work in one bin.
constexpr int32_t kMostSamplesOfSlopes = 1024;

// Checks in the project's fixed order. `element_bytes` and `coordinate_bytes` are the sizes of T and of the boxes'
// type; `image` and `bins` are what texts call the tensors.
Status make_problem(int32_t n, int32_t c, int32_t h, int32_t w, int32_t num_rois, int32_t pooled_h, int32_t pooled_w,
                    float spatial_scale, int32_t sampling_ratio, int32_t aligned, int64_t element_bytes,
                    int64_t coordinate_bytes, const char* image, const char* bins, Problem* problem,
                    int32_t most_samples = kMaxSamplingRatio);

}  // namespace baracuda::roi_align
