// SPDX-License-Identifier: Apache-2.0
// The sampling of deformable convolution on the CPU. Threads own what they write. Compiled once per instruction set.
//
//   path           calls                                     what a task is
//   samples        the forward                               some samples of a group for some of its channels
//   slopes         by offset and mask                        some samples of a group for all its channels
//   zeros          by input, without samples                 some elements
//   lists          by input, 32 bits count the corners       some pixels of a group for a block of its channels
//   long lists     by input                                  the same
//
// By input a group's corners are listed by pixel, samples ascending, in a stable counting sort; threads own a range of
// rows, and each goes through all samples. Then the pixels' owners add their lists for a block of channels at a time.
#include "core/cpu_convert.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/deform_im2col/launch.h"
#include "ops/deform_im2col/math.h"
#include "ops/grid_sample/cpu/lanes.h"

namespace baracuda::deform_im2col {
namespace {

using grid_sample::interleave_run;
using grid_sample::kSquare;
using grid_sample::Lanes;
using grid_sample::separate;

// A group's offsets, and its mask if it has one.
template <typename C>
struct Group {
  const C* offset;
  const C* mask;

  Group(const Problem& p, const C* offsets, const C* masks, int64_t group)
      : offset(offsets + 2 * group * p.samples), mask(p.has_mask ? masks + group * p.samples : nullptr) {}
};

// Calls visit(sample, its number) for the samples [first, end) of a group, dividing once.
template <typename Visit>
inline __attribute__((always_inline)) void visit_samples(const Problem& p, int64_t first, int64_t end, Visit visit) {
  int64_t tap = first / p.positions, position = first % p.positions;
  int64_t tap_y = tap / p.x.taps, y = position / p.output_w;
  for (int64_t sample = first; sample < end; ++sample) {
    visit(sample, number_of(tap, position, tap_y, y, p));
    if (++position == p.positions) {
      position = y = 0;
      if (++tap == (tap_y + 1) * p.x.taps) ++tap_y;
    } else if (position == (y + 1) * p.output_w) {
      ++y;
    }
  }
}

// --- forward ---------------------------------------------------------------------------------------------------------

// Samples whose weights are found once for all channels of a task, and channels of a task: enough to make the weights
// cheap, few enough for small problems to have tasks for every thread.
constexpr int64_t kForwardSamples = 128, kForwardChannels = 32;

template <typename C>
struct SampleBlock {
  int64_t count;
  int64_t at[kForwardSamples];  // where first corners lie in a channel
  Taps<C> taps[kForwardSamples];
  bool has_all[kForwardSamples];
};

template <typename T>
void sample_channel(const Problem& p, const SampleBlock<Compute<T>>& block, const T* plane, T* columns) {
  using C = Compute<T>;
  for (int64_t i = 0; i < block.count; ++i) {
    const C* const weights = block.taps[i].weight;
    const int64_t first = block.at[i];  // no pointer yet: a sample without corners has no place in the image
    C sum = C(0);
    if (block.has_all[i]) {
      const T* const top = plane + first;
      const T* const bottom = top + p.w;
      sum = fma(weights[0], widen(top[0]), sum);
      sum = fma(weights[1], widen(top[1]), sum);
      sum = fma(weights[2], widen(bottom[0]), sum);
      sum = fma(weights[3], widen(bottom[1]), sum);
    } else {
      for (int corner = 0; corner < kCorners; ++corner) {
        if (weights[corner] == C(0)) continue;
        sum = fma(weights[corner], widen(plane[first + corner_offset(corner, p)]), sum);
      }
    }
    columns[i] = narrow<T>(sum);
  }
}

template <typename T>
Status sample_all(const Problem& p, const ForwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t sample_blocks = ceil_div(p.samples, kForwardSamples);
  const int64_t channel_blocks = ceil_div(p.c, kForwardChannels);
  const int64_t work = kForwardSamples * at_most(p.c, kForwardChannels);
  parallel_for(p.groups * channel_blocks * sample_blocks, grain_for(4 * work), [&](int64_t task) {
    const int64_t group = task / sample_blocks / channel_blocks;
    const int64_t channel = task / sample_blocks % channel_blocks * kForwardChannels;
    const int64_t first = task % sample_blocks * kForwardSamples;
    const Group<C> own(p, b.offset, b.mask, group);
    SampleBlock<C> block;
    block.count = at_most(p.samples - first, kForwardSamples);
    visit_samples(p, first, first + block.count, [&](int64_t sample, const SampleNumber& number) {
      const int64_t i = sample - first;
      const Position<C> at = locate_sample(number, own.offset, p);
      block.at[i] = first_pixel(at, p);
      block.taps[i] = column_taps(at, own.mask, sample, p);
      block.has_all[i] = true;
      for (int corner = 0; corner < kCorners; ++corner) block.has_all[i] &= block.taps[i].weight[corner] != C(0);
    });
    const int64_t end = at_most(channel + kForwardChannels, p.c);
    for (int64_t plane = group * p.c + channel; plane < group * p.c + end; ++plane) {
      sample_channel(p, block, b.input + plane * p.pixels, b.columns + plane * p.samples + first);
    }
  });
  return Status::kOk;
}

// --- by offset and mask ----------------------------------------------------------------------------------------------

// Samples of a task, whose weights are found once for all channels; some KiB of its stack.
constexpr int64_t kSlopeSamples = 32;

// What the sums by the value, by y and by x have each.
constexpr int kSums = 3;

// Samples side by side, so that compilers vectorise what is done for all of them; those past the last have no corners.
template <typename C>
struct SlopeBlock {
  int64_t count;
  int64_t at[kCorners][kSlopeSamples];  // pixels; 0 for a corner that does not exist
  C weights[kSums][kCorners][kSlopeSamples];
  C sums[kSums][kSlopeSamples], totals[kSums][kSlopeSamples];  // of a chunk of channels, and of those before

