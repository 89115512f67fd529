// SPDX-License-Identifier: Apache-2.0
// The geometry of bicubic samples, shared by both backends: which pixels an axis of a sample reaches, what they weigh,
// and how their weights change with its position. Padding moves each of the four pixels, not the sample.
#pragma once

#include "ops/grid_sample/math.h"

namespace baracuda::grid_sample {
namespace {

constexpr int kCubicSide = 4;
constexpr int kCubicTaps = kCubicSide * kCubicSide;

// Keys' kernel with a = -3/4 at a sample that lies t behind its second pixel. In factors: a weight is 0 where t is, and
// nowhere else, and no sum of it cancels.
template <typename C>
BARACUDA_HD void cubic_weights(C t, C* weights) {
  const C s = C(1) - t;
  weights[0] = (C(-0.75) * t) * (s * s);
  weights[1] = s * fma(C(-1.25) * t, t, C(1) + t);
  weights[2] = t * fma(C(-1.25) * s, s, C(1) + s);
  weights[3] = (C(-0.75) * s) * (t * t);
}

// Their derivatives by t.
template <typename C>
BARACUDA_HD void cubic_slopes(C t, C* slopes) {
  const C s = C(1) - t;
  slopes[0] = (C(-0.75) * s) * fma(C(-3), t, C(1));
  slopes[1] = t * fma(C(3.75), t, C(-4.5));
  slopes[2] = s * fma(C(-3.75), s, C(4.5));
  slopes[3] = (C(-0.75) * t) * fma(C(-3), t, C(2));
}

// A sample on one axis. A pixel of -1 does not exist; two may be the same one.
template <typename C>
struct CubicAxis {
  int32_t pixels[kCubicSide];
  C fraction;
};

template <typename C>
BARACUDA_HD CubicAxis<C> locate_cubic(C coordinate, int32_t extent, const Rule& rule) {
  const C position = position_of(coordinate, extent, rule), low = floor_of(position);
  CubicAxis<C> axis;
  // At infinity all pixels are one, and the first that counts is enough.
  axis.fraction = is_finite(position) ? position - low : C(0);
  for (int k = 0; k < kCubicSide; ++k) {
    Source<C> at{low + C(k - 1), C(1)};
    if (rule.padding == Padding::kReflection) at = reflect(at, extent, rule);
    if (rule.padding != Padding::kZeros) at = clip(at, extent);
    // The range check stands before the conversion; the extent as C may round up.
    const bool convertible = at.position >= C(0) && at.position < C(2147483648.0);
    int32_t pixel = convertible ? static_cast<int32_t>(at.position) : -1;
    if (rule.padding != Padding::kZeros && at.position >= static_cast<C>(extent - 1)) pixel = extent - 1;
    axis.pixels[k] = pixel < extent ? pixel : -1;
  }
  return axis;
}

// A sample: tap 4 j + i is pixel i of x and pixel j of y. A tap of weight 0 does not exist.
template <typename C>
struct CubicSample {
  CubicAxis<C> x, y;
  C x_weights[kCubicSide], y_weights[kCubicSide];

  CubicSample() = default;
  BARACUDA_HD CubicSample(C grid_x, C grid_y, const RuledProblem& p)
      : x(locate_cubic(grid_x, p.input_w, p.rule)), y(locate_cubic(grid_y, p.input_h, p.rule)) {
    cubic_weights(x.fraction, x_weights);
    cubic_weights(y.fraction, y_weights);
    // One that is missing has no taps.
    if (is_missing(grid_x, grid_y, p)) {
      for (int k = 0; k < kCubicSide; ++k) x.pixels[k] = -1;
    }
  }

  BARACUDA_HD bool exists(int tap) const { return x.pixels[tap % kCubicSide] >= 0 && y.pixels[tap / kCubicSide] >= 0; }
  BARACUDA_HD int64_t pixel(int tap, const Problem& p) const {
    return static_cast<int64_t>(y.pixels[tap / kCubicSide]) * p.input_w + x.pixels[tap % kCubicSide];
  }
  // Of a tap that exists. Products may underflow to 0.
  BARACUDA_HD C weight(int tap) const { return y_weights[tap / kCubicSide] * x_weights[tap % kCubicSide]; }
};

// d(position) / d(coordinate): padding moves pixels alone.
template <typename C>
BARACUDA_HD C cubic_scale(int32_t extent, const Rule& rule) {
  return static_cast<C>(extent - rule.aligns_corners) / C(2);
}

// A sample's gradient to its position, summed channel by channel.
template <typename C>
struct CubicGradient {
  C x_slopes[kCubicSide], y_slopes[kCubicSide];
  C partials[2] = {}, totals[2] = {};
  bool has_tap[2] = {};

  BARACUDA_HD explicit CubicGradient(const CubicSample<C>& sample) {
    cubic_slopes(sample.x.fraction, x_slopes);
    cubic_slopes(sample.y.fraction, y_slopes);
  }

  // Adds a channel; `plane` is its image.
  template <typename T>
  BARACUDA_HD void add(const CubicSample<C>& sample, const Problem& p, const T* plane, C gradient) {
    C by_x = C(0), by_y = C(0);
    for (int tap = 0; tap < kCubicTaps; ++tap) {
      if (!sample.exists(tap)) continue;
      const int i = tap % kCubicSide, j = tap / kCubicSide;
      const C x_weight = sample.y_weights[j] * x_slopes[i], y_weight = y_slopes[j] * sample.x_weights[i];
      if (x_weight == C(0) && y_weight == C(0)) continue;
      const C value = widen(plane[sample.pixel(tap, p)]);
      if (x_weight != C(0)) {
        by_x = fma(x_weight, value, by_x);
        has_tap[0] = true;
      }
      if (y_weight != C(0)) {
        by_y = fma(y_weight, value, by_y);
        has_tap[1] = true;
      }
    }
    partials[0] = fma(gradient, by_x, partials[0]);
    partials[1] = fma(gradient, by_y, partials[1]);
  }

  BARACUDA_HD void close_chunk() {
    for (int axis = 0; axis < 2; ++axis) {
      totals[axis] = totals[axis] + partials[axis];
      partials[axis] = C(0);
    }
  }

  // Writes the gradient to the coordinates after the last chunk.
  BARACUDA_HD void store(const RuledProblem& p, C* gradient) const {
    gradient[0] = has_tap[0] ? by_coordinate(totals[0], cubic_scale<C>(p.input_w, p.rule)) : C(0);
    gradient[1] = has_tap[1] ? by_coordinate(totals[1], cubic_scale<C>(p.input_h, p.rule)) : C(0);
  }
};

}  // namespace
}  // namespace baracuda::grid_sample
