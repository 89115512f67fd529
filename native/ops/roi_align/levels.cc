// SPDX-License-Identifier: Apache-2.0
// Validation of roi_align's problems on several maps, and the areas from which on boxes belong to a map.
#include "ops/roi_align/levels.h"

#include <cmath>
#include <cstdio>

#include "core/checked.h"

namespace baracuda::roi_align {
namespace {

constexpr int32_t kMostLevelNumber = 64;

// 4^(-10^-6): torchvision adds 10^-6 to a box's level, so that rounding does not take one from its threshold.
constexpr double kLeniency = 0x1.ffffd17bd492fp-1;

Status check_extents(const char* name, const int32_t* extents, int32_t count) {
  for (int32_t level = 0; level < count; ++level) {
    char entry[32];
    snprintf(entry, sizeof entry, "%s[%d]", name, level);
    BARACUDA_RETURN_IF_FAILED(check_extent(entry, extents[level]));
  }
  return Status::kOk;
}

bool is_finite(float number) { return number - number == 0.0f; }

Status check_numbers(const LevelsNumbers& given) {
  BARACUDA_RETURN_IF_FAILED(check_host_array("heights", given.heights));
  BARACUDA_RETURN_IF_FAILED(check_host_array("widths", given.widths));
  BARACUDA_RETURN_IF_FAILED(check_host_array("spatial_scales", given.spatial_scales));
  BARACUDA_RETURN_IF_FAILED(check_range("num_levels", given.num_levels, 1, kMostLevels));
  BARACUDA_RETURN_IF_FAILED(check_extents("heights", given.heights, given.num_levels));
  BARACUDA_RETURN_IF_FAILED(check_extents("widths", given.widths, given.num_levels));
  for (int32_t level = 0; level < given.num_levels; ++level) {
    if (is_finite(given.spatial_scales[level])) continue;
    return fail(Status::kInvalidProblem, "spatial_scales[%d] is %g; wanted a finite number", level,
                static_cast<double>(given.spatial_scales[level]));
  }
  BARACUDA_RETURN_IF_FAILED(check_range("k_min", given.k_min, -kMostLevelNumber, kMostLevelNumber));
  BARACUDA_RETURN_IF_FAILED(
      check_range("canonical_level", given.canonical_level, -kMostLevelNumber, kMostLevelNumber));
  if (is_finite(given.canonical_scale)) return Status::kOk;
  return fail(Status::kInvalidProblem, "canonical_scale is %g; wanted a finite number",
              static_cast<double>(given.canonical_scale));
}

}  // namespace

Status make_levels_problem(const LevelsNumbers& given, int64_t element_bytes, int64_t coordinate_bytes,
                           const LevelNames& maps, const char* bins, LevelsProblem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_numbers(given));
  LevelsProblem p{};
  p.num_levels = given.num_levels;
  const double scale = static_cast<double>(given.canonical_scale);
  for (int32_t level = 0; level < given.num_levels; ++level) {
    Problem& one = p.levels[level];
    BARACUDA_RETURN_IF_FAILED(make_problem(given.n, given.c, given.heights[level], given.widths[level], given.num_rois,
                                           given.pooled_h, given.pooled_w, given.spatial_scales[level],
                                           given.sampling_ratio, given.aligned, element_bytes, coordinate_bytes,
                                           maps[level], bins, &one));
    // The square is exact, so an area is rounded once.
    p.least_areas[level] = scale * scale * std::ldexp(kLeniency, 2 * (given.k_min + level - given.canonical_level));
    if (level == 0) p.all = one;
    if (one.h > p.all.h) p.all.h = one.h;
    if (one.w > p.all.w) p.all.w = one.w;
    if (one.input_numel > p.all.input_numel) p.all.input_numel = one.input_numel;
  }
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::roi_align
