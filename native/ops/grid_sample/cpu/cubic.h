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
#include "ops/grid_sample/cpu/quads.h"
#include "ops/grid_sample/cpu/ranges.h"
#include "ops/grid_sample/cubic.h"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

// Samples of a task, and the channels of a forward task: enough to make the weights cheap.
// A block's arrays stand on the stack, so that it has fewer of the larger type.
template <typename C>
constexpr int64_t kCubicSamples = 128 / sizeof(C);
constexpr int64_t kCubicChannels = 64;

// Up to this extent positions among the pixels are exact sums of an integer and 1/2, which no padding moves.
constexpr int32_t kExactExtent = 1 << 22;

// One axis of a block of samples. One that is inside lies among four pixels, of which `first` is the first.
template <typename C>
struct CubicRow {
  int32_t first[kCubicSamples<C>];
  C fraction[kCubicSamples<C>];
  bool inside[kCubicSamples<C>];

  // `coordinates` is the first sample's, two elements apart.
  CubicRow(const C* coordinates, int64_t count, int32_t extent, const Rule& rule) {
    C positions[kCubicSamples<C>], floors[kCubicSamples<C>];
    for (int64_t i = 0; i < count; ++i) positions[i] = position_of(coordinates[2 * i], extent, rule);
    floor_row(positions, count, floors);
    const C last = static_cast<C>(extent <= kExactExtent ? extent - 3 : 0);
    for (int64_t i = 0; i < count; ++i) {
      const bool within = (floors[i] >= C(1)) & (floors[i] <= last);
      inside[i] = within;
      first[i] = static_cast<int32_t>(within ? floors[i] : C(1)) - 1;
      fraction[i] = within ? positions[i] - floors[i] : C(0.5);
    }
  }
};

// A block of samples, one image's. A whole one has sixteen taps, which lie four by four in four rows.
template <typename C>
struct CubicBlock {
  int64_t count;
  const C* grid;
  CubicRow<C> x, y;
  bool whole[kCubicSamples<C>];

  CubicBlock(const RuledProblem& p, const C* coordinates, int64_t samples)
      : count(samples),
        grid(coordinates),
        x(coordinates, samples, p.input_w, p.rule),
        y(coordinates + 1, samples, p.input_h, p.rule) {
    for (int64_t i = 0; i < count; ++i) whole[i] = x.inside[i] & y.inside[i];
  }

  CubicSample<C> sample(const RuledProblem& p, int64_t i) const { return {grid[2 * i], grid[2 * i + 1], p}; }
  int64_t first_pixel(const Problem& p, int64_t i) const {
    return static_cast<int64_t>(y.first[i]) * p.input_w + x.first[i];
  }
};

template <typename C>
using CubicWeights = C[kCubicTaps][kCubicSamples<C>];

// What an axis gives to the weight of a tap: its own weight, or that one's derivative by the axis' position.
enum class CubicFactor { kWeight, kSlope };
template <CubicFactor kFactor, typename C>
inline void cubic_factors(C t, C* factors) {
  if constexpr (kFactor == CubicFactor::kWeight) {
    cubic_weights(t, factors);
  } else {
    cubic_slopes(t, factors);
  }
}

// What the taps of a block weigh, products of one factor per axis. Samples with a weight of 0 are whole no longer.
template <CubicFactor kOfY, CubicFactor kOfX, typename C>
inline void weigh_cubic(CubicBlock<C>& block, CubicWeights<C>& weights) {
  for (int64_t i = 0; i < block.count; ++i) {
    C by_y[kCubicSide], by_x[kCubicSide];
    cubic_factors<kOfY>(block.y.fraction[i], by_y);
    cubic_factors<kOfX>(block.x.fraction[i], by_x);
    bool whole = block.whole[i];
    for (int tap = 0; tap < kCubicTaps; ++tap) {
      const C weight = by_y[tap / kCubicSide] * by_x[tap % kCubicSide];
      weights[tap][i] = weight;
      whole = whole & (weight != C(0));
    }
    block.whole[i] = whole;
  }
}

