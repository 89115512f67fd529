// SPDX-License-Identifier: Apache-2.0
// Gradients of bags with respect to the table on CUDA: positions are sorted by the row that they name, what each takes
// of its bag's gradient is laid beside them, and the list is reduced as segments are.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/segment/bags/launch.h"
#include "ops/segment/cuda/bags/positions.cuh"
#include "ops/segment/cuda/list/list.cuh"

namespace baracuda::embedding_bag {
namespace {

using segment::Call;
using segment::List;
using segment::ListScratch;
using segment::Record;

// Rows of the table that positions name as the sort's keys, for those that take part and are of a bag.
struct FromPositions {
  static constexpr bool kIsList = false;
  Positions positions;
  Index bag_ids;

  __device__ __forceinline__ int32_t key(int64_t i) const {
    const int32_t row = positions.row(i);
    return row < 0 || bag_ids.key(i) == bag_ids.num_segments ? positions.indices.num_segments : row;
  }
  __device__ Record operator()(int64_t i) const { return {key(i), static_cast<int32_t>(i)}; }
  template <int kStride, int kItems>
  __device__ __forceinline__ void read_keys(int64_t first, int32_t (&keys)[kItems]) const {
#pragma unroll
    for (int j = 0; j < kItems; ++j) keys[j] = key(first + j * kStride);
  }
  template <int kItems>
  __device__ __forceinline__ void read(int64_t first, Record (&records)[kItems]) const {
#pragma unroll
    for (int j = 0; j < kItems; ++j) records[j] = (*this)(first + j * 32);
  }
};

// A word has a bit for each of so many columns.
constexpr int32_t kWordColumns = 32;
inline int32_t words_of(int32_t d) { return static_cast<int32_t>(ceil_div(d, kWordColumns)); }

// Positions that a warp marks, a lane's each.
constexpr int32_t kMarked = 32;

// For every position the columns in which its row holds its bag's maximum, a bit each. A lane has a column of a bag,
// against which it holds the rows of the bag's positions one after the other; the next bag's is on its way then.
__global__ void __launch_bounds__(kPositionThreads)
    mark_holders(FromPositions source, const uint32_t* arg, int32_t wide, int32_t n, int32_t d, int32_t words,
                 int64_t tasks, uint32_t* marks) {
  let_kernel_after_start();
  const int32_t lane = threadIdx.x % 32;
#pragma unroll 1
  for (int64_t task = grid_thread() / 32; task < tasks; task += grid_threads() / 32) {
    const int64_t block = task / words, first = block * kMarked;
    const int32_t word = static_cast<int32_t>(task - block * words), column = word * kWordColumns + lane;
    const int64_t position = first + lane;
    int32_t row = -1, bag = -1;
    if (position < n) {
      const int32_t key = source.key(position);
      if (key != source.positions.indices.num_segments) row = key, bag = source.bag_ids.key(position);
    }
    // The row that holds this lane's column of the bag that begins at a lane; -1 for none, and for what is no row.
    const auto holder = [&](int32_t begin) {
      const int32_t of_bag = __shfl_sync(kFullWarp, bag, begin);
      if (of_bag < 0 || column >= d) return -1;
      const uint32_t* const from = arg + ((int64_t{of_bag} * d + column) << wide);
      const int64_t found = wide != 0 ? *reinterpret_cast<const int64_t*>(from) : static_cast<int32_t>(*from);
      return found == static_cast<int32_t>(found) ? static_cast<int32_t>(found) : -1;
    };
    const int32_t before = __shfl_up_sync(kFullWarp, bag, 1);
    uint32_t heads = __ballot_sync(kFullWarp, lane == 0 || before != bag), mine = 0;
    int32_t ahead = holder(0);
#pragma unroll 1
    for (int32_t at = 0; at < kMarked;) {
      const int32_t held = ahead;
      heads &= heads - 1;
      const int32_t end = heads != 0 ? __ffs(static_cast<int>(heads)) - 1 : kMarked;
      if (end < kMarked) ahead = holder(end);
#pragma unroll 4
      for (; at < end; ++at) {
        const int32_t of_position = __shfl_sync(kFullWarp, row, at);
        const uint32_t holds = __ballot_sync(kFullWarp, held >= 0 && held == of_position);
        if (lane == at) mine = holds;
      }
    }
    if (position < n) marks[position * words + word] = mine;
  }
}

// What each rank of the sorted list takes: from a position's record that of its bag, its factor, its columns.
template <typename T>
struct Resolving {
  const Record* sorted;  // [n], of positions
  Record* resolved;      // [n], of bags
  Index bag_ids;
  const int32_t* sizes;  // of a mean
  int32_t wide;
  const T* per_sample_weights;
  Compute<T>* factors;    // [n], or NULL
  const uint32_t* marks;  // [n][words] by position, or NULL
  uint32_t* columns;      // [n][words] by rank
  int32_t n, num_embeddings, words;

