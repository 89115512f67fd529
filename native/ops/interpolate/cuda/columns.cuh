// SPDX-License-Identifier: Apache-2.0
// The forward on CUDA: a thread has a vector of columns of the output and walks down a strip of its rows. Input rows
// are brought to the columns once and kept for all output rows that lie between them.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "ops/interpolate/launch.h"
#include "ops/interpolate/math.h"

namespace baracuda::interpolate {
namespace {

constexpr int kColumnThreads = 128;
constexpr int kVectorBytes = 16;
// Output rows of a strip, at most; fewer where there would not be work for all of a large GPU.
constexpr int32_t kStripRows = 16;
constexpr int64_t kWantedThreads = int64_t{1} << 19;

template <typename T>
constexpr int kVector = kVectorBytes / sizeof(T);

// The vectors of a row, the strips of a slice, and the rows of a strip.
struct Columns {
  int32_t vectors, strips, rows;
  int64_t threads;
};

inline Columns columns_of(const Problem& p, int vector) {
  Columns found;
  const int32_t height = p.height().output;
  found.vectors = p.width().output / vector;
  const int64_t above = p.planes() * p.depth().output * found.vectors;
  found.rows = kStripRows;
  while (found.rows > 1 && above * ceil_div(height, found.rows) < kWantedThreads) found.rows /= 2;
  found.strips = static_cast<int32_t>(ceil_div(height, found.rows));
  found.threads = above * found.strips;
  return found;
}

// What a thread has: a plane's slice, rows [first, end) of it, and columns from `column` on.
struct Strip {
  int64_t plane;
  int32_t slice, first, end, column;
};

__device__ __forceinline__ Strip strip_of(int64_t thread, const Problem& p, const Columns& columns, int vector) {
  const Division row(thread, columns.vectors), strip(row.quotient, columns.strips);
  const Division plane(strip.quotient, p.axes[0].output);
  const int32_t first = static_cast<int32_t>(strip.remainder) * columns.rows;
  const int64_t end = static_cast<int64_t>(first) + columns.rows;
  return {plane.quotient, static_cast<int32_t>(plane.remainder), first,
          static_cast<int32_t>(at_most(end, p.axes[1].output)), static_cast<int32_t>(row.remainder) * vector};
}

template <typename C>
__device__ __forceinline__ C combine(const Tap<C>& tap, C first, C second) {
  const C low = tap.low * first;
  return tap.high != C(0) ? baracuda::fma(tap.high, second, low) : low;
}

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T elements[kCount];
};

// Input rows `first` and `first + 1` of two slices at the thread's columns; -1 where there is none.
template <typename C, int kCount, int kSlices>
struct Between {
  int32_t first = -1, second = -1;
  C upper[kSlices][kCount], lower[kSlices][kCount];
};

template <typename T, int kCount, bool kVolume>
__global__ void __launch_bounds__(kColumnThreads)
    interpolate_columns(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T> b,
                        const __grid_constant__ Columns columns) {
  using C = Compute<T>;
  constexpr int kSlices = kVolume ? 2 : 1;
  const Axis &height = p.axes[1], &width = p.axes[2];
  for (int64_t thread = grid_thread(); thread < columns.threads; thread += grid_threads()) {
    const Strip at = strip_of(thread, p, columns, kCount);
    Tap<C> x[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) x[k] = linear_tap<C>(width, at.column + k);
    const Tap<C> z = linear_tap<C>(p.axes[0], at.slice);
    const int64_t slice_pixels = static_cast<int64_t>(height.input) * width.input;
    const T* const first_slice = b.input + (at.plane * p.axes[0].input + z.index) * slice_pixels;
    const auto load = [&](int32_t y, C(&rows)[kSlices][kCount]) {
#pragma unroll
      for (int s = 0; s < kSlices; ++s) {
        if (s > 0 && z.high == C(0)) continue;
        const T* const row = first_slice + s * slice_pixels + static_cast<int64_t>(y) * width.input;
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          const C low = widen(row[x[k].index]);
          rows[s][k] = combine(x[k], low, x[k].high != C(0) ? widen(row[x[k].index + 1]) : C(0));
        }
      }
    };
    Between<C, kCount, kSlices> held;
    T* out = b.output + ((at.plane * p.axes[0].output + at.slice) * height.output + at.first) * width.output +
             at.column;
    for (int32_t o = at.first; o < at.end; ++o, out += width.output) {
      const Tap<C> y = linear_tap<C>(height, o);
      if (held.first != y.index) {
        if (held.second == y.index) {
#pragma unroll
          for (int s = 0; s < kSlices; ++s) {
#pragma unroll
            for (int k = 0; k < kCount; ++k) held.upper[s][k] = held.lower[s][k];
          }
        } else {
          load(y.index, held.upper);
        }
        held.first = y.index;
        held.second = -1;
      }
      if (y.high != C(0) && held.second < 0) {
        load(y.index + 1, held.lower);
        held.second = y.index + 1;
      }
      Vector<T, kCount> result;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        C value = combine(y, held.upper[0][k], held.lower[0][k]);
        if constexpr (kVolume) {
          if (z.high != C(0)) value = combine(z, value, combine(y, held.upper[1][k], held.lower[1][k]));
        }
        result.elements[k] = narrow<T>(value);
      }
      *reinterpret_cast<Vector<T, kCount>*>(out) = result;
    }
  }
}

