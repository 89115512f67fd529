// SPDX-License-Identifier: Apache-2.0
// The gradient to the grid alone on the CPU: threads own a block of samples for all channels, and nothing is listed.
#pragma once

#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "ops/grid_sample/cpu/tiles.h"
#include "ops/grid_sample/launch.h"
#include "ops/grid_sample/math.h"

namespace baracuda::grid_sample {
namespace {

// Samples of a task, whose taps are found once for all channels; some KiB of its stack.
constexpr int64_t kSlopeSamples = 32;
static_assert(kSlopeSamples <= kPlaced);

// A block of samples, one image's: where their first taps lie in a plane, what their taps weigh in the derivatives, and
// the sums of a chunk of channels and of those before.
template <typename C>
struct SlopeBlock {
  int64_t count;
  int64_t at[kSlopeSamples];
  Taps<C> x_taps[kSlopeSamples], y_taps[kSlopeSamples];
  C x_sums[kSlopeSamples], y_sums[kSlopeSamples];
  C x_totals[kSlopeSamples], y_totals[kSlopeSamples];
};

template <typename C>
void weigh_slopes(const RuledProblem& p, const C* grid, SlopeBlock<C>& block) {
  int32_t low_x[kSlopeSamples], low_y[kSlopeSamples];
  C fraction_x[kSlopeSamples], fraction_y[kSlopeSamples];
  place_axis(grid, block.count, 2, p.input_w, p.rule, low_x, fraction_x);
  place_axis(grid + 1, block.count, 2, p.input_h, p.rule, low_y, fraction_y);
  for (int64_t i = 0; i < block.count; ++i) {
    const Position<C> at{{low_x[i], fraction_x[i]}, {low_y[i], fraction_y[i]}};
    block.at[i] = static_cast<int64_t>(low_y[i]) * p.input_w + low_x[i];
    block.x_taps[i] = at.is_outside() ? Taps<C>{} : x_slope_taps(at, p);
    block.y_taps[i] = at.is_outside() ? Taps<C>{} : y_slope_taps(at, p);
    block.x_sums[i] = block.y_sums[i] = block.x_totals[i] = block.y_totals[i] = C(0);
  }
}

// Adds one channel to the sums.
template <typename T>
void add_channel(const RuledProblem& p, const T* plane, const T* gradients, SlopeBlock<Compute<T>>& block) {
  using C = Compute<T>;
  const int64_t offsets[4] = {0, 1, p.input_w, int64_t{p.input_w} + 1};
  for (int64_t i = 0; i < block.count; ++i) {
    const C* const by_x = block.x_taps[i].weight;
    const C* const by_y = block.y_taps[i].weight;
    C x_slope = C(0), y_slope = C(0);
    for (int tap = 0; tap < 4; ++tap) {
      if (by_x[tap] == C(0) && by_y[tap] == C(0)) continue;
      const C value = widen(plane[block.at[i] + offsets[tap]]);
      if (by_x[tap] != C(0)) x_slope = fma(by_x[tap], value, x_slope);
      if (by_y[tap] != C(0)) y_slope = fma(by_y[tap], value, y_slope);
    }
    const C gradient = widen(gradients[i]);
    block.x_sums[i] = fma(gradient, x_slope, block.x_sums[i]);
    block.y_sums[i] = fma(gradient, y_slope, block.y_sums[i]);
  }
}

template <typename C>
void close_chunk(SlopeBlock<C>& block) {
  for (int64_t i = 0; i < block.count; ++i) {
    block.x_totals[i] = block.x_totals[i] + block.x_sums[i];
    block.y_totals[i] = block.y_totals[i] + block.y_sums[i];
    block.x_sums[i] = block.y_sums[i] = C(0);
  }
}

template <typename T>
Status sum_slopes(const RuledProblem& p, const BackwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t blocks = ceil_div(p.samples, kSlopeSamples);
  parallel_for(p.n * blocks, grain_for(8 * kSlopeSamples * at_least(p.c, 1)), [&](int64_t task) {
    const int64_t image = task / blocks, first = task % blocks * kSlopeSamples;
    const C* const grid = b.grid + (image * p.samples + first) * 2;
    SlopeBlock<C> block;
    block.count = at_most(p.samples - first, kSlopeSamples);
    weigh_slopes(p, grid, block);
    const T* plane = b.input + input_offset(p, image);
    const T* gradients = b.grad_output + image * p.c * p.samples + first;
    for (int32_t channel = 0; channel < p.c; ++channel, plane += p.pixels, gradients += p.samples) {
      if (channel % kChannelChunk == 0) close_chunk(block);
      add_channel(p, plane, gradients, block);
    }
    close_chunk(block);
    C* const grad_grid = b.grad_grid + (image * p.samples + first) * 2;
    for (int64_t i = 0; i < block.count; ++i) {
      const Gradient<C> gradient = by_coordinates(block.x_totals[i], block.y_totals[i], grid + 2 * i, p);
      grad_grid[2 * i] = any_tap(block.x_taps[i]) ? gradient.x : C(0);
      grad_grid[2 * i + 1] = any_tap(block.y_taps[i]) ? gradient.y : C(0);
    }
  });
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::grid_sample
