// SPDX-License-Identifier: Apache-2.0
// Segment selections on CUDA: which path a problem takes, its scratch and its launches.
#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "ops/segment/cuda_chunks.cuh"
#include "ops/segment/cuda_pieces.cuh"
#include "ops/segment/cuda_sort.cuh"
#include "ops/segment/cuda_table.cuh"
#include "ops/segment/launch.h"

namespace baracuda::segment {
namespace {

// The scratch of one call and how its work is cut.
template <class Side>
struct Plan {
  using T = typename Side::Element;
  WorkspaceLayout layout;
  Sorter sorter;
  Shape shape;
  Chunks chunks;
  Pieces<T> pieces;
  uint8_t* present;  // [num_segments], forward alone

  Plan(const Problem& p, void* workspace)
      : sorter(p, layout, workspace),
        shape(shape_for(p, Pieces<T>::bytes_per_column(Side::kWithRows))),
        chunks{p.n, shape.chunk()},
        pieces(p, chunks, Side::kWithRows, layout, workspace),
        present(workspace_array<uint8_t>(workspace, layout.reserve<uint8_t>(Side::kWithRows ? 0 : p.num_segments))) {}
};

template <class Side, int V>
Status enqueue_chunks(const Plan<Side>& plan, const Side& side, Stream stream) {
  using T = typename Side::Element;
  const Record* list = plan.sorter.list();
  const uint32_t blocks = blocks_for(plan.chunks.count() * blocks_of_columns(side.d, plan.shape, V), 1);
  BARACUDA_RETURN_IF_FAILED(launch_kernel("segment chunk kernel", own_chunks<Side, V>, blocks, kThreads,
                                          BlockTables<Side, V>::bytes(plan.shape), stream, side, plan.shape,
                                          plan.chunks, list, plan.pieces));
  const int64_t windows = (plan.chunks.count() + kJoinWarps - 1) / kJoinWarps;
  BARACUDA_RETURN_IF_FAILED(launch_kernel("segment join kernel", join_chunks<Side>,
                                          blocks_for(windows * ((static_cast<int64_t>(side.d) + 31) / 32), 1),
                                          kJoinThreads, 0, stream, side, plan.chunks, list, plan.pieces));
  if constexpr (Side::kWithRows) {
    return launch_kernel("segment finish kernel", finish_chunks<Bits<T>, V>, blocks, kThreads, 0, stream, side.gradient,
                         plan.shape, plan.chunks, list, plan.pieces.rows, plan.pieces.starts);
  } else {
    return launch_kernel("segment fill kernel", fill_empty<Bits<T>>,
                         blocks_for((static_cast<int64_t>(side.num_segments) + 31) / 32 *
                                        ((side.d + kFillColumns - 1) / kFillColumns),
                                    1),
                         kThreads, 0, stream, side.d, side.num_segments, plan.present,
                         bits_as<Bits<T>>(of_no_rows<T>(typename Side::Rule{})), bits_of(side.output));
  }
}

template <class Side>
Status enqueue_sorted(const Plan<Side>& plan, const Side& side, const Ids& ids, uintptr_t addresses, Stream stream) {
  using T = typename Side::Element;
  BARACUDA_RETURN_IF_FAILED(plan.sorter.enqueue(ids, stream));
  // Wider accesses only as far as a row still fills a warp.
  switch (columns_per_access(side.d, sizeof(T), addresses, side.d > 64 ? 4 : side.d > 32 ? 2 : 1)) {
    case 4:
      if constexpr (sizeof(T) <= 4) return enqueue_chunks<Side, 4>(plan, side, stream);
      [[fallthrough]];
    case 2:
      return enqueue_chunks<Side, 2>(plan, side, stream);
    default:
      return enqueue_chunks<Side, 1>(plan, side, stream);
  }
}

template <class Rule, typename T, typename I>
Status enqueue_sorted(const Problem& p, const SelectBuffers<Rule, T, I>& b, void* workspace, Stream stream) {
  const Plan<Forward<Rule, T>> plan(p, workspace);
  const Forward<Rule, T> side{p.d, p.num_segments, b.input, b.output, plan.present};
  BARACUDA_RETURN_IF_FAILED(enqueue_zeros(plan.present, static_cast<size_t>(p.num_segments), stream));
  return enqueue_sorted(plan, side, Ids(b.segment_ids, p.num_segments), addresses_of(b), stream);
}

template <class Rule, typename T, typename I>
Status enqueue_sorted(const Problem& p, const SelectBackwardBuffers<Rule, T, I>& b, void* workspace, Stream stream) {
  const Plan<Backward<Rule, T>> plan(p, workspace);
  const Backward<Rule, T> side{
      p.d, p.num_segments, b.input, {p.d, p.num_segments, bits_of(b.grad_output), bits_of(b.grad_input)}};
  return enqueue_sorted(plan, side, Ids(b.segment_ids, p.num_segments), addresses_of(b), stream);
}

// The table is the faster path where it fits; f64 does not fit a candidate. Like the workspace, the choice follows from
// the scalars alone.
template <typename T>
bool takes_table(const Problem& p) {
  return sizeof(T) <= kCandidateBytes && fits_table(p);
}

template <class Rule, typename T, typename I>
Status run(const Problem& p, const SelectBuffers<Rule, T, I>& b, void* workspace, Stream stream) {
  if constexpr (sizeof(T) <= kCandidateBytes) {
    if (takes_table<T>(p)) return enqueue_table(p, b, workspace, stream);
  }
  return enqueue_sorted(p, b, workspace, stream);
}

template <class Rule, typename T, typename I>
Status run(const Problem& p, const SelectBackwardBuffers<Rule, T, I>& b, void* workspace, Stream stream) {
  if (p.num_segments == 0) {
    return enqueue_zeros(b.grad_input, static_cast<size_t>(p.input_numel) * sizeof(T), stream);
  }
  if constexpr (sizeof(T) <= kCandidateBytes) {
    if (takes_table<T>(p)) return enqueue_table(p, b, workspace, stream);
  }
  return enqueue_sorted(p, b, workspace, stream);
}

template <class Rule, typename T, typename I>
size_t bytes_of(const Problem& p, const SelectBuffers<Rule, T, I>*) {
  if (takes_table<T>(p)) return TablePlan(p, false, nullptr).layout.bytes();
  return Plan<Forward<Rule, T>>(p, nullptr).layout.bytes();
}
template <class Rule, typename T, typename I>
size_t bytes_of(const Problem& p, const SelectBackwardBuffers<Rule, T, I>*) {
  if (p.num_segments == 0) return 0;
  if (takes_table<T>(p)) return TablePlan(p, true, nullptr).layout.bytes();
  return Plan<Backward<Rule, T>>(p, nullptr).layout.bytes();
}

}  // namespace

template <typename Buffers>
size_t workspace_size(const Problem& problem) {
  return bytes_of(problem, static_cast<const Buffers*>(nullptr));
}

#define BARACUDA_PROVIDE(BUFFERS)           \
  BARACUDA_PROVIDE_LAUNCH(Problem, BUFFERS) \
  template size_t workspace_size<BUFFERS>(const Problem&);
#define BARACUDA_PROVIDE_TYPES(BUFFERS) \
  BARACUDA_PROVIDE(BUFFERS<float>)      \
  BARACUDA_PROVIDE(BUFFERS<double>)     \
  BARACUDA_PROVIDE(BUFFERS<Half>)       \
  BARACUDA_PROVIDE(BUFFERS<Bfloat16>)
BARACUDA_PROVIDE_TYPES(MaxBuffers)
BARACUDA_PROVIDE_TYPES(MaxBuffersI64)
BARACUDA_PROVIDE_TYPES(MaxBackwardBuffers)
BARACUDA_PROVIDE_TYPES(MaxBackwardBuffersI64)
#undef BARACUDA_PROVIDE_TYPES
#undef BARACUDA_PROVIDE

}  // namespace baracuda::segment
