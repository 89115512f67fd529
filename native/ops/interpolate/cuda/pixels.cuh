// SPDX-License-Identifier: Apache-2.0
// The gradient, an input pixel a thread, whatever the extents: for sums that are cut, and windows that do not fit.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "ops/interpolate/launch.h"
#include "ops/interpolate/math.h"

namespace baracuda::interpolate {
namespace {

constexpr int kPixelThreads = 128;

// A pixel's place, from its number among planes of these extents.
struct PixelPlace {
  int64_t plane;
  int32_t z, y, x;
};

__device__ __forceinline__ PixelPlace place_of(int64_t pixel, int32_t height, int32_t width, int32_t depth) {
  const Division row(pixel, width), slice(row.quotient, height), plane(slice.quotient, depth);
  return {plane.quotient, static_cast<int32_t>(plane.remainder), static_cast<int32_t>(slice.remainder),
          static_cast<int32_t>(row.remainder)};
}

template <typename T, bool kLinear>
__global__ void __launch_bounds__(kPixelThreads)
    sum_pixels(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b) {
  using C = Compute<T>;
  const Axis &depth = p.axes[0], &height = p.axes[1], &width = p.axes[2];
  for (int64_t pixel = grid_thread(); pixel < p.input_numel; pixel += grid_threads()) {
    const PixelPlace at = place_of(pixel, height.input, width.input, depth.input);
    const Reach z = reach_of<C, kLinear>(depth, at.z), y = reach_of<C, kLinear>(height, at.y);
    const Reach x = reach_of<C, kLinear>(width, at.x);
    const T* const plane = b.grad_output + at.plane * p.output_plane();
    CutSum<C> of_width;
    for (int32_t ox = x.begin; ox < x.end; ++ox) {
      CutSum<C> of_height;
      for (int32_t oy = y.begin; oy < y.end; ++oy) {
        CutSum<C> of_depth;
        for (int32_t oz = z.begin; oz < z.end; ++oz) {
          const Tap<C> tap = tap_of<C, kLinear>(depth, oz);
          const int64_t row = static_cast<int64_t>(oz) * height.output + oy;
          of_depth.add(oz < z.middle ? tap.high : tap.low, widen(plane[row * width.output + ox]), oz - z.begin);
        }
        const Tap<C> tap = tap_of<C, kLinear>(height, oy);
        of_height.add(oy < y.middle ? tap.high : tap.low, of_depth.sum(), oy - y.begin);
      }
      const Tap<C> tap = tap_of<C, kLinear>(width, ox);
      of_width.add(ox < x.middle ? tap.high : tap.low, of_height.sum(), ox - x.begin);
    }
    b.grad_input[pixel] = narrow<T>(of_width.sum());
  }
}

template <typename T>
Status enqueue_pixels(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  const auto kernel = p.is_linear ? sum_pixels<T, true> : sum_pixels<T, false>;
  return launch_kernel("interpolate_backward kernel", kernel, blocks_for(p.input_numel, kPixelThreads), kPixelThreads,
                       0, stream, p, b);
}

}  // namespace
}  // namespace baracuda::interpolate
