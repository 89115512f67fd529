// SPDX-License-Identifier: Apache-2.0
// Where a thread's element or window lies, from its number, and the elements of a row that one thread writes at once;
// shared by the kernels of maximum pooling and of its relatives.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cuda_division.cuh"
#include "core/integer_math.h"

namespace baracuda::max_pool {
namespace {

// How to find a place from its number.
struct PlaceDividers {
  Divider w, h, d;
};

struct Place {
  int64_t plane;
  int32_t d, h, w;
};

// `Index` is uint32_t where places are fewer than 2^31, else int64_t; the extents are those of the dividers.
template <typename Index>
__device__ __forceinline__ Place place_of(int64_t number, int32_t depth, int32_t rows, int32_t width,
                                                 const PlaceDividers& by) {
  if constexpr (std::is_same_v<Index, uint32_t>) {
    const uint32_t row = by.w.divide(static_cast<uint32_t>(number));
    const uint32_t slab = by.h.divide(row), plane = by.d.divide(slab);
    return {plane, static_cast<int32_t>(slab - plane * by.d.divisor), static_cast<int32_t>(row - slab * by.h.divisor),
            static_cast<int32_t>(static_cast<uint32_t>(number) - row * by.w.divisor)};
  } else {
    const Division row(number, width), slab(row.quotient, rows), plane(slab.quotient, depth);
    return {plane.quotient, static_cast<int32_t>(plane.remainder), static_cast<int32_t>(slab.remainder),
            static_cast<int32_t>(row.remainder)};
  }
}

// kLanes elements of a row.
template <typename T, int kLanes>
struct alignas(kLanes * sizeof(T)) Vector {
  T lanes[kLanes];
};

// Lanes of vectors of 16 bytes.
template <typename T>
constexpr int kLanesOf = 16 / sizeof(T);

}  // namespace
}  // namespace baracuda::max_pool
