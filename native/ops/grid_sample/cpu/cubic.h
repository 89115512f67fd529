// SPDX-License-Identifier: Apache-2.0
// Bicubic samples on the CPU. Forward and the gradient to the grid: threads own blocks of samples. The gradient to the
// input: each pixel's contributions are listed, samples and then taps ascending, and its owner adds them for a block of
// channels at a time; lists are made once for an image.
#pragma once

#include "core/cpu_convert.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/grid_sample/cpu/lanes.h"
#include "ops/grid_sample/cubic.h"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

// Samples of a task, and the channels of a forward task: enough to make the weights cheap.
constexpr int64_t kCubicSamples = 32, kCubicChannels = 64;

// A sample's taps that exist, in order.
template <typename C>
struct CubicList {
  int count;
  bool missing;
  int64_t pixels[kCubicTaps];
  C weights[kCubicTaps];
};

template <typename T>
Status sample_cubic(const RuledProblem& p, const ForwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t blocks = ceil_div(p.samples, kCubicSamples), channel_blocks = ceil_div(p.c, kCubicChannels);
  const int64_t work = 16 * kCubicSamples * at_most(p.c, kCubicChannels);
  parallel_for(p.n * channel_blocks * blocks, grain_for(work), [&](int64_t task) {
    const int64_t image = task / blocks / channel_blocks;
    const int64_t channel = task / blocks % channel_blocks * kCubicChannels, first = task % blocks * kCubicSamples;
    const int64_t count = at_most(p.samples - first, kCubicSamples);
    const C* const grid = b.grid + (image * p.samples + first) * 2;
    CubicList<C> lists[kCubicSamples];
    for (int64_t i = 0; i < count; ++i) {
      const CubicSample<C> sample(grid[2 * i], grid[2 * i + 1], p);
      CubicList<C>& list = lists[i];
      list.count = 0;
      list.missing = is_missing(grid[2 * i], grid[2 * i + 1], p);
      for (int tap = 0; tap < kCubicTaps; ++tap) {
        if (!sample.exists(tap) || sample.weight(tap) == C(0)) continue;
        list.pixels[list.count] = sample.pixel(tap, p);
        list.weights[list.count++] = sample.weight(tap);
      }
    }
    for (int64_t k = 0; k < at_most(p.c - channel, kCubicChannels); ++k) {
      const T* plane = b.input + input_offset(p, image) + (channel + k) * p.pixels;
      T* output = b.output + (image * p.c + channel + k) * p.samples + first;
      for (int64_t i = 0; i < count; ++i) {
        const CubicList<C>& list = lists[i];
        C sum = list.missing ? canonical_nan<C>() : C(0);
        for (int tap = 0; tap < list.count; ++tap) sum = fma(list.weights[tap], widen(plane[list.pixels[tap]]), sum);
        output[i] = narrow<T>(sum);
      }
    }
  });
  return Status::kOk;
}

template <typename T>
void sum_cubic_slopes(const RuledProblem& p, const BackwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t blocks = ceil_div(p.samples, kCubicSamples);
  parallel_for(p.n * blocks, grain_for(32 * kCubicSamples * at_least(p.c, 1)), [&](int64_t task) {
    const int64_t image = task / blocks, first = task % blocks * kCubicSamples;
    const int64_t end = at_most(first + kCubicSamples, p.samples);
    for (int64_t i = first; i < end; ++i) {
      const int64_t at = 2 * (image * p.samples + i);
      const CubicSample<C> sample(b.grid[at], b.grid[at + 1], p);
      CubicGradient<C> gradient(sample);
      const T* plane = b.input + input_offset(p, image);
      const T* upstream = b.grad_output + image * p.c * p.samples + i;
      for (int32_t channel = 0; channel < p.c; ++channel, plane += p.pixels, upstream += p.samples) {
        gradient.add(sample, p, plane, widen(*upstream));
        if ((channel + 1) % kChannelChunk == 0 || channel + 1 == p.c) gradient.close_chunk();
      }
      gradient.store(p, b.grad_grid + at);
    }
  });
}

