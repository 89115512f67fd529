// SPDX-License-Identifier: Apache-2.0
// The segment operators on CUDA: which path a problem takes, its scratch and its launches. Instances take minutes to
// compile: by_segment.cu and by_row.cu have half of them each.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "ops/segment/cuda/list/distribute.cuh"
#include "ops/segment/cuda/presorted.cuh"
#include "ops/segment/cuda/join/join.cuh"
#include "ops/segment/cuda/map.cuh"
#include "ops/segment/cuda/sort/rows.cuh"
#include "ops/segment/cuda/list/pieces.cuh"
#include "ops/segment/cuda/list/reduce.cuh"
#include "ops/segment/cuda/list/select.cuh"
#include "ops/segment/cuda/table.cuh"
#include "ops/segment/launch.h"

namespace baracuda::segment {
namespace {

// Whether a rule's pieces of a list take reduce_list.
template <class Name>
constexpr bool reduces_list() {
  return Side<Name>::kReduces && !takes_pieces_singly<Name>();
}

// The scratch of one call.
template <class Name>
struct Plan {
  WorkspaceLayout layout;
  Orderer orderer;
  Parts<Rule<Name>> parts;
  Cuts cuts;

  Plan(const Problem& p, void* workspace)
      : orderer(p, zero_words(p), layout, workspace), parts(p, layout, workspace),
        cuts(p, parts.piece_bits, orderer.zeros(), layout, workspace) {}

  // For each segment of several pieces and each block of columns, how many of its pieces are kept.
  uint32_t* kept() const { return orderer.zeros() + 1; }

