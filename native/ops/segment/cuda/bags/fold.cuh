// SPDX-License-Identifier: Apache-2.0
// Bags forward on CUDA: a group of lanes takes whole bags, one after the other; bags of several pieces are left to
// other groups, which take a window of a piece's length each, and what these keep is joined.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_zeros.cuh"
#include "ops/segment/bags/launch.h"
#include "ops/segment/cuda/bags/positions.cuh"
#include "ops/segment/cuda/join/join.cuh"
#include "ops/segment/cuda/presorted.cuh"

namespace baracuda::embedding_bag {
namespace {

using segment::Call;
using segment::Columns;
using segment::CutSegments;
using segment::Parts;
using segment::PresortedShape;
using segment::Rule;
using segment::State;
using segment::Words;

// Rows whose loads a lane has in flight.
constexpr int kRowsInFlight = 8;
// Blocks a multiprocessor, hence registers a thread.
constexpr int kFoldBlocks = 12;

// The rows that positions from `begin` on name. One behind the last position is taken for the last, and takes no part.
__device__ __forceinline__ void load_rows(const Positions& positions, int32_t begin, int32_t end,
                                          int32_t (&rows)[kRowsInFlight]) {
#pragma unroll
  for (int u = 0; u < kRowsInFlight; ++u) {
    rows[u] = positions.row(begin + u < end ? begin + u : end - 1);
    if (begin + u >= end) rows[u] = -1;
  }
}

// Folds the positions [begin, end), of which there is one.
template <int V, class Tag>
__device__ __forceinline__ State<Rule<Tag>, V> fold_positions(const Call<Tag>& call, const Positions& positions,
                                                              const typename Tag::Element* per_sample_weights,
                                                              int32_t begin, int32_t end, int32_t column) {
  using T = typename Tag::Element;
  using C = Compute<T>;
  State<Rule<Tag>, V> state;
  state.none(-1);
  int32_t rows[kRowsInFlight];
  load_rows(positions, begin, end, rows);
#pragma unroll 1
  for (int32_t batch = begin; batch < end; batch += kRowsInFlight) {
    // The next rows are asked for while these arrive. Who takes part is a bit, so that sums need not keep which row it
    // was: registers are what limits the rows on their way.
    Words<T, V> values[kRowsInFlight];
    T weights[kRowsInFlight];
    int32_t mine[kRowsInFlight];
    uint32_t taking = 0;  // a bit each
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      values[u] = Words<T, V>{};
      mine[u] = rows[u];
      if (rows[u] < 0) continue;
      taking |= 1u << u;
      values[u] = segment::load_words<V>(call.x + call.place(rows[u], column));
      if (per_sample_weights != nullptr) weights[u] = per_sample_weights[batch + u];
    }
    if (batch + kRowsInFlight < end) load_rows(positions, batch + kRowsInFlight, end, rows);
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      if ((taking >> u & 1u) == 0) continue;
      const Columns<T, V> x = bits_as<Columns<T, V>>(values[u]);
      const C factor = per_sample_weights != nullptr ? segment::wide(weights[u]) : C(1);
#pragma unroll
      for (int k = 0; k < V; ++k) Rule<Tag>::add(state.first.at[k], state.second.at[k], x.at[k], factor, mine[u]);
    }
  }
  return state;
}

template <int V, class Tag>
__device__ __forceinline__ void fold_bag(const Call<Tag>& call, const BagRanks& bags, const Positions& positions,
                                         const typename Tag::Element* per_sample_weights, bool none, int32_t bag,
                                         int32_t column) {
  const int32_t begin = none ? 0 : bags.begin(bag), end = none ? 0 : bags.end(bag);
  if (end - begin > bags.piece_rows()) return;
  State<Rule<Tag>, V> state;
  state.none(-1);
  if (begin < end) state = fold_positions<V>(call, positions, per_sample_weights, begin, end, column);
  call.template finish_segment<V>(bag, column, state, 0);
}

template <class Tag, int V>
__global__ void __launch_bounds__(segment::kThreads, kFoldBlocks)
    fold_bags(Call<Tag> call, PresortedShape shape, BagRanks bags, Positions positions,
              const typename Tag::Element* per_sample_weights, Parts<Rule<Tag>> parts, CutSegments cut, void* bag_ids,
              Sizes sizes) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const bool none = bags.findings[kDescends] != 0, has_windows = !none && bags.findings[kLong] != 0;
  if (none) undo_descending(bags, bag_ids, sizes);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) & ((1 << shape.lane_bits) - 1);
  for (int64_t block = blockIdx.x; block < shape.tasks; block += gridDim.x) {
    const bool takes_window = block < shape.window_tasks;
    const int64_t task = takes_window ? block : block - shape.window_tasks;
    const int64_t at = shape.column_blocks == 1 ? task : task / shape.column_blocks;
    const int64_t place = (((task - at * shape.column_blocks) << shape.lane_bits) + lane) * V;
    if (place >= call.d) continue;
    const int32_t column = static_cast<int32_t>(place);
    const int64_t group = at * shape.groups() + (threadIdx.x >> shape.lane_bits);
    if (takes_window) {
      const int64_t begin = group << bags.piece_bits;
      if (begin >= bags.n || !has_windows) continue;
      segment::for_each_piece(bags, static_cast<int32_t>(begin), [&](int32_t bag, int32_t piece, int32_t next) {
        const auto state = fold_positions<V>(call, positions, per_sample_weights, piece, next, column);
        segment::keep_part(parts, cut, bags, call.d, bag, piece, bags.begin(bag) == piece, column, state);
      });
    } else {
      const int64_t end = (group + 1) << shape.key_bits;
#pragma unroll 1
      for (int64_t bag = group << shape.key_bits; bag < end && bag < bags.num_segments; ++bag) {
        fold_bag<V>(call, bags, positions, per_sample_weights, none, static_cast<int32_t>(bag), column);
      }
    }
  }
}

