// SPDX-License-Identifier: Apache-2.0
// The samples' geometry, shared by both backends: where a sample lies and what its corners weigh. Between pixels it is
// grid_sample's, with zeros outside.
#pragma once

#include <cstdint>

#include "core/float_math.h"
#include "core/host_device.h"
#include "ops/deform_im2col/problem.h"
#include "ops/grid_sample/math.h"

namespace baracuda::deform_im2col {
namespace {

using grid_sample::any_tap;
using grid_sample::AxisPosition;
using grid_sample::Position;
using grid_sample::Taps;

// The tap's place is rounded once, then the sum with the offset.
template <typename C>
BARACUDA_HD AxisPosition<C> locate(int64_t place, C offset, int32_t extent) {
  const C position = static_cast<C>(place) + offset;
  return grid_sample::place(position, floor_of(position), extent);
}

// A sample of a group: its tap and its position.
struct SampleNumber {
  int64_t tap_y, tap_x, y, x;
  int64_t offset;  // of its y in the group's offsets; its x stands p.positions further
};

BARACUDA_HD SampleNumber number_of(int64_t tap, int64_t position, int64_t tap_y, int64_t y, const Problem& p) {
  return {tap_y, tap - tap_y * p.x.taps, y, position - y * p.output_w, tap * 2 * p.positions + position};
}

// `offset` is the group's.
template <typename C>
BARACUDA_HD Position<C> locate_sample(const SampleNumber& sample, const C* offset, const Problem& p) {
  return {locate(p.x.place(sample.x, sample.tap_x), offset[sample.offset + p.positions], p.w),
          locate(p.y.place(sample.y, sample.tap_y), offset[sample.offset], p.h)};
}

// Where a sample's first corner would lie, which may be before the image.
template <typename C>
BARACUDA_HD int64_t first_pixel(const Position<C>& at, const Problem& p) {
  return static_cast<int64_t>(at.y.low) * p.w + at.x.low;
}
BARACUDA_HD int64_t corner_offset(int corner, const Problem& p) {
  return static_cast<int64_t>(corner / 2) * p.w + corner % 2;
}

// What the corners weigh before the mask, in the value and in its derivatives by y and by x; all 0 outside.
template <typename C>
BARACUDA_HD Taps<C> value_taps(const Position<C>& at, const Problem& p) {
  return at.is_outside() ? Taps<C>{} : grid_sample::value_taps(at, p.image);
}
template <typename C>
BARACUDA_HD Taps<C> y_slope_taps(const Position<C>& at, const Problem& p) {
  return at.is_outside() ? Taps<C>{} : grid_sample::y_slope_taps(at, p.image);
}
template <typename C>
BARACUDA_HD Taps<C> x_slope_taps(const Position<C>& at, const Problem& p) {
  return at.is_outside() ? Taps<C>{} : grid_sample::x_slope_taps(at, p.image);
}

// Times the mask. A corner that does not exist is not brought back by an infinite mask.
template <typename C>
BARACUDA_HD Taps<C> masked(Taps<C> taps, C mask) {
  for (int corner = 0; corner < kCorners; ++corner) {
    if (taps.weight[corner] != C(0)) taps.weight[corner] = taps.weight[corner] * mask;
  }
  return taps;
}

// The weights by which columns are sums of pixels. `mask` is the group's.
template <typename C>
BARACUDA_HD Taps<C> column_taps(const Position<C>& at, const C* mask, int64_t sample, const Problem& p) {
  const Taps<C> taps = value_taps(at, p);
  return p.has_mask ? masked(taps, mask[sample]) : taps;
}

// Three sums over channels: by the value, which is the mask's gradient, and by the position.
template <typename C>
struct Slopes {
  C value, y, x;
};

// One channel's gradient times what the sample's corners make of the channel.
template <typename C, class Pixel>
BARACUDA_HD void add_channel(const Taps<C>& value, const Taps<C>& y, const Taps<C>& x, C gradient, const Pixel& pixel,
                             Slopes<C>* sums) {
  C of_value = C(0), of_y = C(0), of_x = C(0);
  for (int corner = 0; corner < kCorners; ++corner) {
    const C in_value = value.weight[corner], in_y = y.weight[corner], in_x = x.weight[corner];
    if (in_value == C(0) && in_y == C(0) && in_x == C(0)) continue;
    const C at = pixel(corner);
    if (in_value != C(0)) of_value = fma(in_value, at, of_value);
    if (in_y != C(0)) of_y = fma(in_y, at, of_y);
    if (in_x != C(0)) of_x = fma(in_x, at, of_x);
  }
  sums->value = fma(gradient, of_value, sums->value);
  sums->y = fma(gradient, of_y, sums->y);
  sums->x = fma(gradient, of_x, sums->x);
}

template <typename C>
BARACUDA_HD Slopes<C> sum_of(const Slopes<C>& a, const Slopes<C>& b) {
  return {a.value + b.value, a.y + b.y, a.x + b.x};
}

// A sum over no corner or no channel is 0 and not a product with a gradient or a mask that may be infinite; and so is
// one times a mask of 0.
template <typename C>
BARACUDA_HD C by_offset(C sum, const Taps<C>& taps, C mask, const Problem& p) {
  if (mask == C(0) || p.c == 0 || !any_tap(taps)) return C(0);
  return narrow<C>(sum * mask);
}
template <typename C>
BARACUDA_HD C by_mask(C sum, const Taps<C>& taps) {
  return any_tap(taps) ? narrow<C>(sum) : C(0);
}

}  // namespace
}  // namespace baracuda::deform_im2col
