// SPDX-License-Identifier: Apache-2.0
// The gradient of boxes: a block owns a box, a warp one of the lanes of channels, a thread one of samples.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/roi_align/launch.h"
#include "ops/roi_align/slopes.h"

namespace baracuda::roi_align {
namespace {

constexpr int kBoxThreads = kChannelLanes * kSampleLanes;

// The visible samples of an axis, found by every warp for itself, a bin a lane.
template <typename C>
__device__ __forceinline__ SampleSpan span_of(const Axis<C>& axis, int32_t bins) {
  SampleSpan found = no_samples();
  for (int32_t left = bins - static_cast<int32_t>(threadIdx.x % 32); left > 0; left -= 32) {
    found = join(found, span_of_bin(axis, bins - left));
  }
  for (int step = 16; step > 0; step /= 2) {
    const SampleSpan other{__shfl_xor_sync(kFullWarp, found.first, step), __shfl_xor_sync(kFullWarp, found.end, step)};
    found = join(found, other);
  }
  return found;
}

template <typename T>
__global__ void __launch_bounds__(kBoxThreads)
    sum_boxes(const __grid_constant__ Problem p, const __grid_constant__ BoxesBackwardBuffers<T> b, bool has_work) {
  using C = Compute<T>;
  __shared__ BoxSlopes<C> of_warps[kChannelLanes];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t plane = static_cast<int64_t>(p.h) * p.w, bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  for (int64_t r = blockIdx.x; r < p.num_rois; r += gridDim.x) {
    const C* const roi = b.rois + 5 * r;
    const Box<C> box = make_box(roi, p);
    if (!has_work || box.image < 0) {
      if (threadIdx.x < 5) b.grad_rois[5 * r + threadIdx.x] = C(0);
      continue;
    }
    const SampleSpan rows = span_of(box.y, p.pooled_h), columns = span_of(box.x, p.pooled_w);
    const bool least_y = has_least_length(roi[2], roi[4], p), least_x = has_least_length(roi[1], roi[3], p);
    const int64_t across = columns.end > columns.first ? columns.end - columns.first : 0;
    const int64_t samples = rows.end > rows.first ? (rows.end - rows.first) * across : 0;
    const T* const input = b.input + box.image * p.c * plane;
    const T* const grad_output = b.grad_output + r * p.c * bins;
    BoxSlopes<C> sums{};
    for (int64_t number = lane; number < samples; number += kSampleLanes) {
      const Division place(number, across);
      const SampleSlope<C> y(box.y, rows.first + place.quotient, p.pooled_h, least_y);
      const SampleSlope<C> x(box.x, columns.first + place.remainder, p.pooled_w, least_x);
      const SampleTaps taps(y, x, p.w);
      if (!taps.any) continue;
      const T* const grad = grad_output + static_cast<int64_t>(y.bin) * p.pooled_w + x.bin;
      C of_taps[4] = {};
#pragma unroll 4
      for (int64_t channel = warp; channel < p.c; channel += kChannelLanes) {
        taps.add(widen(grad[channel * bins]), input + channel * plane, of_taps);
      }
      sums.add(y, x, of_taps);
    }
#pragma unroll
    for (int half = kSampleLanes / 2; half > 0; half /= 2) {
      BoxSlopes<C> other;
#pragma unroll
      for (int k = 0; k < 4; ++k) other.corners[k] = __shfl_xor_sync(kFullWarp, sums.corners[k], half);
      sums.join(other);
    }
    if (lane == 0) of_warps[warp] = sums;
    __syncthreads();
    if (threadIdx.x == 0) {
      BoxSlopes<C> total{};
      for (int i = 0; i < kChannelLanes; ++i) total.join(of_warps[i]);
      total.write(p, box, b.grad_rois + 5 * r);
    }
    __syncthreads();  // the sums are read
  }
}

template <typename T>
Status enqueue_boxes(const Problem& p, const BoxesBackwardBuffers<T>& b, Stream stream) {
  return launch_kernel("roi_align_boxes_backward kernel", sum_boxes<T>, blocks_for(p.num_rois, 1), kBoxThreads, 0,
                       stream, p, b, p.input_numel > 0 && p.output_numel > 0);
}

}  // namespace
}  // namespace baracuda::roi_align