 private:
  // What is 0 before rows are folded: how many segments are listed; of reductions also what is kept.
  static int64_t zero_words(const Problem& p) {
    return 1 + (reduces_list<Name>() ? Shape::counters(p.n, piece_bits_for<Rule<Name>>(p), p.d) : 0);
  }
};

template <class Name>
Status enqueue_join(const Side<Name>& side, const List& list, const Plan<Name>& plan, Stream stream) {
  // No segment of several pieces.
  if (list.n <= list.piece_rows()) return Status::kOk;
  return launch_early("segment join kernel", join_parts<Name>, join_blocks(list, side.d), kJoinThreads, 0, stream, side,
                      list, plan.parts, plan.cuts);
}

// Tasks that fill a GPU. Rules that write rows, too, take longer over a window.
template <class Name>
constexpr int64_t kManyTasks = int64_t{1} << (reduces_list<Name>() ? 12 : 14);

template <int V, class Name>
Status enqueue_pieces(const Side<Name>& side, const List& list, const Plan<Name>& plan, Stream stream) {
  const Shape shape(list, side.d, V, kManyTasks<Name>);
  const int64_t tasks = shape.tasks + fill_tasks(side);
  const uint32_t blocks = blocks_for(tasks, kWarps);
  const size_t shared_bytes = shape.shared_bytes();
  if constexpr (reduces_list<Name>()) {
    BARACUDA_RETURN_IF_FAILED(launch_early("segment reduce kernel", reduce_list<Name, V>, blocks, kThreads,
                                           shared_bytes, stream, side, shape, list, plan.parts, plan.cuts, tasks,
                                           plan.kept()));
  } else if constexpr (!takes_pieces_singly<Name>()) {
    BARACUDA_RETURN_IF_FAILED(launch_early("segment select kernel", select_in_list<Name, V>, blocks, kThreads,
                                           shared_bytes, stream, side, shape, list, plan.parts, plan.cuts, tasks));
  } else {
    BARACUDA_RETURN_IF_FAILED(launch_early("segment distribute kernel", distribute_list<Name, V>, blocks, kThreads,
                                           shared_bytes, stream, side, shape, list, plan.parts, plan.cuts, tasks));
  }
  BARACUDA_RETURN_IF_FAILED(enqueue_join(side, list, plan, stream));
  if constexpr (takes_pieces_singly<Name>() && !Side<Name>::kReduces) {
    if (list.n > list.piece_rows()) {
      return launch_early("segment finish kernel", distribute_parts<Name, V>,
                          blocks_for(shape.finish_tasks(list.n), kWarps), kThreads, 0, stream, side, shape, list,
                          plan.parts);
    }
  }
  return Status::kOk;
}

// Rules that read rows once and are cheap to compute are limited by memory and take as many columns as an access holds;
// the registers of the others hold two.
template <class Name>
constexpr int most_columns() {
  using Fold = Rule<Name>;
  if constexpr (Fold::kKind == Kind::kReduce) {
    return std::is_same_v<typename Fold::First, typename Fold::Second> ? 2 : 4;
  } else {
    return Fold::kAnyGrouping && !Fold::kReadsRowsAgain ? 4 : 2;
  }
}

// Calls enqueue<V>() for the columns that a lane takes at once, at most `most`.
template <class Name, class Enqueue>
Status with_columns(const Problem& p, const Buffers<Name>& b, int most, const Enqueue& enqueue) {
  using T = typename Name::Element;
  const int columns = columns_per_access(p.d, sizeof(T), addresses_of(b), most);
  constexpr int kMost = sizeof(T) <= 4 ? most_columns<Name>() : 2;
  if constexpr (kMost == 4) {
    if (columns == 4) return enqueue(std::integral_constant<int, 4>());
  }
  return columns == 1 ? enqueue(std::integral_constant<int, 1>()) : enqueue(std::integral_constant<int, 2>());
}

template <class Name>
Status enqueue_folds(const Problem& p, const Buffers<Name>& b, void* workspace, Stream stream) {
  const Index index(b.index, b.wide_index, p.num_segments);
  const Side<Name> side(p, b);
  if (p.form == Form::kUnsorted) {
    const Plan<Name> plan(p, workspace);
    List list;
    BARACUDA_RETURN_IF_FAILED(plan.orderer.enqueue(index, plan.parts.piece_bits, stream, &list));
    // Wider accesses only as far as a row still fills half a warp, or all of it where rows are written, too.
    constexpr int32_t kLanes = reduces_list<Name>() ? 16 : 32;
    return with_columns(p, b, p.d >= 4 * kLanes ? 4 : p.d >= 2 * kLanes ? 2 : 1, [&](auto columns) {
      return enqueue_pieces<decltype(columns)::value>(side, list, plan, stream);
    });
  }
  const OrderedPlan<Name> plan(p, workspace);
  RowsInOrder list{{p.n, p.num_segments, plan.parts.piece_bits}, index, plan.findings};
  BARACUDA_RETURN_IF_FAILED(plan.enqueue_offsets(p, index, stream, &list.offsets));
  return with_columns(p, b, 4, [&](auto columns) {
    return enqueue_in_order<decltype(columns)::value>(side, list, plan, stream);
  });
}

template <class Name>
Status run(const Problem& p, const Buffers<Name>& b, void* workspace, Stream stream) {
  using T = typename Name::Element;
  if constexpr (Rule<Name>::kKind != Kind::kReduce) {
    // No segment to read from.
    if (p.num_segments == 0) return enqueue_zeros(b.result, static_cast<size_t>(p.row_numel) * sizeof(T), stream);
  }
  if constexpr (Rule<Name>::kKind == Kind::kMap) {
    return enqueue_map(p, b, workspace, stream);
  } else {
    if constexpr (may_take_table<Name>()) {
      if (takes_table<Name>(p)) return enqueue_table(p, b, workspace, stream);
    }
    return enqueue_folds(p, b, workspace, stream);
  }
}

template <class Name>
size_t bytes_of(const Problem& p) {
  constexpr Kind kKind = Rule<Name>::kKind;
  if (kKind != Kind::kReduce && p.num_segments == 0) return 0;
  if constexpr (kKind == Kind::kMap) {
    return MapPlan<Name>(p, nullptr).layout.bytes();
  } else {
    if (takes_table<Name>(p)) return TablePlan(p, kKind == Kind::kDistribute, nullptr).layout.bytes();
    return p.form == Form::kUnsorted ? Plan<Name>(p, nullptr).layout.bytes()
                                     : OrderedPlan<Name>(p, nullptr).layout.bytes();
  }
}

}  // namespace

template <class Buffers>
size_t workspace_size(const Problem& problem) {
  return bytes_of<typename Buffers::Rule>(problem);
}

// Provides launch and workspace_size of one rule.
#define BARACUDA_PROVIDE(RULE, T)                          \
  BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<rule::RULE<T>>) \
  template size_t workspace_size<Buffers<rule::RULE<T>>>(const Problem&);

}  // namespace baracuda::segment
