// SPDX-License-Identifier: Apache-2.0
// Average pooling as sums, shared by both backends. Either direction adds boxes of source elements: a window's inputs,
// or the windows of an input; here is which, by what a window's sum is divided, and where long lists are cut. A box is
// added along d, those sums along h, and those along w.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"
#include "ops/avg_pool/problem.h"

namespace baracuda::avg_pool {
namespace {

// A list of more terms is cut into partial sums of so many.
constexpr int32_t kTermsInPartial = 256;

// The extents of one direction's tensors along an axis.
template <bool kBackward>
BARACUDA_HD int32_t destination_extent(const PoolAxis& axis) {
  return kBackward ? axis.extent : axis.bins;
}
template <bool kBackward>
BARACUDA_HD int32_t source_extent(const PoolAxis& axis) {
  return kBackward ? axis.bins : axis.extent;
}

template <bool kBackward>
int64_t destination_numel(const Problem& p) {
  return kBackward ? p.input_numel : p.output_numel;
}
template <bool kBackward>
int64_t source_numel(const Problem& p) {
  return kBackward ? p.output_numel : p.input_numel;
}

// What kernels know of a problem.
struct Pooling {
  PoolWindows axes[kAxes];
  int64_t divisor;
  bool count_padding;

  explicit Pooling(const Problem& p)
      : axes{PoolWindows(p.axes[0]), PoolWindows(p.axes[1]), PoolWindows(p.axes[2])}, divisor(p.divisor),
        count_padding(p.count_padding) {}
};

// The source places along an axis whose elements a destination place adds.
template <bool kBackward>
BARACUDA_HD PoolRange sources_of(const PoolWindows& axis, int32_t place) {
  return kBackward ? windows_with(axis, place) : window_of(axis, place);
}

// How many places a window counts along an axis.
BARACUDA_HD int64_t count_of(const PoolWindows& axis, bool count_padding, int32_t window) {
  if (axis.is_adaptive() || !count_padding) return window_of(axis, window).size();
  const int64_t rest = axis.extent + axis.padding - (static_cast<int64_t>(window) * axis.stride - axis.padding);
  return axis.kernel < rest ? axis.kernel : rest;
}

// By what a window's sum is divided.
BARACUDA_HD int64_t divisor_of(const Pooling& p, int32_t d, int32_t h, int32_t w) {
  if (p.divisor != 0) return p.divisor;
  return count_of(p.axes[0], p.count_padding, d) * count_of(p.axes[1], p.count_padding, h) *
         count_of(p.axes[2], p.count_padding, w);
}

// Adds terms in order.
template <typename C>
class Sum {
 public:
  BARACUDA_HD void add(C term) {
    partial_ += term;
    if (++terms_ < kTermsInPartial) return;
    total_ += partial_;
    partial_ = 0;
    terms_ = 0;
  }
  BARACUDA_HD C result() const { return total_ + partial_; }

 private:
  C total_ = 0, partial_ = 0;
  int32_t terms_ = 0;
};

// At least as many as a place of the destination has sources along an axis.
template <bool kBackward>
int64_t most_sources(const PoolAxis& axis) {
  const int64_t sources = source_extent<kBackward>(axis), places = destination_extent<kBackward>(axis);
  int64_t most = 0;
  if (axis.is_adaptive()) {
    most = places > 0 ? ceil_div(sources, places) + 1 : 0;
  } else {
    most = kBackward ? (axis.kernel - 1) / axis.stride + 1 : axis.kernel;
  }
  return at_most(most, sources);
}

// Whether no list of terms is cut.
template <bool kBackward>
bool has_short_lists(const Problem& p) {
  for (const PoolAxis& axis : p.axes) {
    if (most_sources<kBackward>(axis) > kTermsInPartial) return false;
  }
  return true;
}

}  // namespace
}  // namespace baracuda::avg_pool
