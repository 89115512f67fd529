// SPDX-License-Identifier: Apache-2.0
// How a block joins what is kept of many pieces where the rule is a sum of exponentials, on CUDA: each part is scaled,
// and by what follows from the largest values before it alone.
#pragma once

#include "core/cuda_instructions.cuh"
#include "ops/segment/cuda/join/parts.cuh"

namespace baracuda::segment {
namespace {

// All warps but the first two bring parts and scale them, in two teams that take turns: while one works, the other
// one's loads arrive. A run is what one warp of a team brings of a batch.
constexpr int kScaleWarps = (kJoinWarps - 2) / 2;
constexpr int kScaledBatch = 4;
constexpr int kScaledRun = kJoinSlots * kScaledBatch;
constexpr int kScaledTogether = kScaleWarps * kScaledRun;
// Steps from the one in which a batch is looked at to the one in which it is added.
constexpr int kScaledLate = 3;

// What the warps hand to each other. Every table has two halves: while one batch fills one half, the other half is
// read, which the batch before has filled.
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

// Joins all parts in ascending order, in steps that end at a barrier; the first lanes have the answer. Of a batch, a
// team finds the largest value of each run; one step later the second warp the largest value before each run; one later
// the team the factors; one later the first warp adds. Each role has a loop of its own, and all arrive at as many
// barriers. Maxima are plain ones: where a value is NaN the sum may be any number, and what it is scaled by does not
// depend on the sign of 0.
template <class Fold, class Ranks>
__device__ State<Fold, 1> join_scaled(const SegmentParts<Fold, Ranks>& segment, ScaledTables<Fold>& tables) {
  using Number = typename Fold::First;
  // Opaque, so that the compiler computes what follows from it here, and not before the loop over tasks, where short
  // segments need the registers.
  int thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  const int warp = thread / 32, slot = thread % 32 / kJoinColumns, column = thread % kJoinColumns;
  if (thread < kJoinColumns) tables.has_nan[column] = false;
  auto state = state_of_none<Fold, 1>();
  // Spelled out: behind a call of groups_of() the compiler lays the loop out in another way.
  const int32_t steps = (segment.count + kScaledTogether - 1) / kScaledTogether + kScaledLate;
  if (warp == 0) {
#pragma unroll 1
    for (int32_t step = 0; step < steps; ++step) {
      const int half = (step + 1) % 2;
      if (step >= kScaledLate) {
        const bool grows = thread < kScaleWarps && tables.grows[half][thread];
        const uint32_t growing = __ballot_sync(kFullWarp, grows);
        // The other slots' reads would take the tables' time.
        if (slot == 0 && growing == 0) {
          add_batch<false, Fold>(tables, half, growing, column, state.second.at[0]);
        } else if (slot == 0) {
          add_batch<true, Fold>(tables, half, growing, column, state.second.at[0]);
        }
      }
      meet_from_anywhere<kJoinThreads>();
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
          const Number other = __shfl_sync(kFullWarp, of_slot, i * kJoinColumns + column);
          if (i < slot) of_earlier = fmax(of_earlier, other);
          largest = fmax(largest, other);
        }
#pragma unroll
        for (int i = 0; i < kRuns; ++i) {
          const int run = slot * kRuns + i;
          if (run <= kScaleWarps) tables.before[half][run][column] = fmax(of_earlier, before[i]);
        }
      }
      meet_from_anywhere<kJoinThreads>();
    }
  } else {
    const int team = (warp - 2) / kScaleWarps, run = (warp - 2) % kScaleWarps;
    const int32_t place = (run * kJoinSlots + slot) * kScaledBatch;
    // Two of the team's batches: the later one is on its way or looked at, the earlier one is to be scaled.
    State<Fold, 1> fetched[2][kScaledBatch];
    Number before[2];  // the largest value of the run before a lane's parts
    bool has_nan = false;
    // The lanes that hold the slots before this one. Where there are fewer, the first slot's again.
    int earlier[kJoinSlots - 1];
#pragma unroll
    for (int i = 0; i < kJoinSlots - 1; ++i) earlier[i] = (i < slot ? i : 0) * kJoinColumns + column;
#pragma unroll
    for (int u = 0; u < kScaledBatch; ++u) fetched[0][u] = segment.part(team * kScaledTogether + place + u);
    if (team == 1) meet_from_anywhere<kJoinThreads>();
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
          of_earlier = fmax(of_earlier, __shfl_sync(kFullWarp, largest, earlier[i]));
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
            // A part beyond the last is a copy of it, so its sum must not count again.
            to[1] = (step - 2) * kScaledTogether + place + u < segment.count ? parts[u].second.at[0] : Number(0);
            grows |= next.grows;
          }
#pragma unroll
          for (int i = 0; i < kScaledBatch / kAtOnce; ++i) {
            tables.steps[team][place / kAtOnce + i][column] = scaled[i];
          }
          grows = __any_sync(kFullWarp, grows);
          if (thread % 32 == 0) tables.grows[team][run] = grows;
        }
#pragma unroll
        for (int u = 0; u < kScaledBatch; ++u) {
          parts[u] = segment.later_part((step + 2) * kScaledTogether + place + u);
        }
        meet_from_anywhere<kJoinThreads>();
        // The other team's step.
        if (step + 1 < steps) meet_from_anywhere<kJoinThreads>();
      }
    }
    if (has_nan) tables.has_nan[column] = true;
  }
  __syncthreads();
  // Beyond the last part the largest value stays what it is, so that either half has it.
  state.first.at[0] = tables.has_nan[column] ? canonical_nan<Number>() : tables.before[0][kScaleWarps][column];
  return state;
}

}  // namespace
}  // namespace baracuda::segment
