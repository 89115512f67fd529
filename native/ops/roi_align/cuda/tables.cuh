// SPDX-License-Identifier: Apache-2.0
// Fills the box tables on CUDA, for the forward and the general backward.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/roi_align/launch.h"
#include "ops/roi_align/tables.h"

namespace baracuda::roi_align {
namespace {

// Kernels of the forward are for one map and for several: which map a box belongs to, that map's problem and its
// pixels, and what is the same for all. With one map all of this is known when a kernel is compiled.
template <typename C>
__device__ __forceinline__ int32_t level_of_box(const Problem&, const C*) {
  return 0;
}
template <typename C>
__device__ __forceinline__ int32_t level_of_box(const LevelsProblem& maps, const C* roi) {
  return level_of(roi, maps);
}
BARACUDA_HD const Problem& problem_of(const Problem& p, int32_t) { return p; }
BARACUDA_HD const Problem& problem_of(const LevelsProblem& maps, int32_t level) { return maps.levels[level]; }
template <typename C>
__device__ __forceinline__ Box<C> box_of(const Problem& p, int32_t, const C* roi) {
  return make_box(roi, p);
}
template <typename C>
__device__ __forceinline__ Box<C> box_of(const LevelsProblem& maps, int32_t level, const C* roi) {
  Box<C> box = make_box(roi, maps.levels[level]);
  if (!has_area(roi)) box.image = kNoImage;
  return box;
}
BARACUDA_HD const Problem& sizes_of(const Problem& p) { return p; }
BARACUDA_HD const Problem& sizes_of(const LevelsProblem& maps) { return maps.all; }
template <typename T>
BARACUDA_HD const T* input_of(const ForwardBuffers<T>& b, int32_t) {
  return b.input;
}
template <typename T>
BARACUDA_HD const T* input_of(const LevelsForwardBuffers<T>& b, int32_t level) {
  return b.inputs[level];
}

// One warp tabulates one axis of one box. A box's weights on an axis number some 60 at the shapes of detection heads:
// two rounds of 32 threads, and a warp needs no block barrier.
constexpr int kTableThreads = 32;

// Bins 32 at a time: each lane finds one bin's pixels, a warp scan places their weights. The whole warp calls
// visit(bin, pixel, weight) with 32 consecutive weights at a time, 0 where there is none.
template <typename T, class Visit>
__device__ void tabulate_axis(const Axis<T>& axis, int32_t bins, BinEntry* entries, T* weights, int64_t capacity,
                              PixelRange* touched, const Visit& visit) {
  const int lane = static_cast<int>(threadIdx.x) % kTableThreads;
  int64_t used = 0;
  PixelRange all = no_pixels();
  // Of 32 bits without a sign, since the last lanes may be behind what a box can have.
  for (uint32_t first_bin = 0; first_bin < static_cast<uint32_t>(bins); first_bin += kTableThreads) {
    const int32_t base = static_cast<int32_t>(first_bin), bin = base + lane;
    const PixelRange pixels = bin < bins ? bin_pixels(axis, bin) : PixelRange{0, -1};
    // A bin that does not fit is left out; which bins those are changes no result.
    const bool alone_too_wide = weights_of(pixels) > capacity;
    const int32_t count = alone_too_wide ? 0 : static_cast<int32_t>(weights_of(pixels));
    int32_t end = count;
    for (int step = 1; step < kTableThreads; step *= 2) {
      const int32_t before = __shfl_up_sync(kFullWarp, end, step);
      if (lane >= step) end += before;
    }
    const bool fits = !alone_too_wide && used + end <= capacity;
    const int32_t at = fits ? static_cast<int32_t>(used) + end - count : -1;
    if (bin < bins) entries[bin] = {pixels, at};
    all = join(all, pixels);
    // The weights of these bins, all of them in one flat loop.
    const int32_t total = __shfl_sync(kFullWarp, end, kTableThreads - 1);
    for (int32_t flat = lane; flat < ((total + kTableThreads - 1) & ~(kTableThreads - 1)); flat += kTableThreads) {
      int owner = 0;
      for (int step = kTableThreads / 2; step > 0; step /= 2) {
        if (flat >= __shfl_sync(kFullWarp, end, owner + step - 1)) owner += step;
      }
      const int32_t owner_first = __shfl_sync(kFullWarp, pixels.first, owner);
      const int32_t owner_last = __shfl_sync(kFullWarp, pixels.last, owner);
      const int32_t owner_at = __shfl_sync(kFullWarp, at, owner);
      const int32_t owner_begin = __shfl_sync(kFullWarp, end - count, owner);
      const int32_t k = flat - owner_begin;
      const int32_t pixel = first_in_group(owner_first) + k;
      T weight = T(0);
      if (flat < total && owner_at >= 0) {
        if (pixel >= owner_first && pixel <= owner_last) weight = pixel_weight(axis, base + owner, pixel);
        weights[owner_at + k] = weight;
      }
      visit(base + owner, pixel, weight);
    }
    used += total;
  }
  for (int step = kTableThreads / 2; step > 0; step /= 2) {
    const PixelRange other{__shfl_xor_sync(kFullWarp, all.first, step), __shfl_xor_sync(kFullWarp, all.last, step)};
    all = join(all, other);
  }
  if (lane == 0) *touched = all;
}

template <typename T>
__device__ void tabulate_axis(const Axis<T>& axis, int32_t bins, BinEntry* entries, T* weights, int64_t capacity,
                              PixelRange* touched) {
  tabulate_axis(axis, bins, entries, weights, capacity, touched, [](int32_t, int32_t, T) {});
}

// `Maps` is a Problem or a LevelsProblem.
template <typename T, class Maps>
__global__ void __launch_bounds__(kTableThreads)
    tabulate_boxes(const __grid_constant__ Maps maps, const T* rois, BoxTables<T> tables) {
  const int64_t jobs = 2 * static_cast<int64_t>(sizes_of(maps).num_rois);
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const int64_t r = job / 2;
    const int32_t level = level_of_box(maps, rois + 5 * r);
    const Problem& p = problem_of(maps, level);
    const Box<T> box = box_of(maps, level, rois + 5 * r);
    if (job % 2 == 0 && threadIdx.x == 0) tables.boxes[r] = box;
    if (box.image < 0) continue;
    if (job % 2 == 0) {
      tabulate_axis(box.y, p.pooled_h, tables.y_bins + r * p.pooled_h, tables.y_weights + r * tables.y_capacity,
                    tables.y_capacity, &tables.touched[2 * r]);
    } else {
      tabulate_axis(box.x, p.pooled_w, tables.x_bins + r * p.pooled_w, tables.x_weights + r * tables.x_capacity,
                    tables.x_capacity, &tables.touched[2 * r + 1]);
    }
  }
}

template <typename T, class Maps>
Status tabulate(const Maps& maps, const T* rois, const BoxTables<T>& tables, Stream stream) {
  return launch_kernel("roi_align table kernel", tabulate_boxes<T, Maps>,
                       blocks_for(2 * static_cast<int64_t>(sizes_of(maps).num_rois), 1), kTableThreads, 0, stream, maps,
                       rois, tables);
}

}  // namespace
}  // namespace baracuda::roi_align
