// SPDX-License-Identifier: Apache-2.0
// Where an output pixel lies among the input's on one axis, with which weights it has them, and which output pixels an
// input pixel is part of; shared by both backends.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/float_math.h"
#include "core/host_device.h"
#include "ops/interpolate/problem.h"

namespace baracuda::interpolate {
namespace {

// A sum over an axis is cut into partial sums of this many output pixels, counted from the first one that it has.
constexpr int32_t kCut = 256;

// Pixel `index` with weight `low`, and the next one with weight `high`, unless that is 0: then there may be none.
template <typename C>
struct Tap {
  int32_t index;
  C low, high;
};

// A position towards 0 as a pixel, at most `last`; compared before it is converted, since casts of large floats differ.
// A NaN is 0.
template <typename C>
BARACUDA_HD int32_t pixel_at(C position, int32_t last) {
  if (!(position > C(0))) return 0;
  if (position >= C(2147483648.0)) return last;
  const int32_t pixel = static_cast<int32_t>(position);
  return pixel < last ? pixel : last;
}

// The linear rules' position. It never falls as o rises, since every operation rounds monotonically.
template <typename C>
BARACUDA_HD C position_of(const Axis& axis, int32_t o) {
  const C step = static_cast<C>(axis.step);
  if (axis.rule == Rule::kCorners) return step * static_cast<C>(o);
  const C position = baracuda::fma(step, static_cast<C>(o) + C(0.5), C(-0.5));
  return position > C(0) ? position : C(0);
}

template <typename C>
BARACUDA_HD Tap<C> linear_tap(const Axis& axis, int32_t o) {
  if (axis.rule == Rule::kSame) return {o, C(1), C(0)};
  const C position = position_of<C>(axis, o);
  const int32_t last = axis.input - 1;
  const int32_t pixel = pixel_at(position, last);
  if (pixel == last) return {last, C(1), C(0)};
  // Exact: both have the same or neighbouring binary exponents, or the pixel is 0.
  const C high = position - static_cast<C>(pixel);
  return {pixel, C(1) - high, high};
}

// The nearest modes' pixel, in f32 for every dtype, as PyTorch computes it on CUDA.
BARACUDA_HD int32_t nearest_index(const Axis& axis, int32_t o) {
  if (axis.rule == Rule::kSame) return o;
  const float step = static_cast<float>(axis.step);
  const float whole = static_cast<float>(o);
  const float position = (axis.rule == Rule::kFloor ? whole : whole + 0.5f) * step;
  return pixel_at(position, axis.input - 1);
}

// Either kind of axis under one name.
template <typename C, bool kLinear>
BARACUDA_HD Tap<C> tap_of(const Axis& axis, int32_t o) {
  if constexpr (kLinear) return linear_tap<C>(axis, o);
  return {nearest_index(axis, o), C(1), C(0)};
}

template <typename C, bool kLinear>
BARACUDA_HD int32_t index_of(const Axis& axis, int32_t o) {
  if constexpr (kLinear) return linear_tap<C>(axis, o).index;
  return nearest_index(axis, o);
}

// The first output pixel whose index is i or more, which is the number of output pixels where there is none. Guessed,
// then found by the index itself, so that it is its inverse whatever is rounded; a guess is off by a few pixels.
template <typename C, bool kLinear>
BARACUDA_HD int32_t first_at(const Axis& axis, int32_t i) {
  if (i <= 0) return 0;
  if (i >= axis.input) return axis.output;
  if (axis.rule == Rule::kSame) return i;
  C guess = static_cast<C>(i) * static_cast<C>(axis.inverse);
  if (axis.rule == Rule::kPixels) guess += C(0.5) * static_cast<C>(axis.inverse);
  if (axis.rule == Rule::kPixels || axis.rule == Rule::kCentre) guess -= C(0.5);
  int32_t o = pixel_at(ceil_of(guess), axis.output);
  while (o > 0 && index_of<C, kLinear>(axis, o - 1) >= i) --o;
  while (o < axis.output && index_of<C, kLinear>(axis, o) < i) ++o;
  return o;
}

// The output pixels that have input pixel i: [begin, middle) as their next pixel, with weight `high`, and [middle, end)
// as their own. In the nearest modes the first part is empty.
struct Reach {
  int32_t begin, middle, end;
};

template <typename C, bool kLinear>
BARACUDA_HD Reach reach_of(const Axis& axis, int32_t i) {
  Reach reach;
  reach.middle = first_at<C, kLinear>(axis, i);
  reach.begin = kLinear && axis.rule != Rule::kSame ? first_at<C, kLinear>(axis, i - 1) : reach.middle;
  reach.end = first_at<C, kLinear>(axis, i + 1);
  return reach;
}

// The weighted sum of one axis, at its destination.
template <typename C>
struct CutSum {
  C total = C(0), partial = C(0);

  // `rank` counts the axis's output pixels at this destination.
  BARACUDA_HD void add(C weight, C value, int32_t rank) {
    if (rank > 0 && rank % kCut == 0) total += partial, partial = C(0);
    if (weight != C(0)) partial = baracuda::fma(weight, value, partial);
  }
  BARACUDA_HD C sum() const { return total + partial; }
};

}  // namespace
}  // namespace baracuda::interpolate
