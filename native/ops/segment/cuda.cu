// SPDX-License-Identifier: Apache-2.0
// Segment selections on CUDA: which path a problem takes, its scratch and its launches.
#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "ops/segment/cuda_pieces.cuh"
#include "ops/segment/cuda_sort.cuh"
#include "ops/segment/cuda_table.cuh"
#include "ops/segment/launch.h"

namespace baracuda::segment {
namespace {

struct NoContext {};

// A selection's output: the values that its states hold.
template <class Rule, typename T>
struct Forward {
  using Fold = Selection<Rule, T>;
  using Element = T;
  static constexpr bool kWritesRows = false;
  int32_t d;
  const T* input;
  T* output;

  template <int V>
  __device__ __forceinline__ NoContext context(int32_t, int32_t) const {
    return {};
  }
  template <int V>
  __device__ __forceinline__ void finish_segment(int32_t key, int32_t column, const State<Fold, V>& state,
                                                 int32_t) const {
    store<V>(output + static_cast<int64_t>(key) * d + column, state.first);
  }
};

// Its gradient: the segment's, as bits, for the row that holds the value.
template <class Rule, typename T>
struct Backward {
  using Fold = Selection<Rule, T>;
  using Element = T;
  using W = Bits<T>;
  static constexpr bool kWritesRows = true;
  int32_t d;
  int32_t num_segments;
  const T* input;
  const W* grad_output;
  W* grad_input;

  template <int V>
  __device__ __forceinline__ Columns<W, V> context(int32_t key, int32_t column) const {
    if (key == num_segments) return {};
    return load<V>(grad_output + static_cast<int64_t>(key) * d + column);
  }
  template <int V>
  __device__ __forceinline__ void finish_row(int32_t row, int32_t column, const State<Fold, V>& state,
                                             const Columns<W, V>& gradient) const {
    Columns<W, V> values;
#pragma unroll
    for (int k = 0; k < V; ++k) values.at[k] = state.second.at[k] == row ? gradient.at[k] : W{0};
    store<V>(grad_input + static_cast<int64_t>(row) * d + column, values);
  }
  template <int V>
  __device__ __forceinline__ void drop_row(int32_t row, int32_t column) const {
    store<V>(grad_input + static_cast<int64_t>(row) * d + column, Columns<W, V>{});
  }
};

// The scratch of one call.
template <class Side>
struct Plan {
  WorkspaceLayout layout;
  Sorter sorter;
  PartsOf<Side> parts;

  Plan(const Problem& p, void* workspace) : sorter(p, layout, workspace), parts(p, layout, workspace) {}
};

template <int V, class Side>
Status enqueue_pieces(const Side& side, const List& list, const PartsOf<Side>& parts, Stream stream) {
  const Shape shape(list, side.d, V);
  const uint32_t blocks = shape.blocks(list.n);
  BARACUDA_RETURN_IF_FAILED(launch_dependent_kernel("segment piece kernel", reduce_pieces<Side, V>, blocks, kThreads, 0,
                                                    stream, side, shape, list, parts));
  // No segment of several pieces.
  if (list.n <= list.piece_rows()) return Status::kOk;
  const int64_t windows = (slot_count(list.n, list.piece_bits) / 2 + kJoinWarps - 1) / kJoinWarps;
  BARACUDA_RETURN_IF_FAILED(launch_dependent_kernel(
      "segment join kernel", join_parts<Side>, blocks_for(windows * ((static_cast<int64_t>(side.d) + 31) / 32), 1),
      kJoinThreads, 0, stream, side, list, parts));
  if constexpr (Side::kWritesRows) {
    return launch_dependent_kernel("segment finish kernel", finish_parts<Side, V>, blocks, kThreads, 0, stream, side,
                                   shape, list, parts);
  }
  return Status::kOk;
}

template <class Side>
Status enqueue_sorted(const Plan<Side>& plan, const Side& side, const Ids& ids, uintptr_t addresses, List* list,
                      Stream stream) {
  using T = typename Side::Element;
  BARACUDA_RETURN_IF_FAILED(plan.sorter.enqueue(ids, plan.parts.piece_bits, stream, list));
  // Wider accesses only as far as a row still fills a warp.
  switch (columns_per_access(side.d, sizeof(T), addresses, side.d > 64 ? 4 : side.d > 32 ? 2 : 1)) {
    case 4:
      if constexpr (sizeof(T) <= 4) return enqueue_pieces<4>(side, *list, plan.parts, stream);
      [[fallthrough]];
    case 2:
      return enqueue_pieces<2>(side, *list, plan.parts, stream);
    default:
      return enqueue_pieces<1>(side, *list, plan.parts, stream);
  }
}

template <class Rule, typename T, typename I>
Status enqueue_sorted(const Problem& p, const SelectBuffers<Rule, T, I>& b, void* workspace, Stream stream) {
  const Plan<Forward<Rule, T>> plan(p, workspace);
  const Forward<Rule, T> side{p.d, b.input, b.output};
  List list;
  BARACUDA_RETURN_IF_FAILED(
      enqueue_sorted(plan, side, Ids(b.segment_ids, p.num_segments), addresses_of(b), &list, stream));
  return launch_dependent_kernel("segment fill kernel", fill_empty<Bits<T>>,
                                 blocks_for((static_cast<int64_t>(p.num_segments) + 31) / 32 *
                                                ((p.d + kFillColumns - 1) / kFillColumns),
                                            1),
                                 kFillThreads, 0, stream, list, p.d, bits_as<Bits<T>>(of_no_rows<T>(Rule{})),
                                 bits_of(b.output));
}

template <class Rule, typename T, typename I>
Status enqueue_sorted(const Problem& p, const SelectBackwardBuffers<Rule, T, I>& b, void* workspace, Stream stream) {
  const Plan<Backward<Rule, T>> plan(p, workspace);
  const Backward<Rule, T> side{p.d, p.num_segments, b.input, bits_of(b.grad_output), bits_of(b.grad_input)};
  List list;
  return enqueue_sorted(plan, side, Ids(b.segment_ids, p.num_segments), addresses_of(b), &list, stream);
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
