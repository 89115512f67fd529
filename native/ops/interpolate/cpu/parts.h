// SPDX-License-Identifier: Apache-2.0
// What both directions of interpolation on the CPU are made of: rows of pixels in the compute type, and work in parts
// that keep what neighbouring rows share.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cpu_convert.h"
#include "core/cpu_parallel.h"
#include "ops/interpolate/problem.h"

namespace baracuda::interpolate {
namespace {

// Pixels of a row that are worked on at a time; a little more than 1024, so that the output pixels of 512 fit, and the
// next ones.
constexpr int32_t kBlock = 1088;

// parallel_for() for a body that takes a range of tasks, between which it keeps what it has.
template <typename Body>
void parallel_parts(int64_t count, int64_t grain, Body body) {
  parallel_ranges(
      count, grain,
      [](void* context, int64_t begin, int64_t end) { (*static_cast<Body*>(context))(begin, end); }, &body);
}

// Whether every pixel of an axis becomes two.
inline bool is_doubled(const Axis& axis) {
  return axis.step == 0.5 && axis.output == 2 * static_cast<int64_t>(axis.input) && axis.rule != Rule::kCorners;
}

// `count` elements in the compute type: where they stand, or widened into `room`.
template <typename T>
const Compute<T>* widened(const T* from, Compute<T>* room, int64_t count) {
  if constexpr (std::is_same_v<T, Compute<T>>) {
    return from;
  } else {
    widen_row(from, room, count);
    return room;
  }
}

}  // namespace
}  // namespace baracuda::interpolate
