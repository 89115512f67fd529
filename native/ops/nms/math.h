// SPDX-License-Identifier: Apache-2.0
// When one box suppresses another, and in which order boxes are looked at, shared by both backends.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/host_device.h"

namespace baracuda::nms {
namespace {

// What keep holds behind the last kept box.
constexpr int32_t kNoBox = -1;

// A box in the type in which it is compared. 16-byte loads and stores: it stands in workspaces.
template <typename C>
struct alignas(16) Box {
  C x1, y1, x2, y2;
};

template <typename T>
BARACUDA_HD Box<Compute<T>> read_box(const T* boxes, int64_t index) {
  const T* row = boxes + 4 * index;
  return {widen(row[0]), widen(row[1]), widen(row[2]), widen(row[3])};
}

template <typename C>
BARACUDA_HD C area_of(const Box<C>& box) {
  return (box.x2 - box.x1) * (box.y2 - box.y1);
}

// Of numbers the larger and the smaller one. What they answer for a NaN does not matter: where a coordinate is NaN, or
// a box reaches from an infinity to the same one, which a difference of two infinities needs, an area is NaN, and so
// is the quotient. Nor does it matter which of two zeros they answer: a zero's sign never shows in a comparison.
template <typename C>
BARACUDA_HD C larger(C a, C b) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<C, float>) return ::fmaxf(a, b);
#endif
  return a < b ? b : a;
}
template <typename C>
BARACUDA_HD C smaller(C a, C b) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<C, float>) return ::fminf(a, b);
#endif
  return b < a ? b : a;
}

template <typename C>
BARACUDA_HD C intersection_of(const Box<C>& a, const Box<C>& b) {
  const C width = larger(smaller(a.x2, b.x2) - larger(a.x1, b.x1), C(0));
  const C height = larger(smaller(a.y2, b.y2) - larger(a.y1, b.y1), C(0));
  return width * height;
}

// Intersection over union, NaN for 0 / 0 and wherever a coordinate is NaN. It is the same bits, or the other zero, with
// the boxes exchanged: every step is symmetric.
template <typename C>
BARACUDA_HD C overlap_of(const Box<C>& a, C area_a, const Box<C>& b, C area_b) {
  const C inter = intersection_of(a, b);
  return inter / (area_a + area_b - inter);
}

// The largest C that is not above the threshold: an overlap in C exceeds the one if and only if it exceeds the other.
// NaN of NaN.
template <typename C>
C bound_of(double threshold) {
  if constexpr (std::is_same_v<C, double>) {
    return threshold;
  } else {
    const float nearest = static_cast<float>(threshold);
    if (!(static_cast<double>(nearest) > threshold)) return nearest;
    if (nearest == 0.0f) return bits_as<float>(0x80000001u);  // of a negative threshold near 0
    const uint32_t bits = bits_as<uint32_t>(nearest);
    return bits_as<float>(nearest > 0.0f ? bits - 1 : bits + 1);
  }
}

// Scores as integers that ascend from the best: NaN first, then descending, -0 as 0.
template <typename C>
struct ScoreKey;
template <>
struct ScoreKey<float> {
  using type = uint32_t;
};
template <>
struct ScoreKey<double> {
  using type = uint64_t;
};
template <typename C>
using Key = typename ScoreKey<C>::type;

template <typename C>
BARACUDA_HD Key<C> key_of(C score) {
  constexpr Key<C> kSign = Key<C>{1} << (8 * sizeof(C) - 1);
  if (score != score) return 0;
  const Key<C> bits = score == C(0) ? Key<C>{0} : bits_as<Key<C>>(score);
  // Of a positive number the bits ascend with it, of a negative one they descend. No number's are all ones.
  return (bits & kSign) != 0 ? bits : ~(bits | kSign);
}

}  // namespace
}  // namespace baracuda::nms
