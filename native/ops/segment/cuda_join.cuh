// SPDX-License-Identifier: Apache-2.0
// What is kept of the pieces of a segment becomes the segment's, on CUDA, in the order that a rule asks for.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/segment/cuda_pieces.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// Joins the parts of segments of several pieces, a few columns at a time: a few lanes those of a short one, a block
// those of a long one. If parts may be joined in any grouping, the lanes of the block that have a column join a share
// each and one of them what they have; if not, the first warp adds parts in ascending order while the others fetch the
// next ones. Of sums of exponentials, what each part is scaled by follows from the values before it alone.
constexpr int kJoinWarps = 16;
constexpr int kJoinThreads = 32 * kJoinWarps;
// Few, so that a long segment keeps many blocks busy and a warp fetches several parts at once. Their loads are sectors.
constexpr int kJoinColumns = 8;
constexpr int kJoinSlots = 32 / kJoinColumns;
// Blocks: more segments take turns.
constexpr int64_t kJoinBlocks = 256;
// Pieces of a short segment, and how many a lane fetches at once.
constexpr int kJoinAlone = 64;
constexpr int kJoinAtOnce = 16;
// Parts of a lane in a batch that all warps but the first bring to it, and batches on their way: adding takes less time
// than fetching.
constexpr int kJoinBatch = 2;
constexpr int kJoinDepth = 4;
constexpr int kJoinTogether = (kJoinWarps - 1) * kJoinSlots * kJoinBatch;
static_assert(kJoinDepth % 2 == 0);
// Where parts are scaled, all warps but the first two bring and scale them, in two teams that take turns: while one
// works, the other one's loads arrive. A run is what one warp of a team brings of a batch.
constexpr int kScaleWarps = (kJoinWarps - 2) / 2;
constexpr int kScaledBatch = 4;
constexpr int kScaledRun = kJoinSlots * kScaledBatch;
constexpr int kScaledTogether = kScaleWarps * kScaledRun;
// Steps from the one in which a batch is looked at to the one in which it is added.
constexpr int kScaledLate = 3;

template <class Fold, class Ranks>
struct Joiner {
  const Ranks& list;
  const Parts<Fold>& parts;
  int32_t key, begin, count;  // the segment, its first rank, its pieces
  int64_t column;             // lanes beyond the last column read the first one's
  int64_t first, stride;      // where its parts lie, but that the first one is half a stride further

  __device__ __forceinline__ Joiner(const Ranks& list, const Parts<Fold>& parts, int32_t d, int32_t key,
                                    int64_t column_block)
      : list(list), parts(parts), key(key), begin(list.begin(key)),
        count((list.length(key) + list.piece_rows() - 1) >> list.piece_bits),
        column(column_block * kJoinColumns + threadIdx.x % kJoinColumns),
        first(list.slot(begin, false) * d + (column < d ? column : 0)), stride(2 * int64_t{d}) {}

  // Beyond the last piece the last one again, without a branch.
  __device__ __forceinline__ State<Fold, 1> part(int32_t piece) const {
    const int32_t at = piece < count ? piece : count - 1;
    return load_part<1>(parts, first + at * stride + (at == 0 ? stride / 2 : 0));
  }
  // The same of a piece that is not the first one of several, in fewer operations: neither factor is negative.
  __device__ __forceinline__ State<Fold, 1> later_part(int32_t piece) const {
    const uint32_t at = piece < count ? piece : count - 1;
    return load_part<1>(parts, first + static_cast<int64_t>(uint64_t{at} * static_cast<uint32_t>(stride)));
  }
  // Those of this lane's slot, from a batch's first one on.
  __device__ __forceinline__ void fetch(int32_t batch, State<Fold, 1> (&fetched)[kJoinBatch]) const {
#pragma unroll
    for (int u = 0; u < kJoinBatch; ++u) fetched[u] = part(batch + place(u));
  }
  // Where in a batch a part of this lane's slot stands.
  static __device__ __forceinline__ int32_t place(int u) {
    const int32_t warp = threadIdx.x / 32 - 1;
    return (warp * kJoinBatch + u) * kJoinSlots + static_cast<int32_t>(threadIdx.x % 32 / kJoinColumns);
  }
};

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

