// SPDX-License-Identifier: Apache-2.0
// The modes, each as one formula: how a tensor goes on beyond its ends. One axis at a time; no problem is known here.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace baracuda::pad {

// The numbers are those of the ABI's options.
enum class Mode : int32_t { kConstant, kReflect, kReplicate, kCircular, kSymmetric };
constexpr int32_t kModes = 5;

// How an axis of `kept` elements goes on. Position p, of any sign, is element p modulo the period; where that is past
// the end it is element mirror - (p modulo period). Without a mirror (0) the period is `kept`. Without a period (0) the
// nearest end goes on for ever.
struct Rule {
  int64_t period, mirror;
};

// The rule of a mode on kept >= 1 elements. A reflected single element is a replicated one: its period is 0.
inline Rule rule_of(Mode mode, int64_t kept) {
  switch (mode) {
    case Mode::kReflect:
      return {2 * (kept - 1), 2 * (kept - 1)};
    case Mode::kSymmetric:
      return {2 * kept, 2 * kept - 1};
    case Mode::kCircular:
      return {kept, 0};
    case Mode::kReplicate:
    case Mode::kConstant:  // has no rule
      break;
  }
  return {0, 0};
}

namespace {

BARACUDA_HD int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : (x > high ? high : x); }

// The element at a position.
BARACUDA_HD int64_t fold(const Rule& rule, int64_t kept, int64_t position) {
  if (rule.period == 0) return clamp(position, 0, kept - 1);
  // Pads are rarely wider than one period: a division then costs more than all the rest.
  int64_t p = position < 0 ? position + rule.period : (position < rule.period ? position : position - rule.period);
  if (p < 0 || p >= rule.period) {
    p %= rule.period;
    if (p < 0) p += rule.period;
  }
  return p < kept ? p : rule.mirror - p;
}

// The padded indices that hold one element, ascending: `first`, then steps of `even` and `odd` in turn. That is enough
// for every rule: an element and its mirror image, each once a period; or a run.
struct Preimages {
  uint32_t first, count, even, odd;
};

// Padded axis of a rule, in the 31 bits that extents have: the tensor's first element stands at `low` of `extent`.
struct PaddedAxis {
  uint32_t kept, low, extent;
  uint32_t period, mirror;
};

// Where element i < kept is found. From an element its images lie, downwards, `down` away, then `period - down`
// further, and so on; upwards `up` and `period - up`. As down + up is the period, the steps alternate throughout.
BARACUDA_HD Preimages preimages_of(const PaddedAxis& axis, uint32_t i) {
  const uint32_t place = axis.low + i, above = axis.extent - 1 - place;
  if (axis.period == 0) {
    const uint32_t first = i == 0 ? 0 : place, last = i + 1 == axis.kept ? axis.extent - 1 : place;
    return {first, last - first + 1, 1, 1};
  }
  const uint32_t below_periods = place < axis.period ? 0 : place / axis.period;
  const uint32_t above_periods = above < axis.period ? 0 : above / axis.period;
  const uint32_t lowest = place - below_periods * axis.period, rest = above - above_periods * axis.period;
  const uint32_t down = 2 * i + (axis.period - axis.mirror), up = axis.mirror - 2 * i;
  // An element that is its own mirror image has one place a period.
  if (axis.mirror == 0 || down == 0 || up == 0) {
    return {lowest, below_periods + 1 + above_periods, axis.period, axis.period};
  }
  const uint32_t count = 2 * (below_periods + above_periods) + 1 + (rest >= up);
  if (lowest < down) return {lowest, count, up, down};
  return {lowest - down, count + 1, down, up};
}

}  // namespace
}  // namespace baracuda::pad
