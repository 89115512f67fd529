// SPDX-License-Identifier: Apache-2.0
// The windows of pooling along one axis, shared by the pooling families and by both backends: which elements a window
// holds, and which windows hold an element. No tensor is known here.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/integer_math.h"

namespace baracuda {

// One axis: `extent` elements, `bins` windows. A fixed window o begins at o stride - padding and has `kernel` places,
// `dilation` apart; an adaptive one (kernel is 0) has what of the elements falls to it when they are divided.
struct PoolAxis {
  int32_t extent, bins;
  int32_t kernel, stride, padding, dilation;

  BARACUDA_HD bool is_adaptive() const { return kernel == 0; }
};

inline PoolAxis adaptive_axis(int32_t extent, int32_t bins) {
  PoolAxis axis{};
  axis.extent = extent, axis.bins = bins;
  return axis;
}

namespace {

// An axis with what its divisions need.
struct PoolWindows : PoolAxis {
  Divider by_extent, by_bins, by_stride;
  bool is_small;  // products of extent and bins stay below 2^31

  PoolWindows() = default;
  explicit PoolWindows(const PoolAxis& axis) : PoolAxis(axis), is_small(false) {
    const int64_t one = 1;
    by_extent = Divider(axis.is_adaptive() ? at_least(axis.extent, 1) : one);
    by_bins = Divider(axis.is_adaptive() ? at_least(axis.bins, 1) : one);
    by_stride = Divider(axis.is_adaptive() ? one : axis.stride);
    is_small = static_cast<int64_t>(axis.extent) * axis.bins <= INT32_MAX;
  }
};

// The places [first, end) of an axis.
struct PoolRange {
  int32_t first, end;

  BARACUDA_HD int32_t size() const { return end - first; }
};

// floor(a b / divisor) and its ceiling, where a <= divisor.
BARACUDA_HD int32_t share_below(const PoolWindows& axis, const Divider& by, int32_t a, int32_t b) {
  if (axis.is_small) return static_cast<int32_t>(by.divide(static_cast<uint32_t>(a) * static_cast<uint32_t>(b)));
  return static_cast<int32_t>(static_cast<int64_t>(a) * b / by.divisor);
}
BARACUDA_HD int32_t share_above(const PoolWindows& axis, const Divider& by, int32_t a, int32_t b) {
  if (b == 0) return 0;
  if (axis.is_small) {
    return static_cast<int32_t>(by.divide(static_cast<uint32_t>(a) * static_cast<uint32_t>(b) - 1)) + 1;
  }
  return static_cast<int32_t>((static_cast<int64_t>(a) * b - 1) / by.divisor) + 1;
}

// The elements from the first to the last that window o may hold; between them a dilated one holds some.
BARACUDA_HD PoolRange window_of(const PoolWindows& axis, int32_t o) {
  if (axis.is_adaptive()) {
    return {share_below(axis, axis.by_bins, o, axis.extent), share_above(axis, axis.by_bins, o + 1, axis.extent)};
  }
  // An empty axis may have any windows, however far they lie.
  if (axis.extent == 0) return {0, 0};
  const int32_t begin = static_cast<int32_t>(static_cast<int64_t>(o) * axis.stride - axis.padding);
  const int64_t end = begin + (static_cast<int64_t>(axis.kernel) - 1) * axis.dilation + 1;
  return {begin > 0 ? begin : 0, static_cast<int32_t>(end < axis.extent ? end : axis.extent)};
}

// The windows from the first to the last that may hold element i: every window that holds it is among them, and without
// dilation all of them hold it. i lies in window o when o n / m < i + 1 and (o + 1) n / m > i, which is the
// division of the windows among the elements.
BARACUDA_HD PoolRange windows_with(const PoolWindows& axis, int32_t i) {
  if (axis.is_adaptive()) {
    return {share_below(axis, axis.by_extent, i, axis.bins), share_above(axis, axis.by_extent, i + 1, axis.bins)};
  }
  const int32_t place = i + axis.padding;
  const int64_t before = place - (static_cast<int64_t>(axis.kernel) - 1) * axis.dilation;
  const int32_t first =
      before <= 0 ? 0 : static_cast<int32_t>(axis.by_stride.divide(static_cast<uint32_t>(before - 1))) + 1;
  int32_t end = static_cast<int32_t>(axis.by_stride.divide(static_cast<uint32_t>(place))) + 1;
  if (end > axis.bins) end = axis.bins;
  return {first < end ? first : end, end};
}

}  // namespace
}  // namespace baracuda
