// SPDX-License-Identifier: Apache-2.0
// The backward on CUDA for windows of three elements that begin at every second one (core/pool_halving.cuh): a block
// keeps which elements its windows name beside their gradients, and a thread compares its elements with all windows
// that hold them, in their order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/pool_halving.cuh"
#include "ops/max_pool/launch.h"
#include "ops/max_pool/math.h"

namespace baracuda::max_pool {
namespace {

template <typename T>
struct HalvingCall {
  BackwardBuffers<T> buffers;
  HalvingShape shape;
};

// What windows name that are not there, and such that name nothing of their plane.
constexpr uint32_t kNoPlace = 0xffffffffu;

// The places that the tile's windows name, counted from their plane's first one, and their gradients.
template <typename T>
__device__ __forceinline__ void keep_windows(const HalvingCall<T>& call, const HalvingTile& tile, uint32_t* places,
                                             Compute<T>* terms) {
  const HalvingShape& shape = call.shape;
  const TileThread thread(shape.by_columns);
  if (thread.row >= shape.column_rows) return;
  const uint32_t plane = tile.plane * shape.plane_bins();
  const uint32_t numel = static_cast<uint32_t>(shape.extents[0]) * static_cast<uint32_t>(shape.extents[1]) *
                         static_cast<uint32_t>(shape.extents[2]);
  // Where slices are planes, indices count from the first slice.
  const uint64_t origin = static_cast<uint64_t>(numel) * shape.by_slices.remainder(tile.plane);
  for (int32_t begin = thread.row; begin < shape.rows; begin += kHalvingBatch * shape.column_rows) {
    uint64_t named[kHalvingBatch];
    T given[kHalvingBatch];
#pragma unroll
    for (int k = 0; k < kHalvingBatch; ++k) {
      const HalvingWindow window(shape, tile, static_cast<uint32_t>(begin + k * shape.column_rows), thread.column);
      const uint32_t at = plane + window.number(shape);
      named[k] = window.is_there ? static_cast<uint64_t>(call.buffers.indices[at]) : ~uint64_t{0};
      given[k] = window.is_there ? call.buffers.grad_output[at] : T{};
    }
#pragma unroll
    for (int k = 0; k < kHalvingBatch; ++k) {
      const int32_t row = begin + k * shape.column_rows, cell = row * shape.pitch() + thread.column;
      if (row >= shape.rows) continue;
      // Those before the first are large numbers; numel itself is none of a place.
      const uint64_t place = named[k] - origin;
      places[cell] = place < numel ? static_cast<uint32_t>(place) : kNoPlace;
      terms[cell] = widen(given[k]);
    }
  }
}

template <typename T, bool kHasDepth, int kOdd>
__global__ void __launch_bounds__(kTileThreads) add_halving(const __grid_constant__ HalvingCall<T> call) {
  using C = Compute<T>;
  constexpr int kSlices = kHasDepth ? 2 : 1;
  const HalvingShape& shape = call.shape;
  C* const all_terms = dynamic_shared<C>();
  uint32_t* const all_places = reinterpret_cast<uint32_t*>(all_terms + shape.cells());
  const HalvingTile tile(shape);
  keep_windows(call, tile, all_places, all_terms);
  __syncthreads();
  const TileThread thread(shape.by_groups);
  const int32_t group = tile.group + thread.column;
  if (thread.row >= shape.group_rows || group >= shape.all_groups) return;
  const uint32_t numel = static_cast<uint32_t>(shape.extents[0]) * static_cast<uint32_t>(shape.extents[1]) *
                         static_cast<uint32_t>(shape.extents[2]);
  walk_halving(shape, tile, thread, [&](int32_t cell, int32_t z, int32_t y) {
    const int32_t pitch = shape.pitch(), slab = static_cast<int32_t>(shape.windows_h.count) * pitch;
    uint32_t places[kSlices][2][3];
    C terms[kSlices][2][3];
    load_halving<uint32_t, kSlices>(all_places + cell, pitch, slab, places);
    load_halving<C, kSlices>(all_terms + cell, pitch, slab, terms);
#pragma unroll
    for (int d = 0; d < kSlices; ++d) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (z + d < 0 || z + d >= shape.extents[0] || y + h < 0 || y + h >= shape.extents[1]) continue;
        const uint32_t row = static_cast<uint32_t>(z + d) * static_cast<uint32_t>(shape.extents[1]) +
                             static_cast<uint32_t>(y + h);
        const uint32_t place = row * static_cast<uint32_t>(shape.extents[2]) +
                               kHalvingLanes * static_cast<uint32_t>(group);
        C sums[kHalvingLanes] = {};
        // The second place of a pair is in the second window alone.
#pragma unroll
        for (int i = d; i < kSlices; ++i) {
#pragma unroll
          for (int j = h; j < 2; ++j) {
#pragma unroll
            for (int c = 0; c < 3; ++c) {
#pragma unroll
              for (int lane = 0; lane < kHalvingLanes; ++lane) {
                if (is_in_column<kOdd>(lane, c) && places[i][j][c] == place + lane) sums[lane] += terms[i][j][c];
              }
            }
          }
        }
        HalvingLanes<T> lanes;
#pragma unroll
        for (int lane = 0; lane < kHalvingLanes; ++lane) lanes.lanes[lane] = narrow<T>(sums[lane]);
        *reinterpret_cast<HalvingLanes<T>*>(call.buffers.grad_input + (tile.plane * numel + place)) = lanes;
      }
    }
  });
}

// Indices of 32 bits; for calls with has_halving().
template <typename T>
Status enqueue_halving(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  const HalvingCall<T> call{b, halving_shape(p.axes, p.planes)};
  const HalvingShape& shape = call.shape;
  auto* const kernel = shape.has_depth ? shape.is_odd ? add_halving<T, true, 1> : add_halving<T, true, 0>
                                       : shape.is_odd ? add_halving<T, false, 1> : add_halving<T, false, 0>;
  return launch_kernel("max_pool_backward halving kernel", kernel, shape.blocks, kTileThreads,
                       static_cast<size_t>(shape.cells()) * (sizeof(Compute<T>) + sizeof(uint32_t)), stream, call);
}

}  // namespace
}  // namespace baracuda::max_pool
