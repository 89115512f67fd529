// SPDX-License-Identifier: Apache-2.0
// How a box's samples move with its corners and what that does to the bins: the terms of the gradient of boxes and the
// lanes in which they are added, for both backends.
#pragma once

#include "ops/roi_align/math.h"

namespace baracuda::roi_align {
namespace {

// The sums of a box are those of so many lanes of channels, each of so many lanes of samples.
constexpr int32_t kChannelLanes = 8;
constexpr int32_t kSampleLanes = 32;

// Samples of an axis, numbered through its bins: bin * count + sample.
struct SampleSpan {
  int64_t first, end;
};

// Beyond every sample's number, on either side. Their difference must not wrap around: nvcc 13.0 turns
// `end > first ? end - first : 0` into the greater of the difference and 0, and the widest bounds' wraps to 1.
BARACUDA_HD SampleSpan no_samples() { return {int64_t{1} << 62, -(int64_t{1} << 62)}; }

BARACUDA_HD SampleSpan join(SampleSpan a, SampleSpan b) {
  return {a.first < b.first ? a.first : b.first, a.end > b.end ? a.end : b.end};
}

// A bin's visible samples. Those of all bins together lie between the first and the last of them; where rounding mixes
// positions up, some in between are not visible.
template <typename C>
BARACUDA_HD SampleSpan span_of_bin(const Axis<C>& axis, int32_t bin) {
  const SampleRange seen = samples_within(axis, bin, C(-1), static_cast<C>(axis.extent));
  if (seen.first >= seen.last) return no_samples();
  const int64_t before = static_cast<int64_t>(bin) * axis.count;
  return {before + seen.first, before + seen.last};
}

// Whether an axis is as long as its minimum, whatever its second corner is.
template <typename C>
BARACUDA_HD bool has_least_length(C low, C high, const Problem& p) {
  const C scale = static_cast<C>(p.spatial_scale);
  return !p.aligned && high * scale - low * scale < C(1);
}

// A sample on one axis: its pixels, and how it moves with the corners, in units of the scale.
template <typename C>
struct SampleSlope {
  int32_t bin, low;
  C fraction;      // of the pixel behind; 0: that is not there
  bool moves;      // whether it lies between two pixels, or at the first of them
  bool visible;
  C with_low, with_high;

  BARACUDA_HD SampleSlope(const Axis<C>& axis, int64_t number, int32_t bins, bool is_least) {
    bin = static_cast<int32_t>(number / axis.count);
    const int32_t sample = static_cast<int32_t>(number - static_cast<int64_t>(bin) * axis.count);
    const C position = sample_position(axis, bin, sample);
    visible = position >= C(-1) && position <= static_cast<C>(axis.extent);
    const Tap<C> tap = tap_at(visible ? position : C(0), axis.extent);
    low = tap.low;
    fraction = tap.fraction;
    moves = position > C(0) && position < static_cast<C>(axis.extent - 1);
    // Each share is a sum of positive numbers: 1 minus the other would cancel.
    const C before = static_cast<C>(bin) + (static_cast<C>(sample) + C(0.5)) / axis.samples;
    const C after = static_cast<C>(bins - 1 - bin) + (static_cast<C>(axis.count - 1 - sample) + C(0.5)) / axis.samples;
    with_low = is_least ? C(1) : after / static_cast<C>(bins);
    with_high = is_least ? C(0) : before / static_cast<C>(bins);
  }
};

// The pixels of a sample that count: row by row of two, those of weight 0 left out.
struct SampleTaps {
  bool any;
  bool has[4];
  int64_t at[4];

  template <typename C>
  BARACUDA_HD SampleTaps(const SampleSlope<C>& y, const SampleSlope<C>& x, int64_t w) {
    any = y.visible && x.visible && (y.moves || x.moves);
    const int64_t first = y.low * w + x.low;
    for (int32_t i = 0; i < 4; ++i) {
      // A pixel behind is there for the slope of its own axis, and with a weight for that of the other.
      const bool below = i >= 2, right = i % 2 == 1;
      const bool for_x = x.moves && (!below || y.fraction != C(0));
      const bool for_y = y.moves && (!right || x.fraction != C(0));
      has[i] = any && (for_x || for_y);
      at[i] = has[i] ? first + (below ? w : 0) + (right ? 1 : 0) : first;
    }
  }

  // Adds a channel's gradient times its pixels.
  template <typename T>
  BARACUDA_HD void add(Compute<T> grad, const T* plane, Compute<T> (&sums)[4]) const {
    for (int32_t i = 0; i < 4; ++i) {
      if (has[i]) sums[i] = fma(grad, widen(plane[at[i]]), sums[i]);
    }
  }
};

// What a box's corners do: x1, y1, x2, y2.
template <typename C>
struct BoxSlopes {
  C corners[4];

  // Adds a sample, of whose pixels some channels' gradients have summed `of_taps`.
  BARACUDA_HD void add(const SampleSlope<C>& y, const SampleSlope<C>& x, const C (&of_taps)[4]) {
    if (x.moves) {
      C slope = (C(1) - y.fraction) * (of_taps[1] - of_taps[0]);
      if (y.fraction != C(0)) slope = fma(y.fraction, of_taps[3] - of_taps[2], slope);
      corners[0] = fma(x.with_low, slope, corners[0]);
      corners[2] = fma(x.with_high, slope, corners[2]);
    }
    if (y.moves) {
      C slope = (C(1) - x.fraction) * (of_taps[2] - of_taps[0]);
      if (x.fraction != C(0)) slope = fma(x.fraction, of_taps[3] - of_taps[1], slope);
      corners[1] = fma(y.with_low, slope, corners[1]);
      corners[3] = fma(y.with_high, slope, corners[3]);
    }
  }
  BARACUDA_HD void join(const BoxSlopes& other) {
    for (int32_t k = 0; k < 4; ++k) corners[k] = corners[k] + other.corners[k];
  }
  // Writes the box's row.
  BARACUDA_HD void write(const Problem& p, const Box<C>& box, C* row) const {
    row[0] = C(0);
    const C scale = static_cast<C>(p.spatial_scale);
    for (int32_t k = 0; k < 4; ++k) {
      row[k + 1] = narrow<C>(corners[k] / box.y.samples / box.x.samples * scale);
    }
  }
};

}  // namespace
}  // namespace baracuda::roi_align