// A sample's taps that exist, in order.
template <typename C>
struct CubicList {
  int count;
  bool missing;
  int64_t pixels[kCubicTaps];
  C weights[kCubicTaps];

  CubicList() = default;
  CubicList(const RuledProblem& p, const CubicSample<C>& sample, bool is_missing) : count(0), missing(is_missing) {
    for (int tap = 0; tap < kCubicTaps; ++tap) {
      if (!sample.exists(tap) || sample.weight(tap) == C(0)) continue;
      pixels[count] = sample.pixel(tap, p);
      weights[count++] = sample.weight(tap);
    }
  }

  template <typename T>
  C sum(const T* plane) const {
    C sum = missing ? canonical_nan<C>() : C(0);
    for (int tap = 0; tap < count; ++tap) sum = fma(weights[tap], widen(plane[pixels[tap]]), sum);
    return sum;
  }
};

// The samples of kLanes channels; `planes` and `outputs` are the first one's.
template <int kLanes, typename T>
__attribute__((noinline)) void sample_cubic_planes(const Problem& p, const CubicBlock<Compute<T>>& block,
                                                   const CubicWeights<Compute<T>>& weights,
                                                   const CubicList<Compute<T>>* lists, const T* planes, T* outputs) {
  using C = Compute<T>;
  using Vector = Lanes<C, kLanes>;
  alignas(64) C sums[kCubicSamples<C>][kLanes];
  for (int64_t i = 0; i < block.count; ++i) {
    if (!block.whole[i]) {
      for (int k = 0; k < kLanes; ++k) sums[i][k] = lists[i].sum(planes + k * p.pixels);
      continue;
    }
    const T* row = planes + block.first_pixel(p, i);
    Vector sum = Vector::all(C(0));
    for (int tap = 0; tap < kCubicTaps; row += p.input_w) {
      const auto quad = Quad<T, kLanes>::template load<QuadShape::kRow>(row, p.pixels, 0);
      for (int k = 0; k < kCubicSide; ++k, ++tap) sum = sum.plus_product(Vector::all(weights[tap][i]), quad.pixel[k]);
    }
    sum.store(sums[i]);
  }
  write_turned<T>(sums, block.count, outputs, p.samples);
}

template <typename T>
Status sample_cubic(const RuledProblem& p, const ForwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t blocks = ceil_div(p.samples, kCubicSamples<C>), channel_blocks = ceil_div(p.c, kCubicChannels);
  const int64_t work = 16 * kCubicSamples<C> * at_most(p.c, kCubicChannels);
  parallel_for(p.n * channel_blocks * blocks, grain_for(work), [&](int64_t task) {
    const int64_t image = task / blocks / channel_blocks;
    const int64_t channel = task / blocks % channel_blocks * kCubicChannels, first = task % blocks * kCubicSamples<C>;
    const C* const grid = b.grid + (image * p.samples + first) * 2;
    CubicBlock<C> block(p, grid, at_most(p.samples - first, kCubicSamples<C>));
    CubicWeights<C> weights;
    weigh_cubic<CubicFactor::kWeight, CubicFactor::kWeight>(block, weights);
    CubicList<C> lists[kCubicSamples<C>];  // of those that are not whole
    for (int64_t i = 0; i < block.count; ++i) {
      if (!block.whole[i]) lists[i] = {p, block.sample(p, i), is_missing(grid[2 * i], grid[2 * i + 1], p)};
    }
    const T* const planes = b.input + input_offset(p, image) + channel * p.pixels;
    T* const outputs = b.output + (image * p.c + channel) * p.samples + first;
    visit_channel_blocks<C>(at_most(p.c - channel, kCubicChannels), [&](auto lanes, int64_t k) {
      sample_cubic_planes<decltype(lanes)::value>(p, block, weights, lists, planes + k * p.pixels,
                                                  outputs + k * p.samples);
    });
  });
  return Status::kOk;
}

// What the whole samples of a block sum: chunks of channels, and the chunks before.
template <typename C>
struct CubicSlopeSums {
  CubicWeights<C> weights[2];
  C partials[2][kCubicSamples<C>] = {}, totals[2][kCubicSamples<C>] = {};

