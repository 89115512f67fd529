// SPDX-License-Identifier: Apache-2.0
// RoIPool's geometry and its maximum, shared by both backends: which pixels a bin spans, and which of two elements a
// bin keeps.
#pragma once

#include <cstdint>

#include "core/float_math.h"
#include "core/host_device.h"
#include "ops/roi_pool/problem.h"

namespace baracuda::roi_pool {
namespace {

// What argmax says of a bin without pixels.
constexpr int32_t kNoPixel = -1;

// One axis of one box, in the boxes' type. Bin b begins at start + floor(b bin) and ends at start + ceil((b + 1) bin).
template <typename T>
struct Axis {
  T start;
  T bin;
  int32_t extent;
};

// A box: its image, or -1 when its bins are empty, and its two axes.
template <typename T>
struct Box {
  int32_t image;
  Axis<T> y, x;
};

// To the nearest whole number, halves away from zero. The fraction is exact.
template <typename T>
BARACUDA_HD T round_of(T x) {
  const T whole = trunc_of(x);
  const T fraction = x - whole;
  if (fraction >= T(0.5)) return whole + T(1);
  if (fraction <= T(-0.5)) return whole - T(1);
  return whole;
}

// The image that a batch index names, -1 when there is none.
template <typename T>
BARACUDA_HD int32_t image_of(T batch_index, int32_t n) {
  const T image = trunc_of(batch_index);
  if (!(image >= T(0) && image < T(2147483648.0))) return -1;
  return static_cast<int32_t>(image) < n ? static_cast<int32_t>(image) : -1;
}

template <typename T>
BARACUDA_HD Axis<T> make_axis(T low, T high, int32_t bins, int32_t extent, const Problem& p, bool* usable) {
  const T scale = static_cast<T>(p.spatial_scale);
  Axis<T> axis;
  axis.extent = extent;
  axis.start = round_of(low * scale);
  const T last = round_of(high * scale);
  // The last pixel belongs to the box.
  T length = (last - axis.start) + T(1);
  if (length < T(1)) length = T(1);
  axis.bin = length / static_cast<T>(bins);
  *usable = *usable && is_finite(axis.start) && is_finite(last) && is_finite(length);
  return axis;
}

template <typename T>
BARACUDA_HD Box<T> make_box(const T* roi, const Problem& p) {
  Box<T> box;
  bool usable = true;
  box.x = make_axis(roi[1], roi[3], p.pooled_w, p.w, p, &usable);
  box.y = make_axis(roi[2], roi[4], p.pooled_h, p.h, p, &usable);
  box.image = usable ? image_of(roi[0], p.n) : -1;
  return box;
}

// The pixels [first, end) of a bin on one axis.
struct PixelRange {
  int32_t first, end;
};

// A whole number, clipped to [0, extent]; compared before it is converted, since casts of large floats differ.
template <typename T>
BARACUDA_HD int32_t clipped(T position, int32_t extent) {
  if (!(position > T(0))) return 0;
  if (position >= T(2147483648.0)) return extent;
  const int32_t pixel = static_cast<int32_t>(position);
  return pixel < extent ? pixel : extent;
}

// The axis is a usable one: no position is NaN, since at most one of two addends is infinite.
template <typename T>
BARACUDA_HD PixelRange bin_pixels(const Axis<T>& axis, int32_t bin) {
  const T from = static_cast<T>(bin), to = static_cast<T>(static_cast<int64_t>(bin) + 1);
  return {clipped(axis.start + floor_of(from * axis.bin), axis.extent),
          clipped(axis.start + ceil_of(to * axis.bin), axis.extent)};
}

// Whether a bin that keeps `best` takes `next`, which comes after it: the first of equals stays, and the first NaN.
template <typename C>
BARACUDA_HD bool takes_over(C next, C best) {
  return best == best && !(next <= best);
}

}  // namespace
}  // namespace baracuda::roi_pool
