// SPDX-License-Identifier: Apache-2.0
// Samples dealt to ranges of an image's or a volume's rows, in ascending order: who lists a range's contributions then
// meets no others. A stable counting sort, in linear time.
#pragma once

#include "core/cpu_parallel.h"
#include "core/integer_math.h"

namespace baracuda::grid_sample {
namespace {

// Ranges at most. A sample has taps in kRangesOfSample of them at most.
constexpr int64_t kMostRanges = 16;
constexpr int64_t kRangesOfSample = 4;
// Samples dealt by one task.
constexpr int64_t kRangedSamples = 1024;

// Index counts a sample's items. The arrays stand in memory that is written otherwise afterwards.
template <typename Index>
struct RowRanges {
  int64_t rows, samples;
  int shift;  // a range has 2^shift rows, the last perhaps fewer
  int64_t ranges, blocks;
  Index* counts;  // [block][range]: items, then where the block's items of the range start, then where they end
  Index* items;   // [kRangesOfSample samples]

  // A range has `fewest` rows at least, a power of two.
  RowRanges(int64_t all_rows, int64_t all_samples, int64_t fewest, void* memory)
      : rows(all_rows), samples(all_samples) {
    shift = 0;
    while ((int64_t{1} << shift) < fewest || ceil_div(rows, int64_t{1} << shift) > kMostRanges) ++shift;
    ranges = ceil_div(rows, int64_t{1} << shift);
    blocks = ceil_div(samples, kRangedSamples);
    counts = static_cast<Index*>(memory);
    items = counts + blocks * ranges;
  }

  static int64_t bytes(int64_t samples) {
    const int64_t counts = ceil_div(samples, kRangedSamples) * kMostRanges;
    return (counts + kRangesOfSample * samples) * static_cast<int64_t>(sizeof(Index));
  }

  int64_t first_row(int64_t range) const { return range << shift; }
  int64_t end_row(int64_t range) const { return at_most((range + 1) << shift, rows); }
  // A range's items are [begin, end), once they are dealt.
  int64_t begin(int64_t range) const { return range == 0 ? 0 : counts[(blocks - 1) * ranges + range - 1]; }
  int64_t end(int64_t range) const { return counts[(blocks - 1) * ranges + range]; }

  // `visit_rows(i, visit)` calls visit(row) for the rows of sample i that have taps; those of one range make one item.
  template <typename VisitRows>
  void deal(VisitRows visit_rows) const {
    const auto visit_ranges = [&](int64_t i, auto visit) {
      int64_t found[kRangesOfSample];
      int count = 0;
      visit_rows(i, [&](int64_t row) {
        const int64_t range = row >> shift;
        for (int k = 0; k < count; ++k) {
          if (found[k] == range) return;
        }
        found[count++] = range;
        visit(range);
      });
    };
    parallel_for(blocks, grain_for(16 * kRangedSamples), [&](int64_t block) {
      Index* const own = counts + block * ranges;
      for (int64_t range = 0; range < ranges; ++range) own[range] = 0;
      const int64_t stop = at_most((block + 1) * kRangedSamples, samples);
      for (int64_t i = block * kRangedSamples; i < stop; ++i) {
        visit_ranges(i, [&](int64_t range) { ++own[range]; });
      }
    });
    Index sum = 0;
    for (int64_t range = 0; range < ranges; ++range) {
      for (int64_t block = 0; block < blocks; ++block) {
        const Index count = counts[block * ranges + range];
        counts[block * ranges + range] = sum;
        sum += count;
      }
    }
    parallel_for(blocks, grain_for(16 * kRangedSamples), [&](int64_t block) {
      Index* const own = counts + block * ranges;
      const int64_t stop = at_most((block + 1) * kRangedSamples, samples);
      for (int64_t i = block * kRangedSamples; i < stop; ++i) {
        visit_ranges(i, [&](int64_t range) { items[own[range]++] = static_cast<Index>(i); });
      }
    });
  }
};

}  // namespace
}  // namespace baracuda::grid_sample
