// SPDX-License-Identifier: Apache-2.0
// The samples' geometry in volumes, shared by both backends: which of a sample's eight taps exist and what they weigh,
// in the value and in the derivatives. Where a coordinate lies on its axis is grid_sample's.
#pragma once

#include <cstdint>

#include "core/float_math.h"
#include "core/host_device.h"
#include "ops/grid_sample/math.h"
#include "ops/grid_sample_3d/problem.h"

namespace baracuda::grid_sample_3d {
namespace {

using grid_sample::AxisPosition;
using grid_sample::is_pixel;
using grid_sample::kOutside;

// A sample: tap t is the voxel (z + t / 4, y + t / 2 % 2, x + t % 2), in this order.
template <typename C>
struct Position {
  AxisPosition<C> x, y, z;

  BARACUDA_HD bool is_outside() const { return x.low == kOutside || y.low == kOutside || z.low == kOutside; }
};

// Linear samples whose position stays where it is: what locate() does with them, and no more. It is the commonest rule.
template <typename C>
BARACUDA_HD AxisPosition<C> locate_plain(C coordinate, int32_t extent, const Rule& rule) {
  const C position = grid_sample::position_of(coordinate, extent, rule);
  return grid_sample::place(position, floor_of(position), extent);
}

template <typename C>
BARACUDA_HD Position<C> locate_sample(const C* coordinates, const Problem& p) {
  // All are on their way before one is looked at.
  const C x = coordinates[0], y = coordinates[1], z = coordinates[2];
  if (p.rule.mode == Mode::kBilinear && p.rule.padding == Padding::kZeros) {
    return {locate_plain(x, p.input_w, p.rule), locate_plain(y, p.input_h, p.rule), locate_plain(z, p.input_d, p.rule)};
  }
  return {grid_sample::locate(x, p.input_w, p.rule), grid_sample::locate(y, p.input_h, p.rule),
          grid_sample::locate(z, p.input_d, p.rule)};
}

// A coordinate that has no position makes the output NaN, whatever the volume.
template <typename C>
BARACUDA_HD bool is_missing(const C* coordinates, const Problem& p) {
  const int32_t extents[kAxes] = {p.input_w, p.input_h, p.input_d};
  bool missing = false;
  for (int axis = 0; axis < kAxes; ++axis) {
    const C position = grid_sample::position_of(coordinates[axis], extents[axis], p.rule);
    missing = missing || grid_sample::is_missing(coordinates[axis], position, p.rule);
  }
  return missing;
}

// Where a tap lies, from a sample's first one, in a volume of rows of `w` voxels and planes of `h` rows.
BARACUDA_HD int64_t tap_offset(int tap, const Problem& p) {
  return (static_cast<int64_t>(tap / 4) * p.input_h + tap / 2 % 2) * p.input_w + tap % 2;
}

// Where a sample's first tap would lie, which may be before the volume.
template <typename C>
BARACUDA_HD int64_t first_voxel(const Position<C>& at, const Problem& p) {
  return (static_cast<int64_t>(at.z.low) * p.input_h + at.y.low) * p.input_w + at.x.low;
}

// What a sample's two taps on an axis weigh; 0 where they are no voxels. A tap of weight 0 does not exist: it is
// skipped, so that its value, perhaps infinite, cannot leak.
template <typename C>
struct AxisWeights {
  C low, high;

  BARACUDA_HD AxisWeights(const AxisPosition<C>& at, int32_t extent)
      : low(is_pixel(at.low, extent) ? C(1) - at.fraction : C(0)),
        high(is_pixel(at.low + 1, extent) ? at.fraction : C(0)) {}
  BARACUDA_HD C of(int bit) const { return bit == 0 ? low : high; }
};

template <typename C>
struct Taps {
  C weight[kTaps];
};

// The taps' weights in the sample's value: z (y x). Products may underflow to 0.
template <typename C>
BARACUDA_HD Taps<C> value_taps(const Position<C>& at, const Problem& p) {
  const AxisWeights<C> x(at.x, p.input_w), y(at.y, p.input_h), z(at.z, p.input_d);
  Taps<C> taps;
  for (int tap = 0; tap < kTaps; ++tap) taps.weight[tap] = z.of(tap / 4) * (y.of(tap / 2 % 2) * x.of(tap % 2));
  return taps;
}

// Their weights in the value's derivatives by the position: z y by x, z x by y and y x by z, times the slope of -1 or 1
// of the tap's own axis, which is exact. A tap that is no voxel has the slope 0.
template <typename C>
struct SlopeWeights {
  AxisWeights<C> x, y, z;
  bool x_exists[2], y_exists[2], z_exists[2];

  BARACUDA_HD SlopeWeights(const Position<C>& at, const Problem& p)
      : x(at.x, p.input_w), y(at.y, p.input_h), z(at.z, p.input_d) {
    for (int bit = 0; bit < 2; ++bit) {
      x_exists[bit] = is_pixel(at.x.low + bit, p.input_w);
      y_exists[bit] = is_pixel(at.y.low + bit, p.input_h);
      z_exists[bit] = is_pixel(at.z.low + bit, p.input_d);
    }
  }
  BARACUDA_HD static C with_slope(C weight, bool exists, int bit) {
    return !exists ? C(0) : bit == 0 ? -weight : weight;
  }
  BARACUDA_HD C by_x(int tap) const {
    return with_slope(z.of(tap / 4) * y.of(tap / 2 % 2), x_exists[tap % 2], tap % 2);
  }
  BARACUDA_HD C by_y(int tap) const {
    return with_slope(z.of(tap / 4) * x.of(tap % 2), y_exists[tap / 2 % 2], tap / 2 % 2);
  }
  BARACUDA_HD C by_z(int tap) const {
    return with_slope(y.of(tap / 2 % 2) * x.of(tap % 2), z_exists[tap / 4], tap / 4);
  }
};

template <typename C>
struct SlopeTaps {
  Taps<C> by[kAxes];
};

template <typename C>
BARACUDA_HD SlopeTaps<C> slope_taps(const Position<C>& at, const Problem& p) {
  const SlopeWeights<C> weights(at, p);
  SlopeTaps<C> taps;
  for (int tap = 0; tap < kTaps; ++tap) {
    taps.by[0].weight[tap] = weights.by_x(tap);
    taps.by[1].weight[tap] = weights.by_y(tap);
    taps.by[2].weight[tap] = weights.by_z(tap);
  }
  return taps;
}

// A sum over no tap is 0 and not a product with the gradient, which may be infinite.
template <typename C>
BARACUDA_HD bool any_tap(const Taps<C>& taps) {
  bool any = false;
  for (int tap = 0; tap < kTaps; ++tap) any = any || taps.weight[tap] != C(0);
  return any;
}

// A sample's gradient to its position on an axis as that to its coordinate; 0 without a tap.
template <typename C>
BARACUDA_HD C by_coordinate(C by_position, bool has_tap, C coordinate, int axis, const Problem& p) {
  const int32_t extent = axis == 0 ? p.input_w : axis == 1 ? p.input_h : p.input_d;
  if (!has_tap) return C(0);
  return grid_sample::by_coordinate(by_position, grid_sample::source_of(coordinate, extent, p.rule).slope);
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