  __device__ __forceinline__ void resolve(int64_t rank) const {
    const Record record = sorted[rank];
    int32_t bag = 0;
    if (record.key != num_embeddings) {
      bag = bag_ids.key(record.row);
      if (factors != nullptr) {
        Compute<T> factor = per_sample_weights != nullptr ? segment::wide(per_sample_weights[record.row]) : 1;
        if (sizes != nullptr) {
          const int64_t size = wide != 0 ? reinterpret_cast<const int64_t*>(sizes)[bag] : sizes[bag];
          factor = factor / static_cast<Compute<T>>(size);
        }
        factors[rank] = factor;
      }
    }
    resolved[rank] = {record.key, bag};
  }
  __device__ __forceinline__ void take_columns(int64_t at) const {
    const int64_t rank = words == 1 ? at : at / words;
    const Record record = sorted[rank];
    uint32_t mine = 0;
    if (record.key != num_embeddings) {
      mine = marks[int64_t{record.row} * words + (at - rank * words)];
      // Of a bag's positions that name one row the first alone counts.
      if (rank > 0 && sorted[rank - 1].key == record.key &&
          bag_ids.key(sorted[rank - 1].row) == bag_ids.key(record.row)) {
        mine = 0;
      }
    }
    columns[at] = mine;
  }
};

template <typename T>
__global__ void __launch_bounds__(kPositionThreads) resolve_positions(Resolving<T> list) {
  wait_for_kernel_before();
  let_kernel_after_start();
#pragma unroll 1
  for (int64_t rank = grid_thread(); rank < list.n; rank += grid_threads()) list.resolve(rank);
  if (list.marks == nullptr) return;
  const int64_t count = int64_t{list.n} * list.words;
#pragma unroll 1
  for (int64_t at = grid_thread(); at < count; at += grid_threads()) list.take_columns(at);
}

template <typename T>
struct GradientScratch {
  using Tag = segment::rule::BagSum<T>;
  ListScratch<Tag> list;
  Record* resolved;
  Compute<T>* factors;
  uint32_t* marks;
  uint32_t* columns;
  WorkspaceLayout layout;

  GradientScratch(const Problem& p, bool of_max, void* workspace)
      : list(p.by_row(), workspace), layout(list.layout) {
    const int64_t words = of_max ? int64_t{p.n} * words_of(p.d) : 0;
    resolved = workspace_array<Record>(workspace, layout.reserve<Record>(p.n));
    factors = workspace_array<Compute<T>>(workspace,
                                          layout.reserve<Compute<T>>(p.mean || p.has_weights ? p.n : 0));
    marks = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(words));
    columns = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(words));
  }
};

// What the two gradients have in common; `arg` is NULL but for maxima.
template <typename T>
struct Gradient {
  using Tag = segment::rule::BagSum<T>;
  const Problem& p;
  const T* grad_output;
  FromPositions source;
  const void* arg;
  const void* sizes;
  const T* per_sample_weights;
  T* grad_weight;
  bool wide;

  Status enqueue(void* workspace, Stream stream) const {
    const segment::Problem by_row = p.by_row();
    const GradientScratch<T> scratch(p, arg != nullptr, workspace);
    const int32_t words = words_of(p.d);
    if (arg != nullptr) {
      const int64_t tasks = ceil_div(p.n, kMarked) * words;
      BARACUDA_RETURN_IF_FAILED(launch_kernel("bag mark kernel", mark_holders, blocks_for(tasks, kPositionThreads / 32),
                                              kPositionThreads, 0, stream, source, static_cast<const uint32_t*>(arg),
                                              wide ? 1 : 0, p.n, p.d, words, tasks, scratch.marks));
    }
    List list;
    BARACUDA_RETURN_IF_FAILED(
        scratch.list.sorter.enqueue(source, scratch.list.parts.piece_bits, stream, &list));
    const bool has_factors = sizes != nullptr || per_sample_weights != nullptr;
    const Resolving<T> resolving{list.records, scratch.resolved, source.bag_ids,
                                 static_cast<const int32_t*>(sizes), wide ? 1 : 0, per_sample_weights,
                                 has_factors ? scratch.factors : nullptr,
                                 arg != nullptr ? scratch.marks : nullptr, scratch.columns, p.n, p.num_embeddings,
                                 words};
    BARACUDA_RETURN_IF_FAILED(launch_early("bag resolve kernel", resolve_positions<T>,
                                           blocks_for(arg != nullptr ? int64_t{p.n} * words : p.n, kPositionThreads),
                                           kPositionThreads, 0, stream, resolving));
    list.records = scratch.resolved;
    segment::Buffers<Tag> buffers{};
    buffers.rows[0] = grad_output, buffers.result = grad_weight;
    Call<Tag> call(by_row, buffers);
    call.divisor = p.by_frequency ? segment::Divisor::kCount : segment::Divisor::kOne;
    call.factors = resolving.factors, call.columns = arg != nullptr ? scratch.columns : nullptr;
    call.column_words = words;
    return segment::with_columns(by_row, buffers, p.d >= 64 ? 4 : p.d >= 32 ? 2 : 1, [&](auto columns) {
      return segment::enqueue_pieces<decltype(columns)::value>(call, list, scratch.list, stream);
    });
  }
};

}  // namespace
}  // namespace baracuda::embedding_bag
