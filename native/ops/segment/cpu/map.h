// SPDX-License-Identifier: Apache-2.0
// Results of which each depends on one row alone, on the CPU: threads own rows.
#pragma once

#include "core/cpu_parallel.h"
#include "core/workspace.h"
#include "ops/segment/launch.h"
#include "ops/segment/math.h"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// A rule that needs no other row: no order either, at most the segments' numbers of rows.
template <class Tag>
struct Mapping {
  using Map = Rule<Tag>;
  using T = typename Tag::Element;
  Problem p;
  WorkspaceLayout layout;
  int32_t* counts;  // [num_segments]

  Mapping(const Problem& problem, void* workspace) : p(problem) {
    const bool counts_ids = Map::kCounts && p.form != Form::kOffsets;
    counts = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(counts_ids ? p.num_segments : 0));
  }

  template <typename I>
  int32_t key(const I* index, int64_t row) const {
    return p.form == Form::kOffsets ? key_by_offsets(index, p.num_segments, row)
                                    : key_of(unsigned_id(index[row]), p.num_segments);
  }

  template <typename I>
  int32_t count(const I* index, int32_t key) const {
    if (!Map::kCounts) return 0;
    if (p.form != Form::kOffsets) return counts[key];
    return rank_of_offset(index[key + 1], p.n) - rank_of_offset(index[key], p.n);
  }

  template <typename I>
  Status run(const Buffers<Tag>& b, const I* index) const {
    const Mapping& self = *this;
    if (Map::kCounts && p.form != Form::kOffsets) {
      parallel_for(p.num_segments, kPartElements, [&self](int64_t key) { self.counts[key] = 0; });
      parallel_for(p.n, kPartElements, [&self, index](int64_t row) {
        const int32_t key = self.key(index, row);
        // Whatever the order, the numbers are the same.
        if (key < self.p.num_segments) __atomic_fetch_add(self.counts + key, 1, __ATOMIC_RELAXED);
      });
    }
    parallel_for(p.n, grain_for(p.d), [&self, &b, index](int64_t row) {
      const int64_t d = self.p.d;
      T* __restrict__ result = b.result + row * d;
      const int32_t key = self.key(index, row);
      if (key == self.p.num_segments) {
        for (int64_t k = 0; k < d; ++k) result[k] = T{};
        return;
      }
      const T* __restrict__ s = b.segments[0] + key * d;
      const T* __restrict__ t = Map::kSegments > 1 ? b.segments[1] + key * d : s;
      const T* __restrict__ x = Map::kRows > 0 ? b.rows[0] + row * d : s;
      const I* __restrict__ arg = Map::kArg ? static_cast<const I*>(b.arg) + key * d : nullptr;
      const int32_t rows = self.count(index, key);
      for (int64_t k = 0; k < d; ++k) {
        result[k] = Map::value(s[k], t[k], x[k], rows, Map::kArg ? static_cast<int64_t>(arg[k]) : 0, row);
      }
    });
    return Status::kOk;
  }
};

}  // namespace
}  // namespace baracuda::segment
