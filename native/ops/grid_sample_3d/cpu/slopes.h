// SPDX-License-Identifier: Apache-2.0
// The gradient to the grid on the CPU: threads own a block of samples for all channels.
#pragma once

#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "ops/grid_sample_3d/launch.h"
#include "ops/grid_sample_3d/math.h"

namespace baracuda::grid_sample_3d {
namespace {

// Samples of a task, whose taps are found once for all channels; some KiB of its stack.
constexpr int64_t kSlopeSamples = 32;

// A block of samples, one volume's: where their first taps lie in a plane, what their taps weigh in the derivatives,
// and the sums of a chunk of channels and of those before.
template <typename C>
struct SlopeBlock {
  int64_t count;
  int64_t at[kSlopeSamples];
  SlopeTaps<C> taps[kSlopeSamples];
  C sums[kSlopeSamples][kAxes];
  C totals[kSlopeSamples][kAxes];
};

template <typename C>
void weigh_slopes(const Problem& p, const C* grid, SlopeBlock<C>& block) {
  for (int64_t i = 0; i < block.count; ++i) {
    const Position<C> at = locate_sample(grid + kAxes * i, p);
    block.at[i] = first_voxel(at, p);
    block.taps[i] = at.is_outside() ? SlopeTaps<C>{} : slope_taps(at, p);
    for (int axis = 0; axis < kAxes; ++axis) block.sums[i][axis] = block.totals[i][axis] = C(0);
  }
}

// Adds one channel to the sums.
template <typename T>
void add_channel(const T* plane, const T* gradients, const int64_t (&offsets)[kTaps], SlopeBlock<Compute<T>>& block) {
  using C = Compute<T>;
  for (int64_t i = 0; i < block.count; ++i) {
    const SlopeTaps<C>& taps = block.taps[i];
    C slopes[kAxes] = {};
    for (int tap = 0; tap < kTaps; ++tap) {
      const C x = taps.by[0].weight[tap], y = taps.by[1].weight[tap], z = taps.by[2].weight[tap];
      if (x == C(0) && y == C(0) && z == C(0)) continue;
      const C value = widen(plane[block.at[i] + offsets[tap]]);
      if (x != C(0)) slopes[0] = fma(x, value, slopes[0]);
      if (y != C(0)) slopes[1] = fma(y, value, slopes[1]);
      if (z != C(0)) slopes[2] = fma(z, value, slopes[2]);
    }
    const C gradient = widen(gradients[i]);
    for (int axis = 0; axis < kAxes; ++axis) block.sums[i][axis] = fma(gradient, slopes[axis], block.sums[i][axis]);
  }
}

template <typename C>
void close_chunk(SlopeBlock<C>& block) {
  for (int64_t i = 0; i < block.count; ++i) {
    for (int axis = 0; axis < kAxes; ++axis) {
      block.totals[i][axis] = block.totals[i][axis] + block.sums[i][axis];
      block.sums[i][axis] = C(0);
    }
  }
}

template <typename T>
Status sum_slopes(const Problem& p, const BackwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t blocks = ceil_div(p.samples, kSlopeSamples);
  int64_t offsets[kTaps];
  for (int tap = 0; tap < kTaps; ++tap) offsets[tap] = tap_offset(tap, p);
  parallel_for(p.n * blocks, grain_for(24 * kSlopeSamples * at_least(p.c, 1)), [&](int64_t task) {
    const int64_t volume = task / blocks, first = task % blocks * kSlopeSamples;
    const C* const grid = b.grid + (volume * p.samples + first) * kAxes;
    SlopeBlock<C> block;
    block.count = at_most(p.samples - first, kSlopeSamples);
    weigh_slopes(p, grid, block);
    const T* plane = b.input + input_offset(p, volume);
    const T* gradients = b.grad_output + volume * p.c * p.samples + first;
    for (int32_t channel = 0; channel < p.c; ++channel, plane += p.voxels, gradients += p.samples) {
      if (channel % kChannelChunk == 0) close_chunk(block);
      add_channel(plane, gradients, offsets, block);
    }
    close_chunk(block);
    C* const grad_grid = b.grad_grid + (volume * p.samples + first) * kAxes;
    for (int64_t i = 0; i < block.count; ++i) {
      for (int axis = 0; axis < kAxes; ++axis) {
        const int64_t at = kAxes * i + axis;
        grad_grid[at] = by_coordinate(block.totals[i][axis], any_tap(block.taps[i].by[axis]), grid[at], axis, p);
      }
    }
  });
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
