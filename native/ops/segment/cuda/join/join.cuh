// SPDX-License-Identifier: Apache-2.0
// Joins the kept parts of segments of several pieces on CUDA, a few columns at a time: a few lanes join the parts of a
// segment with few, a block those of a segment with many. If a rule's parts may be joined in any grouping, the lanes of
// a column join a share of the parts each, and one of them the results; if not, the first warp adds parts in ascending
// order while the others fetch the next ones.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "ops/segment/cuda/call.cuh"
#include "ops/segment/cuda/gate.cuh"
#include "ops/segment/cuda/join/parts.cuh"
#include "ops/segment/cuda/join/scaled.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// Blocks: more segments take turns.
constexpr int64_t kJoinBlocks = 256;
// The most pieces of a segment that a few lanes join by themselves, and how many of its parts a lane fetches at once.
constexpr int kJoinAlone = 64;
constexpr int kJoinAtOnce = 16;
// Parts of a lane in a batch that all warps but the first bring to it, and batches on their way: adding takes less time
// than fetching.
constexpr int kJoinBatch = 2;
constexpr int kJoinDepth = 4;
constexpr int kJoinTogether = (kJoinWarps - 1) * kJoinSlots * kJoinBatch;
static_assert(kJoinDepth % 2 == 0);

template <class Fold>
struct JoinTables {
  // The two halves of what is added in order, or one part of each slot of the block.
  static constexpr int kParts = Fold::kAnyGrouping ? kJoinWarps * kJoinSlots : 2 * kJoinTogether;
  typename Fold::First first[kParts][kJoinColumns];
  typename Fold::Second second[kParts][kJoinColumns];

  __device__ __forceinline__ void put(int at, const State<Fold, 1>& state) {
    const int column = threadIdx.x % kJoinColumns;
    first[at][column] = state.first.at[0], second[at][column] = state.second.at[0];
  }
  __device__ __forceinline__ State<Fold, 1> get(int at) const {
    const int column = threadIdx.x % kJoinColumns;
    State<Fold, 1> state;
    state.first.at[0] = first[at][column], state.second.at[0] = second[at][column];
    return state;
  }
};

// Joins the parts [first, last) of a segment in ascending order.
template <class Fold, class Ranks>
__device__ __forceinline__ State<Fold, 1> join_ascending(const SegmentParts<Fold, Ranks>& segment, int32_t first,
                                                        int32_t last) {
  State<Fold, 1> state{}, fetched[kJoinAtOnce];
#pragma unroll 1
  for (int32_t batch = first; batch < last; batch += kJoinAtOnce) {
#pragma unroll
    for (int u = 0; u < kJoinAtOnce; ++u) fetched[u] = segment.part(batch + u);
#pragma unroll
    for (int u = 0; u < kJoinAtOnce; ++u) {
      if (batch + u == first) {
        state = fetched[u];
      } else if (batch + u < last) {
        state.join(fetched[u]);
      }
    }
  }
  return state;
}

// Where in a batch a part of this lane's slot stands.
__device__ __forceinline__ int32_t place_in_batch(int u) {
  const int32_t warp = threadIdx.x / 32 - 1;
  return (warp * kJoinBatch + u) * kJoinSlots + static_cast<int32_t>(threadIdx.x % 32 / kJoinColumns);
}

// Joins all parts of a segment in ascending order by a block; the first lanes have the answer. While the first warp
// adds one half of the tables, the others fill the other one.
template <class Fold, class Ranks>
__device__ State<Fold, 1> join_pipelined(const SegmentParts<Fold, Ranks>& segment, JoinTables<Fold>& tables) {
  const bool adds = threadIdx.x < 32;
  State<Fold, 1> state{}, fetched[kJoinDepth][kJoinBatch];
  const auto fetch = [&](int32_t batch, State<Fold, 1>(&to)[kJoinBatch]) {
#pragma unroll
    for (int u = 0; u < kJoinBatch; ++u) to[u] = segment.part(batch + place_in_batch(u));
  };
#pragma unroll
  for (int depth = 0; depth < kJoinDepth; ++depth) {
    if (!adds) fetch(depth * kJoinTogether, fetched[depth]);
  }
#pragma unroll 1
  for (int32_t round = 0; round < segment.count; round += kJoinDepth * kJoinTogether) {
#pragma unroll
    for (int depth = 0; depth < kJoinDepth; ++depth) {
      const int32_t batch = round + depth * kJoinTogether;
      if (batch >= segment.count) break;
      const int half = depth % 2 * kJoinTogether;
      if (!adds) {
#pragma unroll
        for (int u = 0; u < kJoinBatch; ++u) tables.put(half + place_in_batch(u), fetched[depth][u]);
      }
      __syncthreads();
      if (!adds) {
        fetch(batch + kJoinDepth * kJoinTogether, fetched[depth]);
        continue;
      }
      const int32_t left = segment.count - batch;
      int32_t i = 0;
      if (batch == 0) state = tables.get(i++);
      if (batch > 0 && left >= kJoinTogether) {
        // At once, so that parts are read long before they are added.
#pragma unroll
        for (int u = 0; u < kJoinTogether; ++u) state.join(tables.get(half + u));
        continue;
      }
#pragma unroll 4
      for (; i < kJoinTogether && i < left; ++i) state.join(tables.get(half + i));
    }
  }
  __syncthreads();
  return state;
}

