// SPDX-License-Identifier: Apache-2.0
// The backward on CUDA by strips of grad_input (core/pool_strips.cuh): a thread reads the indices and gradients of all
// windows that may hold some of its elements, in their order, and adds each gradient to the element that it names.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/pool_strips.cuh"
#include "ops/max_pool/launch.h"
#include "ops/max_pool/math.h"

namespace baracuda::max_pool {
namespace {

template <typename T>
struct StripCall {
  BackwardBuffers<T> buffers;
  StripShape shape;
  uint32_t width, slab, plane;  // windows of a row and so on
  uint32_t plane_rows;          // of grad_input
};

template <typename T, int kColumns>
__global__ void __launch_bounds__(kStripThreads) add_strips(const __grid_constant__ StripCall<T> call) {
  using C = Compute<T>;
  constexpr int kLanes = kStripLanes<T>;
  __shared__ StripRow rows[kStripThreads];
  const StripPlace at = begin_strips<kLanes>(call.shape, rows);
  if (!at.has_strip) return;
  const StripColumns<kLanes, kColumns> columns(call.shape.sources[2], at.place);
  for (int32_t k = at.team; k < call.shape.rows; k += call.shape.together) {
    const uint32_t row = at.first_row + static_cast<uint32_t>(k);
    if (row >= call.shape.all_rows) return;
    const StripRow windows = rows[k];
    // The strip's first element, as indices number it.
    const uint32_t start = (row - windows.plane * call.plane_rows) * static_cast<uint32_t>(call.shape.width) +
                           static_cast<uint32_t>(at.place);
    const uint32_t first = windows.plane * call.plane + static_cast<uint32_t>(columns.first);
    C sums[kLanes] = {};
    for (int32_t d = windows.d.first; d < windows.d.end; ++d) {
      for (int32_t h = windows.h.first; h < windows.h.end; ++h) {
        const uint32_t from = first + static_cast<uint32_t>(d) * call.slab + static_cast<uint32_t>(h) * call.width;
        uint32_t named[kColumns];
        C terms[kColumns];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          // Which elements a window spans says whether it is there, too.
          const bool reads = columns.lanes[c] != 0;
          const uint64_t offset = reads ? static_cast<uint64_t>(call.buffers.indices[from + c]) - start : kLanes;
          terms[c] = reads ? widen(call.buffers.grad_output[from + c]) : C(0);
          const uint32_t lane = offset < kLanes ? static_cast<uint32_t>(offset) : kLanes;
          // The one bit of the element; none where the window does not span it.
          named[c] = columns.lanes[c] & (1u << lane);
        }
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
#pragma unroll
          for (int lane = 0; lane < kLanes; ++lane) {
            if ((named[c] >> lane & 1u) != 0) sums[lane] += terms[c];
          }
        }
      }
    }
    Strip<T> strip;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) strip.lanes[lane] = narrow<T>(sums[lane]);
    T* const to = call.buffers.grad_input + row * static_cast<uint32_t>(call.shape.width) + at.place;
    *reinterpret_cast<Strip<T>*>(to) = strip;
  }
}

// For calls with has_strips() and indices of 32 bits.
template <typename T>
Status enqueue_strips(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  const StripShape shape = gradient_strips(p.axes, p.planes, kStripLanes<T>);
  const uint32_t width = static_cast<uint32_t>(p.axes[2].bins), slab = static_cast<uint32_t>(p.axes[1].bins) * width;
  const StripCall<T> call{b,
                          shape,
                          width,
                          slab,
                          static_cast<uint32_t>(p.axes[0].bins) * slab,
                          static_cast<uint32_t>(p.axes[0].extent) * static_cast<uint32_t>(p.axes[1].extent)};
  // Those of fewer columns are mostly done by tiles.
  return launch_kernel("max_pool_backward strip kernel", add_strips<T, kManyStripColumns<T>>, shape.blocks(),
                       kStripThreads, 0, stream, call);
}

}  // namespace
}  // namespace baracuda::max_pool
