// SPDX-License-Identifier: Apache-2.0
// The segment operators on the CPU: what is one result a row from that row alone, and the launches of all rules.
// Compiled once per instruction set.
#include "core/cpu_launch.h"
#include "ops/segment/cpu/folds.h"

namespace baracuda::segment {
namespace {

template <class Tag>
constexpr bool is_map() {
  return Rule<Tag>::kKind == Kind::kMap;
}

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

template <class Tag>
Status run(const Problem& p, const Buffers<Tag>& b, void* workspace) {
  if constexpr (is_map<Tag>()) {
    const Mapping<Tag> mapping(p, workspace);
    return b.wide_index ? mapping.run(b, static_cast<const int64_t*>(b.index))
                        : mapping.run(b, static_cast<const int32_t*>(b.index));
  } else {
    return Folding<Tag>(p, workspace).run(b);
  }
}

}  // namespace

#define BARACUDA_PROVIDE(RULE, T) BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<rule::RULE<T>>)
BARACUDA_SEGMENT_RULES(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

#if defined(BARACUDA_CPU_ISA_IS_PORTABLE)
namespace {
template <class Tag>
size_t bytes_of(const Problem& p) {
  if constexpr (is_map<Tag>()) {
    return Mapping<Tag>(p, nullptr).layout.bytes();
  } else {
    return Folding<Tag>(p, nullptr).layout.bytes();
  }
}
}  // namespace

template <class Buffers>
size_t workspace_size(const Problem& problem) {
  return bytes_of<typename Buffers::Tag>(problem);
}

#define BARACUDA_PROVIDE(RULE, T) template size_t workspace_size<Buffers<rule::RULE<T>>>(const Problem&);
BARACUDA_SEGMENT_RULES(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE
#endif

}  // namespace baracuda::segment
