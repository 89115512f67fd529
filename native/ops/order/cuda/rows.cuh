// SPDX-License-Identifier: Apache-2.0
// What kernels of order statistics have in common: threads that see to a row together, where it lies, what is stored.
#pragma once

#include <cstdint>

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/order/math.h"

namespace baracuda::order {
namespace {

// Loads of a thread that are under way together.
constexpr int kAhead = 4;

// Shorter rows are seen to by lanes of a warp, an element each.
constexpr int64_t kShortRow = 32;

// Waits for the others that see to a row: a warp or a block.
template <int kGroup>
__device__ __forceinline__ void meet() {
  if constexpr (kGroup == 32) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

// Calls use(place, key) for the elements from `first` on, `step` apart, before `end`, which Index numbers with room for
// a few steps more.
template <typename T, typename Index, class Use>
__device__ __forceinline__ void for_keys(const T* from, int64_t inner, Index first, Index end, Index step,
                                         const Use& use) {
  for (Index i = first; i < end; i += kAhead * step) {
    T x[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (i + j * step < end) x[j] = from[(i + j * step) * inner];
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (i + j * step < end) use(i + j * step, key_of(x[j]));
    }
  }
}

template <class Buffers>
__device__ __forceinline__ void store(const Problem& p, const Buffers& b, int64_t row, int64_t place) {
  b.output[row] = b.input[begin_of(p, row) + place * p.inner];
  b.indices[row] = place;
}

// Long rows are cut into parts; of the rows beside each other the same part comes next, since these share sectors.
constexpr int64_t kPart = 32768;
struct Parts {
  int64_t count, tasks;
  explicit Parts(const Problem& p, int64_t rows) : count(ceil_div(p.length, kPart)), tasks(rows * count) {}
};
struct Task {
  int64_t row, begin, end;
  __device__ Task(const Problem& p, const Parts& parts, int64_t first_row, int64_t number) {
    // Rows of a call, or of a part of it that begins and ends anywhere: the last axis goes fastest where it is whole.
    const int64_t rows = parts.tasks / parts.count, together = rows % p.inner == 0 ? p.inner : 1;
    const int64_t part = number / together % parts.count;
    row = first_row + number / together / parts.count * together + number % together;
    begin = part * kPart;
    end = at_most(begin + kPart, p.length);
  }
};

// Lanes that see to one short row; the others of the warp have other rows.
struct ShortRows {
  int width, lane, place;
  uint32_t lanes;

  __device__ explicit ShortRows(int row_width)
      : width(row_width), lane(static_cast<int>(threadIdx.x % 32)), place(lane % width),
        lanes((width == 32 ? kFullWarp : (1u << width) - 1) << (lane - place)) {}
  __device__ int64_t row() const { return grid_thread() / width; }
};

inline int width_of_short(int64_t length) {
  int width = 1;
  while (width < length) width *= 2;
  return width;
}

inline __device__ unsigned long long* as_atomic(uint64_t* at) { return reinterpret_cast<unsigned long long*>(at); }
inline __device__ uint32_t* as_atomic(uint32_t* at) { return at; }

}  // namespace
}  // namespace baracuda::order