  void place(int64_t i, const Position<C>& position, const Problem& p) {
    const Taps<C> taps[kSums] = {value_taps(position, p), y_slope_taps(position, p), x_slope_taps(position, p)};
    for (int corner = 0; corner < kCorners; ++corner) {
      bool exists = false;
      for (int k = 0; k < kSums; ++k) {
        weights[k][corner][i] = taps[k].weight[corner];
        exists = exists || taps[k].weight[corner] != C(0);
      }
      at[corner][i] = exists ? first_pixel(position, p) + corner_offset(corner, p) : 0;
    }
  }
  Taps<C> taps(int k, int64_t i) const {
    Taps<C> found;
    for (int corner = 0; corner < kCorners; ++corner) found.weight[corner] = weights[k][corner][i];
    return found;
  }
};

// Adds one channel to the sums, as add_channel does sample by sample.
template <typename T>
void add_plane(const T* plane, const T* gradients, SlopeBlock<Compute<T>>& block) {
  using C = Compute<T>;
  C pixels[kCorners][kSlopeSamples], gradient[kSlopeSamples] = {};
  for (int corner = 0; corner < kCorners; ++corner) {
    for (int64_t i = 0; i < kSlopeSamples; ++i) pixels[corner][i] = widen(plane[block.at[corner][i]]);
  }
  widen_row(gradients, gradient, block.count);
  for (int k = 0; k < kSums; ++k) {
    C slopes[kSlopeSamples] = {};
    for (int corner = 0; corner < kCorners; ++corner) {
      const C* const weights = block.weights[k][corner];
      for (int64_t i = 0; i < kSlopeSamples; ++i) {
        const C sum = fma(weights[i], pixels[corner][i], slopes[i]);
        slopes[i] = weights[i] != C(0) ? sum : slopes[i];
      }
    }
    C* const sums = block.sums[k];
    for (int64_t i = 0; i < kSlopeSamples; ++i) sums[i] = fma(gradient[i], slopes[i], sums[i]);
  }
}

template <typename C>
void close_chunk(SlopeBlock<C>& block) {
  for (int k = 0; k < kSums; ++k) {
    for (int64_t i = 0; i < kSlopeSamples; ++i) {
      block.totals[k][i] = block.totals[k][i] + block.sums[k][i];
      block.sums[k][i] = C(0);
    }
  }
}

template <typename T>
Status sum_slopes(const Problem& p, const OffsetBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t blocks = ceil_div(p.samples, kSlopeSamples);
  // Without pixels no sample has a corner.
  const int64_t channels = p.pixels > 0 ? p.c : 0;
  parallel_for(p.groups * blocks, grain_for(8 * kSlopeSamples * at_least(p.c, 1)), [&](int64_t task) {
    const int64_t group = task / blocks, first = task % blocks * kSlopeSamples;
    const Group<C> own(p, b.offset, b.mask, group);
    SlopeBlock<C> block{};
    block.count = at_most(p.samples - first, kSlopeSamples);
    visit_samples(p, first, first + block.count, [&](int64_t sample, const SampleNumber& number) {
      block.place(sample - first, locate_sample(number, own.offset, p), p);
    });
    for (int64_t channel = 0; channel < channels; ++channel) {
      const int64_t plane = group * p.c + channel;
      if (channel % kChannelChunk == 0) close_chunk(block);
      add_plane(b.input + plane * p.pixels, b.grad_columns + plane * p.samples + first, block);
    }
    close_chunk(block);
    C* const grad_offset = b.grad_offset + 2 * group * p.samples;
    visit_samples(p, first, first + block.count, [&](int64_t sample, const SampleNumber& number) {
      const int64_t i = sample - first;
      const C mask = p.has_mask ? own.mask[sample] : C(1);
      grad_offset[number.offset] = by_offset(block.totals[1][i], block.taps(1, i), mask, p);
      grad_offset[number.offset + p.positions] = by_offset(block.totals[2][i], block.taps(2, i), mask, p);
      if (p.has_mask) b.grad_mask[group * p.samples + sample] = by_mask(block.totals[0][i], block.taps(0, i));
    });
  });
  return Status::kOk;
}

// --- by input --------------------------------------------------------------------------------------------------------

// Channels that lie side by side in scratch: one cache line.
template <typename C>
constexpr int kLanes = 64 / static_cast<int>(sizeof(C));

// Ranges of rows at most, and rows of a range at least: going through the samples costs each range the same.
constexpr int64_t kMostRanges = 16, kFewestRows = 16;
// Pixels whose sums are one task, samples whose gradients one task lays side by side, and samples that one task places.
constexpr int64_t kSummedPixels = 256, kSpan = 256, kPlacedSamples = 1024;
static_assert(kSummedPixels % kSquare == 0);
// Terms that are fetched ahead.
constexpr int64_t kFetched = 16;

// One group's lists. Index counts its samples' corners.
template <typename C, typename Index>
struct Lists {
  WorkspaceLayout layout;
  Position<C>* positions;  // [sample]
  Index* starts;           // [pixel + 1]: where its list starts
  Index* samples;          // [4 samples]: by pixel, then ascending
  C* weights;              // [4 samples]
  C* gradients;            // [sample][lane]: of a block of channels

