// SPDX-License-Identifier: Apache-2.0
// What a bin takes from its map, shared by both backends. By samples an axis of a box has roi_align's weights; by
// averages it has pixels.
#pragma once

#include <cstdint>

#include "core/float_math.h"
#include "core/host_device.h"
#include "ops/ps_roi/problem.h"
#include "ops/roi_align/tables.h"

namespace baracuda::ps_roi {
namespace {

using roi_align::PixelRange;

// The rectangle of a bin.
struct Pixels {
  PixelRange rows, columns;

  BARACUDA_HD bool none() const { return rows.first > rows.last || columns.first > columns.last; }
  // As a divisor: exact up to 2^24 pixels (2^53), rounded once beyond.
  template <typename C>
  BARACUDA_HD C area() const {
    return static_cast<C>(static_cast<int64_t>(rows.count()) * columns.count());
  }
};

// One axis of one box by averages. Bin b has the pixels [start + floor(b bin), start + ceil((b + 1) bin)), clipped.
template <typename C>
struct Span {
  C start, bin;
  int32_t end;  // where bins end at most
};

// To the nearest whole number, halves away from zero. The fraction is exact.
template <typename C>
BARACUDA_HD C round_of(C x) {
  const C whole = trunc_of(x);
  const C fraction = x - whole;
  if (fraction >= C(0.5)) return whole + C(1);
  if (fraction <= C(-0.5)) return whole - C(1);
  return whole;
}

template <typename C>
BARACUDA_HD Span<C> make_span(C low, C high, int32_t bins, int32_t extent, const Problem& p, bool* usable) {
  const C scale = static_cast<C>(p.spatial_scale);
  Span<C> span;
  // torchvision's bins end before the last row and column.
  span.end = extent > 0 ? extent - 1 : 0;
  span.start = round_of(low * scale);
  const C end = round_of(high * scale);
  C length = end - span.start;
  *usable = *usable && is_finite(span.start) && is_finite(end) && is_finite(length);
  if (length < C(1)) length = C(1);
  span.bin = length / static_cast<C>(bins);
  return span;
}

// A whole number, clipped to [0, end]; compared before it is converted, since casts of large floats differ.
template <typename C>
BARACUDA_HD int32_t clipped(C position, int32_t end) {
  if (!(position > C(0))) return 0;
  if (position >= C(2147483648.0)) return end;
  const int32_t pixel = static_cast<int32_t>(position);
  return pixel < end ? pixel : end;
}

template <typename C>
BARACUDA_HD PixelRange pixels_of(const Span<C>& span, int32_t bin) {
  const C from = static_cast<C>(bin), to = static_cast<C>(static_cast<int64_t>(bin) + 1);
  return {clipped(span.start + floor_of(from * span.bin), span.end),
          clipped(span.start + ceil_of(to * span.bin), span.end) - 1};
}

// The image that a batch index names, -1 when there is none.
template <typename C>
BARACUDA_HD int32_t image_of(C batch_index, int32_t n) {
  const C image = trunc_of(batch_index);
  if (!(image >= C(0) && image < C(2147483648.0))) return -1;
  return static_cast<int32_t>(image) < n ? static_cast<int32_t>(image) : -1;
}

// A box by averages: its image, -1 where it contributes nothing, and its axes.
template <typename C>
struct AverageBox {
  int32_t image;
  Span<C> y, x;

  BARACUDA_HD AverageBox(const C* roi, const Problem& p) {
    bool usable = true;
    x = make_span(roi[1], roi[3], p.pooled_w, p.w, p, &usable);
    y = make_span(roi[2], roi[4], p.pooled_h, p.h, p, &usable);
    image = usable && p.h > 0 && p.w > 0 ? image_of(roi[0], p.n) : -1;
  }
  BARACUDA_HD Pixels pixels(int32_t ph, int32_t pw) const { return {pixels_of(y, ph), pixels_of(x, pw)}; }
};

// The mean of a bin: pixels in row-major order.
template <typename T>
BARACUDA_HD Compute<T> mean_of(const T* plane, int32_t width, const Pixels& pixels) {
  using C = Compute<T>;
  C sum = C(0);
  if (pixels.none()) return sum;
  for (int32_t row = pixels.rows.first; row <= pixels.rows.last; ++row) {
    const T* const values = plane + static_cast<int64_t>(row) * width;
    for (int32_t column = pixels.columns.first; column <= pixels.columns.last; ++column) {
      sum = sum + widen(values[column]);
    }
  }
  return sum / pixels.template area<C>();
}

// The average of a bin's samples: rows ascending inside a column, then columns ascending, as roi_align has it.
template <typename T>
BARACUDA_HD Compute<T> samples_of(const T* plane, int32_t width, const roi_align::TabulatedAxis<Compute<T>>& y,
                                  int32_t ph, const roi_align::TabulatedAxis<Compute<T>>& x, int32_t pw) {
  using C = Compute<T>;
  const roi_align::BinEntry rows = y.bins[ph], columns = x.bins[pw];
  C sum = C(0);
  for (int32_t column = columns.pixels.first; column <= columns.pixels.last; ++column) {
    const C column_weight = x.weight(pw, columns, column);
    if (column_weight == C(0)) continue;
    C column_sum = C(0);
    for (int32_t row = rows.pixels.first; row <= rows.pixels.last; ++row) {
      const C weight = y.weight(ph, rows, row);
      if (weight == C(0)) continue;
      column_sum = fma(weight, widen(plane[static_cast<int64_t>(row) * width + column]), column_sum);
    }
    sum = fma(column_weight, column_sum, sum);
  }
  return sum;
}

}  // namespace
}  // namespace baracuda::ps_roi
