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
  // One volume's scratch is what the header promises.
  static int64_t group(const grid_sample_3d::Problem&) { return 1; }
  template <typename C>
  static bool is_missing_at(const C* coordinates, const grid_sample_3d::Problem& p) {
    return grid_sample_3d::is_missing(coordinates, p);
  }

  // As for images.
  template <typename C>
  static void find_pixels(const grid_sample_3d::Problem& p, const C* grid, int64_t count, int32_t* voxels) {
    int32_t x[kPlaced], y[kPlaced], z[kPlaced];
    C fractions[kPlaced];
    for (int64_t first = 0; first < count; first += kPlaced) {
      const int64_t part = at_most(count - first, kPlaced);
      const C* const coordinates = grid + kAxes * first;
      place_axis(coordinates, part, kAxes, p.input_w, p.rule, x, fractions);
      place_axis(coordinates + 1, part, kAxes, p.input_h, p.rule, y, fractions);
      place_axis(coordinates + 2, part, kAxes, p.input_d, p.rule, z, fractions);
      for (int64_t i = 0; i < part; ++i) {
        const bool exists = (x[i] >= 0) & (y[i] >= 0) & (z[i] >= 0);
        // A product of what lies outside may not fit.
        const int32_t row = (exists ? z[i] : 0) * p.input_h + y[i];
        voxels[first + i] = exists ? row * p.input_w + x[i] : -1;
      }
    }
  }
};

}  // namespace
}  // namespace baracuda::grid_sample