  void close_chunk() {
    for (int axis = 0; axis < 2; ++axis) {
      for (int64_t i = 0; i < kCubicSamples<C>; ++i) {
        totals[axis][i] = totals[axis][i] + partials[axis][i];
        partials[axis][i] = C(0);
      }
    }
  }
};

// Adds kLanes channels; `planes` and `gradients` are the first one's.
template <int kLanes, typename T>
__attribute__((noinline)) void add_cubic_slopes(const Problem& p, const CubicBlock<Compute<T>>& block, const T* planes,
                                                const T* gradients, CubicSlopeSums<Compute<T>>& sums) {
  using C = Compute<T>;
  using Vector = Lanes<C, kLanes>;
  alignas(64) C slopes[2][kCubicSamples<C>][kLanes];
  for (int64_t i = 0; i < block.count; ++i) {
    Vector by_x = Vector::all(C(0)), by_y = by_x;
    if (block.whole[i]) {
      const T* row = planes + block.first_pixel(p, i);
      for (int tap = 0; tap < kCubicTaps; row += p.input_w) {
        const auto quad = Quad<T, kLanes>::template load<QuadShape::kRow>(row, p.pixels, 0);
        for (int k = 0; k < kCubicSide; ++k, ++tap) {
          by_x = by_x.plus_product(Vector::all(sums.weights[0][tap][i]), quad.pixel[k]);
          by_y = by_y.plus_product(Vector::all(sums.weights[1][tap][i]), quad.pixel[k]);
        }
      }
    }
    by_x.store(slopes[0][i]);
    by_y.store(slopes[1][i]);
  }
  C rows[kLanes][kCubicSamples<C>], upstream[kCubicSamples<C>];
  for (int axis = 0; axis < 2; ++axis) {
    turn(slopes[axis], block.count, rows);
    for (int k = 0; k < kLanes; ++k) {
      widen_row(gradients + k * p.samples, upstream, block.count);
      for (int64_t i = 0; i < block.count; ++i) {
        sums.partials[axis][i] = fma(upstream[i], rows[k][i], sums.partials[axis][i]);
      }
    }
  }
}

template <typename T>
void sum_cubic_slopes(const RuledProblem& p, const BackwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t blocks = ceil_div(p.samples, kCubicSamples<C>);
  parallel_for(p.n * blocks, grain_for(32 * kCubicSamples<C> * at_least(p.c, 1)), [&](int64_t task) {
    const int64_t image = task / blocks, first = task % blocks * kCubicSamples<C>;
    const C* const grid = b.grid + (image * p.samples + first) * 2;
    C* const grad_grid = b.grad_grid + (image * p.samples + first) * 2;
    const T* const planes = b.input + input_offset(p, image);
    const T* const gradients = b.grad_output + image * p.c * p.samples + first;
    CubicBlock<C> block(p, grid, at_most(p.samples - first, kCubicSamples<C>));
    CubicSlopeSums<C> sums;
    weigh_cubic<CubicFactor::kWeight, CubicFactor::kSlope>(block, sums.weights[0]);
    weigh_cubic<CubicFactor::kSlope, CubicFactor::kWeight>(block, sums.weights[1]);
    visit_channel_blocks<C>(p.c, [&](auto lanes, int64_t k) {
      if (k % kChannelChunk == 0) sums.close_chunk();
      add_cubic_slopes<decltype(lanes)::value>(p, block, planes + k * p.pixels, gradients + k * p.samples, sums);
    });
    sums.close_chunk();
    for (int64_t i = 0; i < block.count; ++i) {
      if (block.whole[i]) {
        grad_grid[2 * i] = by_coordinate(sums.totals[0][i], cubic_scale<C>(p.input_w, p.rule));
        grad_grid[2 * i + 1] = by_coordinate(sums.totals[1][i], cubic_scale<C>(p.input_h, p.rule));
        continue;
      }
      const CubicSample<C> sample = block.sample(p, i);
      CubicGradient<C> gradient(sample);
      for (int32_t channel = 0; channel < p.c; ++channel) {
        gradient.add(sample, p, planes + channel * p.pixels, widen(gradients[channel * p.samples + i]));
        if ((channel + 1) % kChannelChunk == 0 || channel + 1 == p.c) gradient.close_chunk();
      }
      gradient.store(p, grad_grid + 2 * i);
    }
  });
}

