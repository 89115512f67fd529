// SPDX-License-Identifier: Apache-2.0
// The samples' geometry, shared by both backends: where a sample lies between pixels, which of its four taps exist and
// what they weigh, in the value and in the derivative. A nearest sample is one that lies on a pixel.
#pragma once

#include <cstdint>

#include "core/float_math.h"
#include "core/host_device.h"
#include "ops/grid_sample/problem.h"

namespace baracuda::grid_sample {
namespace {

// What `low` of an axis holds when the sample has no tap: neither it nor its neighbour is a pixel.
constexpr int32_t kOutside = -2;

// A sample on one axis: pixel `low` weighs 1 - fraction and pixel low + 1 weighs fraction. Either may lie outside.
template <typename C>
struct AxisPosition {
  int32_t low;  // from -1 to extent - 1, or kOutside
  C fraction;
};

// The coordinate in pixels; every operation rounds once.
template <typename C>
BARACUDA_HD C position_of(C coordinate, int32_t extent) {
  return ((coordinate + C(1)) * static_cast<C>(extent) - C(1)) / C(2);
}

// `low` is the position's floor. NaN is outside.
template <typename C>
BARACUDA_HD AxisPosition<C> place(C position, C low, int32_t extent) {
  // The range check stands before the conversion: casts of large floats differ between machines. The extent as C may
  // round down, so that its own value is let through; the integer comparison settles it. No short circuits: CPU
  // compilers vectorise this.
  const bool convertible = (low >= C(-1)) & (low <= static_cast<C>(extent)) & (low < C(2147483648.0));
  const int32_t pixel = static_cast<int32_t>(convertible ? low : C(kOutside));
  return {pixel < extent ? pixel : kOutside, position - low};
}

template <typename C>
BARACUDA_HD AxisPosition<C> locate(C coordinate, int32_t extent) {
  const C position = position_of(coordinate, extent);
  return place(position, floor_of(position), extent);
}

// A sample: the taps are (y, x), (y, x + 1), (y + 1, x), (y + 1, x + 1), in this order.
template <typename C>
struct Position {
  AxisPosition<C> x, y;

