// SPDX-License-Identifier: Apache-2.0
// A box as the backward's tiles see it on CUDA: the pixels of its one bin that falls on them and, by samples, their
// weights.
#pragma once

#include "ops/ps_roi/math.h"
#include "ops/roi_align/math.h"

namespace baracuda::ps_roi {
namespace {

// Weights of an axis that are listed with a box. A detection head's bins have some five pixels on an axis.
constexpr int32_t kListedWeights = 8;
// Bins of more samples on an axis find their pixels by bisection, and those of very many have no listed weights: a
// weight is cut into partial sums of so many samples.
constexpr int32_t kFewSamples = 8;
constexpr int32_t kMostSamples = roi_align::kSamplesInPartial;

// Divides by a box's samples on an axis: by a power of two with a product, which is the same number.
template <typename C>
struct BySamples {
  C samples, inverse;  // 0 where there is no inverse

  __device__ explicit BySamples(const roi_align::Axis<C>& axis)
      : samples(axis.samples), inverse((axis.count & (axis.count - 1)) == 0 ? C(1) / axis.samples : C(0)) {}
  __device__ __forceinline__ C divide(C x) const { return inverse != C(0) ? x * inverse : x / samples; }
};

// Calls use(tap) for every sample of a bin on one axis that the map has, ascending.
template <typename C, class Use>
__device__ __forceinline__ void for_taps(const roi_align::Axis<C>& axis, const BySamples<C>& by, int32_t bin,
                                         const Use& use) {
  const C begin = axis.start + static_cast<C>(bin) * axis.bin, end = static_cast<C>(axis.extent);
#pragma unroll 1
  for (int32_t i = 0; i < axis.count; ++i) {
    // roi_align::sample_position().
    const C position = begin + by.divide((static_cast<C>(i) + C(0.5)) * axis.bin);
    if (position >= C(-1) && position <= end) use(roi_align::tap_at(position, axis.extent));
  }
}

// By bisection, for bins of many samples: rare, and not to make the way of the others longer.
template <typename C>
__device__ __noinline__ PixelRange pixels_of_samples(roi_align::Axis<C> axis, int32_t bin) {
  return roi_align::bin_pixels(axis, bin);
}

// The pixels of a bin on one axis: what roi_align::bin_pixels() answers, by a look at each sample where they are few.
template <typename C>
__device__ __forceinline__ PixelRange pixels_of_bin(const roi_align::Axis<C>& axis, const BySamples<C>& by,
                                                    int32_t bin) {
  if (axis.count > kFewSamples) return pixels_of_samples(axis, bin);
  PixelRange pixels{INT32_MAX, -1};
  for_taps(axis, by, bin, [&](const roi_align::Tap<C>& tap) {
    pixels.first = min(pixels.first, tap.low);
    pixels.last = max(pixels.last, min(tap.low + 1, axis.extent - 1));
  });
  return pixels;
}

// The weights that roi_align::pixel_weight() gives `count` pixels from the `first` on, at most kListedWeights; those
// behind them are 0. Samples are taken once for all pixels and not once for each; what they add comes in the same
// order.
template <typename C>
__device__ __forceinline__ void list_weights(const roi_align::Axis<C>& axis, const BySamples<C>& by, int32_t bin,
                                             int32_t first, int32_t count, C* to, int stride) {
  C sums[kListedWeights];
#pragma unroll
  for (int k = 0; k < kListedWeights; ++k) sums[k] = C(0);
  for_taps(axis, by, bin, [&](const roi_align::Tap<C>& tap) {
    const int32_t low = tap.low - first;
    const C rest = C(1) - tap.fraction;
#pragma unroll
    for (int k = 0; k < kListedWeights; ++k) {
      if (low == k) sums[k] = sums[k] + rest;
      if (low + 1 == k) sums[k] = sums[k] + tap.fraction;
    }
  });
  const C factor = by.inverse != C(0) ? by.inverse : C(1);
#pragma unroll
  for (int k = 0; k < kListedWeights; ++k) to[k * stride] = k < count ? sums[k] * factor : C(0);
  if (by.inverse != C(0)) return;
#pragma unroll 1
  for (int k = 0; k < count; ++k) to[k * stride] = to[k * stride] / by.samples;
}

// A box by samples, as a tile sees it.
template <typename C>
struct SampledBox {
  static constexpr bool kWeighted = true;
  roi_align::Box<C> box;
  BySamples<C> by_rows, by_columns;

  __device__ SampledBox(const C* roi, const Problem& p)
      : box(roi_align::make_box(roi, p.boxes)), by_rows(box.y), by_columns(box.x) {}
  __device__ int32_t image() const { return box.image; }
  __device__ Pixels pixels(int32_t ph, int32_t pw) const {
    return {pixels_of_bin(box.y, by_rows, ph), pixels_of_bin(box.x, by_columns, pw)};
  }
  __device__ C share(C grad, const Pixels&) const { return grad; }
};

// A box by averages.
template <typename C>
struct AveragedBox {
  static constexpr bool kWeighted = false;
  AverageBox<C> box;

  __device__ AveragedBox(const C* roi, const Problem& p) : box(roi, p) {}
  __device__ int32_t image() const { return box.image; }
  __device__ Pixels pixels(int32_t ph, int32_t pw) const { return box.pixels(ph, pw); }
  __device__ C share(C grad, const Pixels& pixels) const { return grad / pixels.template area<C>(); }
};

}  // namespace
}  // namespace baracuda::ps_roi
