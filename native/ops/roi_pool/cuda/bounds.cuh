// SPDX-License-Identifier: Apache-2.0
// Where the pixels lie that a box's bins name, over all channels: by these bounds a tile finds the bins that may send
// it something, without looking at any channel.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/workspace.h"
#include "ops/roi_pool/launch.h"
#include "ops/roi_pool/math.h"

namespace baracuda::roi_pool {
namespace {

// The rows [top, bottom] and columns [left, right] of some pixels; top > bottom when there is none.
struct Bounds {
  int32_t top, bottom, left, right;

  __device__ __forceinline__ bool meets(const Bounds& other) const {
    return top <= other.bottom && other.top <= bottom && left <= other.right && other.left <= right;
  }
};

__device__ __forceinline__ Bounds no_bounds() { return {INT32_MAX, -1, INT32_MAX, -1}; }

// A box: its image, -1 when it has none, and the bounds of all its bins.
struct BoxBounds {
  Bounds all;
  int32_t image;
};

// The backward's workspace.
template <typename C>
struct BackwardScratch {
  WorkspaceLayout layout;
  BoxBounds* boxes;  // [num_rois]
  Bounds* bins;      // [num_rois][pooled_h pooled_w]; of a box without an image, anything
  C* partials;       // [blocks][n c h w], where the sum is cut into several blocks

  BackwardScratch(const Problem& p, void* workspace) {
    const int64_t blocks = p.blocks();
    boxes = workspace_array<BoxBounds>(workspace, layout.reserve<BoxBounds>(p.num_rois));
    bins = workspace_array<Bounds>(workspace, layout.reserve<Bounds>(p.num_rois * p.bins()));
    partials = workspace_array<C>(workspace, layout.reserve<C>(blocks > 1 ? blocks * p.input_numel : 0));
  }
};

constexpr int kBoundThreads = 256;
// Bins whose bounds are in shared memory at a time.
constexpr int kBoundBins = 256;

// One block a box. The order of minima and maxima of integers does not matter.
template <typename C>
__global__ void __launch_bounds__(kBoundThreads)
    bound_bins(const __grid_constant__ Problem p, const C* rois, const int32_t* argmax, BoxBounds* boxes, Bounds* bins,
               Divider by_width) {
  __shared__ Bounds found[kBoundBins];
  __shared__ Bounds all;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t all_bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  const uint32_t pixels = static_cast<uint32_t>(p.h) * static_cast<uint32_t>(p.w);
  for (int64_t r = blockIdx.x; r < p.num_rois; r += gridDim.x) {
    const int32_t image = image_of(rois[5 * r], p.n);
    if (image < 0) {
      if (thread == 0) boxes[r] = {no_bounds(), -1};
      continue;
    }
    __syncthreads();  // the box before is written
    if (thread == 0) all = no_bounds();
    for (int64_t base = 0; base < all_bins; base += kBoundBins) {
      const uint32_t count = static_cast<uint32_t>(all_bins - base < kBoundBins ? all_bins - base : kBoundBins);
      for (uint32_t i = thread; i < count; i += kBoundThreads) found[i] = no_bounds();
      __syncthreads();
      // Bins first, so that a warp reads a channel's in one piece; threads of a short chunk have several channels.
      const uint32_t channels_at_once = kBoundThreads / count;
      const uint32_t of_chunk = thread % count;
      const int32_t* at = argmax + r * p.c * all_bins + base + of_chunk;
      int32_t channel = thread / count;
      if (static_cast<uint32_t>(channel) >= channels_at_once) channel = p.c;
      Bounds mine = no_bounds();
      for (; channel < p.c; channel += channels_at_once) {
        const uint32_t pixel = static_cast<uint32_t>(at[channel * all_bins]);
        if (pixel >= pixels) continue;  // -1 too
        const int32_t row = static_cast<int32_t>(by_width.divide(pixel));
        const int32_t column = static_cast<int32_t>(pixel) - row * p.w;
        mine.top = min(mine.top, row), mine.bottom = max(mine.bottom, row);
        mine.left = min(mine.left, column), mine.right = max(mine.right, column);
      }
      if (mine.top <= mine.bottom) {
        Bounds& bin = found[of_chunk];
        atomicMin(&bin.top, mine.top), atomicMax(&bin.bottom, mine.bottom);
        atomicMin(&bin.left, mine.left), atomicMax(&bin.right, mine.right);
        atomicMin(&all.top, mine.top), atomicMax(&all.bottom, mine.bottom);
        atomicMin(&all.left, mine.left), atomicMax(&all.right, mine.right);
      }
      __syncthreads();
      for (uint32_t i = thread; i < count; i += kBoundThreads) bins[r * all_bins + base + i] = found[i];
      __syncthreads();  // before the next chunk clears what this one wrote
    }
    if (thread == 0) boxes[r] = {all, image};
  }
}

}  // namespace
}  // namespace baracuda::roi_pool
