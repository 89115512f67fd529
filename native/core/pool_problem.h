// SPDX-License-Identifier: Apache-2.0
// What the pooling families check alike of extents and windows, by the names that their C arguments share; what a valid
// pooling is stands in each family's problem.h.
#pragma once

#include <cstdint>

#include "core/checked.h"
#include "core/pool_windows.h"
#include "core/status.h"

namespace baracuda {

struct PoolAxisNames {
  const char *extent, *bins, *kernel, *stride, *padding, *dilation;
};

// The axes of a plane, outermost first.
constexpr int kPoolAxes = 3;
constexpr PoolAxisNames kPoolAxisNames[kPoolAxes] = {
    {"d", "output_d", "kernel_d", "stride_d", "padding_d", "dilation_d"},
    {"h", "output_h", "kernel_h", "stride_h", "padding_h", "dilation_h"},
    {"w", "output_w", "kernel_w", "stride_w", "padding_w", "dilation_w"},
};

// Any of a problem's numbers, one for each axis.
using PoolNumbers = int32_t[kPoolAxes];

inline Status check_pool_extents(int32_t n, int32_t c, const PoolNumbers& input, const PoolNumbers& output) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", n));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", c));
  for (int a = 0; a < kPoolAxes; ++a) BARACUDA_RETURN_IF_FAILED(check_extent(kPoolAxisNames[a].extent, input[a]));
  for (int a = 0; a < kPoolAxes; ++a) BARACUDA_RETURN_IF_FAILED(check_extent(kPoolAxisNames[a].bins, output[a]));
  return Status::kOk;
}

// One of the windows' numbers, from `least` to `most` on every axis; `name` says which.
inline Status check_pool_numbers(const char* PoolAxisNames::*name, const PoolNumbers& numbers, int32_t least,
                                 int32_t most) {
  for (int a = 0; a < kPoolAxes; ++a) {
    BARACUDA_RETURN_IF_FAILED(check_range(kPoolAxisNames[a].*name, numbers[a], least, most));
  }
  return Status::kOk;
}

// Half of the widest window.
constexpr int32_t kMostPoolPadding = INT32_MAX / 2;

inline Status check_pool_windows(const PoolNumbers& kernel, const PoolNumbers& stride, const PoolNumbers& padding) {
  BARACUDA_RETURN_IF_FAILED(check_pool_numbers(&PoolAxisNames::kernel, kernel, 1, INT32_MAX));
  BARACUDA_RETURN_IF_FAILED(check_pool_numbers(&PoolAxisNames::stride, stride, 1, INT32_MAX));
  return check_pool_numbers(&PoolAxisNames::padding, padding, 0, kMostPoolPadding);
}

// A window's places are counted in 31 bits.
inline Status check_window_places(const PoolNumbers& kernel) {
  const int64_t face = static_cast<int64_t>(kernel[0]) * kernel[1];
  if (face > INT32_MAX || face * kernel[2] > INT32_MAX) {
    return fail(Status::kInvalidProblem,
                "kernel_d, kernel_h and kernel_w are %d, %d and %d; wanted a product of at most %d", kernel[0],
                kernel[1], kernel[2], INT32_MAX);
  }
  return Status::kOk;
}

// Checks in the project's fixed order, after every scalar's own range has been checked.
inline Status fixed_axis(const PoolAxisNames& names, int32_t extent, int32_t bins, int32_t kernel, int32_t stride,
                         int32_t padding, int32_t dilation, PoolAxis* axis) {
  // Also what a window spans is at most a place more than all numbers below 2^62.
  const int64_t span = (static_cast<int64_t>(kernel) - 1) * dilation + 1;
  if (padding > span / 2) {
    return fail(Status::kInvalidProblem, "%s is %d; wanted at most half of what a window spans, %lld", names.padding,
                padding, static_cast<long long>(span / 2));
  }
  if (extent + 2 * static_cast<int64_t>(padding) > INT32_MAX) {
    return fail(Status::kInvalidProblem, "%s is %d, %lld with the padding; wanted at most %d", names.extent, extent,
                static_cast<long long>(extent + 2 * static_cast<int64_t>(padding)), INT32_MAX);
  }
  const int64_t most = extent > 0 ? (static_cast<int64_t>(extent) + padding - 1) / stride + 1 : INT32_MAX;
  if (bins > most) {
    return fail(Status::kInvalidProblem, "%s is %d; wanted at most %lld windows, which begin before the input's end",
                names.bins, bins, static_cast<long long>(most));
  }
  *axis = PoolAxis{};
  axis->extent = extent, axis->bins = bins;
  axis->kernel = kernel, axis->stride = stride, axis->padding = padding, axis->dilation = dilation;
  return Status::kOk;
}

}  // namespace baracuda
