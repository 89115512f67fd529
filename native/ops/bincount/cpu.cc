// SPDX-License-Identifier: Apache-2.0
// Weighted counts on the CPU. A task is a group of a row's entries, which it walks once, adding weights to a table of
// its own; at a block's end the table is added to the group's sums and cleared. That is cheap: a table has at most as
// many bins as a block has entries, and is added in vectors.
//
//   path     calls                what happens
//   blocks   a block or less a    a task a row: its table is the result
//            row
//   groups   else                 a task a group; then the groups' sums of each bin are added in their order
#include <cstdint>

#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/bincount/launch.h"
#include "ops/bincount/math.h"

namespace baracuda::bincount {
namespace {

// A block's sums: too large for a caller's stack.
template <typename S>
struct Table {
  S sums[kMostBins];
};

// The scratch: each group's sums by bin where a row has several blocks, and the calling thread's table.
template <typename S>
struct Scratch {
  WorkspaceLayout layout;
  S* groups;
  TaskScratch<Table<S>> tables;

  Scratch(const Problem& p, void* workspace)
      : groups(workspace_array<S>(workspace, layout.reserve<S>(p.blocks > 1 ? p.rows * p.groups * p.num_bins : 0))),
        tables(layout, workspace) {}
};

// Adds the weights of a row's entries from `first` up to `end`.
template <typename T, typename I>
void add_entries(const Problem& p, const Buffers<T, I>& b, int64_t row, int64_t first, int64_t end, Sum<T>* table) {
  const I* const input = b.input + row * p.n;
  const T* const weights = b.weights + row * p.n;
  for (int64_t i = first; i < end; ++i) {
    const I entry = input[i];
    if (names_bin(entry, p.num_bins)) table[entry] += term_of(weights[i]);
  }
}

// Takes a row's entries from `first` up to `end` into the extent, if one is wanted. Which of two is larger does not
// depend on who comes first.
template <typename T, typename I>
void raise_extent(const Buffers<T, I>& b, int64_t first, int64_t end) {
  if (b.extent == nullptr || first == end) return;
  Rank<I> largest = 0;
  for (int64_t i = first; i < end; ++i) {
    const Rank<I> rank = static_cast<Rank<I>>(b.input[i]);
    largest = rank > largest ? rank : largest;
  }
  // As unsigned numbers, so that -1 is larger than all others.
  uint64_t* const extent = reinterpret_cast<uint64_t*>(b.extent);
  const uint64_t own = static_cast<uint64_t>(extent_of<I>(largest));
  uint64_t found = __atomic_load_n(extent, __ATOMIC_RELAXED);
  while (found < own && !__atomic_compare_exchange_n(extent, &found, own, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

template <typename T, typename I>
void add_block(const Problem& p, const Buffers<T, I>& b, int64_t row, Sum<T>* table) {
  T* const output = b.output + row * p.num_bins;
  for (int32_t bin = 0; bin < p.num_bins; ++bin) table[bin] = Sum<T>(0);
  add_entries(p, b, row, 0, p.n, table);
  raise_extent(b, 0, p.n);
  for (int32_t bin = 0; bin < p.num_bins; ++bin) output[bin] = result_of<T>(table[bin]);
}

template <typename T, typename I>
void add_group(const Problem& p, const Buffers<T, I>& b, int64_t row, int64_t group, Sum<T>* table, Sum<T>* sums) {
  const int32_t num_bins = p.num_bins;
  const int64_t end = at_most((group + 1) * kGroup, p.n);
  for (int32_t bin = 0; bin < num_bins; ++bin) table[bin] = sums[bin] = Sum<T>(0);
  for (int64_t first = group * kGroup; first < end; first += kBlock) {
    const int64_t block_end = at_most(first + kBlock, end);
    add_entries(p, b, row, first, block_end, table);
    raise_extent(b, first, block_end);
    for (int32_t bin = 0; bin < num_bins; ++bin) sums[bin] += table[bin], table[bin] = Sum<T>(0);
  }
}

// Bins whose sums a task adds over the groups.
constexpr int32_t kBinsOfTask = 256;

// `groups` and `output` are a row's.
template <typename T>
void add_groups(const Problem& p, const Sum<T>* groups, int32_t first, T* output) {
  const int32_t count = static_cast<int32_t>(at_most(kBinsOfTask, p.num_bins - first));
  Sum<T> sums[kBinsOfTask] = {};
  for (int64_t group = 0; group < p.groups; ++group) {
    const Sum<T>* const of_group = groups + group * p.num_bins + first;
    for (int32_t bin = 0; bin < count; ++bin) sums[bin] += of_group[bin];
  }
  for (int32_t bin = 0; bin < count; ++bin) output[first + bin] = result_of<T>(sums[bin]);
}

template <typename T, typename I>
struct BlocksPath {
  static const char* name() { return "blocks"; }
  const Request<Problem, Buffers<T, I>>& call;

  bool can() const { return call.p.blocks <= 1; }
  Status enqueue() const {
    const Problem& p = call.p;
    const Buffers<T, I>& b = call.b;
    const Scratch<Sum<T>> scratch(p, call.workspace);
    parallel_for(p.rows, grain_for(p.n + p.num_bins),
                 [&](int64_t row) { add_block(p, b, row, scratch.tables.mine().sums); });
    return Status::kOk;
  }
};

template <typename T, typename I>
struct GroupsPath {
  static const char* name() { return "groups"; }
  const Request<Problem, Buffers<T, I>>& call;

  Status enqueue() const {
    const Problem& p = call.p;
    const Buffers<T, I>& b = call.b;
    const Scratch<Sum<T>> scratch(p, call.workspace);
    parallel_for(p.rows * p.groups, 1, [&](int64_t task) {
      const int64_t row = task / p.groups;
      add_group(p, b, row, task - row * p.groups, scratch.tables.mine().sums, scratch.groups + task * p.num_bins);
    });
    const int64_t of_row = ceil_div(p.num_bins, kBinsOfTask);
    parallel_for(p.rows * of_row, grain_for(p.groups * kBinsOfTask), [&](int64_t task) {
      const int64_t row = task / of_row;
      const int32_t first = static_cast<int32_t>(task - row * of_row) * kBinsOfTask;
      add_groups(p, scratch.groups + row * p.groups * p.num_bins, first, b.output + row * p.num_bins);
    });
    return Status::kOk;
  }
};

template <typename T, typename I>
Status run(const Problem& p, const Buffers<T, I>& b, void* workspace) {
  if (p.wants_extent) *b.extent = 0;
  return Paths<BlocksPath<T, I>, GroupsPath<T, I>>::enqueue(Request<Problem, Buffers<T, I>>{p, b, workspace});
}

template <typename T, typename I>
size_t bytes_of(const Problem& p, const Buffers<T, I>*) {
  return Scratch<Sum<T>>(p, nullptr).layout.bytes();
}

}  // namespace

BARACUDA_BINCOUNT_BUFFERS(BARACUDA_PROVIDE_LAUNCH)
BARACUDA_BINCOUNT_BUFFERS(BARACUDA_PROVIDE_WORKSPACE_SIZE)

}  // namespace baracuda::bincount
