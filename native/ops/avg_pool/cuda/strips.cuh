// SPDX-License-Identifier: Apache-2.0
// The backward on CUDA by strips of grad_input (core/pool_strips.cuh): a thread sums the columns of windows that hold
// some of its elements, each once for a row, and adds them to those.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/pool_strips.cuh"
#include "ops/avg_pool/cuda/divisors.cuh"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

template <typename T>
struct StripCall {
  BackwardBuffers<T> buffers;
  CommonDivisor<Compute<T>> by;
  StripShape shape;
  PoolRule counts[3];  // what a window counts along each axis
  uint32_t width, slab, plane;  // windows of a row and so on
};

// What a thread knows of the row of windows that it has read last: neighbouring rows of grad_input share it.
template <typename C, int kColumns>
struct KnownRow {
  uint32_t plane = 0;
  PoolRange d{};
  int32_t h = -1;
  C sums[kColumns];  // along d, of each column
};

// The sums of some columns of windows over the windows of a row along d and h.
template <int kColumns, typename T, class Columns>
__device__ __forceinline__ void sum_columns_of(const StripCall<T>& call, const StripRow& row, const Columns& columns,
                                               const int32_t* counts, KnownRow<Compute<T>, kColumns>& known,
                                               Compute<T>* sums) {
  using C = Compute<T>;
  if (row.plane != known.plane || row.d.first != known.d.first || row.d.end != known.d.end) {
    known.plane = row.plane, known.d = row.d, known.h = -1;
  }
  const T* const source = call.buffers.source + row.plane * call.plane + columns.first;
  for (int32_t h = row.h.first; h < row.h.end; ++h) {
    if (h == known.h) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[c] += known.sums[c];
      continue;
    }
    const int32_t count_h = call.by.is_common ? 1 : call.counts[1](h).size();
    known.h = h;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) known.sums[c] = 0;
    for (int32_t d = row.d.first; d < row.d.end; ++d) {
      const T* const from = source + (static_cast<uint32_t>(d) * call.slab + static_cast<uint32_t>(h) * call.width);
      C terms[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) terms[c] = columns.lanes[c] != 0 ? widen(from[c]) : C(0);
      if (call.by.is_common) {
        divide_by_common<T, kColumns>(call.by, terms);
      } else {
        const int32_t count = count_h * call.counts[0](d).size();
#pragma unroll
        for (int c = 0; c < kColumns; ++c) terms[c] /= static_cast<C>(count * counts[c]);
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) known.sums[c] += terms[c];
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[c] += known.sums[c];
  }
}

template <typename T, int kColumns>
__global__ void __launch_bounds__(kStripThreads) add_strips(const __grid_constant__ StripCall<T> call) {
  using C = Compute<T>;
  constexpr int kLanes = kStripLanes<T>;
  __shared__ StripRow rows[kStripThreads];
  const StripPlace at = begin_strips<kLanes>(call.shape, rows);
  if (!at.has_strip) return;
  const StripColumns<kLanes, kColumns> columns(call.shape.sources[2], at.place);
  // What the windows count along w; columns without elements divide by 1.
  int32_t counts[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const bool counts_differ = !call.by.is_common && columns.lanes[c] != 0;
    counts[c] = counts_differ ? call.counts[2](columns.first + c).size() : 1;
  }
  KnownRow<C, kColumns> known;
  // Rows one below the other.
  const int32_t each = call.shape.rows / call.shape.together;
  for (int32_t k = at.team * each; k < (at.team + 1) * each; ++k) {
    const uint32_t row = at.first_row + static_cast<uint32_t>(k);
    if (row >= call.shape.all_rows) return;
    C sums[kColumns] = {};
    sum_columns_of<kColumns>(call, rows[k], columns, counts, known, sums);
    C totals[kLanes] = {};
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        if ((columns.lanes[c] >> lane & 1u) != 0) totals[lane] += sums[c];
      }
    }
    Strip<T> strip;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) strip.lanes[lane] = narrow<T>(totals[lane]);
    T* const to = call.buffers.destination + row * static_cast<uint32_t>(call.shape.width) + at.place;
    *reinterpret_cast<Strip<T>*>(to) = strip;
  }
}

// For calls with has_strips() and indices of 32 bits.
template <typename T>
Status enqueue_strips(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  const StripShape shape = gradient_strips(p.axes, p.planes, kStripLanes<T>);
  const auto counts = [&](int axis) { return rule_of_elements(p.axes[axis], p.count_padding); };
  const uint32_t width = static_cast<uint32_t>(p.axes[2].bins), slab = static_cast<uint32_t>(p.axes[1].bins) * width;
  const StripCall<T> call{b,
                          CommonDivisor<Compute<T>>(p),
                          shape,
                          {counts(0), counts(1), counts(2)},
                          width,
                          slab,
                          static_cast<uint32_t>(p.axes[0].bins) * slab};
  const bool has_few = most_strip_columns(p.axes[2], kStripLanes<T>) <= kFewStripColumns<T>;
  auto* const kernel = has_few ? add_strips<T, kFewStripColumns<T>> : add_strips<T, kManyStripColumns<T>>;
  return launch_kernel("avg_pool_backward strip kernel", kernel, shape.blocks(), kStripThreads, 0, stream, call);
}

}  // namespace
}  // namespace baracuda::avg_pool