// The nearest modes: elements are moved as words.
template <typename Word, int kCount>
__global__ void __launch_bounds__(kColumnThreads)
    move_columns(const __grid_constant__ Problem p, const Word* input, Word* output,
                 const __grid_constant__ Columns columns) {
  const Axis &height = p.axes[1], &width = p.axes[2];
  for (int64_t thread = grid_thread(); thread < columns.threads; thread += grid_threads()) {
    const Strip at = strip_of(thread, p, columns, kCount);
    int32_t x[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) x[k] = nearest_index(width, at.column + k);
    const int64_t slice = at.plane * p.axes[0].input + nearest_index(p.axes[0], at.slice);
    const Word* const first_row = input + slice * height.input * width.input;
    Word* out = output + ((at.plane * p.axes[0].output + at.slice) * height.output + at.first) * width.output +
                at.column;
    Vector<Word, kCount> result;
    int32_t held = -1;
    for (int32_t o = at.first; o < at.end; ++o, out += width.output) {
      const int32_t y = nearest_index(height, o);
      if (y != held) {
        const Word* const row = first_row + static_cast<int64_t>(y) * width.input;
#pragma unroll
        for (int k = 0; k < kCount; ++k) result.elements[k] = row[x[k]];
        held = y;
      }
      *reinterpret_cast<Vector<Word, kCount>*>(out) = result;
    }
  }
}

template <size_t kBytes>
struct WordOfBytes;
template <>
struct WordOfBytes<2> {
  using type = uint16_t;
};
template <>
struct WordOfBytes<4> {
  using type = uint32_t;
};
template <>
struct WordOfBytes<8> {
  using type = uint64_t;
};

template <typename T, int kCount>
Status enqueue_columns(const Problem& p, const ForwardBuffers<T>& b, Stream stream) {
  const Columns columns = columns_of(p, kCount);
  const uint32_t blocks = blocks_for(columns.threads, kColumnThreads);
  if (!p.is_linear) {
    using Word = typename WordOfBytes<sizeof(T)>::type;
    return launch_kernel("interpolate kernel", move_columns<Word, kCount>, blocks, kColumnThreads, 0, stream, p,
                         reinterpret_cast<const Word*>(b.input), reinterpret_cast<Word*>(b.output), columns);
  }
  const auto kernel = p.depth().rule == Rule::kSame ? interpolate_columns<T, kCount, false>
                                                    : interpolate_columns<T, kCount, true>;
  return launch_kernel("interpolate kernel", kernel, blocks, kColumnThreads, 0, stream, p, b, columns);
}

// Whether rows of T from this address on are whole vectors.
template <typename T>
bool has_vectors(const T* pointer, int32_t width) {
  return width % kVector<T> == 0 && reinterpret_cast<uintptr_t>(pointer) % kVectorBytes == 0;
}

}  // namespace
}  // namespace baracuda::interpolate