// Channels that lie side by side in scratch: one cache line.
template <typename C>
constexpr int kCubicLanes = 64 / static_cast<int>(sizeof(C));

// Rows of a range at least.
constexpr int64_t kFewestRows = 16;
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
  C* gradients;            // [sample][lane]: grad_output of a block of channels; before that, which rows samples reach

  CubicLists(const Problem& p, void* workspace) {
    placed = take<CubicSample<C>>(workspace, p.samples);
    starts = take<Index>(workspace, p.pixels + 1);
    samples = take<Index>(workspace, kCubicTaps * p.samples);
    weights = take<C>(workspace, kCubicTaps * p.samples);
    const int64_t range_bytes = RowRanges<Index>::bytes(p.samples), element_bytes = sizeof(C);
    gradients = take<C>(workspace, at_least(p.samples * kCubicLanes<C>, ceil_div(range_bytes, element_bytes)));
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
  for (int k = 0; k < kCubicSide; ++k) {
    const int j = kDescends ? kCubicSide - 1 - k : k;
    const int64_t row = sample.y.pixels[j];
    if (row < first || row >= end) continue;
    for (int l = 0; l < kCubicSide; ++l) {
      const int i = kDescends ? kCubicSide - 1 - l : l;
      const C weight = sample.y_weights[j] * sample.x_weights[i];
      if (sample.x.pixels[i] >= 0 && weight != C(0)) visit(row * p.input_w + sample.x.pixels[i], weight);
    }
  }
}

template <typename C, typename Index>
void list_cubic(const RuledProblem& p, const C* grid, const CubicLists<C, Index>& s) {
  parallel_for(ceil_div(p.samples, kCubicSpan), grain_for(64 * kCubicSpan), [&](int64_t span) {
    const int64_t end = at_most((span + 1) * kCubicSpan, p.samples);
    for (int64_t i = span * kCubicSpan; i < end; ++i) s.placed[i] = CubicSample<C>(grid[2 * i], grid[2 * i + 1], p);
  });
  const RowRanges<Index> ranges(p.input_h, p.samples, kFewestRows, s.gradients);
  ranges.deal([&](int64_t i, auto visit) {
    for (const int32_t row : s.placed[i].y.pixels) {
      if (row >= 0) visit(row);
    }
  });
  parallel_for(ranges.ranges, grain_for(64 * p.samples / ranges.ranges), [&](int64_t range) {
    const int64_t first = ranges.first_row(range), end = ranges.end_row(range);
    for (int64_t pixel = first * p.input_w; pixel < end * p.input_w; ++pixel) s.starts[pixel] = 0;
    for (int64_t i = ranges.begin(range); i < ranges.end(range); ++i) {
      visit_cubic<false>(s.placed[ranges.items[i]], p, first, end, [&](int64_t pixel, C) { ++s.starts[pixel]; });
    }
  });
  // Where the pixel's contributions end; placing the last ones first leaves there where they start.
  Index sum = 0;
  for (int64_t pixel = 0; pixel < p.pixels; ++pixel) s.starts[pixel] = sum += s.starts[pixel];
  s.starts[p.pixels] = sum;
  parallel_for(ranges.ranges, grain_for(64 * p.samples / ranges.ranges), [&](int64_t range) {
    const int64_t first = ranges.first_row(range), end = ranges.end_row(range);
    for (int64_t k = ranges.end(range) - 1; k >= ranges.begin(range); --k) {
      const Index i = ranges.items[k];
      visit_cubic<true>(s.placed[i], p, first, end, [&](int64_t pixel, C weight) {
        const Index place = --s.starts[pixel];
        s.samples[place] = i;
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
