// SPDX-License-Identifier: Apache-2.0
// How a row of tall windows is pooled on CUDA, shared by the pooling families: a block has all rows of the input that
// the windows share, an item is 16 bytes of such a row along all of d. What items, columns and windows become of it is
// the families'.
#pragma once

#include <cstdint>

#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "core/pool_rules.h"
#include "core/pool_windows.h"

namespace baracuda {
namespace {

constexpr int kTallThreads = 256;
// Rows that a window has along d and h from which on its columns are worth sharing out.
constexpr int64_t kTallRows = 8;
// Of shared memory, so that seven blocks fit into a multiprocessor.
constexpr int64_t kTallBytes = 32 * 1024;

struct TallShape {
  Divider vectors, h, d;  // of an item, of a row's number
  PoolRule elements[3];   // of a window, along each axis
  uint32_t width, slab, plane;  // elements of a row of input and so on
  int32_t bins;
};

inline TallShape tall_shape(const PoolAxis* axes, int64_t lanes) {
  const uint32_t width = static_cast<uint32_t>(axes[2].extent), slab = static_cast<uint32_t>(axes[1].extent) * width;
  return {Divider(axes[2].extent / lanes),
          Divider(axes[1].bins),
          Divider(axes[0].bins),
          {rule_of_elements(axes[0]), rule_of_elements(axes[1]), rule_of_elements(axes[2])},
          width,
          slab,
          static_cast<uint32_t>(axes[0].extent) * slab,
          axes[2].bins};
}

// Of shared memory that a block needs with so many bytes for each element of a row.
inline int64_t tall_bytes(const PoolAxis* axes, int64_t element) {
  const int64_t rows = at_most(most_elements(axes[1]), axes[1].extent);
  return rows * axes[2].extent * element;
}

inline bool has_tall_windows(const PoolAxis* axes, const void* source, int64_t lanes, int64_t element) {
  if (!has_rules(axes[0]) || !has_rules(axes[1]) || !has_rules(axes[2])) return false;
  return axes[2].extent % lanes == 0 && reinterpret_cast<uintptr_t>(source) % 16 == 0 &&
         most_elements(axes[0]) * most_elements(axes[1]) >= kTallRows && tall_bytes(axes, element) <= kTallBytes;
}

// A row of windows, as a block's number says.
struct TallRow {
  uint32_t plane;
  int32_t d, h;
  PoolRange ds, hs;

  __device__ TallRow(const TallShape& shape, uint32_t row) {
    const uint32_t of_slab = shape.h.divide(row);
    plane = shape.d.divide(of_slab);
    d = static_cast<int32_t>(of_slab - plane * shape.d.divisor);
    h = static_cast<int32_t>(row - of_slab * shape.h.divisor);
    ds = shape.elements[0](d), hs = shape.elements[1](h);
  }
};

}  // namespace
}  // namespace baracuda
