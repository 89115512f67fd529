// SPDX-License-Identifier: Apache-2.0
// What a valid problem of roi_align on several maps is, and which map a box belongs to. Every map has a problem of its
// own, with all the boxes. No data pointers of a call.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/status.h"
#include "ops/roi_align/problem.h"

namespace baracuda::roi_align {

// As many maps as a call has at most.
constexpr int32_t kMostLevels = 8;

struct LevelsProblem {
  int32_t num_levels;
  double least_areas[kMostLevels];  // of a box of that map or of one behind it; the first takes what is left
  Problem all;                  // every box, on a map of the largest height and width: what tables are sized by
  Problem levels[kMostLevels];  // those from num_levels on have no pixels and no boxes
};

// A call's numbers, as the C functions have them.
struct LevelsNumbers {
  int32_t num_levels, n, c;
  const int32_t* heights;
  const int32_t* widths;
  const float* spatial_scales;
  int32_t num_rois, pooled_h, pooled_w, sampling_ratio, aligned, k_min, canonical_level;
  float canonical_scale;
};

// What texts call the maps.
using LevelNames = const char* const[kMostLevels];

// Checks in the project's fixed order, as make_problem.
Status make_levels_problem(const LevelsNumbers& numbers, int64_t element_bytes, int64_t coordinate_bytes,
                           const LevelNames& maps, const char* bins, LevelsProblem* problem);

namespace {

template <typename T>
BARACUDA_HD T area_of(const T* roi) {
  return (roi[3] - roi[1]) * (roi[4] - roi[2]);
}

// Whether a box has an area to choose its map by; one that has none contributes nothing, and the first map owns it.
template <typename T>
BARACUDA_HD bool has_area(const T* roi) {
  return area_of(roi) >= T(0);
}

// The map that a box belongs to. A NaN for an area is no map's least one.
template <typename T>
BARACUDA_HD int32_t level_of(const T* roi, const LevelsProblem& maps) {
  const double area = static_cast<double>(area_of(roi));
  int32_t level = 0;
  for (int32_t next = 1; next < maps.num_levels; ++next) {
    if (area >= maps.least_areas[next]) level = next;
  }
  return level;
}

}  // namespace
}  // namespace baracuda::roi_align
