// SPDX-License-Identifier: Apache-2.0
// The antialiased modes' gradient on CUDA where neither axis of the output is finer than the input's, so that an input
// pixel is under few filters. A thread has a few columns of the input and walks down a strip of its rows, with the rows
// of the output that are summed for one of the input's in registers, at all columns that its own pixels have: a row of
// the output is read once for a strip, and nothing is exchanged. What the rows are summed with is the same for a block.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "ops/interpolate/antialias.h"
#include "ops/interpolate/cuda/antialias.cuh"
#include "ops/interpolate/cuda/columns.cuh"
#include "ops/interpolate/launch.h"

namespace baracuda::interpolate {
namespace {

constexpr int kReducedThreads = 128;
// Input rows of a strip, at most: fewer where there would not be work for all of a large GPU.
constexpr int32_t kReducedRows = 32;
constexpr int64_t kWantedReducedThreads = int64_t{1} << 18;
// Extents whose positions are rounded by little.
constexpr int32_t kMostReduced = 1 << 20;

// Output rows that an input row has, and output columns that a thread's pixels have, at most.
template <int kRadius>
constexpr int kRowsHeld = 2 * kRadius + 1;
template <int kRadius>
constexpr int kReducedWindow = 2 * kRadius + 2;

// Of a multiprocessor, at least: what registers are for.
template <typename T, int kRadius>
constexpr int kReducedBlocks = sizeof(T) == 8 ? (kRadius == 1 ? 5 : 3) : (kRadius == 1 ? 8 : 5);

// Columns of a thread where rows of the input are whole vectors.
template <typename T>
constexpr int kReducedVector = sizeof(T) == 8 ? 2 : 4;

// Whether an input pixel is under the filters of kRowsHeld output pixels at most, and `columns` pixels side by side
// under those of kReducedWindow. Pixel i is under the filter of output pixel o if step (o + 1/2) lies within the
// support, which is `radius` steps, of i + 1/2, but for e: the roundings of that product and of two sums, each at most
// a unit of input + 2 support + 1. So the o of `columns` pixels lie in an interval, open at one end, whose length is
// 2 radius + (columns - 1 + 2 e) / step; and 2 e is less than 0.4 steps: 0.38 and some millionths of a step.
template <typename C>
bool is_reduced(const Filter<C>& f, int columns) {
  if (f.input > kMostReduced || f.output > kMostReduced) return false;
  const double step = static_cast<double>(f.step);
  return step >= 1.0 && step <= kMostReduced && (columns - 1) / step + 0.4 <= 2.0;
}

// How a call is cut: items are a plane's vectors of columns; a block has kReducedThreads of them over one strip.
struct Reduced {
  int32_t rows, strips, vectors, source_rows, source_columns;
  int64_t items, jobs;
  bool is_whole;  // rows of the input are vectors, written as such
};

inline Reduced reduced_of(const Problem& p, int columns) {
  Reduced s;
  const int32_t height = p.height().input;
  s.source_rows = p.height().output, s.source_columns = p.width().output;
  s.vectors = static_cast<int32_t>(ceil_div(p.width().input, columns));
  s.items = p.planes() * s.vectors;
  s.rows = kReducedRows;
  while (s.rows > 4 && s.items * ceil_div(height, s.rows) < kWantedReducedThreads) s.rows /= 2;
  s.strips = static_cast<int32_t>(ceil_div(height, s.rows));
  s.jobs = ceil_div(s.items, kReducedThreads) * s.strips;
  s.is_whole = false;
  return s;
}

// What a thread's pixels are of its window's columns; with `asks` those of weight 0 are left out.
template <typename T, bool asks, int kCount, int kWindow>
__device__ __forceinline__ Vector<T, kCount> weighted(const Compute<T> (&weights)[kCount][kWindow],
                                                      const Compute<T> (&sums)[kWindow]) {
  using C = Compute<T>;
  Vector<T, kCount> result;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    C sum = C(0);
#pragma unroll
    for (int j = 0; j < kWindow; ++j) {
      const C more = baracuda::fma(weights[k][j], sums[j], sum);
      sum = !asks || weights[k][j] != C(0) ? more : sum;
    }
    // Plus 0: a sum that underflows is 0, not -0.
    result.elements[k] = narrow<T>(C(0) + sum);
  }
  return result;
}

template <typename T, int kCount, int kRadius>
__global__ void __launch_bounds__(kReducedThreads, kReducedBlocks<T, kRadius>)
    sum_reduced(const T* from, T* to, const __grid_constant__ AxisTable<Compute<T>> height,
                const __grid_constant__ AxisTable<Compute<T>> width, const __grid_constant__ Reduced s) {
  using C = Compute<T>;
  constexpr int kRows = kRowsHeld<kRadius>, kWindow = kReducedWindow<kRadius>;
  // Of the strip's rows: the first output row, and the weights of it and of those behind it.
  __shared__ int32_t row_begin[kReducedRows];
  __shared__ C row_weights[kReducedRows][kRows];
  for (int64_t job = blockIdx.x; job < s.jobs; job += gridDim.x) {
    const Division strip(job, s.strips);
    const int32_t top = static_cast<int32_t>(strip.remainder) * s.rows;
    const int32_t count = static_cast<int32_t>(at_most(s.rows, height.destinations - top));
    __syncthreads();  // the job before may still be read
    for (int32_t i = threadIdx.x; i < count; i += kReducedThreads) {
      const int32_t y = top + i, begin = height.begin_of(y), terms = height.end_of(y) - begin;
      row_begin[i] = begin;
#pragma unroll
      for (int t = 0; t < kRows; ++t) {
        row_weights[i][t] = t < terms ? height.weights[static_cast<int64_t>(t) * height.active + y] : C(0);
      }
    }
    __syncthreads();
    const int64_t item = strip.quotient * kReducedThreads + threadIdx.x;
    if (item >= s.items) continue;
    const Division place(item, s.vectors);
    const int32_t column = static_cast<int32_t>(place.remainder) * kCount;
    // The window's first output column: so that all of it lies in a row.
    int32_t window = width.begin_of(column);
    window = window < s.source_columns - kWindow ? window : s.source_columns - kWindow;
    // Of the window's columns, those that a pixel does not have with weight 0.
    C weights[kCount][kWindow];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const int32_t x = column + k, begin = width.begin_of(x), terms = width.end_of(x) - begin;
#pragma unroll
      for (int j = 0; j < kWindow; ++j) {
        const int32_t t = window + j - begin;
        weights[k][j] = t >= 0 && t < terms ? width.weights[static_cast<int64_t>(t) * width.active + x] : C(0);
      }
    }
    // Output rows from `first` on; the one behind them is on its way while they are summed.
    C held[kRows][kWindow];
    T next[kWindow];
    int32_t first = row_begin[0];
    const T* source = from + (place.quotient * s.source_rows + first) * static_cast<int64_t>(s.source_columns) + window;
#pragma unroll
    for (int j = 0; j < kWindow; ++j) next[j] = narrow<T>(C(0));
    const auto load = [&](int32_t row) {
      if (row < s.source_rows) {
#pragma unroll
        for (int j = 0; j < kWindow; ++j) next[j] = source[j];
      }
      source += s.source_columns;
    };
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      load(first + t);
#pragma unroll
      for (int j = 0; j < kWindow; ++j) held[t][j] = widen(next[j]);
    }
    load(first + kRows);
    T* target = to + (place.quotient * height.destinations + top) * static_cast<int64_t>(width.destinations) + column;
    for (int32_t i = 0; i < count; ++i) {
#pragma unroll 1
      for (const int32_t begin = row_begin[i]; first < begin; ++first) {
#pragma unroll
        for (int j = 0; j < kWindow; ++j) {
#pragma unroll
          for (int t = 0; t + 1 < kRows; ++t) held[t][j] = held[t + 1][j];
          held[kRows - 1][j] = widen(next[j]);
        }
        load(first + 1 + kRows);
      }
      C sums[kWindow];
#pragma unroll
      for (int j = 0; j < kWindow; ++j) sums[j] = C(0);
#pragma unroll
      for (int t = 0; t < kRows; ++t) {
        const C weight = row_weights[i][t];
        if (weight == C(0)) continue;
#pragma unroll
        for (int j = 0; j < kWindow; ++j) sums[j] = baracuda::fma(weight, held[t][j], sums[j]);
      }
      // A weight of 0 is no source. Where the window has neither infinity nor NaN it adds a zero, which can change
      // nothing but the sign of a zero: so it is not asked for.
      C zero = C(0);
#pragma unroll
      for (int j = 0; j < kWindow; ++j) zero = baracuda::fma(C(0), sums[j], zero);
      const Vector<T, kCount> result =
          zero == C(0) ? weighted<T, false>(weights, sums) : weighted<T, true>(weights, sums);
      if (s.is_whole) {
        *reinterpret_cast<Vector<T, kCount>*>(target) = result;
      } else {
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          if (column + k < width.destinations) target[k] = result.elements[k];
        }
      }
      target += width.destinations;
    }
  }
}