  Lists(const Problem& p, void* workspace) {
    positions = take<Position<C>>(workspace, p.samples);
    starts = take<Index>(workspace, p.pixels + 1);
    samples = take<Index>(workspace, kCorners * p.samples);
    weights = take<C>(workspace, kCorners * p.samples);
    gradients = take<C>(workspace, p.samples * kLanes<C>);
  }

 private:
  template <typename U>
  U* take(void* workspace, int64_t count) {
    return workspace_array<U>(workspace, layout.reserve<U>(count));
  }
};

// Calls visit(pixel, weight) for each corner of a sample that exists in the rows [first, end).
template <typename C, typename Visit>
inline __attribute__((always_inline)) void visit_corners(const Position<C>& at, const C* mask, int64_t sample,
                                                         const Problem& p, int64_t first, int64_t end, Visit visit) {
  if (at.is_outside() || at.y.low >= end || int64_t{at.y.low} + 1 < first) return;
  const Taps<C> taps = column_taps(at, mask, sample, p);
  for (int corner = 0; corner < kCorners; ++corner) {
    const int64_t row = int64_t{at.y.low} + corner / 2;
    if (taps.weight[corner] == C(0) || row < first || row >= end) continue;
    visit(row * p.w + at.x.low + corner % 2, taps.weight[corner]);
  }
}

template <typename C, typename Index>
void make_lists(const Problem& p, const Group<C>& own, const Lists<C, Index>& s) {
  parallel_for(ceil_div(p.samples, kPlacedSamples), grain_for(16 * kPlacedSamples), [&](int64_t block) {
    visit_samples(p, block * kPlacedSamples, at_most((block + 1) * kPlacedSamples, p.samples),
                  [&](int64_t sample, const SampleNumber& number) {
                    s.positions[sample] = locate_sample(number, own.offset, p);
                  });
  });
  const int64_t ranges = at_most(ceil_div(p.h, kFewestRows), kMostRanges);
  const auto first_row = [&](int64_t range) { return p.h / ranges * range + at_most(p.h % ranges, range); };
  parallel_for(ranges, grain_for(8 * p.samples / ranges), [&](int64_t range) {
    const int64_t first = first_row(range), end = first_row(range + 1);
    for (int64_t pixel = first * p.w; pixel < end * p.w; ++pixel) s.starts[pixel] = 0;
    for (int64_t i = 0; i < p.samples; ++i) {
      visit_corners(s.positions[i], own.mask, i, p, first, end, [&](int64_t pixel, C) { ++s.starts[pixel]; });
    }
  });
  // Where the lists end; placing the last terms first leaves there where they start.
  Index sum = 0;
  for (int64_t pixel = 0; pixel < p.pixels; ++pixel) s.starts[pixel] = sum += s.starts[pixel];
  s.starts[p.pixels] = sum;
  parallel_for(ranges, grain_for(8 * p.samples / ranges), [&](int64_t range) {
    const int64_t first = first_row(range), end = first_row(range + 1);
    for (int64_t i = p.samples - 1; i >= 0; --i) {
      visit_corners(s.positions[i], own.mask, i, p, first, end, [&](int64_t pixel, C weight) {
        const Index place = --s.starts[pixel];
        s.samples[place] = static_cast<Index>(i);
        s.weights[place] = weight;
      });
    }
  });
}

// The sum of the terms [begin, end) of a list, one lane a channel.
template <typename C, typename Index>
inline Lanes<C, kLanes<C>> sum_list(const Lists<C, Index>& s, int64_t begin, int64_t end) {
  using Vector = Lanes<C, kLanes<C>>;
  Vector total = Vector::all(C(0));
  while (begin < end) {
    const int64_t chunk_end = at_most(begin + kChunk, end);
    Vector partial = Vector::all(C(0));
    for (; begin < chunk_end; ++begin) {
      const C* const gradient = s.gradients + static_cast<int64_t>(s.samples[begin]) * kLanes<C>;
      partial = partial.plus_product(Vector::all(s.weights[begin]), Vector::load(gradient));
    }
    total = total.plus(partial);
  }
  return total;
}

// The gradient to up to kLanes channels of a group, whose columns and planes begin here.
template <typename T, typename Index>
void sum_lists(const Problem& p, const Lists<Compute<T>, Index>& s, const T* grad_columns, int64_t channels,
               T* grad_input) {
  using C = Compute<T>;
  constexpr int kCount = kLanes<C>;
  parallel_for(ceil_div(p.samples, kSpan), grain_for(kSpan * kCount), [&](int64_t span) {
    const int64_t first = span * kSpan;
    interleave_run<T, kCount>(grad_columns + first, p.samples, at_most(p.samples - first, kSpan), channels,
                              s.gradients + first * kCount);
  });
  const int64_t terms = 16 * (kCorners * p.samples / p.pixels + 1);
  parallel_for(ceil_div(p.pixels, kSummedPixels), grain_for(kSummedPixels * terms), [&](int64_t task) {
    const int64_t end = at_most((task + 1) * kSummedPixels, p.pixels), last = s.starts[end];
    for (int64_t pixel = task * kSummedPixels; pixel < end; pixel += kSquare) {
      const int64_t count = at_most(end - pixel, kSquare);
      C square[kSquare][kCount] = {};
      for (int64_t k = 0; k < count; ++k) {
        const int64_t begin = s.starts[pixel + k], stop = s.starts[pixel + k + 1];
        for (int64_t i = begin + kFetched; i < at_most(stop + kFetched, last); ++i) {
          __builtin_prefetch(s.gradients + static_cast<int64_t>(s.samples[i]) * kCount);
        }
        sum_list(s, begin, stop).clean().store(square[k]);
      }
      C lanes[kCount][kSquare] = {};
      separate<kCount>(square[0], count, lanes[0], kSquare);
      for (int64_t k = 0; k < channels; ++k) narrow_row(lanes[k], grad_input + k * p.pixels + pixel, count);
    }
  });
}

template <typename T, typename Index>
Status sum_all_lists(const Problem& p, const InputBuffers<T>& b, void* workspace) {
  using C = Compute<T>;
  const Lists<C, Index> lists(p, workspace);
  for (int64_t group = 0; group < p.groups; ++group) {
    make_lists(p, Group<C>(p, b.offset, b.mask, group), lists);
    for (int64_t channel = 0; channel < p.c; channel += kLanes<C>) {
      const int64_t plane = group * p.c + channel;
      sum_lists<T, Index>(p, lists, b.grad_columns + plane * p.samples, at_most(p.c - channel, kLanes<C>),
                          b.grad_input + plane * p.pixels);
    }
  }
  return Status::kOk;
}

// --- paths -----------------------------------------------------------------------------------------------------------

template <typename T>
struct SamplesPath {
  static const char* name() { return "samples"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  size_t bytes() const { return 0; }
  Status enqueue() const { return sample_all(call.p, call.b); }
};

template <typename T>
struct SlopesPath {
  static const char* name() { return "slopes"; }
  const Request<Problem, OffsetBuffers<T>>& call;
  size_t bytes() const { return 0; }
  Status enqueue() const { return sum_slopes(call.p, call.b); }
};

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, InputBuffers<T>>& call;
  bool can() const { return call.p.columns_numel == 0 || call.p.input_numel == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const { return write_zeros(call.b.grad_input, call.p.input_numel); }
};

template <typename T, typename Index>
struct AnyListsPath {
  const Request<Problem, InputBuffers<T>>& call;
  size_t bytes() const { return Lists<Compute<T>, Index>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const { return sum_all_lists<T, Index>(call.p, call.b, call.workspace); }
};

template <typename T>
struct ListsPath : AnyListsPath<T, uint32_t> {
  static const char* name() { return "lists"; }
  bool can() const { return this->call.p.samples <= UINT32_MAX / kCorners; }
};

template <typename T>
struct LongListsPath : AnyListsPath<T, int64_t> {
  static const char* name() { return "long lists"; }
};

template <class Buffers>
struct PathsOf;
template <typename T>
struct PathsOf<ForwardBuffers<T>> : Paths<SamplesPath<T>> {};
template <typename T>
struct PathsOf<InputBuffers<T>> : Paths<ZerosPath<T>, ListsPath<T>, LongListsPath<T>> {};
template <typename T>
struct PathsOf<OffsetBuffers<T>> : Paths<SlopesPath<T>> {};

template <class Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace) {
  return PathsOf<Buffers>::enqueue(Request<Problem, Buffers>{p, b, workspace});
}

template <class Buffers>
size_t bytes_of(const Problem& p, const Buffers*) {
  const Buffers none{};
  return PathsOf<Buffers>::choose(Request<Problem, Buffers>{p, none, nullptr},
                                  [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_SAMPLING)

}  // namespace baracuda::deform_im2col
