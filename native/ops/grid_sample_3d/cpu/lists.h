// SPDX-License-Identifier: Apache-2.0
// The gradient to the input on the CPU: each voxel's contributions are listed, samples ascending, and its owner adds
// them for a block of channels at a time. Lists are made once for a volume and shared by all channels.
//
// A stable counting sort by voxel, in linear time. Threads own a range of the volume's rows: each goes through all
// samples and lists those with taps in its rows.
#pragma once

#include "core/cpu_convert.h"
#include "core/cpu_parallel.h"
#include "core/dtype.h"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/grid_sample/cpu/lanes.h"
#include "ops/grid_sample/cpu/ranges.h"
#include "ops/grid_sample_3d/launch.h"
#include "ops/grid_sample_3d/math.h"

namespace baracuda::grid_sample_3d {
namespace {

using grid_sample::interleave_run;
using grid_sample::kSquare;
using grid_sample::Lanes;
using grid_sample::RowRanges;
using grid_sample::separate;

// Channels that lie side by side in scratch: one cache line.
template <typename C>
constexpr int kLanes = 64 / static_cast<int>(sizeof(C));

// Rows of a range at least.
constexpr int64_t kFewestRows = 64;
// Voxels whose sums are one task, samples whose gradients one task lays side by side, and samples that one task places.
constexpr int64_t kSummedVoxels = 256, kSpan = 256, kPlacedSamples = 1024;
static_assert(kSummedVoxels % kSquare == 0);
// Contributions that are fetched ahead: 16 take some 300 ns.
constexpr int64_t kFetched = 16;

// One volume's lists. Index counts its samples' taps.
template <typename C, typename Index>
struct Lists {
  WorkspaceLayout layout;
  Position<C>* positions;  // [sample]
  Index* starts;           // [voxel + 1]: where its contributions start
  Index* samples;          // [8 samples]: contributions by voxel, then sample
  C* weights;              // [8 samples]
  C* gradients;            // [sample][lane]: grad_output of a block of channels; before that, which rows samples reach

  Lists(const Problem& p, void* workspace) {
    positions = take<Position<C>>(workspace, p.samples);
    starts = take<Index>(workspace, p.voxels + 1);
    samples = take<Index>(workspace, kTaps * p.samples);
    weights = take<C>(workspace, kTaps * p.samples);
    const int64_t range_bytes = RowRanges<Index>::bytes(p.samples), element_bytes = sizeof(C);
    gradients = take<C>(workspace, at_least(p.samples * kLanes<C>, ceil_div(range_bytes, element_bytes)));
  }

