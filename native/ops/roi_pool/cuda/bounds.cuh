// SPDX-License-Identifier: Apache-2.0
// Between which pixels of a channel those lie that a box's bins name: by these bounds a band finds the boxes that may
// send it something, without looking at their bins.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/workspace.h"
#include "ops/roi_pool/launch.h"
#include "ops/roi_pool/math.h"

namespace baracuda::roi_pool {
namespace {

// The pixels [least, most] of a plane; least > most when there is none.
struct Bounds {
  int32_t least, most;

  __device__ __forceinline__ bool meets(const Bounds& other) const {
    return least <= other.most && other.least <= most;
  }
};

// The backward's workspace.
template <typename C>
struct BackwardScratch {
  WorkspaceLayout layout;
  int32_t* images;  // [num_rois]: a box's image, -1 when it has none
  Bounds* bounds;   // [c][num_rois]: nothing of a box without an image
  C* partials;      // [blocks][n c h w], where the sum is cut into several blocks

  BackwardScratch(const Problem& p, void* workspace) {
    const int64_t blocks = p.blocks();
    images = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.num_rois));
    bounds = workspace_array<Bounds>(workspace, layout.reserve<Bounds>(static_cast<int64_t>(p.c) * p.num_rois));
    partials = workspace_array<C>(workspace, layout.reserve<C>(blocks > 1 ? blocks * p.input_numel : 0));
  }
};

constexpr int kBoundThreads = 256;
// Channels of a box that a warp looks at together, so that enough loads are under way.
constexpr int kBoundChannels = 4;

inline int64_t bound_jobs(const Problem& p) { return ceil_div(p.c, kBoundChannels) * p.num_rois; }

// A warp looks at some channels of a box.
template <typename C>
__global__ void __launch_bounds__(kBoundThreads)
    bound_boxes(const __grid_constant__ Problem p, const C* rois, const int32_t* argmax, int32_t* images,
                Bounds* bounds) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t bins = p.bins(), groups = ceil_div(p.c, kBoundChannels), all = groups * p.num_rois;
  const int32_t pixels = static_cast<int32_t>(p.plane());
  for (int64_t job = grid_thread() / 32; job < all; job += grid_threads() / 32) {
    const Division box(job, groups);
    const int64_t r = box.quotient;
    const int32_t channel = static_cast<int32_t>(box.remainder) * kBoundChannels;
    const int32_t image = image_of(rois[5 * r], p.n);
    if (channel == 0 && lane == 0) images[r] = image;
    Bounds found[kBoundChannels];
#pragma unroll
    for (int k = 0; k < kBoundChannels; ++k) found[k] = {INT32_MAX, -1};
    const int32_t* const first = argmax + (r * p.c + channel) * bins;
    for (int64_t bin = lane; image >= 0 && bin < bins; bin += 32) {
      int32_t pixel[kBoundChannels];
#pragma unroll
      for (int k = 0; k < kBoundChannels; ++k) pixel[k] = channel + k < p.c ? first[k * bins + bin] : kNoPixel;
#pragma unroll
      for (int k = 0; k < kBoundChannels; ++k) {
        if (pixel[k] < 0 || pixel[k] >= pixels) continue;
        found[k] = {min(found[k].least, pixel[k]), max(found[k].most, pixel[k])};
      }
    }
#pragma unroll
    for (int k = 0; k < kBoundChannels; ++k) {
      found[k] = {least_of_warp(found[k].least), most_of_warp(found[k].most)};
      if (lane == k && channel + k < p.c) bounds[static_cast<int64_t>(channel + k) * p.num_rois + r] = found[k];
    }
  }
}

}  // namespace
}  // namespace baracuda::roi_pool
