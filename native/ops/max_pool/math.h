// SPDX-License-Identifier: Apache-2.0
// Maximum pooling's choice, shared by both backends: which of two elements a window keeps, and what it has without any.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"
#include "ops/max_pool/problem.h"

namespace baracuda::max_pool {
namespace {

// What indices say of a window without elements.
constexpr int64_t kNoElement = -1;

// What kernels know of a problem.
struct Pooling {
  PoolWindows d, h, w;
  int64_t plane_numel, plane_bins;

  explicit Pooling(const Problem& p)
      : d(p.axes[0]), h(p.axes[1]), w(p.axes[2]), plane_numel(p.plane_numel), plane_bins(p.plane_bins) {}
};

// Whether a window that keeps `best` takes `next`, which comes after it: the first of equals stays, the last NaN wins.
template <typename C>
BARACUDA_HD bool takes_over(C next, C best) {
  return next > best || next != next;
}

// The lowest bits that any element has: what output holds for a window without elements.
template <typename T>
BARACUDA_HD T lowest();
template <>
BARACUDA_HD float lowest<float>() {
  return bits_as<float>(0xff800000u);
}
template <>
BARACUDA_HD double lowest<double>() {
  return bits_as<double>(static_cast<uint64_t>(0xfff0000000000000u));
}
template <>
BARACUDA_HD Half lowest<Half>() {
  return Half{0xfc00u};
}
template <>
BARACUDA_HD Bfloat16 lowest<Bfloat16>() {
  return Bfloat16{0xff80u};
}

// The places of a window along an axis: from `first` in steps of `step` up to before `end`.
struct Places {
  int32_t first, end, step;
};

BARACUDA_HD Places places_of(const PoolWindows& axis, int32_t window) {
  const PoolRange range = window_of(axis, window);
  if (axis.is_adaptive() || axis.dilation == 1 || axis.extent == 0) return {range.first, range.end, 1};
  // The first place that is in the input.
  const int64_t begin = static_cast<int64_t>(window) * axis.stride - axis.padding;
  const int64_t steps = begin < 0 ? ceil_div(-begin, axis.dilation) : 0;
  const int64_t first = begin + steps * axis.dilation;
  return {static_cast<int32_t>(first < range.end ? first : range.end), range.end, axis.dilation};
}

// Whether a window's span holds an element.
BARACUDA_HD bool spans(const PoolRange& range, int32_t place) { return place >= range.first && place < range.end; }

}  // namespace
}  // namespace baracuda::max_pool
