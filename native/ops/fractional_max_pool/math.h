// SPDX-License-Identifier: Apache-2.0
// Where the windows of fractional maximum pooling lie, shared by both backends: from samples where each one begins, and
// without them which elements a window may hold, whatever its sample was, and which windows may hold an element.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"
#include "core/integer_math.h"
#include "ops/fractional_max_pool/problem.h"

namespace baracuda::fractional_max_pool {
namespace {

// The places [first, end) of an axis, or windows.
struct Range {
  int32_t first, end;
};

BARACUDA_HD bool spans(const Range& range, int32_t place) { return place >= range.first && place < range.end; }

// x without its fraction, as a number of 32 bits: what is beyond them is the last of them, and NaN is 0.
template <typename C>
BARACUDA_HD int32_t whole_part(C x) {
  if (x >= C(2147483648.0)) return INT32_MAX;
  if (x <= C(-2147483648.0)) return INT32_MIN;
  return x == x ? static_cast<int32_t>(x) : 0;
}

// Where windows begin along one axis. C is the type in which that is computed.
template <typename C>
struct Starts : Axis {
  int32_t slack;  // where the last window begins
  C alpha;        // from one window to the next, on average

  Starts() = default;
  // Only for an axis that has windows.
  explicit Starts(const Axis& axis) : Axis(axis), slack(axis.extent - axis.kernel), alpha(0) {
    if (bins > 1) alpha = static_cast<C>(slack) / static_cast<C>(bins - 1);
  }

  // Samples in [0, 1) never meet the bounds; others must not leave the input.
  BARACUDA_HD int32_t of(C sample, int32_t window) const {
    if (window == bins - 1) return slack;
    const int64_t start = static_cast<int64_t>(whole_part((static_cast<C>(window) + sample) * alpha)) -
                          whole_part(sample * alpha);
    return static_cast<int32_t>(start < 0 ? 0 : start < slack ? start : slack);
  }
};

// The samples of a plane by axes, outermost first. Two are those of width and height, in that order.
template <typename C>
struct Samples {
  C d, h, w;
};

template <typename T>
BARACUDA_HD Samples<Compute<T>> samples_of(const T* samples, int32_t num_samples) {
  if (num_samples == kMostSamples) return {widen(samples[0]), widen(samples[1]), widen(samples[2])};
  return {Compute<T>(0), widen(samples[1]), widen(samples[0])};
}

// Which elements a window may hold along one axis. With slack a and gaps b between the windows, window o begins at
// floor(x) - floor(y), where x = (o + s) alpha and y = s alpha are rounded: less than one from their difference, which
// is o a / b but for the roundings. Those are of a, b, alpha, o + s, x and y, at most nine of at most a 2^-24 each when
// s is in [0, 1]; so o a / b errs by less than a / 2^20, which is what `reach` / b is at least. A window then begins
// from floor((o a - reach) / b) to floor((o a + reach) / b) + 1.
struct Spans : Axis {
  int64_t reach;
  Divider by_slack, by_gaps;
  bool is_small;  // whether all that is computed here stays below 2^31

  Spans() = default;
  // Only for an axis that has windows.
  explicit Spans(const Axis& axis) : Axis(axis), reach(0), by_slack(1), by_gaps(1), is_small(true) {
    if (bins == 1) return;
    const int64_t slack = extent - kernel, gaps = bins - 1;
    reach = 1 + (slack * gaps >> 20);
    by_slack = Divider(slack);
    by_gaps = Divider(gaps);
    is_small = static_cast<int64_t>(extent) * bins + reach <= INT32_MAX;
  }

  // The elements that a window may hold. N is int32_t only where everything is small.
  template <typename N>
  BARACUDA_HD Range of(int32_t window) const {
    const N slack = extent - kernel;
    if (bins == 1) return {static_cast<int32_t>(slack), extent};
    const N place = static_cast<N>(window) * slack, around = static_cast<N>(reach);
    const N end = quotient(by_gaps, place + around) + kernel + 1;
    return {static_cast<int32_t>(place > around ? quotient(by_gaps, place - around) : 0),
            static_cast<int32_t>(end < extent ? end : extent)};
  }

  // The windows whose spans have an element, which are neighbours: floor((o a + reach) / b) + kernel >= element and
  // floor((o a - reach) / b) <= element, solved for o.
  template <typename N>
  BARACUDA_HD Range with(int32_t element) const {
    if (bins == 1) return {0, element >= extent - kernel ? 1 : 0};
    const N gaps = bins - 1, around = static_cast<N>(reach), low = static_cast<N>(element - kernel) * gaps - around;
    const N first = low > 0 ? quotient(by_slack, low - 1) + 1 : 0;
    const N end = quotient(by_slack, (static_cast<N>(element) + 1) * gaps + around - 1) + 1;
    return {static_cast<int32_t>(first), static_cast<int32_t>(end < bins ? end : bins)};
  }

  // At least as many windows as with() has of `count` neighbouring elements: its two quotients' numbers are this far
  // apart.
  int64_t most_with(int64_t count) const {
    if (bins == 1) return 1;
    const int64_t slack = extent - kernel, gaps = bins - 1;
    return at_most(ceil_div((kernel + count) * gaps + 2 * reach, slack), bins);
  }

 private:
  BARACUDA_HD static int32_t quotient(const Divider& by, int32_t number) {
    return static_cast<int32_t>(by.divide(static_cast<uint32_t>(number)));
  }
  BARACUDA_HD static int64_t quotient(const Divider& by, int64_t number) { return number / by.divisor; }
};

// What kernels know of a forward.
template <typename C>
struct Pooling {
  Starts<C> d, h, w;
  int32_t num_samples;
  int64_t plane_numel;

  explicit Pooling(const Problem& p)
      : d(p.axes[0]), h(p.axes[1]), w(p.axes[2]), num_samples(p.num_samples), plane_numel(p.plane_numel) {}
};

// What kernels know of a backward.
struct Gathering {
  Spans d, h, w;
  int64_t plane_numel, plane_bins;

  explicit Gathering(const Problem& p)
      : d(p.axes[0]), h(p.axes[1]), w(p.axes[2]), plane_numel(p.plane_numel), plane_bins(p.plane_bins) {}

  bool is_small() const { return plane_numel <= INT32_MAX && d.is_small && h.is_small && w.is_small; }
};

}  // namespace
}  // namespace baracuda::fractional_max_pool
