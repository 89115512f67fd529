// SPDX-License-Identifier: Apache-2.0
// The forward on the CPU: threads own a block of samples for a block of channels.
#pragma once

#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "ops/grid_sample/cpu/lanes.h"
#include "ops/grid_sample/cpu/tiles.h"
#include "ops/grid_sample/launch.h"
#include "ops/grid_sample/math.h"

namespace baracuda::grid_sample {
namespace {

// Samples whose weights are computed once for all channels of a task, and channels of a task: enough to make the
// weights cheap, few enough for small problems to have tasks for every thread.
constexpr int64_t kForwardSamples = kPlaced;
constexpr int64_t kForwardChannels = 64;

// A block of samples, one image's: where their first taps lie in a plane and what their taps weigh.
template <typename C>
struct SampleBlock {
  int64_t count;
  int64_t at[kForwardSamples];
  Taps<C> taps[kForwardSamples];
  bool missing[kForwardSamples];
};

template <typename C>
void weigh(const RuledProblem& p, const C* grid, SampleBlock<C>& block) {
  int32_t low_x[kPlaced], low_y[kPlaced];
  C fraction_x[kPlaced], fraction_y[kPlaced];
  place_axis(grid, block.count, 2, p.input_w, p.rule, low_x, fraction_x);
  place_axis(grid + 1, block.count, 2, p.input_h, p.rule, low_y, fraction_y);
  for (int64_t i = 0; i < block.count; ++i) {
    block.at[i] = static_cast<int64_t>(low_y[i]) * p.input_w + low_x[i];
    block.taps[i] = value_taps(Position<C>{{low_x[i], fraction_x[i]}, {low_y[i], fraction_y[i]}}, p);
    block.missing[i] = is_missing(grid[2 * i], grid[2 * i + 1], p);
  }
}

// The samples of kPlanes planes; `planes` and `outputs` are the first one's.
template <int kPlanes, typename T>
void sample_planes(const Problem& p, const SampleBlock<Compute<T>>& block, const T* planes, T* outputs) {
  using C = Compute<T>;
  const int64_t below = p.input_w;
  const int64_t offsets[4] = {0, 1, below, below + 1};
  for (int64_t i = 0; i < block.count; ++i) {
    const C* weights = block.taps[i].weight;
    const int64_t first = block.at[i];  // no pointer yet: a sample without taps has no place in the image
    C sums[kPlanes];
    if (weights[0] != C(0) && weights[1] != C(0) && weights[2] != C(0) && weights[3] != C(0)) {
      for (int k = 0; k < kPlanes; ++k) {
        const T* pixel = planes + (first + k * p.pixels);
        C sum = fma(weights[0], widen(pixel[0]), C(0));
        sum = fma(weights[1], widen(pixel[1]), sum);
        sum = fma(weights[2], widen(pixel[below]), sum);
        sums[k] = fma(weights[3], widen(pixel[below + 1]), sum);
      }
    } else {
      for (int k = 0; k < kPlanes; ++k) sums[k] = block.missing[i] ? canonical_nan<C>() : C(0);
      for (int tap = 0; tap < 4; ++tap) {
        if (weights[tap] == C(0)) continue;
        const T* pixel = planes + (first + offsets[tap]);
        for (int k = 0; k < kPlanes; ++k) sums[k] = fma(weights[tap], widen(pixel[k * p.pixels]), sums[k]);
      }
    }
    for (int k = 0; k < kPlanes; ++k) outputs[k * p.samples + i] = narrow<T>(sums[k]);
  }
}

template <typename T>
Status sample_all(const RuledProblem& p, const ForwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t sample_blocks = ceil_div(p.samples, kForwardSamples);
  const int64_t channel_blocks = ceil_div(p.c, kForwardChannels);
  const int64_t work = kForwardSamples * at_most(p.c, kForwardChannels);
  parallel_for(p.n * channel_blocks * sample_blocks, grain_for(4 * work), [&](int64_t task) {
    const int64_t image = task / sample_blocks / channel_blocks;
    const int64_t channel = task / sample_blocks % channel_blocks * kForwardChannels;
    const int64_t first = task % sample_blocks * kForwardSamples;
    const int64_t channels = at_most(p.c - channel, kForwardChannels);
    const T* planes = b.input + input_offset(p, image) + channel * p.pixels;
    T* outputs = b.output + (image * p.c + channel) * p.samples + first;
    SampleBlock<C> block;
    block.count = at_most(p.samples - first, kForwardSamples);
    weigh(p, b.grid + (image * p.samples + first) * 2, block);
    // Eight planes share a sample's weights in registers; three are an image.
    int64_t k = 0;
    for (; k + 8 <= channels; k += 8) sample_planes<8>(p, block, planes + k * p.pixels, outputs + k * p.samples);
    for (; k + 3 <= channels; k += 3) sample_planes<3>(p, block, planes + k * p.pixels, outputs + k * p.samples);
    for (; k < channels; ++k) sample_planes<1>(p, block, planes + k * p.pixels, outputs + k * p.samples);
  });
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::grid_sample