template <class Fold, class Ranks>
__device__ __forceinline__ State<Fold, 1> join_in_order(const Joiner<Fold, Ranks>& joiner, int32_t first,
                                                        int32_t last) {
  State<Fold, 1> state{}, fetched[kJoinAtOnce];
#pragma unroll 1
  for (int32_t batch = first; batch < last; batch += kJoinAtOnce) {
#pragma unroll
    for (int u = 0; u < kJoinAtOnce; ++u) fetched[u] = joiner.part(batch + u);
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

// The same by a block; the first lanes have the answer. While the first warp adds one half of the tables, the others
// fill the other one.
template <class Fold, class Ranks>
__device__ State<Fold, 1> join_pipelined(const Joiner<Fold, Ranks>& joiner, JoinTables<Fold>& tables) {
  const bool adds = threadIdx.x < 32;
  State<Fold, 1> state{}, fetched[kJoinDepth][kJoinBatch];
#pragma unroll
  for (int depth = 0; depth < kJoinDepth; ++depth) {
    if (!adds) joiner.fetch(depth * kJoinTogether, fetched[depth]);
  }
#pragma unroll 1
  for (int32_t round = 0; round < joiner.count; round += kJoinDepth * kJoinTogether) {
#pragma unroll
    for (int depth = 0; depth < kJoinDepth; ++depth) {
      const int32_t batch = round + depth * kJoinTogether;
      if (batch >= joiner.count) break;
      const int half = depth % 2 * kJoinTogether;
      if (!adds) {
#pragma unroll
        for (int u = 0; u < kJoinBatch; ++u) tables.put(half + joiner.place(u), fetched[depth][u]);
      }
      __syncthreads();
      if (!adds) {
        joiner.fetch(batch + kJoinDepth * kJoinTogether, fetched[depth]);
        continue;
      }
      const int32_t left = joiner.count - batch;
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

// What warps hand on where parts are scaled: while a batch fills a half of a table, the other half, which the batch
// before it has filled, is read.
template <class Fold>
struct ScaledTables {
  using Number = typename Fold::First;
  static_assert(std::is_same_v<Number, typename Fold::Second>);
  // Factors, each with its part's sum behind it, as many as one access brings. A negative one scales the sum of all
  // parts before it, a positive one its part's.
  static constexpr int kAtOnce = 8 / sizeof(Number);
  struct alignas(16) Steps {
    Number factor_and_sum[2 * kAtOnce];
  };
  Steps steps[2][kScaledTogether / kAtOnce][kJoinColumns];
  Number largest[2][kScaleWarps][kJoinColumns];     // of each run
  Number before[2][kScaleWarps + 1][kJoinColumns];  // the largest of all parts before each run, and with the last one's
  bool grows[2][kScaleWarps];                       // whether a factor of a run is negative, in any column
  bool has_nan[kJoinColumns];
};

// Parts that the first warp looks at together: it reads a group while it adds the one before.
template <class Fold>
struct ScaledGroup {
  using Tables = ScaledTables<Fold>;
  static constexpr int kAtOnce = Tables::kAtOnce;
  static constexpr int kSteps = 8;
  static constexpr int kParts = kSteps * kAtOnce;
  static_assert(kScaledRun % kParts == 0);
  typename Tables::Steps steps[kSteps];

  // `from` is where the group's first one of this column is.
  __device__ __forceinline__ void read(const typename Tables::Steps* from, int i) { steps[i] = from[i * kJoinColumns]; }
  // Reads the next group, if there is one, beside the first half: what is read last is there at the end, too.
  template <bool kGrows>
  __device__ __forceinline__ void add_to(typename Fold::Second& sum, ScaledGroup& next,
                                         const typename Tables::Steps* from) const {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const auto* step = of(i);
      const bool grows = kGrows && step[0] < 0;
      Fold::take(sum, {grows ? -step[0] : step[0], grows}, step[1]);
      if (from != nullptr && i % kAtOnce == 0 && i < kParts / 2) {
        next.read(from, 2 * i / kAtOnce);
        next.read(from, 2 * i / kAtOnce + 1);
      }
    }
  }
  // A part's factor and its sum.
  __device__ __forceinline__ const typename Fold::First* of(int i) const {
    return steps[i / kAtOnce].factor_and_sum + 2 * (i % kAtOnce);
  }
};

// Adds a batch's parts to the sum; `growing` has a bit for each run. A sum that may be what is scaled makes the chain
// of operations twice as long, but is rare; a batch without one is added without a branch.
template <bool kGrows, class Fold>
__device__ __forceinline__ void add_batch(const ScaledTables<Fold>& tables, int half, uint32_t growing, int column,
                                          typename Fold::Second& sum) {
  using Group = ScaledGroup<Fold>;
  constexpr int kGroups = kScaledTogether / Group::kParts;
  Group groups[2];
#pragma unroll
  for (int i = 0; i < Group::kSteps; ++i) groups[0].read(&tables.steps[half][0][column], i);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    Group& next = groups[(group + 1) % 2];
    const auto* from = group + 1 < kGroups ? &tables.steps[half][(group + 1) * Group::kSteps][column] : nullptr;
    if (kGrows && (growing >> group * Group::kParts / kScaledRun & 1) != 0) {
      groups[group % 2].template add_to<true>(sum, next, from);
    } else {
      groups[group % 2].template add_to<false>(sum, next, from);
    }
  }
}

// The end of a step: a barrier of the whole block that the roles reach at different places of the code, which
// __syncthreads() must not.
__device__ __forceinline__ void end_step() {
  asm volatile("barrier.sync 1, %0;" ::"n"(kJoinThreads) : "memory");
}

// The same where parts are scaled, in steps that end at a barrier. Of a batch, a team finds the largest value of each
// run; one step later the second warp the largest value before each run; one later the team the factors; one later the
// first warp adds. Each role has a loop of its own, and all arrive at as many barriers. Maxima are plain ones: where a
// value is NaN the sum may be any number, and what it is scaled by does not depend on the sign of 0.
template <class Fold, class Ranks>
__device__ State<Fold, 1> join_scaled(const Joiner<Fold, Ranks>& joiner, ScaledTables<Fold>& tables) {
  using Number = typename Fold::First;
  // What follows from it is found out here rather than before the loop over tasks, where short segments need registers.
  int thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  const int warp = thread / 32, slot = thread % 32 / kJoinColumns, column = thread % kJoinColumns;
  if (thread < kJoinColumns) tables.has_nan[column] = false;
  auto state = state_of_none<Fold, 1>();
  const int32_t steps = (joiner.count + kScaledTogether - 1) / kScaledTogether + kScaledLate;
  if (warp == 0) {
#pragma unroll 1
    for (int32_t step = 0; step < steps; ++step) {
      const int half = (step + 1) % 2;
      if (step >= kScaledLate) {
        const bool grows = thread < kScaleWarps && tables.grows[half][thread];
        const uint32_t growing = __ballot_sync(0xffffffffu, grows);
        // The other slots' reads would take the tables' time.
        if (slot == 0 && growing == 0) {
          add_batch<false, Fold>(tables, half, growing, column, state.second.at[0]);
        } else if (slot == 0) {
          add_batch<true, Fold>(tables, half, growing, column, state.second.at[0]);
        }
      }
      end_step();
    }
  } else if (warp == 1) {
    // Of each slot, so that there is one more at the end.
    constexpr int kRuns = (kScaleWarps + kJoinSlots) / kJoinSlots;
    Number largest = state.first.at[0];
#pragma unroll 1
    for (int32_t step = 0; step < steps; ++step) {
      const int half = (step + 1) % 2;
      if (step > 0) {
        Number of_slot = Limits<Number>::lowest(), before[kRuns];
#pragma unroll
        for (int i = 0; i < kRuns; ++i) {
          const int run = slot * kRuns + i;
          before[i] = of_slot;
          if (run < kScaleWarps) of_slot = fmax(of_slot, tables.largest[half][run][column]);
        }
        Number of_earlier = largest;
#pragma unroll
        for (int i = 0; i < kJoinSlots; ++i) {
          const Number other = __shfl_sync(0xffffffffu, of_slot, i * kJoinColumns + column);
          if (i < slot) of_earlier = fmax(of_earlier, other);
          largest = fmax(largest, other);
        }
#pragma unroll
        for (int i = 0; i < kRuns; ++i) {
          const int run = slot * kRuns + i;
          if (run <= kScaleWarps) tables.before[half][run][column] = fmax(of_earlier, before[i]);
        }
      }
      end_step();
    }
  } else {
    const int team = (warp - 2) / kScaleWarps, run = (warp - 2) % kScaleWarps;
    const int32_t place = (run * kJoinSlots + slot) * kScaledBatch;
    // Two of the team's batches: the later one is on its way or looked at, the earlier one is to be scaled.
    State<Fold, 1> fetched[2][kScaledBatch];
    Number before[2];  // the largest value of the run before a lane's parts
    bool has_nan = false;
    // The slots before this one, the first ones again for lack of more.
    int earlier[kJoinSlots - 1];
#pragma unroll
    for (int i = 0; i < kJoinSlots - 1; ++i) earlier[i] = (i < slot ? i : 0) * kJoinColumns + column;
#pragma unroll
    for (int u = 0; u < kScaledBatch; ++u) fetched[0][u] = joiner.part(team * kScaledTogether + place + u);
    if (team == 1) end_step();
#pragma unroll 1
    for (int32_t round = team; round < steps; round += 4) {
#pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        const int32_t step = round + 2 * turn;
        if (step >= steps) break;
        // First what was fetched in the team's last turn: a wait for loads is one for all that are on their way, so
        // none may be younger.
        Number largest = fetched[turn][0].first.at[0], of_earlier = Limits<Number>::lowest();
        has_nan |= is_nan(largest);
#pragma unroll
        for (int u = 1; u < kScaledBatch; ++u) {
          const Number mine = fetched[turn][u].first.at[0];
          has_nan |= is_nan(mine);
          largest = fmax(largest, mine);
        }
#pragma unroll
        for (int i = 0; i < kJoinSlots - 1; ++i) {
          of_earlier = fmax(of_earlier, __shfl_sync(0xffffffffu, largest, earlier[i]));
        }
        before[turn] = slot == 0 ? Limits<Number>::lowest() : of_earlier;
        if (slot == kJoinSlots - 1) tables.largest[team][run][column] = fmax(before[turn], largest);
        State<Fold, 1>(&parts)[kScaledBatch] = fetched[1 - turn];
        if (step >= 2) {
          constexpr int kAtOnce = ScaledTables<Fold>::kAtOnce;
          typename ScaledTables<Fold>::Steps scaled[kScaledBatch / kAtOnce];
          Number highest = fmax(before[1 - turn], tables.before[team][run][column]);
          bool grows = false;
#pragma unroll
          for (int u = 0; u < kScaledBatch; ++u) {
            const auto next = Fold::step_to(highest, parts[u].first.at[0]);
            Number* to = scaled[u / kAtOnce].factor_and_sum + 2 * (u % kAtOnce);
            to[0] = next.grows ? -next.factor : next.factor;
            // Behind the last part is the same again, without its sum.
            to[1] = (step - 2) * kScaledTogether + place + u < joiner.count ? parts[u].second.at[0] : Number(0);
            grows |= next.grows;
          }
#pragma unroll
          for (int i = 0; i < kScaledBatch / kAtOnce; ++i) {
            tables.steps[team][place / kAtOnce + i][column] = scaled[i];
          }
          grows = __any_sync(0xffffffffu, grows);
          if (thread % 32 == 0) tables.grows[team][run] = grows;
        }
#pragma unroll
        for (int u = 0; u < kScaledBatch; ++u) {
          parts[u] = joiner.later_part((step + 2) * kScaledTogether + place + u);
        }
        end_step();
        // The other team's step.
        if (step + 1 < steps) end_step();
      }
    }
    if (has_nan) tables.has_nan[column] = true;
  }
  __syncthreads();
  // Beyond the last part the largest value stays what it is, so that either half has it.
  state.first.at[0] = tables.has_nan[column] ? canonical_nan<Number>() : tables.before[0][kScaleWarps][column];
  return state;
}

template <class Fold>
using TablesOf = std::conditional_t<IsExponentialSum<Fold>::value, ScaledTables<Fold>, JoinTables<Fold>>;

// The first lanes have the answer.
template <class Fold, class Ranks>
__device__ State<Fold, 1> join_together(const Joiner<Fold, Ranks>& joiner, TablesOf<Fold>& tables) {
  if constexpr (Fold::kAnyGrouping) {
    constexpr int kShares = kJoinWarps * kJoinSlots;
    const int32_t each = (joiner.count + kShares - 1) / kShares, share = threadIdx.x / kJoinColumns;
    const int32_t first = share * each, last = first + each;
    auto state = join_in_order(joiner, first, last < joiner.count ? last : joiner.count);
    __syncthreads();
    tables.put(share, state);
    __syncthreads();
    for (int i = 1; share == 0 && i < kShares && i * each < joiner.count; ++i) state.join(tables.get(i));
    return state;
  } else if constexpr (IsExponentialSum<Fold>::value) {
    return join_scaled(joiner, tables);
  } else {
    return join_pipelined(joiner, tables);
  }
}

template <class Name, class Ranks>
__device__ __forceinline__ void finish_join(const Side<Name>& side, const Joiner<Rule<Name>, Ranks>& joiner,
                                            const State<Rule<Name>, 1>& state) {
  if (joiner.column >= side.d) return;
  const int32_t column = static_cast<int32_t>(joiner.column);
  if constexpr (Side<Name>::kReduces) {
    side.template finish_segment<1>(joiner.key, column, state, joiner.list.length(joiner.key));
  } else if constexpr (!Rule<Name>::kReadsRowsAgain) {
    side.finish_holder(joiner.key, column, state);
  } else {
    store_part(joiner.parts, joiner.list.slot(joiner.begin, true) * side.d + column, state);
  }
}

template <class Name, class Ranks>
__device__ __forceinline__ void join_all(const Side<Name>& side, const Ranks& list, const Parts<Rule<Name>>& parts,
                                         const Cuts& cuts) {
  using Fold = Rule<Name>;
  __shared__ TablesOf<Fold> tables;
  constexpr int kShares = kJoinThreads / kJoinColumns;
  __shared__ int64_t long_tasks[kShares];
  const int share = threadIdx.x / kJoinColumns;
  const int64_t column_blocks = (static_cast<int64_t>(side.d) + kJoinColumns - 1) / kJoinColumns;
  const int64_t tasks = static_cast<int64_t>(*cuts.count) * column_blocks;
  const auto joiner_of = [&](int64_t task) {
    return Joiner<Fold, Ranks>(list, parts, side.d, cuts.keys[task / column_blocks], task % column_blocks);
  };
  // Few tasks go to as many blocks: each may be a long one.
  for (int64_t first = 0; first < tasks; first += int64_t{gridDim.x} * kShares) {
    const int64_t mine = first + static_cast<int64_t>(share) * gridDim.x + blockIdx.x;
    bool is_long = false;
    if (mine < tasks) {
      const auto joiner = joiner_of(mine);
      is_long = joiner.count > kJoinAlone;
      if (!is_long) finish_join(side, joiner, join_in_order(joiner, 0, joiner.count));
    }
    if (threadIdx.x % kJoinColumns == 0) long_tasks[share] = is_long ? mine : -1;
    __syncthreads();
    for (int i = 0; i < kShares && first + static_cast<int64_t>(i) * gridDim.x + blockIdx.x < tasks; ++i) {
      if (long_tasks[i] < 0) continue;
      const auto joiner = joiner_of(long_tasks[i]);
      const State<Fold, 1> state = join_together(joiner, tables);
      if (share == 0) finish_join(side, joiner, state);
      __syncthreads();
    }
    __syncthreads();
  }
}

template <class Name>
__global__ void __launch_bounds__(kJoinThreads)
    join_parts(Side<Name> side, List list, Parts<Rule<Name>> parts, Cuts cuts) {
  wait_for_kernel_before();
  let_kernel_after_start();
  join_all(side, list, parts, cuts);
}
// As many as there may be segments of several pieces, as far as they fill a GPU, but at least one.
inline uint32_t join_blocks(const Pieces& list, int32_t d) {
  const int64_t tasks = ((int64_t{list.n} >> list.piece_bits) + 1) * ((int64_t{d} + kJoinColumns - 1) / kJoinColumns);
  return static_cast<uint32_t>(tasks < kJoinBlocks ? tasks : kJoinBlocks);
}

}  // namespace
}  // namespace baracuda::segment