// Channels that lie side by side in scratch: one cache line.
template <typename C>
constexpr int kCubicLanes = 64 / static_cast<int>(sizeof(C));

// Ranges of rows at most, and rows of a range at least: going through the samples costs each range the same.
constexpr int64_t kMostRanges = 16, kFewestRows = 16;
// Pixels whose sums are one task, and samples whose gradients one task lays side by side.
constexpr int64_t kSummedPixels = 128, kCubicSpan = 256;
static_assert(kSummedPixels % kSquare == 0);
// Contributions that are fetched ahead: 16 take some 300 ns.
constexpr int64_t kCubicFetched = 16;

// One image's lists. Index counts its samples' taps.
template <typename C, typename Index>
struct CubicLists {
  WorkspaceLayout layout;
  CubicSample<C>* placed;  // [sample]
  Index* starts;           // [pixel + 1]: where its contributions start
  Index* samples;          // [16 samples]: contributions by pixel, then sample, then tap
  C* weights;              // [16 samples]
  C* gradients;            // [sample][lane]: grad_output of a block of channels

  CubicLists(const Problem& p, void* workspace) {
    placed = take<CubicSample<C>>(workspace, p.samples);
    starts = take<Index>(workspace, p.pixels + 1);
    samples = take<Index>(workspace, kCubicTaps * p.samples);
    weights = take<C>(workspace, kCubicTaps * p.samples);
    gradients = take<C>(workspace, p.samples * kCubicLanes<C>);
  }

 private:
  template <typename U>
  U* take(void* workspace, int64_t count) {
    return workspace_array<U>(workspace, layout.reserve<U>(count));
  }
};

inline bool fits_narrow_taps(const Problem& p) { return p.samples <= UINT32_MAX / kCubicTaps; }

// Calls visit(pixel, weight) for each tap of a sample that exists in the rows [first, end); the last one first where
// kDescends.
template <bool kDescends, typename C, typename Visit>
inline void visit_cubic(const CubicSample<C>& sample, const Problem& p, int64_t first, int64_t end, Visit visit) {
  for (int k = 0; k < kCubicTaps; ++k) {
    const int tap = kDescends ? kCubicTaps - 1 - k : k;
    const int32_t row = sample.y.pixels[tap / kCubicSide];
    if (row < first || row >= end || !sample.exists(tap)) continue;
    const C weight = sample.weight(tap);
    if (weight != C(0)) visit(sample.pixel(tap, p), weight);
  }
}

template <typename C, typename Index>
void list_cubic(const RuledProblem& p, const C* grid, const CubicLists<C, Index>& s) {
  parallel_for(ceil_div(p.samples, kCubicSpan), grain_for(64 * kCubicSpan), [&](int64_t span) {
    const int64_t end = at_most((span + 1) * kCubicSpan, p.samples);
    for (int64_t i = span * kCubicSpan; i < end; ++i) s.placed[i] = CubicSample<C>(grid[2 * i], grid[2 * i + 1], p);
  });
  const int64_t rows = p.input_h, ranges = at_most(ceil_div(rows, kFewestRows), kMostRanges);
  const auto first_row = [&](int64_t range) { return rows / ranges * range + at_most(rows % ranges, range); };
  parallel_for(ranges, grain_for(64 * p.samples / ranges), [&](int64_t range) {
    const int64_t first = first_row(range), end = first_row(range + 1);
    for (int64_t pixel = first * p.input_w; pixel < end * p.input_w; ++pixel) s.starts[pixel] = 0;
    for (int64_t i = 0; i < p.samples; ++i) {
      visit_cubic<false>(s.placed[i], p, first, end, [&](int64_t pixel, C) { ++s.starts[pixel]; });
    }
  });
  // Where the pixel's contributions end; placing the last ones first leaves there where they start.
  Index sum = 0;
  for (int64_t pixel = 0; pixel < p.pixels; ++pixel) s.starts[pixel] = sum += s.starts[pixel];
  s.starts[p.pixels] = sum;
  parallel_for(ranges, grain_for(64 * p.samples / ranges), [&](int64_t range) {
    const int64_t first = first_row(range), end = first_row(range + 1);
    for (int64_t i = p.samples - 1; i >= 0; --i) {
      visit_cubic<true>(s.placed[i], p, first, end, [&](int64_t pixel, C weight) {
        const Index place = --s.starts[pixel];
        s.samples[place] = static_cast<Index>(i);
        s.weights[place] = weight;
      });
    }
  });
}

