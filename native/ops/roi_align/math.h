// SPDX-License-Identifier: Apache-2.0
// RoIAlign's geometry, shared by both backends: where a box's samples lie on one axis and what weight a pixel has in a
// bin. Everything is per axis, because bilinear weights, clamping and the outside test factor.
#pragma once

#include <cstdint>

#include "core/float_math.h"
#include "core/host_device.h"
#include "ops/roi_align/problem.h"

namespace baracuda::roi_align {
namespace {

// One axis of one box, in the compute type. Sample i of bin b lies at (start + b bin) + ((i + 0.5) bin) / count.
template <typename T>
struct Axis {
  T start;
  T bin;         // extent of a bin; negative for a reversed box that has a fixed sampling ratio
  T samples;     // samples per bin, as the divisor
  int32_t count; // the same as an integer; 0: the axis has no samples
  int32_t extent;
};

// What a box has for its image when it contributes nothing, and when it belongs to another map than the problem's.
constexpr int32_t kNoImage = -1;
constexpr int32_t kOfOtherLevel = -2;

// A box: its image, or one of those two, and its two axes.
template <typename T>
struct Box {
  int32_t image;
  Axis<T> y, x;
};

template <typename T>
BARACUDA_HD Axis<T> make_axis(T low, T high, int32_t bins, int32_t extent, const Problem& p, bool* usable) {
  const T scale = static_cast<T>(p.spatial_scale);
  const T offset = p.aligned ? T(0.5) : T(0);
  Axis<T> axis;
  axis.extent = extent;
  axis.start = low * scale - offset;
  const T stop = high * scale - offset;
  T length = stop - axis.start;
  if (!p.aligned && length < T(1)) length = T(1);
  axis.bin = length / static_cast<T>(bins);
  axis.samples = p.sampling_ratio > 0 ? static_cast<T>(p.sampling_ratio) : ceil_of(axis.bin);
  // The range check stands before the conversion: casts of large floats differ between machines.
  const bool countable = axis.samples <= T(1 << 20);
  axis.count = countable && axis.samples > T(0) ? static_cast<int32_t>(axis.samples) : 0;
  *usable = *usable && is_finite(axis.start) && is_finite(stop) && is_finite(length) && countable;
  return axis;
}

template <typename T>
BARACUDA_HD Box<T> make_box(const T* roi, const Problem& p) {
  Box<T> box;
  const T image = trunc_of(roi[0]);
  bool usable = image >= T(0) && image < static_cast<T>(p.n);
  box.x = make_axis(roi[1], roi[3], p.pooled_w, p.w, p, &usable);
  box.y = make_axis(roi[2], roi[4], p.pooled_h, p.h, p, &usable);
  // n as T may round up; the integer comparison settles the largest batches.
  box.image = usable ? static_cast<int32_t>(image) : kNoImage;
  if (box.image >= p.n || box.x.count == 0 || box.y.count == 0 || p.h == 0 || p.w == 0) box.image = kNoImage;
  return box;
}

template <typename T>
BARACUDA_HD T sample_position(const Axis<T>& axis, int32_t bin, int32_t sample) {
  return (axis.start + static_cast<T>(bin) * axis.bin) +
         ((static_cast<T>(sample) + T(0.5)) * axis.bin) / axis.samples;
}

// First sample of a bin whose position is above `bound`, or at it when `at` is set; samples in ascending order of
// position when the bin is positive, in descending order (first position below) when it is negative. Every step of
// sample_position is monotone in the sample, so bisection finds exactly what a scan would.
template <typename T>
BARACUDA_HD int32_t first_sample_past(const Axis<T>& axis, int32_t bin, T bound, bool at) {
  int32_t low = 0, high = axis.count;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    const T position = sample_position(axis, bin, middle);
    const bool past = axis.bin >= T(0) ? (at ? position >= bound : position > bound)
                                       : (at ? position <= bound : position < bound);
    if (past) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// The samples [first, last) of a bin that lie within [low, high].
struct SampleRange {
  int32_t first, last;
};

template <typename T>
BARACUDA_HD SampleRange samples_within(const Axis<T>& axis, int32_t bin, T low, T high) {
  if (axis.bin >= T(0)) return {first_sample_past(axis, bin, low, true), first_sample_past(axis, bin, high, false)};
  return {first_sample_past(axis, bin, high, true), first_sample_past(axis, bin, low, false)};
}

// Where a visible sample interpolates: pixel `low` with 1 - fraction and pixel low + 1 with fraction. At the last pixel
// the fraction is 0.
template <typename T>
struct Tap {
  int32_t low;
  T fraction;
};

template <typename T>
BARACUDA_HD Tap<T> tap_at(T position, int32_t extent) {
  const T inside = position <= T(0) ? T(0) : position;
  const int32_t last = extent - 1;
  if (inside >= static_cast<T>(last)) return {last, T(0)};
  const int32_t low = static_cast<int32_t>(inside);
  return {low, inside - static_cast<T>(low)};
}

// The pixels [first, last] that a bin's visible samples touch; empty (first > last) when it has none.
struct PixelRange {
  int32_t first, last;
  BARACUDA_HD int32_t count() const { return last - first + 1; }
  BARACUDA_HD bool has(int32_t pixel) const { return pixel >= first && pixel <= last; }
};

template <typename T>
BARACUDA_HD PixelRange bin_pixels(const Axis<T>& axis, int32_t bin) {
  const SampleRange seen = samples_within(axis, bin, T(-1), static_cast<T>(axis.extent));
  if (seen.first >= seen.last) return {0, -1};
  const int32_t a = tap_at(sample_position(axis, bin, seen.first), axis.extent).low;
  const int32_t b = tap_at(sample_position(axis, bin, seen.last - 1), axis.extent).low;
  const int32_t low = a < b ? a : b;
  const int32_t high = (a < b ? b : a) + 1;
  return {low, high < axis.extent ? high : axis.extent - 1};
}

// A pixel's weight is cut into partial sums of this many consecutive samples, which are added in order: a chain of 2^20
// roundings would lose the last 15 bits.
constexpr int32_t kSamplesInPartial = 256;

// The weight of `pixel` in `bin`: the sum of its taps' weights in ascending sample order, divided by the sample count.
// This is the definition on which both backends and every table rest. 0 means that the pixel is not in the bin.
template <typename T>
BARACUDA_HD T pixel_weight(const Axis<T>& axis, int32_t bin, int32_t pixel) {
  // Pixel 0 also takes the samples clamped from [-1, 0], the last pixel those up to the extent.
  const T low = pixel == 0 ? T(-1) : static_cast<T>(pixel - 1);
  const T high = pixel >= axis.extent - 1 ? static_cast<T>(axis.extent) : static_cast<T>(pixel + 1);
  const SampleRange near = samples_within(axis, bin, low, high);
  T total = T(0);
  for (int32_t first = near.first; first < near.last; first += kSamplesInPartial) {
    const int32_t last = near.last - first < kSamplesInPartial ? near.last : first + kSamplesInPartial;
    T sum = T(0);
    for (int32_t i = first; i < last; ++i) {
      const Tap<T> tap = tap_at(sample_position(axis, bin, i), axis.extent);
      if (tap.low == pixel) sum = sum + (T(1) - tap.fraction);
      if (tap.low == pixel - 1) sum = sum + tap.fraction;
    }
    total = total + sum;
  }
  return total / axis.samples;
}

}  // namespace
}  // namespace baracuda::roi_align
