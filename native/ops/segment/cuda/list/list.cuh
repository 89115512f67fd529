// SPDX-License-Identifier: Apache-2.0
// Rows with ids in any order on CUDA: they are sorted into a list, groups of lanes take its pieces, and what is kept of
// segments of several pieces is joined. Here are the scratch of such a call and its launches.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "ops/segment/cuda/join/join.cuh"
#include "ops/segment/cuda/list/distribute.cuh"
#include "ops/segment/cuda/list/reduce.cuh"
#include "ops/segment/cuda/list/select.cuh"
#include "ops/segment/cuda/sort/rows.cuh"
#include "ops/segment/launch.h"

namespace baracuda::segment {
namespace {

// Whether a rule's pieces of a list take reduce_list.
template <class Tag>
constexpr bool reduces_list() {
  return Call<Tag>::kReduces && !takes_pieces_singly<Tag>();
}

// The scratch of one call whose rows are sorted.
template <class Tag>
struct ListScratch {
  WorkspaceLayout layout;
  Gate gate;  // of reductions alone
  RowSorter sorter;
  Parts<Rule<Tag>> parts;
  CutSegments cut;

  ListScratch(const Problem& p, void* workspace, Gate closes = {})
      : gate(closes), sorter(p, zero_words(p), closes, layout, workspace), parts(p, layout, workspace),
        cut(p, parts.piece_bits, sorter.zeros(), layout, workspace) {}

  // For each segment of several pieces and each block of columns, how many of its pieces are kept.
  uint32_t* kept() const { return sorter.zeros() + 1; }

 private:
  // What is 0 before rows are folded: how many segments are listed; of reductions also what is kept.
  static int64_t zero_words(const Problem& p) {
    return 1 + (reduces_list<Tag>() ? ListShape::counters(p.n, piece_bits_for<Rule<Tag>>(p), p.d) : 0);
  }
};

template <class Tag>
Status enqueue_join(const Call<Tag>& call, const List& list, const ListScratch<Tag>& scratch, Stream stream) {
  // No segment of several pieces.
  if (list.n <= list.piece_rows()) return Status::kOk;
  return launch_early("segment join kernel", join_parts<Tag>, join_blocks(list, call.d), kJoinThreads, 0, stream, call,
                      list, scratch.parts, scratch.cut, scratch.gate);
}

// Tasks that fill a GPU. Rules that write rows, too, take longer over a window.
template <class Tag>
constexpr int64_t kManyTasks = int64_t{1} << (reduces_list<Tag>() ? 12 : 14);

template <int V, class Tag>
Status enqueue_pieces(const Call<Tag>& call, const List& list, const ListScratch<Tag>& scratch, Stream stream) {
  const ListShape shape(list, call.d, V, kManyTasks<Tag>);
  const int64_t tasks = shape.tasks + fill_tasks(call);
  const uint32_t blocks = blocks_for(tasks, kWarps);
  const size_t shared_bytes = shape.shared_bytes();
  if constexpr (reduces_list<Tag>()) {
    BARACUDA_RETURN_IF_FAILED(launch_early("segment reduce kernel", reduce_list<Tag, V>, scratch.gate.blocks(blocks),
                                           kThreads, shared_bytes, stream, call, shape, list, scratch.parts,
                                           scratch.cut, tasks, scratch.kept(), scratch.gate));
  } else if constexpr (!takes_pieces_singly<Tag>()) {
    BARACUDA_RETURN_IF_FAILED(launch_early("segment select kernel", select_in_list<Tag, V>, blocks, kThreads,
                                           shared_bytes, stream, call, shape, list, scratch.parts, scratch.cut, tasks));
  } else {
    BARACUDA_RETURN_IF_FAILED(launch_early("segment distribute kernel", distribute_list<Tag, V>, blocks, kThreads,
                                           shared_bytes, stream, call, shape, list, scratch.parts, scratch.cut, tasks));
  }
  BARACUDA_RETURN_IF_FAILED(enqueue_join(call, list, scratch, stream));
  if constexpr (takes_pieces_singly<Tag>() && !Call<Tag>::kReduces) {
    if (list.n > list.piece_rows()) {
      return launch_early("segment finish kernel", distribute_parts<Tag, V>,
                          blocks_for(shape.finish_tasks(list.n), kWarps), kThreads, 0, stream, call, shape, list,
                          scratch.parts);
    }
  }
  return Status::kOk;
}

template <class Tag>
Status enqueue_list(const Problem& p, const Buffers<Tag>& b, void* workspace, Stream stream, Gate gate = {}) {
  const ListScratch<Tag> scratch(p, workspace, gate);
  List list;
  BARACUDA_RETURN_IF_FAILED(
      scratch.sorter.enqueue(FromIds{index_of(p, b)}, scratch.parts.piece_bits, stream, &list));
  // Wider accesses only as far as a row still fills half a warp, or all of it where rows are written, too.
  constexpr int32_t kLanes = reduces_list<Tag>() ? 16 : 32;
  return with_columns(p, b, p.d >= 4 * kLanes ? 4 : p.d >= 2 * kLanes ? 2 : 1, [&](auto columns) {
    return enqueue_pieces<decltype(columns)::value>(Call<Tag>(p, b), list, scratch, stream);
  });
}

}  // namespace
}  // namespace baracuda::segment