// The sum of contributions [begin, end), one lane a channel.
template <typename C, typename Index>
inline Lanes<C, kCubicLanes<C>> sum_cubic_list(const CubicLists<C, Index>& s, int64_t begin, int64_t end) {
  using Vector = Lanes<C, kCubicLanes<C>>;
  Vector total = Vector::all(C(0));
  while (begin < end) {
    const int64_t chunk_end = at_most(begin + kChunk, end);
    Vector partial = Vector::all(C(0));
    for (; begin < chunk_end; ++begin) {
      const C* gradient = s.gradients + static_cast<int64_t>(s.samples[begin]) * kCubicLanes<C>;
      partial = partial.plus_product(Vector::all(s.weights[begin]), Vector::load(gradient));
    }
    total = total.plus(partial);
  }
  return total;
}

// The gradient to up to kCubicLanes channels of an image.
template <typename T, typename Index>
void sum_cubic_lists(const Problem& p, const CubicLists<Compute<T>, Index>& s, const T* grad_output, int64_t channels,
                     T* grad_input) {
  using C = Compute<T>;
  constexpr int kCount = kCubicLanes<C>;
  parallel_for(ceil_div(p.samples, kCubicSpan), grain_for(kCubicSpan * kCount), [&](int64_t span) {
    const int64_t first = span * kCubicSpan;
    interleave_run<T, kCount>(grad_output + first, p.samples, at_most(p.samples - first, kCubicSpan), channels,
                              s.gradients + first * kCount);
  });
  parallel_for(ceil_div(p.pixels, kSummedPixels), 1, [&](int64_t task) {
    const int64_t end = at_most((task + 1) * kSummedPixels, p.pixels), last = s.starts[end];
    for (int64_t pixel = task * kSummedPixels; pixel < end; pixel += kSquare) {
      const int64_t count = at_most(end - pixel, kSquare);
      C square[kSquare][kCount] = {};
      for (int64_t k = 0; k < count; ++k) {
        const int64_t begin = s.starts[pixel + k], stop = s.starts[pixel + k + 1];
        for (int64_t i = begin + kCubicFetched; i < at_most(stop + kCubicFetched, last); ++i) {
          __builtin_prefetch(s.gradients + static_cast<int64_t>(s.samples[i]) * kCount);
        }
        sum_cubic_list(s, begin, stop).clean().store(square[k]);
      }
      C lanes[kCount][kSquare] = {};
      separate<kCount>(square[0], count, lanes[0], kSquare);
      for (int64_t k = 0; k < channels; ++k) narrow_row(lanes[k], grad_input + k * p.pixels + pixel, count);
    }
  });
}

template <typename T, typename Index>
Status sum_cubic(const RuledProblem& p, const BackwardBuffers<T>& b, void* workspace) {
  using C = Compute<T>;
  if (b.grad_grid != nullptr) sum_cubic_slopes(p, b);
  const CubicLists<C, Index> lists(p, workspace);
  for (int64_t image = 0; image < p.n; ++image) {
    list_cubic(p, b.grid + image * p.samples * 2, lists);
    for (int64_t channel = 0; channel < p.c; channel += kCubicLanes<C>) {
      const int64_t plane = image * p.c + channel;
      sum_cubic_lists<T, Index>(p, lists, b.grad_output + plane * p.samples, at_most(p.c - channel, kCubicLanes<C>),
                                b.grad_input + plane * p.pixels);
    }
  }
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::grid_sample