 private:
  template <typename U>
  U* take(void* workspace, int64_t count) {
    return workspace_array<U>(workspace, layout.reserve<U>(count));
  }
};

inline bool fits_narrow_index(const Problem& p) { return p.samples <= UINT32_MAX / kTaps; }

// Calls visit(voxel, weight) for each tap of a sample that exists in the rows [first, end).
template <typename C, typename Visit>
inline __attribute__((always_inline)) void visit_taps(const Position<C>& at, const Problem& p, int64_t first,
                                                      int64_t end, Visit visit) {
  if (at.is_outside()) return;
  const int64_t row = static_cast<int64_t>(at.z.low) * p.input_h + at.y.low;
  if (row >= end || row + p.input_h + 1 < first) return;
  const AxisWeights<C> x(at.x, p.input_w), y(at.y, p.input_h), z(at.z, p.input_d);
  for (int k = 0; k < 2; ++k) {
    for (int j = 0; j < 2; ++j) {
      const int64_t own = row + k * int64_t{p.input_h} + j;
      // The weights first: the row of a tap that does not exist may be another plane's.
      if (z.of(k) == C(0) || y.of(j) == C(0) || own < first || own >= end) continue;
      const int64_t voxel = own * p.input_w + at.x.low;
      const C low = z.of(k) * (y.of(j) * x.low), high = z.of(k) * (y.of(j) * x.high);
      if (low != C(0)) visit(voxel, low);
      if (high != C(0)) visit(voxel + 1, high);
    }
  }
}

// Lists the contributions to each voxel of one volume.
template <typename C, typename Index>
void make_lists(const Problem& p, const C* grid, const Lists<C, Index>& s) {
  parallel_for(ceil_div(p.samples, kPlacedSamples), grain_for(16 * kPlacedSamples), [&](int64_t block) {
    const int64_t end = at_most((block + 1) * kPlacedSamples, p.samples);
    for (int64_t i = block * kPlacedSamples; i < end; ++i) s.positions[i] = locate_sample(grid + kAxes * i, p);
  });
  const RowRanges<Index> ranges(int64_t{p.input_d} * p.input_h, p.samples, kFewestRows, s.gradients);
  ranges.deal([&](int64_t i, auto visit) {
    const Position<C>& at = s.positions[i];
    if (at.is_outside()) return;
    const int64_t row = static_cast<int64_t>(at.z.low) * p.input_h + at.y.low;
    const bool upper = at.y.low >= 0, lower = at.y.low + 1 < p.input_h;
    if (at.z.low >= 0) {
      if (upper) visit(row);
      if (lower) visit(row + 1);
    }
    if (at.z.low + 1 < p.input_d) {
      if (upper) visit(row + p.input_h);
      if (lower) visit(row + p.input_h + 1);
    }
  });
  parallel_for(ranges.ranges, grain_for(16 * p.samples / ranges.ranges), [&](int64_t range) {
    const int64_t first = ranges.first_row(range), end = ranges.end_row(range);
    for (int64_t voxel = first * p.input_w; voxel < end * p.input_w; ++voxel) s.starts[voxel] = 0;
    for (int64_t i = ranges.begin(range); i < ranges.end(range); ++i) {
      visit_taps(s.positions[ranges.items[i]], p, first, end, [&](int64_t voxel, C) { ++s.starts[voxel]; });
    }
  });
  // Where the voxel's contributions end; placing the last ones first leaves there where they start.
  Index sum = 0;
  for (int64_t voxel = 0; voxel < p.voxels; ++voxel) s.starts[voxel] = sum += s.starts[voxel];
  s.starts[p.voxels] = sum;
  parallel_for(ranges.ranges, grain_for(16 * p.samples / ranges.ranges), [&](int64_t range) {
    const int64_t first = ranges.first_row(range), end = ranges.end_row(range);
    for (int64_t k = ranges.end(range) - 1; k >= ranges.begin(range); --k) {
      const Index i = ranges.items[k];
      visit_taps(s.positions[i], p, first, end, [&](int64_t voxel, C weight) {
        const Index place = --s.starts[voxel];
        s.samples[place] = i;
        s.weights[place] = weight;
      });
    }
  });
}

// The sum of contributions [begin, end), one lane a channel.
template <typename C, typename Index>
inline Lanes<C, kLanes<C>> sum_list(const Lists<C, Index>& s, int64_t begin, int64_t end) {
  using Vector = Lanes<C, kLanes<C>>;
  Vector total = Vector::all(C(0));
  while (begin < end) {
    const int64_t chunk_end = at_most(begin + kChunk, end);
    Vector partial = Vector::all(C(0));
    for (; begin < chunk_end; ++begin) {
      const C* gradient = s.gradients + static_cast<int64_t>(s.samples[begin]) * kLanes<C>;
      partial = partial.plus_product(Vector::all(s.weights[begin]), Vector::load(gradient));
    }
    total = total.plus(partial);
  }
  return total;
}

// The gradient to up to kLanes channels of a volume from `first` on.
template <typename T, typename Index>
void sum_lists(const Problem& p, const Lists<Compute<T>, Index>& s, const T* grad_output, int64_t channels,
               T* grad_input) {
  using C = Compute<T>;
  constexpr int kCount = kLanes<C>;
  parallel_for(ceil_div(p.samples, kSpan), grain_for(kSpan * kCount), [&](int64_t span) {
    const int64_t first = span * kSpan;
    interleave_run<T, kCount>(grad_output + first, p.samples, at_most(p.samples - first, kSpan), channels,
                              s.gradients + first * kCount);
  });
  parallel_for(ceil_div(p.voxels, kSummedVoxels), 1, [&](int64_t task) {
    const int64_t end = at_most((task + 1) * kSummedVoxels, p.voxels), last = s.starts[end];
    for (int64_t voxel = task * kSummedVoxels; voxel < end; voxel += kSquare) {
      const int64_t count = at_most(end - voxel, kSquare);
      C square[kSquare][kCount] = {};
      for (int64_t k = 0; k < count; ++k) {
        const int64_t begin = s.starts[voxel + k], stop = s.starts[voxel + k + 1];
        for (int64_t i = begin + kFetched; i < at_most(stop + kFetched, last); ++i) {
          __builtin_prefetch(s.gradients + static_cast<int64_t>(s.samples[i]) * kCount);
        }
        sum_list(s, begin, stop).clean().store(square[k]);
      }
      C lanes[kCount][kSquare] = {};
      separate<kCount>(square[0], count, lanes[0], kSquare);
      for (int64_t k = 0; k < channels; ++k) narrow_row(lanes[k], grad_input + k * p.voxels + voxel, count);
    }
  });
}

template <typename T, typename Index>
Status sum_all_lists(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  using C = Compute<T>;
  const Lists<C, Index> lists(p, workspace);
  for (int64_t volume = 0; volume < p.n; ++volume) {
    make_lists(p, b.grid + volume * p.samples * kAxes, lists);
    for (int64_t channel = 0; channel < p.c; channel += kLanes<C>) {
      const int64_t plane = volume * p.c + channel;
      sum_lists<T, Index>(p, lists, b.grad_output + plane * p.samples, at_most(p.c - channel, kLanes<C>),
                          b.grad_input + plane * p.voxels);
    }
  }
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
