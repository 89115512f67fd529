// SPDX-License-Identifier: Apache-2.0
// Which bin an element is counted in and what a count is rounded to, shared by both backends.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/float_math.h"
#include "core/host_device.h"
#include "ops/histc/problem.h"

namespace baracuda::histc {
namespace {

// Bins of one width. A range that is not finite has none.
template <typename C>
struct Bins {
  C low, high, width, count;
  int64_t last;
  bool is_finite_range;

  BARACUDA_HD Bins(C from, C to, int64_t bins) : low(from), high(to), count(static_cast<C>(bins)), last(bins - 1) {
    if (low == high) low -= 1, high += 1;
    width = high - low;
    is_finite_range = is_finite(width * count);
  }

  BARACUDA_HD bool has(C x) const { return x >= low && x <= high && is_finite_range; }

  // Of an element that is in the range: the bin's number, not yet whole; NaN where the width is 0.
  BARACUDA_HD C place_of(C x) const { return (x - low) * count / width; }
  BARACUDA_HD int64_t bin_at(C place) const {
    if (!(place >= 1)) return 0;
    const int64_t bin = static_cast<int64_t>(place);
    return bin < last ? bin : last;
  }
};

// Of a problem and, if that asks for it, of the least and the largest element, which are there.
template <typename C>
BARACUDA_HD Bins<C> given_bins(const Problem& p) {
  return Bins<C>(static_cast<C>(p.min), static_cast<C>(p.max), p.bins);
}

// A count, rounded once to nearest, ties to even.
template <typename T>
BARACUDA_HD T rounded_count(uint64_t count) {
  if constexpr (sizeof(T) >= 4) {
    return static_cast<T>(count);
  } else {
    // What float has no room for becomes its last bit, behind those that the narrow type has.
    int shift = 0;
    uint64_t rest = count;
    for (; rest >> 24 != 0; ++shift) rest = rest >> 1 | (rest & 1);
    return narrow<T>(static_cast<float>(rest) * bits_as<float>(static_cast<uint32_t>(127 + shift) << 23));
  }
}

}  // namespace
}  // namespace baracuda::histc
