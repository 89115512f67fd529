// SPDX-License-Identifier: Apache-2.0
// The forward on the CPU: threads own a block of samples for a block of channels.
#pragma once

#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "ops/grid_sample_3d/launch.h"
#include "ops/grid_sample_3d/math.h"

namespace baracuda::grid_sample_3d {
namespace {

// Samples whose weights are found once for all channels of a task, and channels of a task: enough to make the weights
// cheap, few enough for small problems to have tasks for every thread.
constexpr int64_t kForwardSamples = 64;
constexpr int64_t kForwardChannels = 32;

// A block of samples, one volume's: where their first taps lie in a plane and what their taps weigh.
template <typename C>
struct SampleBlock {
  int64_t count;
  int64_t at[kForwardSamples];
  Taps<C> taps[kForwardSamples];
  bool has_all[kForwardSamples];
  bool missing[kForwardSamples];
};

template <typename C>
void weigh(const Problem& p, const C* grid, SampleBlock<C>& block) {
  for (int64_t i = 0; i < block.count; ++i) {
    const Position<C> at = locate_sample(grid + kAxes * i, p);
    block.at[i] = first_voxel(at, p);
    block.taps[i] = value_taps(at, p);
    block.missing[i] = is_missing(grid + kAxes * i, p);
    block.has_all[i] = true;
    for (int tap = 0; tap < kTaps; ++tap) block.has_all[i] &= block.taps[i].weight[tap] != C(0);
  }
}

// The samples of kPlanes channels; `planes` and `outputs` are the first one's.
template <int kPlanes, typename T>
void sample_planes(const Problem& p, const SampleBlock<Compute<T>>& block, const int64_t (&offsets)[kTaps],
                   const T* planes, T* outputs) {
  using C = Compute<T>;
  for (int64_t i = 0; i < block.count; ++i) {
    const C* weights = block.taps[i].weight;
    const int64_t first = block.at[i];  // no pointer yet: a sample without taps has no place in the volume
    C sums[kPlanes];
    if (block.has_all[i]) {
      for (int k = 0; k < kPlanes; ++k) {
        const T* voxel = planes + (first + k * p.voxels);
        C sum = C(0);
        for (int tap = 0; tap < kTaps; ++tap) sum = fma(weights[tap], widen(voxel[offsets[tap]]), sum);
        sums[k] = sum;
      }
    } else {
      for (int k = 0; k < kPlanes; ++k) sums[k] = block.missing[i] ? canonical_nan<C>() : C(0);
      for (int tap = 0; tap < kTaps; ++tap) {
        if (weights[tap] == C(0)) continue;
        const T* voxel = planes + (first + offsets[tap]);
        for (int k = 0; k < kPlanes; ++k) sums[k] = fma(weights[tap], widen(voxel[k * p.voxels]), sums[k]);
      }
    }
    for (int k = 0; k < kPlanes; ++k) outputs[k * p.samples + i] = narrow<T>(sums[k]);
  }
}

template <typename T>
Status sample_all(const Problem& p, const ForwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t sample_blocks = ceil_div(p.samples, kForwardSamples);
  const int64_t channel_blocks = ceil_div(p.c, kForwardChannels);
  const int64_t work = kForwardSamples * at_most(p.c, kForwardChannels);
  int64_t offsets[kTaps];
  for (int tap = 0; tap < kTaps; ++tap) offsets[tap] = tap_offset(tap, p);
  parallel_for(p.n * channel_blocks * sample_blocks, grain_for(8 * work), [&](int64_t task) {
    const int64_t volume = task / sample_blocks / channel_blocks;
    const int64_t channel = task / sample_blocks % channel_blocks * kForwardChannels;
    const int64_t first = task % sample_blocks * kForwardSamples;
    const int64_t channels = at_most(p.c - channel, kForwardChannels);
    const T* planes = b.input + input_offset(p, volume) + channel * p.voxels;
    T* outputs = b.output + (volume * p.c + channel) * p.samples + first;
    SampleBlock<C> block;
    block.count = at_most(p.samples - first, kForwardSamples);
    weigh(p, b.grid + (volume * p.samples + first) * kAxes, block);
    int64_t k = 0;
    for (; k + 4 <= channels; k += 4) {
      sample_planes<4>(p, block, offsets, planes + k * p.voxels, outputs + k * p.samples);
    }
    for (; k < channels; ++k) {
      sample_planes<1>(p, block, offsets, planes + k * p.voxels, outputs + k * p.samples);
    }
  });
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