  BARACUDA_HD bool is_outside() const { return x.low == kOutside || y.low == kOutside; }
};

template <typename C>
BARACUDA_HD Position<C> locate_sample(C grid_x, C grid_y, const Problem& p) {
  return {locate(grid_x, p.input_w), locate(grid_y, p.input_h)};
}

// A NaN in either coordinate makes the output NaN, whatever the image.
template <typename C>
BARACUDA_HD bool is_missing(C grid_x, C grid_y) {
  return grid_x != grid_x || grid_y != grid_y;
}

BARACUDA_HD bool is_pixel(int32_t index, int32_t extent) { return index >= 0 && index < extent; }

// --- samples that follow a rule --------------------------------------------------------------------------------------

// The coordinate in pixels, before padding.
template <typename C>
BARACUDA_HD C position_of(C coordinate, int32_t extent, const Rule& rule) {
  if (!rule.aligns_corners) return position_of(coordinate, extent);
  return (coordinate + C(1)) / C(2) * static_cast<C>(extent - 1);
}

// Whether a position makes the output NaN: a NaN coordinate, and in a reflection one that ends nowhere.
template <typename C>
BARACUDA_HD bool is_missing(C coordinate, C position, const Rule& rule) {
  return coordinate != coordinate || (rule.padding == Padding::kReflection && !is_finite(position));
}

// Where a sample lies on an axis after padding, and d(position) / d(coordinate) there.
template <typename C>
struct Source {
  C position;  // NaN where it is missing
  C slope;
};

// Mirrors a position at the outer edges of the image, or at its corner pixels' centres: a triangle wave. The remainder
// is exact, so that no position is too far.
template <typename C>
BARACUDA_HD Source<C> reflect(const Source<C>& at, int32_t extent, const Rule& rule) {
  const C edge = rule.aligns_corners ? C(0) : C(-0.5);
  const C span = static_cast<C>(rule.aligns_corners ? extent - 1 : extent), period = span * C(2);
  if (span == C(0)) return {C(0), C(0)};
  C distance = at.position - edge, slope = at.slope;
  if (distance < C(0)) {
    distance = -distance;
    slope = -slope;
  }
  if (distance >= period) distance = remainder_of(distance, period);
  if (distance < span) return {distance + edge, slope};
  return {(period - distance) + edge, -slope};
}

// Moves a position outside of the outermost pixels' centres there, where it stays when the coordinate moves.
template <typename C>
BARACUDA_HD Source<C> clip(const Source<C>& at, int32_t extent) {
  const C last = static_cast<C>(extent - 1);
  if (!(at.position > C(0))) return {C(0), C(0)};  // also a NaN: infinity times an extent of 0
  if (at.position >= last) return {last, C(0)};
  return at;
}

template <typename C>
BARACUDA_HD Source<C> source_of(C coordinate, int32_t extent, const Rule& rule) {
  Source<C> at{position_of(coordinate, extent, rule), static_cast<C>(extent - rule.aligns_corners) / C(2)};
  if (rule.padding == Padding::kZeros) return at;
  const bool missing = is_missing(coordinate, at.position, rule);
  if (rule.padding == Padding::kReflection) at = reflect(at, extent, rule);
  at = clip(at, extent);
  if (missing) at.position = canonical_nan<C>();
  return at;
}

// As for a plain sample; `low` is the position's floor, or the nearest pixel.
template <typename C>
BARACUDA_HD AxisPosition<C> place(C position, C low, int32_t extent, const Rule& rule) {
  AxisPosition<C> at = place(position, low, extent);
  // The last pixel's number as C may round up.
  if (rule.padding != Padding::kZeros && low >= static_cast<C>(extent - 1)) at = {extent - 1, C(0)};
  if (rule.mode == Mode::kNearest) at = {at.low < 0 ? kOutside : at.low, C(0)};
  return at;
}

template <typename C>
BARACUDA_HD AxisPosition<C> locate(C coordinate, int32_t extent, const Rule& rule) {
  const C position = source_of(coordinate, extent, rule).position;
  return place(position, rule.mode == Mode::kNearest ? round_of(position) : floor_of(position), extent, rule);
}

template <typename C>
BARACUDA_HD Position<C> locate_sample(C grid_x, C grid_y, const RuledProblem& p) {
  return {locate(grid_x, p.input_w, p.rule), locate(grid_y, p.input_h, p.rule)};
}

// Whether the sample is missing, given its coordinates; its taps do not say it.
template <typename C>
BARACUDA_HD bool is_missing(C grid_x, C grid_y, const Problem&) {
  return is_missing(grid_x, grid_y);
}
template <typename C>
BARACUDA_HD bool is_missing(C grid_x, C grid_y, const RuledProblem& p) {
  return is_missing(grid_x, position_of(grid_x, p.input_w, p.rule), p.rule) ||
         is_missing(grid_y, position_of(grid_y, p.input_h, p.rule), p.rule);
}

// --- taps ------------------------------------------------------------------------------------------------------------

// Weights of a sample's four taps; 0 for a tap outside the image. A tap of weight 0 does not exist: it is skipped, so
// that its value, perhaps infinite, cannot leak.
template <typename C>
struct Taps {
  C weight[4];
};

// The taps' weights in the sample's value: a product of one weight per axis. Products may underflow to 0.
template <typename C>
BARACUDA_HD Taps<C> value_taps(const Position<C>& at, const Problem& p) {
  const bool left = is_pixel(at.x.low, p.input_w), right = is_pixel(at.x.low + 1, p.input_w);
  const bool top = is_pixel(at.y.low, p.input_h), bottom = is_pixel(at.y.low + 1, p.input_h);
  const C x0 = C(1) - at.x.fraction, x1 = at.x.fraction;
  const C y0 = C(1) - at.y.fraction, y1 = at.y.fraction;
  Taps<C> taps;
  taps.weight[0] = top && left ? y0 * x0 : C(0);
  taps.weight[1] = top && right ? y0 * x1 : C(0);
  taps.weight[2] = bottom && left ? y1 * x0 : C(0);
  taps.weight[3] = bottom && right ? y1 * x1 : C(0);
  return taps;
}

// The taps' weights in the value's derivative by the position's x: -y0, y0, -y1, y1.
template <typename C>
BARACUDA_HD Taps<C> x_slope_taps(const Position<C>& at, const Problem& p) {
  const bool left = is_pixel(at.x.low, p.input_w), right = is_pixel(at.x.low + 1, p.input_w);
  const C y0 = is_pixel(at.y.low, p.input_h) ? C(1) - at.y.fraction : C(0);
  const C y1 = is_pixel(at.y.low + 1, p.input_h) ? at.y.fraction : C(0);
  return {{left ? -y0 : C(0), right ? y0 : C(0), left ? -y1 : C(0), right ? y1 : C(0)}};
}

// By its y: -x0, -x1, x0, x1.
template <typename C>
BARACUDA_HD Taps<C> y_slope_taps(const Position<C>& at, const Problem& p) {
  const bool top = is_pixel(at.y.low, p.input_h), bottom = is_pixel(at.y.low + 1, p.input_h);
  const C x0 = is_pixel(at.x.low, p.input_w) ? C(1) - at.x.fraction : C(0);
  const C x1 = is_pixel(at.x.low + 1, p.input_w) ? at.x.fraction : C(0);
  return {{top ? -x0 : C(0), top ? -x1 : C(0), bottom ? x0 : C(0), bottom ? x1 : C(0)}};
}

// A sum over no tap is 0 and not a product with the gradient, which may be infinite.
template <typename C>
BARACUDA_HD bool any_tap(const Taps<C>& taps) {
  return taps.weight[0] != C(0) || taps.weight[1] != C(0) || taps.weight[2] != C(0) || taps.weight[3] != C(0);
}

// d(position) / d(coordinate).
template <typename C>
BARACUDA_HD C pixels_per_unit(int32_t extent) {
  return static_cast<C>(extent) / C(2);
}

// A sample's gradient to its position as that to its coordinates, whose place is `coordinates`. Where the position does
// not move with a coordinate, that one's gradient is 0 and not a product, which an infinity would make NaN.
template <typename C>
struct Gradient {
  C x, y;
};

template <typename C>
BARACUDA_HD Gradient<C> by_coordinates(C by_x, C by_y, const C*, const Problem& p) {
  return {narrow<C>(by_x * pixels_per_unit<C>(p.input_w)), narrow<C>(by_y * pixels_per_unit<C>(p.input_h))};
}
template <typename C>
BARACUDA_HD C by_coordinate(C by_position, C slope) {
  if (slope == C(0)) return C(0);
  const C product = by_position * slope;
  return narrow<C>(slope < C(0) ? C(0) + product : product);  // a sum of 0 stays a positive one
}
template <typename C>
BARACUDA_HD Gradient<C> by_coordinates(C by_x, C by_y, const C* coordinates, const RuledProblem& p) {
  return {by_coordinate(by_x, source_of(coordinates[0], p.input_w, p.rule).slope),
          by_coordinate(by_y, source_of(coordinates[1], p.input_h, p.rule).slope)};
}

}  // namespace
}  // namespace baracuda::grid_sample