template <class Fold>
using TablesOf = std::conditional_t<IsExponentialSum<Fold>::value, ScaledTables<Fold>, JoinTables<Fold>>;

// The first lanes have the answer.
template <class Fold, class Ranks>
__device__ State<Fold, 1> join_by_block(const SegmentParts<Fold, Ranks>& segment, TablesOf<Fold>& tables) {
  if constexpr (Fold::kAnyGrouping) {
    constexpr int kShares = kJoinWarps * kJoinSlots;
    const int32_t each = groups_of(segment.count, kShares), share = threadIdx.x / kJoinColumns;
    const int32_t first = share * each, last = first + each;
    auto state = join_ascending(segment, first, last < segment.count ? last : segment.count);
    __syncthreads();
    tables.put(share, state);
    __syncthreads();
    for (int i = 1; share == 0 && i < kShares && i * each < segment.count; ++i) state.join(tables.get(i));
    return state;
  } else if constexpr (IsExponentialSum<Fold>::value) {
    return join_scaled(segment, tables);
  } else {
    return join_pipelined(segment, tables);
  }
}

template <class Tag, class Ranks>
__device__ __forceinline__ void finish_join(const Call<Tag>& call, const SegmentParts<Rule<Tag>, Ranks>& segment,
                                            const State<Rule<Tag>, 1>& state) {
  if (segment.column >= call.d) return;
  const int32_t column = static_cast<int32_t>(segment.column);
  if constexpr (Call<Tag>::kReduces) {
    call.template finish_segment<1>(segment.key, column, state, segment.list.length(segment.key));
  } else if constexpr (!Rule<Tag>::kReadsRowsAgain) {
    call.finish_holder(segment.key, column, state);
  } else {
    store_part(segment.parts, segment.list.slot(segment.begin, true) * call.d + column, state);
  }
}

template <class Tag, class Ranks>
__device__ __forceinline__ void join_segments(const Call<Tag>& call, const Ranks& list, const Parts<Rule<Tag>>& parts,
                                         const CutSegments& cut) {
  using Fold = Rule<Tag>;
  __shared__ TablesOf<Fold> tables;
  constexpr int kShares = kJoinThreads / kJoinColumns;
  __shared__ int64_t long_tasks[kShares];
  const int share = threadIdx.x / kJoinColumns;
  const int64_t column_blocks = groups_of<int64_t>(call.d, kJoinColumns);
  const int64_t tasks = static_cast<int64_t>(*cut.count) * column_blocks;
  const auto parts_of = [&](int64_t task) {
    return SegmentParts<Fold, Ranks>(list, parts, call.d, cut.keys[task / column_blocks], task % column_blocks);
  };
  // Few tasks go to as many blocks: each may be a long one.
  for (int64_t first = 0; first < tasks; first += int64_t{gridDim.x} * kShares) {
    const int64_t mine = first + static_cast<int64_t>(share) * gridDim.x + blockIdx.x;
    bool is_long = false;
    if (mine < tasks) {
      const auto segment = parts_of(mine);
      is_long = segment.count > kJoinAlone;
      if (!is_long) finish_join(call, segment, join_ascending(segment, 0, segment.count));
    }
    if (threadIdx.x % kJoinColumns == 0) long_tasks[share] = is_long ? mine : -1;
    __syncthreads();
    for (int i = 0; i < kShares && first + static_cast<int64_t>(i) * gridDim.x + blockIdx.x < tasks; ++i) {
      if (long_tasks[i] < 0) continue;
      const auto segment = parts_of(long_tasks[i]);
      const State<Fold, 1> state = join_by_block(segment, tables);
      if (share == 0) finish_join(call, segment, state);
      __syncthreads();
    }
    __syncthreads();
  }
}

template <class Tag>
__global__ void __launch_bounds__(kJoinThreads)
    join_parts(Call<Tag> call, List list, Parts<Rule<Tag>> parts, CutSegments cut, Gate gate) {
  wait_for_kernel_before();
  let_kernel_after_start();
  if (gate.is_closed()) return;
  join_segments(call, list, parts, cut);
}
// Blocks for a join: as many as there may be segments of several pieces, but no more than fill a GPU, and at least one.
inline uint32_t join_blocks(const Pieces& list, int32_t d) {
  const int64_t tasks = ((int64_t{list.n} >> list.piece_bits) + 1) * groups_of<int64_t>(d, kJoinColumns);
  return static_cast<uint32_t>(tasks < kJoinBlocks ? tasks : kJoinBlocks);
}

}  // namespace
}  // namespace baracuda::segment
