// SPDX-License-Identifier: Apache-2.0
// What one thread does for a sample on CUDA, for all kinds of volumes: its value, and the gradient to its position
// where nobody asks for that to the input.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "ops/grid_sample_3d/launch.h"
#include "ops/grid_sample_3d/math.h"

namespace baracuda::grid_sample_3d {
namespace {

constexpr int kSampleThreads = 256;
// Channels of a thread: enough to pay for the coordinates, few enough to fill the machine with one volume.
constexpr int kForwardChannels = 16;

template <typename T>
__global__ void __launch_bounds__(kSampleThreads, sizeof(T) == 8 ? 2 : 4)
    sample_volumes(Problem p, ForwardBuffers<T> b) {
  using C = Compute<T>;
  const int64_t samples = p.n * p.samples;
  const int64_t sample_blocks = groups_of<int64_t>(samples, kSampleThreads);
  const int64_t jobs = sample_blocks * groups_of<uint32_t>(p.c, kForwardChannels);
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const Division cut(job, sample_blocks);
    const int64_t i = cut.remainder * kSampleThreads + threadIdx.x;
    if (i >= samples) continue;
    const Division at(i, p.samples);
    const int32_t channel = static_cast<int32_t>(cut.quotient) * kForwardChannels;
    const int32_t channels = p.c - channel < kForwardChannels ? p.c - channel : kForwardChannels;
    const Position<C> position = locate_sample(b.grid + kAxes * i, p);
    const Taps<C> taps = value_taps(position, p);
    const C start = is_missing(b.grid + kAxes * i, p) ? canonical_nan<C>() : C(0);
    const int64_t plane = at.quotient * p.c + channel;
    const T* voxel = b.input + input_offset(p, at.quotient) + channel * p.voxels + first_voxel(position, p);
    T* output = b.output + plane * p.samples + at.remainder;
    for (int32_t k = 0; k < channels; ++k, voxel += p.voxels, output += p.samples) {
      T values[kTaps];
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        if (taps.weight[tap] != C(0)) values[tap] = voxel[tap_offset(tap, p)];
      }
      C sum = start;
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        if (taps.weight[tap] != C(0)) sum = fma(taps.weight[tap], widen(values[tap]), sum);
      }
      *output = narrow<T>(sum);
    }
  }
}

// The gradient to the grid alone.
template <typename T>
__global__ void __launch_bounds__(kSampleThreads) sum_slopes_alone(Problem p, BackwardBuffers<T> b) {
  using C = Compute<T>;
  const int64_t samples = p.n * p.samples;
  for (int64_t i = grid_thread(); i < samples; i += grid_threads()) {
    const Division at(i, p.samples);
    const Position<C> position = locate_sample(b.grid + kAxes * i, p);
    C totals[kAxes] = {}, partials[kAxes] = {};
    bool has_tap[kAxes] = {};
    if (!position.is_outside()) {
      const SlopeWeights<C> weights(position, p);
      const T* gradient = b.grad_output + at.quotient * p.c * p.samples + at.remainder;
      const T* voxel = b.input + input_offset(p, at.quotient) + first_voxel(position, p);
      for (int32_t channel = 0; channel < p.c; ++channel, voxel += p.voxels, gradient += p.samples) {
        C slopes[kAxes] = {};
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) {
          const C by[kAxes] = {weights.by_x(tap), weights.by_y(tap), weights.by_z(tap)};
          // Where one derivative has a tap of weight 0, another may still need its value.
          if (by[0] == C(0) && by[1] == C(0) && by[2] == C(0)) continue;
          const C value = widen(voxel[tap_offset(tap, p)]);
#pragma unroll
          for (int axis = 0; axis < kAxes; ++axis) {
            if (by[axis] == C(0)) continue;
            has_tap[axis] = true;
            slopes[axis] = fma(by[axis], value, slopes[axis]);
          }
        }
        const bool closes = (channel + 1) % kChannelChunk == 0 || channel + 1 == p.c;
#pragma unroll
        for (int axis = 0; axis < kAxes; ++axis) {
          partials[axis] = fma(widen(*gradient), slopes[axis], partials[axis]);
          if (!closes) continue;
          totals[axis] = totals[axis] + partials[axis];
          partials[axis] = C(0);
        }
      }
    }
#pragma unroll
    for (int axis = 0; axis < kAxes; ++axis) {
      const int64_t to = kAxes * i + axis;
      b.grad_grid[to] = by_coordinate(totals[axis], has_tap[axis], b.grid[to], axis, p);
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
