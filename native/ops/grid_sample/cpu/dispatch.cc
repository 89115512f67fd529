// SPDX-License-Identifier: Apache-2.0
// grid_sample on the CPU: the forward, and the order of the backward's three steps. Threads own what they write: the
// forward a block of samples for a block of channels. Compiled once per instruction set.
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "ops/grid_sample/cpu/gradients.h"
#include "ops/grid_sample/cpu/tiles.h"
#include "ops/grid_sample/launch.h"

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
void weigh(const Problem& p, const C* grid, SampleBlock<C>& block) {
  int32_t low_x[kPlaced], low_y[kPlaced];
  C fraction_x[kPlaced], fraction_y[kPlaced];
  place_axis(grid, block.count, p.input_w, low_x, fraction_x);
  place_axis(grid + 1, block.count, p.input_h, low_y, fraction_y);
  for (int64_t i = 0; i < block.count; ++i) {
    block.at[i] = static_cast<int64_t>(low_y[i]) * p.input_w + low_x[i];
    block.taps[i] = value_taps(Position<C>{{low_x[i], fraction_x[i]}, {low_y[i], fraction_y[i]}}, p);
    block.missing[i] = is_missing(grid[2 * i], grid[2 * i + 1]);
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
Status run(const Problem& p, const ForwardBuffers<T>& b, void*) {
  using C = Compute<T>;
  const int64_t sample_blocks = (p.samples + kForwardSamples - 1) / kForwardSamples;
  const int64_t channel_blocks = (p.c + kForwardChannels - 1) / kForwardChannels;
  const int64_t work = kForwardSamples * at_most(p.c, kForwardChannels);
  parallel_for(p.n * channel_blocks * sample_blocks, grain_for(4 * work), [&](int64_t task) {
    const int64_t image = task / sample_blocks / channel_blocks;
    const int64_t channel = task / sample_blocks % channel_blocks * kForwardChannels;
    const int64_t first = task % sample_blocks * kForwardSamples;
    const int64_t channels = at_most(p.c - channel, kForwardChannels);
    const T* planes = b.input + (image * p.c + channel) * p.pixels;
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

// A pixel's or sample's channels that lie side by side in scratch: one cache line, or 4 for an image of few channels.
template <typename C>
constexpr int kWideLanes = 64 / static_cast<int>(sizeof(C));
constexpr int kFewLanes = 4;

// The backward's workspace: what a group of images shares, then the calling thread's arrays.
template <typename C, typename Index, int kLanes>
struct BackwardScratch {
  Partition cut;
  Storage<C, Index> storage;
  TaskScratch<TileArrays<C, kLanes>> arrays;

  BackwardScratch(const Problem& p, void* workspace)
      : cut(p, kLanes), storage(p, cut, kLanes, workspace), arrays(storage.layout, workspace) {}
  size_t bytes() const { return storage.layout.bytes(); }
};

// The backward: groups of images that share the scratch, and in each group rounds of channels.
template <typename T, typename Index, int kLanes>
Status sum_all(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  using C = Compute<T>;
  const BackwardScratch<C, Index, kLanes> scratch(p, workspace);
  const Partition& cut = scratch.cut;
  const Storage<C, Index>& storage = scratch.storage;
  for (int64_t first = 0; first < p.n; first += cut.images) {
    const int64_t images = at_most(p.n - first, cut.images);
    deal_samples<C, Index>(p, cut, b.grid + first * p.samples * 2, images, storage.tiles,
                           b.grad_grid + first * p.samples * 2);
    for (int64_t channel = 0; channel < p.c; channel += cut.channel_blocks * kLanes) {
      const Channels<kLanes> channels{channel, at_most(p.c - channel, cut.channel_blocks * kLanes)};
      interleave_gradients<T, kLanes>(p, b.grad_output + (first * p.c + channel) * p.samples, images, channels,
                                      storage.gradients);
      sum_tiles<T, Index, kLanes>(p, b, cut, storage, first, images, channels, scratch.arrays);
    }
  }
  return Status::kOk;
}

template <typename T, typename Index>
Status sum_all(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  if (p.c <= kFewLanes) return sum_all<T, Index, kFewLanes>(p, b, workspace);
  return sum_all<T, Index, kWideLanes<Compute<T>>>(p, b, workspace);
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  using C = Compute<T>;
  if (p.input_numel == 0 || p.samples == 0) {
    parallel_for(p.input_numel, kPartElements, [&](int64_t i) { b.grad_input[i] = narrow<T>(C(0)); });
    parallel_for(p.grid_numel, kPartElements, [&](int64_t i) { b.grad_grid[i] = C(0); });
    return Status::kOk;
  }
  if (fits_narrow_index(p)) return sum_all<T, uint32_t>(p, b, workspace);
  return sum_all<T, int64_t>(p, b, workspace);
}

template <typename T>
size_t bytes_of(const Problem&, const ForwardBuffers<T>*) {
  return 0;
}

template <typename C, int kLanes>
size_t bytes_of(const Problem& p) {
  return fits_narrow_index(p) ? BackwardScratch<C, uint32_t, kLanes>(p, nullptr).bytes()
                              : BackwardScratch<C, int64_t, kLanes>(p, nullptr).bytes();
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  using C = Compute<T>;
  if (p.input_numel == 0 || p.samples == 0) return 0;
  return p.c <= kFewLanes ? bytes_of<C, kFewLanes>(p) : bytes_of<C, kWideLanes<C>>(p);
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::grid_sample
