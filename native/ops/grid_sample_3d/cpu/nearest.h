// SPDX-License-Identifier: Apache-2.0
// Where nearest samples of volumes lie; what is done with them is grid_sample's.
#pragma once

#include "ops/grid_sample/cpu/nearest.h"
#include "ops/grid_sample_3d/launch.h"
#include "ops/grid_sample_3d/math.h"

namespace baracuda::grid_sample {
namespace {

template <>
struct Planes<grid_sample_3d::Problem> {
  static constexpr int kAxes = grid_sample_3d::kAxes;

  static int64_t size(const grid_sample_3d::Problem& p) { return p.voxels; }
  template <typename C>
  static bool is_missing_at(const C* coordinates, const grid_sample_3d::Problem& p) {
    return grid_sample_3d::is_missing(coordinates, p);
  }

  // As for images.
  template <typename C, typename Index>
  static void find_pixels(const grid_sample_3d::Problem& p, const C* grid, int64_t count, Index* voxels) {
    int32_t x[kPlaced], y[kPlaced], z[kPlaced];
    C fractions[kPlaced];
    const Index width = static_cast<Index>(p.input_w), height = static_cast<Index>(p.input_h);
    for (int64_t first = 0; first < count; first += kPlaced) {
      const int64_t part = at_most(count - first, kPlaced);
      const C* const coordinates = grid + kAxes * first;
      place_axis(coordinates, part, kAxes, p.input_w, p.rule, x, fractions);
      place_axis(coordinates + 1, part, kAxes, p.input_h, p.rule, y, fractions);
      place_axis(coordinates + 2, part, kAxes, p.input_d, p.rule, z, fractions);
      for (int64_t i = 0; i < part; ++i) {
        const Index row = static_cast<Index>(z[i]) * height + static_cast<Index>(y[i]);
        voxels[first + i] = (x[i] < 0) | (y[i] < 0) | (z[i] < 0) ? Index(-1) : row * width + static_cast<Index>(x[i]);
      }
    }
  }
};

}  // namespace
}  // namespace baracuda::grid_sample
