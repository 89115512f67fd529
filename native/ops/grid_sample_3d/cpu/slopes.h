// SPDX-License-Identifier: Apache-2.0
// The gradient to the grid on the CPU: threads own a block of samples for all channels.
#pragma once

#include "core/cpu_convert.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "ops/grid_sample/cpu/quads.h"
#include "ops/grid_sample_3d/launch.h"
#include "ops/grid_sample_3d/math.h"

namespace baracuda::grid_sample_3d {
namespace {

using grid_sample::Lanes;
using grid_sample::Quad;
using grid_sample::QuadShape;
using grid_sample::turn;
using grid_sample::visit_channel_blocks;

// Samples of a task, whose taps are found once for all channels; some KiB of its stack.
template <typename C>
constexpr int64_t kSlopeSamples = 128 / sizeof(C);

// A block of samples, one volume's: where their first taps lie in a plane, what their taps weigh in the derivatives,
// and the sums of a chunk of channels and of those before.
template <typename C>
struct SlopeBlock {
  int64_t count;
  int64_t at[kSlopeSamples<C>];
  bool has_all[kSlopeSamples<C>];  // no weight of the sample is 0
  SlopeTaps<C> taps[kSlopeSamples<C>];
  C sums[kAxes][kSlopeSamples<C>];
  C totals[kAxes][kSlopeSamples<C>];
};

template <typename C>
void weigh_slopes(const Problem& p, const C* grid, SlopeBlock<C>& block) {
  for (int64_t i = 0; i < block.count; ++i) {
    const Position<C> at = locate_sample(grid + kAxes * i, p);
    block.at[i] = first_voxel(at, p);
    block.taps[i] = at.is_outside() ? SlopeTaps<C>{} : slope_taps(at, p);
    block.has_all[i] = true;
    for (int axis = 0; axis < kAxes; ++axis) {
      for (int tap = 0; tap < kTaps; ++tap) block.has_all[i] &= block.taps[i].by[axis].weight[tap] != C(0);
      block.sums[axis][i] = block.totals[axis][i] = C(0);
    }
  }
}

// The derivatives of a sample's values in kLanes channels; `first` is the first channel's first tap.
template <int kLanes, typename T>
inline void find_slopes(const Problem& p, const SlopeTaps<Compute<T>>& taps, const T* first,
                        Lanes<Compute<T>, kLanes> (&slopes)[kAxes]) {
  using Vector = Lanes<Compute<T>, kLanes>;
  for (int z = 0; z < 2; ++z) {
    const T* const square = first + z * (static_cast<int64_t>(p.input_h) * p.input_w);
    const auto quad = Quad<T, kLanes>::template load<QuadShape::kSquare>(square, p.voxels, p.input_w);
    for (int k = 0; k < 4; ++k) {
      for (int axis = 0; axis < kAxes; ++axis) {
        slopes[axis] = slopes[axis].plus_product(Vector::all(taps.by[axis].weight[4 * z + k]), quad.pixel[k]);
      }
    }
  }
}

// The same where some weights are 0, in one channel.
template <typename T>
inline void find_slopes_of_some(const Problem& p, const SlopeTaps<Compute<T>>& taps, const T* plane, int64_t at,
                                Compute<T> (&slopes)[kAxes]) {
  using C = Compute<T>;
  for (int tap = 0; tap < kTaps; ++tap) {
    const C x = taps.by[0].weight[tap], y = taps.by[1].weight[tap], z = taps.by[2].weight[tap];
    if (x == C(0) && y == C(0) && z == C(0)) continue;
    const C value = widen(plane[at + tap_offset(tap, p)]);
    if (x != C(0)) slopes[0] = fma(x, value, slopes[0]);
    if (y != C(0)) slopes[1] = fma(y, value, slopes[1]);
    if (z != C(0)) slopes[2] = fma(z, value, slopes[2]);
  }
}

// Adds kLanes channels to the sums; `planes` and `gradients` are the first one's.
template <int kLanes, typename T>
__attribute__((noinline)) void add_channels(const Problem& p, const T* planes, const T* gradients,
                                            SlopeBlock<Compute<T>>& block) {
  using C = Compute<T>;
  using Vector = Lanes<C, kLanes>;
  constexpr int kCount = kSlopeSamples<C>;
  alignas(64) C slopes[kAxes][kCount][kLanes];
  for (int64_t i = 0; i < block.count; ++i) {
    if (block.has_all[i]) {
      Vector own[kAxes] = {Vector::all(C(0)), Vector::all(C(0)), Vector::all(C(0))};
      find_slopes<kLanes>(p, block.taps[i], planes + block.at[i], own);
      for (int axis = 0; axis < kAxes; ++axis) own[axis].store(slopes[axis][i]);
      continue;
    }
    for (int k = 0; k < kLanes; ++k) {
      C own[kAxes] = {};
      find_slopes_of_some(p, block.taps[i], planes + k * p.voxels, block.at[i], own);
      for (int axis = 0; axis < kAxes; ++axis) slopes[axis][i][k] = own[axis];
    }
  }
  C rows[kLanes][kCount], upstream[kCount];
  for (int axis = 0; axis < kAxes; ++axis) {
    turn(slopes[axis], block.count, rows);
    for (int k = 0; k < kLanes; ++k) {
      widen_row(gradients + k * p.samples, upstream, block.count);
      for (int64_t i = 0; i < block.count; ++i) {
        block.sums[axis][i] = fma(upstream[i], rows[k][i], block.sums[axis][i]);
      }
    }
  }
}

template <typename C>
void close_chunk(SlopeBlock<C>& block) {
  for (int axis = 0; axis < kAxes; ++axis) {
    for (int64_t i = 0; i < block.count; ++i) {
      block.totals[axis][i] = block.totals[axis][i] + block.sums[axis][i];
      block.sums[axis][i] = C(0);
    }
  }
}

template <typename T>
Status sum_slopes(const Problem& p, const BackwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t blocks = ceil_div(p.samples, kSlopeSamples<C>);
  parallel_for(p.n * blocks, grain_for(24 * kSlopeSamples<C> * at_least(p.c, 1)), [&](int64_t task) {
    const int64_t volume = task / blocks, first = task % blocks * kSlopeSamples<C>;
    const C* const grid = b.grid + (volume * p.samples + first) * kAxes;
    SlopeBlock<C> block;
    block.count = at_most(p.samples - first, kSlopeSamples<C>);
    weigh_slopes(p, grid, block);
    const T* const planes = b.input + input_offset(p, volume);
    const T* const gradients = b.grad_output + volume * p.c * p.samples + first;
    visit_channel_blocks<C>(p.c, [&](auto lanes, int64_t k) {
      if (k % kChannelChunk == 0) close_chunk(block);
      add_channels<decltype(lanes)::value>(p, planes + k * p.voxels, gradients + k * p.samples, block);
    });
    close_chunk(block);
    C* const grad_grid = b.grad_grid + (volume * p.samples + first) * kAxes;
    for (int64_t i = 0; i < block.count; ++i) {
      for (int axis = 0; axis < kAxes; ++axis) {
        const int64_t at = kAxes * i + axis;
        grad_grid[at] = by_coordinate(block.totals[axis][i], any_tap(block.taps[i].by[axis]), grid[at], axis, p);
      }
    }
  });
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
