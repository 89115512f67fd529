// SPDX-License-Identifier: Apache-2.0
// The gradient to a sample's position, by one thread that goes through all channels.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "ops/grid_sample/launch.h"
#include "ops/grid_sample/math.h"

namespace baracuda::grid_sample {
namespace {

// The gradient to one sample's position, all channels, of which the values of kSlopeChannels are asked for together.
template <int kSlopeChannels, typename T, class P>
__device__ __forceinline__ void sum_slopes(const P& p, const BackwardBuffers<T>& b, int64_t i, int64_t image,
                                           int64_t sample, const Position<Compute<T>>& at) {
  using C = Compute<T>;
  static_assert(kChannelChunk % kSlopeChannels == 0);
  const Taps<C> x_taps = x_slope_taps(at, p), y_taps = y_slope_taps(at, p);
  bool has_all_taps = true;
#pragma unroll
  for (int tap = 0; tap < 4; ++tap) {
    has_all_taps = has_all_taps && x_taps.weight[tap] != C(0) && y_taps.weight[tap] != C(0);
  }
  const T* gradient = b.grad_output + image * p.c * p.samples + sample;
  const T* upper = b.input + input_offset(p, image) + static_cast<int64_t>(at.y.low) * p.input_w + at.x.low;
  C x_total = C(0), y_total = C(0), x_partial = C(0), y_partial = C(0);
  for (int32_t left = p.c; left > 0; left -= kSlopeChannels) {
    const int32_t channels = left < kSlopeChannels ? left : kSlopeChannels;
    if (has_all_taps) {
      T upstream[kSlopeChannels], values[kSlopeChannels][4];
#pragma unroll
      for (int k = 0; k < kSlopeChannels; ++k) {
        if (k >= channels) break;
        const T* lower = upper + p.input_w;
        upstream[k] = *gradient;
        values[k][0] = upper[0];
        values[k][1] = upper[1];
        values[k][2] = lower[0];
        values[k][3] = lower[1];
        gradient += p.samples;
        upper += p.pixels;
      }
#pragma unroll
      for (int k = 0; k < kSlopeChannels; ++k) {
        if (k >= channels) break;
        C x_slope = C(0), y_slope = C(0);
#pragma unroll
        for (int tap = 0; tap < 4; ++tap) {
          x_slope = fma(x_taps.weight[tap], widen(values[k][tap]), x_slope);
          y_slope = fma(y_taps.weight[tap], widen(values[k][tap]), y_slope);
        }
        x_partial = fma(widen(upstream[k]), x_slope, x_partial);
        y_partial = fma(widen(upstream[k]), y_slope, y_partial);
      }
    } else {
      // Borders and the like: few.
#pragma unroll 1
      for (int k = 0; k < channels; ++k) {
        C x_slope = C(0), y_slope = C(0);
#pragma unroll
        for (int tap = 0; tap < 4; ++tap) {
          // Where one derivative has a tap of weight 0, the other may still need its value.
          if (x_taps.weight[tap] == C(0) && y_taps.weight[tap] == C(0)) continue;
          const C value = widen(upper[tap / 2 * int64_t{p.input_w} + tap % 2]);
          if (x_taps.weight[tap] != C(0)) x_slope = fma(x_taps.weight[tap], value, x_slope);
          if (y_taps.weight[tap] != C(0)) y_slope = fma(y_taps.weight[tap], value, y_slope);
        }
        x_partial = fma(widen(*gradient), x_slope, x_partial);
        y_partial = fma(widen(*gradient), y_slope, y_partial);
        gradient += p.samples;
        upper += p.pixels;
      }
    }
    if (left <= kSlopeChannels || (p.c - left) % kChannelChunk == kChannelChunk - kSlopeChannels) {
      x_total = x_total + x_partial;
      y_total = y_total + y_partial;
      x_partial = y_partial = C(0);
    }
  }
  const Gradient<C> total = by_coordinates(x_total, y_total, b.grid + 2 * i, p);
  b.grad_grid[2 * i] = any_tap(x_taps) ? total.x : C(0);
  b.grad_grid[2 * i + 1] = any_tap(y_taps) ? total.y : C(0);
}

constexpr int kSlopeThreads = 256;
// Channels whose values are asked for together.
template <typename C>
constexpr int kOwnSlopeChannels = 16 / static_cast<int>(sizeof(C));

// The gradient to the grid alone: one thread a sample.
template <typename T, class P>
__global__ void __launch_bounds__(kSlopeThreads) sum_slopes_alone(P p, BackwardBuffers<T> b) {
  using C = Compute<T>;
  const int64_t samples = p.n * p.samples;
  for (int64_t i = grid_thread(); i < samples; i += grid_threads()) {
    const Division at(i, p.samples);
    const Position<C> position = locate_sample(b.grid[2 * i], b.grid[2 * i + 1], p);
    if (position.is_outside()) {
      b.grad_grid[2 * i] = b.grad_grid[2 * i + 1] = C(0);
    } else {
      sum_slopes<kOwnSlopeChannels<C>>(p, b, i, at.quotient, at.remainder, position);
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
