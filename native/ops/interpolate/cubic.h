// SPDX-License-Identifier: Apache-2.0
// The cubic mode's pixels and weights on one axis, and which output pixels an input pixel is part of; shared by both
// backends.
#pragma once

#include "ops/interpolate/math.h"

namespace baracuda::interpolate {
namespace {

constexpr int32_t kCubicTaps = 4;

// Weights of pixels `first` to `first + 3`; where there are fewer, the others' are 0. A weight of 0 is no pixel.
template <typename C>
struct CubicTap {
  int32_t first;
  C weights[kCubicTaps];
};

// Keys' kernel with a = -3/4, in factors: so a weight is 0 at a distance that is whole, and nowhere else.
template <typename C>
struct CubicWeights {
  C weights[kCubicTaps];

  BARACUDA_HD explicit CubicWeights(C t) {
    const C s = C(1) - t;
    weights[0] = (C(-0.75) * t) * (s * s);
    weights[1] = s * baracuda::fma(C(-1.25) * t, t, C(1) + t);
    weights[2] = t * baracuda::fma(C(-1.25) * s, s, C(1) + s);
    weights[3] = (C(-0.75) * s) * (t * t);
  }
};

template <typename C>
BARACUDA_HD C cubic_position(const Axis& axis, int32_t o) {
  const C step = static_cast<C>(axis.step);
  if (axis.rule == Rule::kCorners) return step * static_cast<C>(o);
  return baracuda::fma(step, static_cast<C>(o) + C(0.5), C(-0.5));
}

// The pixel at or below a position: from -1 to the number of pixels. A NaN is at 0.
template <typename C>
BARACUDA_HD int32_t cubic_pixel(const Axis& axis, C position) {
  if (position < C(0)) return -1;
  return pixel_at(position, axis.input);
}

// The first of the pixels that output pixel o has: it never falls as o rises.
template <typename C>
BARACUDA_HD int32_t cubic_first(const Axis& axis, int32_t o) {
  const int32_t wanted = cubic_pixel(axis, cubic_position<C>(axis, o)) - 1;
  const int32_t most = axis.input > kCubicTaps ? axis.input - kCubicTaps : 0;
  return wanted < 0 ? 0 : (wanted < most ? wanted : most);
}

// The weights of pixels beyond an edge are added to the edge pixel's, in the order of the pixels.
template <typename C>
BARACUDA_HD CubicTap<C> cubic_tap(const Axis& axis, int32_t o) {
  const C position = cubic_position<C>(axis, o);
  const int32_t pixel = cubic_pixel(axis, position);
  const bool is_inside = pixel < axis.input && position == position;
  const CubicWeights<C> found(is_inside ? position - static_cast<C>(pixel) : C(0));
  CubicTap<C> tap;
  tap.first = cubic_first<C>(axis, o);
  if (pixel - 1 == tap.first && axis.input >= kCubicTaps) {
#pragma unroll
    for (int k = 0; k < kCubicTaps; ++k) tap.weights[k] = found.weights[k];
    return tap;
  }
#pragma unroll
  for (int place = 0; place < kCubicTaps; ++place) {
    C weight = C(0);
#pragma unroll
    for (int k = 0; k < kCubicTaps; ++k) {
      int32_t at = pixel - 1 + k;
      at = at < 0 ? 0 : (at < axis.input ? at : axis.input - 1);
      if (at - tap.first == place) weight += found.weights[k];
    }
    tap.weights[place] = weight;
  }
  return tap;
}

// The first output pixel whose first pixel is i or more; guessed, then found by cubic_first() itself.
template <typename C>
BARACUDA_HD int32_t cubic_first_at(const Axis& axis, int32_t i) {
  if (i <= 0) return 0;
  if (i > axis.input - kCubicTaps) return axis.output;
  C guess = (static_cast<C>(i) + C(1)) * static_cast<C>(axis.inverse);
  if (axis.rule == Rule::kPixels) guess += C(0.5) * static_cast<C>(axis.inverse) - C(0.5);
  int32_t o = pixel_at(ceil_of(guess), axis.output);
  while (o > 0 && cubic_first<C>(axis, o - 1) >= i) --o;
  while (o < axis.output && cubic_first<C>(axis, o) < i) ++o;
  return o;
}

// The output pixels [begin, end) that may have input pixel i.
struct CubicReach {
  int32_t begin, end;
};

template <typename C>
BARACUDA_HD CubicReach cubic_reach(const Axis& axis, int32_t i) {
  return {cubic_first_at<C>(axis, i - kCubicTaps + 1), cubic_first_at<C>(axis, i + 1)};
}

// The weight that pixel i has at an output pixel of its reach.
template <typename C>
BARACUDA_HD C cubic_weight(const CubicTap<C>& tap, int32_t i) {
  const int32_t place = i - tap.first;
  return place == 0 ? tap.weights[0] : place == 1 ? tap.weights[1] : place == 2 ? tap.weights[2] : tap.weights[3];
}

}  // namespace
}  // namespace baracuda::interpolate
