// SPDX-License-Identifier: Apache-2.0
// Scans of dense rows. A block of threads has one tile, or as many short rows as fit in its place.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/scan/cuda/lines.cuh"
#include "ops/scan/cuda/tile_chain.cuh"
#include "ops/scan/math.h"

namespace baracuda::scan {
namespace {

// Blocks of threads of a multiprocessor, for whose states there are registers.
template <class Op>
constexpr int kRowBlocks = sizeof(typename Op::State) <= 4 ? 3 : sizeof(typename Op::State) <= 8 ? 2 : 1;

// What tiles of one row tell each other, in zeroed memory; nothing if rows have one tile.
template <class Op>
struct RowBoards {
  unsigned long long* next;  // the tile that no block of threads has taken yet
  Board<typename Op::Carry> carries;
  Board<typename Op::C> maxima;
};

// How the follower joins what tiles add.
template <class Op>
struct CarryChain {
  using Carry = typename Op::Carry;
  const Op& op;
  __device__ __forceinline__ auto link(const Carry& a, const Carry& b) const {
    if constexpr (Op::kHasLinks) {
      return op.link(a, b);
    } else {
      return NoLink{};
    }
  }
  template <class Link>
  __device__ __forceinline__ Carry join(const Carry& a, const Link& link, const Carry& b) const {
    if constexpr (Op::kHasLinks) {
      return op.follow(a, link, b);
    } else {
      return op.join(a, b);
    }
  }
};
template <typename C>
struct MaximumChain {
  __device__ __forceinline__ NoLink link(C, C) const { return {}; }
  __device__ __forceinline__ C join(C a, NoLink, C b) const { return larger(a, b); }
};

// Whether a block says what its next tile adds before it scans the one at hand. Then nobody waits: what stands before a
// tile is known once the block comes to it. The tile is read again, from the second-level cache. Where elements are
// dear to make, or are of several tensors, it is read once.
template <class Op>
constexpr bool kAnnouncesAhead = !Op::kHasMaxima && !Op::kReadsOthers;

// A lane's elements of its warp's lines; answers whether the warp's lines are whole.
template <class Op>
__device__ __forceinline__ bool load_leaves(const Op& op, const Problem& p, const typename Op::Buffers& b,
                                            const RowPlan& plan, const LaneSpot& mine,
                                            typename Op::State (&v)[kLinesPerWarp][kQuad]) {
  using T = typename Op::Element;
  using State = typename Op::State;
  const bool is_whole = __all_sync(kFullWarp, plan.has_vectors && mine.count(p, plan, kLinesPerWarp - 1) >= kQuad);
  if (is_whole) {
    Quad<T> lines[kLinesPerWarp];
    load_whole(b.input + mine.offset, plan.step, p.reverse, lines);
#pragma unroll
    for (int l = 0; l < kLinesPerWarp; ++l) {
#pragma unroll
      for (int k = 0; k < kQuad; ++k) v[l][k] = op.leaf(b, lines[l].of[k], mine.spot(p, plan, l, k));
    }
  } else {
#pragma unroll
    for (int l = 0; l < kLinesPerWarp; ++l) {
      const int32_t count = mine.count(p, plan, l);
      const Quad<T> line = load_some(b.input + mine.offset + l * plan.step, count, p.reverse);
#pragma unroll
      for (int k = 0; k < kQuad; ++k) {
        v[l][k] = k < count ? op.leaf(b, line.of[k], mine.spot(p, plan, l, k)) : State{};
      }
    }
  }
  return is_whole;
}

// What a tile of a row adds to the next one, from what all its lines add.
template <class Op>
__device__ __forceinline__ typename Op::Carry total_of_tile(const Op& op, int64_t tile, const typename Op::State& all) {
  return tile == 0 ? carried(op, 0, typename Op::Carry{}, all) : op.lift(all, tile * kTile);
}

// Says what the tile at a place adds. All threads of the block take part and meet once.
template <class Op>
__device__ __forceinline__ void announce_tile(const Op& op, const Problem& p, const typename Op::Buffers& b,
                                              const RowPlan& plan, const RowBoards<Op>& boards, int64_t place,
                                              LinesOf<typename Op::State> (&totals)[kRowWarps]) {
  using State = typename Op::State;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const Division by(place, p.tiles);
  State v[kLinesPerWarp][kQuad], all[kLinesPerWarp];
  load_leaves(op, p, b, plan, LaneSpot(p, plan, by.quotient, by.remainder), v);
  add_up_lines(op, v, all);
  if (threadIdx.x % 32 == 31) {
#pragma unroll
    for (int l = 0; l < kLinesPerWarp; ++l) totals[warp].of[l] = all[l];
  }
  __syncthreads();
  if (warp != kRowWarps - 1) return;
  State sum = joined_lines(op, totals, 0, kLines - kLinesPerWarp);
  const LinesOf<State> last = totals[kRowWarps - 1];
#pragma unroll
  for (int l = 0; l < kLinesPerWarp; ++l) sum = op.combine(sum, last.of[l]);
  if (threadIdx.x % 32 == 0) announce(boards.carries, place, by.remainder, total_of_tile(op, by.remainder, sum));
}

template <class Op>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<Op>)
    scan_rows(const __grid_constant__ Problem p, const __grid_constant__ typename Op::Buffers b,
              const __grid_constant__ RowPlan plan, const __grid_constant__ RowBoards<Op> boards) {
  using T = typename Op::Element;
  using State = typename Op::State;
  using Carry = typename Op::Carry;
  using C = typename Op::C;
  __shared__ LinesOf<State> totals[kRowWarps];
  __shared__ LinesOf<State> totals_ahead[kAnnouncesAhead<Op> ? kRowWarps : 1];
  __shared__ LinesOf<C> maxima[kRowWarps];
  __shared__ Carry carry_in_front;
  __shared__ C maximum_in_front;
  __shared__ unsigned long long taken;
  const Op op(p);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const bool is_last_warp = warp == kRowWarps - 1;
  int64_t next = blockIdx.x;
  if (p.tiles > 1) {
    wait_for_kernel_before();
    if (blockIdx.x + 1 == gridDim.x) {
      if (warp == 0) follow_tiles(boards.carries, plan.blocks, p.tiles, CarryChain<Op>{op});
      if constexpr (Op::kHasMaxima) {
        if (warp == 1) follow_tiles(boards.maxima, plan.blocks, p.tiles, MaximumChain<C>{});
      }
      return;
    }
    // Tiles are taken in their order, by blocks that run: whatever a tile waits for is under way.
    if (threadIdx.x == 0) taken = atomicAdd(boards.next, 1ull);
    __syncthreads();
    next = static_cast<int64_t>(taken);
    if constexpr (kAnnouncesAhead<Op>) {
      if (next < plan.blocks) announce_tile(op, p, b, plan, boards, next, totals_ahead);
      if (threadIdx.x == 0) taken = atomicAdd(boards.next, 1ull);
      __syncthreads();
    }
  }
  while (next < plan.blocks) {
    int64_t ahead = 0;
    if constexpr (kAnnouncesAhead<Op>) {
      if (p.tiles > 1) {
        ahead = static_cast<int64_t>(taken);
        if (ahead < plan.blocks) announce_tile(op, p, b, plan, boards, ahead, totals_ahead);
      }
    }
    int64_t first_row = next * plan.rows_of_block(), tile = 0;
    if (p.tiles > 1) {
      const Division by(next, p.tiles);
      first_row = by.quotient, tile = by.remainder;
    }
    const LaneSpot mine(p, plan, first_row, tile);
    State v[kLinesPerWarp][kQuad];
    const bool is_whole = load_leaves(op, p, b, plan, mine, v);
    // The warp's first line, and of rows with several lines the row's.
    const int own = warp * kLinesPerWarp, from = own >> plan.line_bits << plan.line_bits;

    if constexpr (Op::kHasMaxima) {
#pragma unroll
      for (int l = 0; l < kLinesPerWarp; ++l) {
        join_maxima(v[l], plan.lane_bits);
        if (lane == 31) maxima[warp].of[l] = v[l][kQuad - 1].m;
      }
      if (!plan.has_short_rows()) {
        __syncthreads();
        C before = maximum_of_lines(maxima, from, own);
        const LinesOf<C> own_maxima = maxima[warp];
#pragma unroll
        for (int l = 0; l < kLinesPerWarp; ++l) {
#pragma unroll
          for (int k = 0; k < kQuad; ++k) v[l][k].m = larger(before, v[l][k].m);
          before = larger(before, own_maxima.of[l]);
        }
        if (p.tiles > 1) {
          if (is_last_warp) {
            const C front = exchange(boards.maxima, next, tile, before, [](C a, C c) { return larger(a, c); });
            if (lane == 0) maximum_in_front = front;
          }
          __syncthreads();
          if (tile > 0) {
            const C in_front = maximum_in_front;
#pragma unroll
            for (int l = 0; l < kLinesPerWarp; ++l) {
#pragma unroll
              for (int k = 0; k < kQuad; ++k) v[l][k].m = larger(in_front, v[l][k].m);
            }
          }
        }
      }
#pragma unroll
      for (int l = 0; l < kLinesPerWarp; ++l) {
#pragma unroll
        for (int k = 0; k < kQuad; ++k) v[l][k] = op.settle(v[l][k]);
      }
    }

    join_halves(op, v, plan.lane_bits);
    Carry carry{};
    if (!plan.has_short_rows()) {
      if (lane == 31) {
#pragma unroll
        for (int l = 0; l < kLinesPerWarp; ++l) totals[warp].of[l] = v[l][kQuad - 1];
      }
      __syncthreads();
      const LinesOf<State> own_totals = totals[warp];
      State before = own_totals.of[0];
      if (from < own) {
        const State in_front = joined_lines(op, totals, from, own);
#pragma unroll
        for (int k = 0; k < kQuad; ++k) v[0][k] = op.combine(in_front, v[0][k]);
        before = op.combine(in_front, before);
      }
#pragma unroll
      for (int l = 1; l < kLinesPerWarp; ++l) {
#pragma unroll
        for (int k = 0; k < kQuad; ++k) v[l][k] = op.combine(before, v[l][k]);
        before = op.combine(before, own_totals.of[l]);
      }
      if (p.tiles > 1) {
        if (is_last_warp) {
          const Carry total = total_of_tile(op, tile, before);
          const auto join = [&](const Carry& a, const Carry& c) { return op.join(a, c); };
          const Carry front = kAnnouncesAhead<Op> ? wait_for_front(boards.carries, next, tile, total, join)
                                                  : exchange(boards.carries, next, tile, total, join);
          if (lane == 0) carry_in_front = front;
        } else if (threadIdx.x == 0) {
          taken = atomicAdd(boards.next, 1ull);
        }
        __syncthreads();
        if (tile > 0) carry = carry_in_front;
      }
    }

    Quad<T> results[kLinesPerWarp]{};
    Quad<int64_t> indices[Op::kHasIndices ? kLinesPerWarp : 1]{};
    const auto finish = [&](auto is_joined, const Carry& front) {
#pragma unroll
      for (int l = 0; l < kLinesPerWarp; ++l) {
#pragma unroll
        for (int k = 0; k < kQuad; ++k) {
          if (Op::kReadsOthers && !is_whole && k >= mine.count(p, plan, l)) continue;
          Carry found = op.lift(v[l][k], tile * kTile);
          if constexpr (is_joined.value) found = op.join(front, found);
          results[l].of[k] = op.result(b, found, mine.spot(p, plan, l, k));
          if constexpr (Op::kHasIndices) indices[l].of[k] = op.index_of(found);
        }
      }
    };
    if constexpr (Op::kStarts) {
      finish(std::true_type{}, tile > 0 ? carry : op.start());
    } else if (tile > 0) {
      finish(std::true_type{}, carry);
    } else {
      finish(std::false_type{}, carry);
    }
    if (is_whole) {
      store_whole(b.output + mine.offset, plan.step, p.reverse, results);
      if constexpr (Op::kHasIndices) store_whole(b.indices + mine.offset, plan.step, p.reverse, indices);
    } else {
#pragma unroll
      for (int l = 0; l < kLinesPerWarp; ++l) {
        const int64_t first = mine.offset + l * plan.step;
        store_some(b.output + first, mine.count(p, plan, l), p.reverse, results[l]);
        if constexpr (Op::kHasIndices) store_some(b.indices + first, mine.count(p, plan, l), p.reverse, indices[l]);
      }
    }
    // Between a tile's write of what is shared and the tile before's last read there is a meeting in any case.
    next = p.tiles < 2 ? next + gridDim.x : kAnnouncesAhead<Op> ? ahead : static_cast<int64_t>(taken);
    if (p.tiles < 2 && next < plan.blocks) __syncthreads();
  }
}

}  // namespace
}  // namespace baracuda::scan