// Whether the call comes here with so many columns a thread.
template <typename T>
bool is_reduced(const Problem& p, int columns) {
  using C = Compute<T>;
  return p.is_antialiased() && p.width().output >= 2 * p.radius + 2 &&
         is_reduced(filter_of<C>(p.height(), p.radius), 1) && is_reduced(filter_of<C>(p.width(), p.radius), columns);
}

template <typename T, int kCount>
Status enqueue_reduced(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  WorkspaceLayout layout;
  const Tables<Compute<T>> tables = lay_tables<Compute<T>>(layout, workspace, p, true);
  BARACUDA_RETURN_IF_FAILED(enqueue_tables(tables, stream));
  Reduced s = reduced_of(p, kCount);
  s.is_whole = p.width().input % kCount == 0 && reinterpret_cast<uintptr_t>(b.grad_input) % (kCount * sizeof(T)) == 0;
  const auto kernel = p.radius == 1 ? sum_reduced<T, kCount, 1> : sum_reduced<T, kCount, 2>;
  return launch_kernel("interpolate_backward kernel", kernel, blocks_for(s.jobs, 1), kReducedThreads, 0, stream,
                       b.grad_output, b.grad_input, tables.axes[0], tables.axes[1], s);
}

}  // namespace
}  // namespace baracuda::interpolate
