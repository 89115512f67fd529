// SPDX-License-Identifier: Apache-2.0
// Where a destination element comes from, shared by both backends. One axis at a time: an element is inside when it is
// inside on every axis.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "ops/pad/problem.h"

namespace baracuda::pad {
namespace {

// The destination indices [begin, end) of an axis that have a source, empty as begin == end. Within them the source
// index is i - low; what stands outside is the mode's affair.
struct Window {
  int64_t begin, end;
};

BARACUDA_HD int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : (x > high ? high : x); }

BARACUDA_HD Window window_of(const Axis& axis) {
  const int64_t begin = clamp(axis.low, 0, axis.extent);
  return {begin, clamp(axis.low + axis.source_extent, begin, axis.extent)};
}

}  // namespace
}  // namespace baracuda::pad