template <class Tag>
__global__ void __launch_bounds__(segment::kJoinThreads)
    join_bags(Call<Tag> call, BagRanks bags, Parts<Rule<Tag>> parts, CutSegments cut) {
  wait_for_kernel_before();
  let_kernel_after_start();
  segment::join_segments(call, bags, parts, cut);
}

template <class Tag>
struct FoldScratch {
  WorkspaceLayout layout;
  uint32_t* findings;  // [kFindings]
  int32_t* sizes;      // [num_bags] of a mean that is not asked for them
  Parts<Rule<Tag>> parts;
  CutSegments cut;

  FoldScratch(const Problem& p, void* workspace)
      : findings(workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(kFindings))),
        sizes(workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.mean && !p.wants_bags ? p.num_bags : 0))),
        parts(p.by_bag(), layout, workspace),
        cut(p.by_bag(), parts.piece_bits, findings + kCut, layout, workspace) {}
};

// The tensors of a call that a rule of segments takes.
template <class Tag, class Buffers>
segment::Buffers<Tag> folded(const Buffers& b) {
  segment::Buffers<Tag> found{};
  found.rows[0] = b.weight, found.result = b.output, found.wide_index = b.wide;
  return found;
}

template <class Tag, class Buffers>
Status enqueue_fold(const Problem& p, const Buffers& b, const segment::Buffers<Tag>& of_rule,
                    const typename Tag::Element* per_sample_weights, void* workspace, Stream stream) {
  const segment::Problem by_bag = p.by_bag();
  const FoldScratch<Tag> scratch(p, workspace);
  const BagRanks bags{{p.n, p.num_bags, scratch.parts.piece_bits}, Index(b.offsets, b.wide, p.num_bags),
                      scratch.findings};
  const Positions positions(p, b.indices, b.wide);
  const Sizes sizes = p.wants_bags ? Sizes{b.bag_sizes, b.wide} : Sizes{scratch.sizes, false};
  Call<Tag> call(by_bag, of_rule);
  if constexpr (segment::TermsOf<Tag>::kSome) {
    if (p.mean) call.divisor = segment::Divisor::kSize;
    call.sizes = static_cast<const int32_t*>(sizes.data), call.wide_sizes = sizes.wide ? 1 : 0;
  }
  const int64_t items = p.n > p.num_bags ? p.n : p.num_bags;
  if (p.wants_bags || p.mean) {
    BARACUDA_RETURN_IF_FAILED(launch_kernel(
        "bag size kernel", clear_sizes, blocks_for(p.num_bags + int64_t{1}, kPositionThreads), kPositionThreads, 0,
        stream, p.num_bags, sizes, scratch.findings));
    BARACUDA_RETURN_IF_FAILED(launch_early("bag id kernel", describe_bags, blocks_for(items, kPositionThreads),
                                           kPositionThreads, 0, stream, bags, positions, b.bag_ids, sizes,
                                           scratch.findings));
  } else {
    BARACUDA_RETURN_IF_FAILED(
        enqueue_zeros_early(scratch.findings, kFindings * sizeof(*scratch.findings), stream));
    BARACUDA_RETURN_IF_FAILED(launch_early("bag kernel", look_at_bags, blocks_for(p.num_bags, kPositionThreads),
                                           kPositionThreads, 0, stream, bags, scratch.findings));
  }
  if (p.d == 0 || p.num_bags == 0) {
    return launch_early("bag id kernel", undo_bags, blocks_for(items, kPositionThreads), kPositionThreads, 0, stream,
                        bags, b.bag_ids, sizes);
  }
  BARACUDA_RETURN_IF_FAILED(segment::with_columns(by_bag, of_rule, 4, [&](auto columns) {
    constexpr int V = decltype(columns)::value;
    const PresortedShape shape(bags, p.d, V, true);
    return launch_early("bag fold kernel", fold_bags<Tag, V>, blocks_for(shape.tasks, 1), segment::kThreads, 0, stream,
                        call, shape, bags, positions, per_sample_weights, scratch.parts, scratch.cut, b.bag_ids,
                        sizes);
  }));
  if (p.n <= bags.piece_rows()) return Status::kOk;
  return launch_early("bag join kernel", join_bags<Tag>, segment::join_blocks(bags, p.d), segment::kJoinThreads, 0,
                      stream, call, bags, scratch.parts, scratch.cut);
}

}  // namespace
}  // namespace baracuda::embedding_bag
