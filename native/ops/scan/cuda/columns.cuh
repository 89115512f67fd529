// SPDX-License-Identifier: Apache-2.0
// Scans of rows that lie side by side (inner > 1). A warp has 32 neighbouring rows, a lane one of them, of which it
// holds some elements at a time: a piece, a power of 2 that divides a block of 128. Some warps share 32 rows and hold
// the pieces of a chunk, which is whole blocks or all of a row.
#pragma once

#include <cstdint>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "ops/scan/math.h"

namespace baracuda::scan {
namespace {

// Elements of a piece: as many registers for any state.
template <class Op>
constexpr int kPiece = sizeof(typename Op::State) <= 4 ? 32 : sizeof(typename Op::State) <= 8 ? 16 : 8;
template <class Op>
constexpr int kPiecesOfBlock = kBlock / kPiece<Op>;

constexpr int kColumnThreads = 512;
constexpr int kColumnWarps = kColumnThreads / 32;

// How rows are shared among the warps of a block of threads.
template <class Op>
struct ColumnPlan {
  int32_t warps;   // that share 32 rows: a power of 2
  int64_t groups;  // of 32 rows
  int64_t blocks;  // of threads, for whole rows

  explicit ColumnPlan(const Problem& p) : warps(1), groups(ceil_div(p.rows, 32)) {
    while (warps < kColumnWarps && static_cast<int64_t>(warps) * kPiece<Op> < p.length) warps *= 2;
    blocks = ceil_div(groups, kColumnWarps / warps);
  }
};
// A chunk that is not a whole row is of whole blocks.
static_assert(kColumnWarps * 8 % kBlock == 0);

// What stands in front of the tiles of every row, from the second on: [tiles - 1, rows].
template <class Op>
struct Fronts {
  typename Op::Carry* carries;
  typename Op::C* maxima;
};

// The states of 2^kLevel pieces from `first` on, joined.
template <int kLevel, class Op>
__device__ __forceinline__ typename Op::State joined_pieces(const Op& op, const typename Op::State (*totals)[32],
                                                            int first) {
  if constexpr (kLevel == 0) {
    return totals[first][threadIdx.x % 32];
  } else {
    return op.combine(joined_pieces<kLevel - 1>(op, totals, first),
                      joined_pieces<kLevel - 1>(op, totals, first + (1 << (kLevel - 1))));
  }
}

// Joins the pieces of a block in halves: to each element of piece `piece` of the block whose first piece is `first`.
template <int kLevel, class Op>
__device__ __forceinline__ void join_pieces(const Op& op, const typename Op::State (*totals)[32], int first, int piece,
                                            typename Op::State (&v)[kPiece<Op>]) {
  if constexpr ((1 << kLevel) < kPiecesOfBlock<Op>) {
    if ((piece >> kLevel & 1) != 0) {
      const int half = first + (piece >> (kLevel + 1) << (kLevel + 1));
      const typename Op::State last = joined_pieces<kLevel>(op, totals, half);
#pragma unroll
      for (int k = 0; k < kPiece<Op>; ++k) v[k] = op.combine(last, v[k]);
    }
    join_pieces<kLevel + 1>(op, totals, first, piece, v);
  }
}

template <class Op>
constexpr int kPieceLevels = kPiecesOfBlock<Op> == 4 ? 2 : kPiecesOfBlock<Op> == 8 ? 3 : 4;
// Of a row's elements what is scanned where.
enum class Pass {
  kRows,     // all tiles of each row, one after the other
  kMaxima,   // the maximum that each tile has, into the fronts of the next
  kTotals,   // what each tile adds by itself, into the fronts of the next
  kResults,  // each tile's results behind what stands in front of it
};

template <class Op, Pass kPass>
__global__ void __launch_bounds__(kColumnThreads)
    scan_columns(const __grid_constant__ Problem p, const __grid_constant__ typename Op::Buffers b,
                 const __grid_constant__ ColumnPlan<Op> plan, const __grid_constant__ Fronts<Op> fronts) {
  using T = typename Op::Element;
  using State = typename Op::State;
  using Carry = typename Op::Carry;
  using C = typename Op::C;
  constexpr int kElements = kPiece<Op>;
  // Two of each: a chunk's are read while the next one's are written.
  __shared__ State totals[2][kColumnWarps][32];
  __shared__ C maxima[2][Op::kHasMaxima ? kColumnWarps : 1][32];
  const Op op(p);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int first_warp = warp & ~(plan.warps - 1), piece = warp - first_warp;
  const int chunk = plan.warps * kElements;
  const int64_t tiles = kPass == Pass::kRows ? 1 : kPass == Pass::kResults ? p.tiles : p.tiles - 1;
  int turn = 0;
  for (int64_t n = blockIdx.x; n < plan.blocks * tiles; n += gridDim.x) {
    const int64_t own_tile = n / plan.blocks;
    const int64_t row = ((n - own_tile * plan.blocks) * (kColumnWarps / plan.warps) + warp / plan.warps) * 32 + lane;
    const bool has_row = row < p.rows;
    const Division by(has_row ? row : 0, p.inner);
    const int64_t offset = by.quotient * p.length * p.inner + by.remainder;
    const int64_t begin = kPass == Pass::kRows ? 0 : own_tile * kTile;
    const int64_t end = kPass == Pass::kRows || p.length - begin < kTile ? p.length : begin + kTile;
    int64_t tile = own_tile;
    Carry carry{};
    State before{};
    C maximum{};
    if (kPass != Pass::kRows && tile > 0 && has_row) {
      const int64_t front = (tile - 1) * p.rows + row;
      if constexpr (kPass == Pass::kResults) carry = fronts.carries[front];
      if constexpr (Op::kHasMaxima && kPass != Pass::kMaxima) maximum = fronts.maxima[front];
    }
    for (int64_t first = begin; first < end; first += chunk) {
      const int64_t place = first + piece * kElements;
      int32_t count = static_cast<int32_t>(p.length - place < kElements ? p.length - place : kElements);
      if (!has_row || count < 0) count = 0;
      const int32_t at = static_cast<int32_t>(place % kTile);
      const int64_t index = p.reverse ? p.length - 1 - place : place;
      const int64_t step = p.reverse ? -p.inner : p.inner;
      const Spot spot = {offset + index * p.inner, index, at};
      const auto spot_of = [&](int k) -> Spot {
        return {spot.offset + k * step, p.reverse ? index - k : index + k, at + k};
      };
      T raw[kElements];
#pragma unroll
      for (int k = 0; k < kElements; ++k) raw[k] = k < count ? b.input[spot.offset + k * step] : T{};
      State v[kElements];
#pragma unroll
      for (int k = 0; k < kElements; ++k) v[k] = k < count ? op.leaf(b, raw[k], spot_of(k)) : State{};

      if constexpr (Op::kHasMaxima) {
#pragma unroll
        for (int k = 1; k < kElements; ++k) v[k].m = larger(v[k - 1].m, v[k].m);
        // A row's end is within a piece: what is behind it must not count.
        C last = v[kElements - 1].m;
#pragma unroll
        for (int k = 0; k < kElements; ++k) {
          if (k + 1 == count) last = v[k].m;
        }
        maxima[turn][warp][lane] = last;
        __syncthreads();
        bool has_front = kPass == Pass::kMaxima ? first > begin : first > 0;
        C in_front = maximum;
        for (int w = 0; w < plan.warps; ++w) {
          if (w == piece && has_front) {
#pragma unroll
            for (int k = 0; k < kElements; ++k) v[k].m = larger(in_front, v[k].m);
          }
          if (first + static_cast<int64_t>(w) * kElements < p.length) {
            const C next = maxima[turn][first_warp + w][lane];
            in_front = has_front ? larger(in_front, next) : next;
            has_front = true;
          }
        }
        maximum = in_front;
        if constexpr (kPass == Pass::kMaxima) {
          turn ^= 1;
          continue;
        }
#pragma unroll
        for (int k = 0; k < kElements; ++k) v[k] = op.settle(v[k]);
      }

#pragma unroll
      for (int half = 1; half < kElements; half *= 2) {
#pragma unroll
        for (int group = 0; group < kElements; group += 2 * half) {
#pragma unroll
          for (int k = 0; k < half; ++k) v[group + half + k] = op.combine(v[group + half - 1], v[group + half + k]);
        }
      }
      if (plan.warps > 1) {
        totals[turn][warp][lane] = v[kElements - 1];
        __syncthreads();
        constexpr int kPieces = kPiecesOfBlock<Op>;
        const int own_block = piece / kPieces;
        join_pieces<0>(op, totals[turn], first_warp + own_block * kPieces, piece % kPieces, v);
        const int in_tile = static_cast<int>(first % kTile) / kBlock, blocks = plan.warps / kPieces;
        for (int block = 0; block < blocks || block == 0; ++block) {
          if (block == own_block && in_tile + block > 0) {
#pragma unroll
            for (int k = 0; k < kElements; ++k) v[k] = op.combine(before, v[k]);
          }
          // A chunk of less than a block is the only one.
          if (blocks == 0) break;
          const State total = joined_pieces<kPieceLevels<Op>>(op, totals[turn], first_warp + block * kPieces);
          before = in_tile + block > 0 ? op.combine(before, total) : total;
        }
      }
      if constexpr (kPass == Pass::kRows || kPass == Pass::kResults) {
        T results[kElements];
#pragma unroll
        for (int k = 0; k < kElements; ++k) {
          if (k >= count) continue;
          const Carry found = carried(op, tile, carry, v[k]);
          results[k] = op.result(b, found, spot_of(k));
          if constexpr (Op::kHasIndices) b.indices[spot.offset + k * step] = op.index_of(found);
        }
#pragma unroll
        for (int k = 0; k < kElements; ++k) {
          if (k < count) b.output[spot.offset + k * step] = results[k];
        }
      }
      if (kPass == Pass::kRows && (first + chunk) % kTile == 0) {
        carry = carried(op, tile, carry, before);
        ++tile;
      }
      turn ^= 1;
    }
    if (has_row && piece == 0) {
      const int64_t next = own_tile * p.rows + row;
      if constexpr (kPass == Pass::kMaxima) fronts.maxima[next] = maximum;
      if constexpr (kPass == Pass::kTotals) {
        fronts.carries[next] = own_tile == 0 ? carried(op, 0, carry, before) : op.lift(before, own_tile * kTile);
      }
    }
  }
}

// Makes of what each tile has by itself what stands in front of it.
template <typename V, class Join>
__device__ __forceinline__ void join_tiles(const Problem& p, V* fronts, const Join& join) {
  for (int64_t row = grid_thread(); row < p.rows; row += grid_threads()) {
    V front = fronts[row];
    for (int64_t tile = 2; tile < p.tiles; ++tile) {
      V& next = fronts[(tile - 1) * p.rows + row];
      front = join(front, next);
      next = front;
    }
  }
}

template <class Op>
__global__ void __launch_bounds__(kColumnThreads)
    join_carries(const __grid_constant__ Problem p, const __grid_constant__ Fronts<Op> fronts) {
  const Op op(p);
  join_tiles(p, fronts.carries, [&](const auto& a, const auto& c) { return op.join(a, c); });
}

template <class Op>
__global__ void __launch_bounds__(kColumnThreads)
    join_maxima_of_tiles(const __grid_constant__ Problem p, const __grid_constant__ Fronts<Op> fronts) {
  join_tiles(p, fronts.maxima, [](auto a, auto c) { return larger(a, c); });
}

}  // namespace
}  // namespace baracuda::scan
