// SPDX-License-Identifier: Apache-2.0
// Scans of rows that lie side by side (inner > 1), each by one block of threads. A warp has 32 neighbouring rows, a
// lane one of them, of which it holds some elements at a time: a piece, a power of 2 that divides a block of 128. Some
// warps share 32 rows and hold the pieces of a chunk, which is whole blocks or all of a row.
#pragma once

#include <cstdint>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/scan/math.h"

namespace baracuda::scan {
namespace {

// Elements of a piece: as many registers for any state.
template <class Op>
constexpr int kPiece = sizeof(typename Op::State) <= 4 ? 32 : sizeof(typename Op::State) <= 8 ? 16 : 8;
template <class Op>
constexpr int kPiecesOfBlock = kBlock / kPiece<Op>;
template <class Op>
constexpr int kPieceLevels = kPiecesOfBlock<Op> == 4 ? 2 : kPiecesOfBlock<Op> == 8 ? 3 : 4;

constexpr int kColumnThreads = 512;
constexpr int kColumnWarps = kColumnThreads / 32;

// A row among those side by side. Lanes behind the last one read it, too, and store nothing.
struct Column {
  int64_t row, offset;
  bool is_own;

  __device__ Column(const Problem& p, int64_t wanted) : row(wanted < p.rows ? wanted : p.rows - 1) {
    is_own = wanted < p.rows;
    const Division by(row, p.inner);
    offset = by.quotient * p.length * p.inner + by.remainder;
  }
};

// Where a lane's piece is, from `place` along the scan on; no element counts behind the row's end.
template <class Op>
struct PieceSpot {
  Spot spot;
  int64_t step;  // from an element to the next
  int32_t count;
  bool reverse, is_whole;  // all lanes' pieces

  __device__ __forceinline__ PieceSpot(const Problem& p, const Column& column, int64_t place) : reverse(p.reverse) {
    const int64_t rest = p.length - place, index = p.reverse ? rest - 1 : place;
    count = static_cast<int32_t>(rest < 0 ? 0 : rest < kPiece<Op> ? rest : kPiece<Op>);
    spot = {column.offset + index * p.inner, index, static_cast<int32_t>(place % kTile)};
    step = p.reverse ? -p.inner : p.inner;
    is_whole = __all_sync(kFullWarp, count == kPiece<Op>) != 0;
  }
  __device__ __forceinline__ Spot of(int k) const {
    return {spot.offset + k * step, reverse ? spot.index - k : spot.index + k, spot.at + k};
  }
};

template <class Op>
__device__ __forceinline__ void load_piece(const typename Op::Buffers& b, const PieceSpot<Op>& at,
                                           typename Op::Element (&raw)[kPiece<Op>]) {
  const auto* from = b.input + at.spot.offset;
  if (at.is_whole) {
#pragma unroll
    for (int k = 0; k < kPiece<Op>; ++k, from += at.step) raw[k] = *from;
    return;
  }
#pragma unroll
  for (int k = 0; k < kPiece<Op>; ++k, from += at.step) {
    raw[k] = typename Op::Element{};
    if (k < at.count) raw[k] = *from;
  }
}

template <class Op>
__device__ __forceinline__ void find_leaves(const Op& op, const typename Op::Buffers& b, const PieceSpot<Op>& at,
                                            const typename Op::Element (&raw)[kPiece<Op>],
                                            typename Op::State (&v)[kPiece<Op>]) {
#pragma unroll
  for (int k = 0; k < kPiece<Op>; ++k) {
    if (!Op::kReadsOthers || k < at.count) {
      v[k] = op.leaf(b, raw[k], at.of(k));
    } else {
      v[k] = typename Op::State{};
    }
  }
}

// Makes each m the maximum of the piece up to it, and answers that of all that count, of which there is one.
template <typename C, int kElements>
__device__ __forceinline__ C join_maxima(Scaled<C> (&v)[kElements], int32_t count) {
  C last = v[0].m;
#pragma unroll
  for (int k = 1; k < kElements; ++k) {
    v[k].m = larger(v[k - 1].m, v[k].m);
    if (k < count) last = v[k].m;
  }
  return last;
}

// Joins the halves of a piece, from pairs on.
template <class Op>
__device__ __forceinline__ void join_piece(const Op& op, typename Op::State (&v)[kPiece<Op>]) {
#pragma unroll
  for (int bit = 0; 1 << bit < kPiece<Op>; ++bit) {
#pragma unroll
    for (int k = 0; k < kPiece<Op>; ++k) {
      if ((k >> bit & 1) != 0) v[k] = op.combine(v[(k >> bit << bit) - 1], v[k]);
    }
  }
}

// Joins `before` to each element.
template <class Op>
__device__ __forceinline__ void join_to_piece(const Op& op, const typename Op::State& before,
                                              typename Op::State (&v)[kPiece<Op>]) {
#pragma unroll
  for (int k = 0; k < kPiece<Op>; ++k) v[k] = op.combine(before, v[k]);
}

// Stores what a piece becomes behind `front`, if there is one.
template <bool kHasFront, class Op>
__device__ __forceinline__ void store_piece(const Op& op, const typename Op::Buffers& b, const PieceSpot<Op>& at,
                                            int64_t tile, const typename Op::Carry& front,
                                            const typename Op::State (&v)[kPiece<Op>]) {
  typename Op::Element results[kPiece<Op>];
  auto* to = b.output + at.spot.offset;
#pragma unroll
  for (int k = 0; k < kPiece<Op>; ++k) {
    if (Op::kReadsOthers && k >= at.count) continue;
    typename Op::Carry found = op.lift(v[k], tile * kTile);
    if constexpr (kHasFront) found = op.join(front, found);
    results[k] = op.result(b, found, at.of(k));
    if constexpr (Op::kHasIndices) {
      if (k < at.count) b.indices[at.spot.offset + k * at.step] = op.index_of(found);
    }
  }
  if (at.is_whole) {
#pragma unroll
    for (int k = 0; k < kPiece<Op>; ++k, to += at.step) *to = results[k];
    return;
  }
#pragma unroll
  for (int k = 0; k < kPiece<Op>; ++k, to += at.step) {
    if (k < at.count) *to = results[k];
  }
}

// Stores what a tile in front of which `carry` stands makes of a piece.
template <class Op>
__device__ __forceinline__ void finish_piece(const Op& op, const typename Op::Buffers& b, const PieceSpot<Op>& at,
                                             int64_t tile, const typename Op::Carry& carry,
                                             const typename Op::State (&v)[kPiece<Op>]) {
  if constexpr (Op::kStarts) {
    store_piece<true>(op, b, at, tile, tile > 0 ? carry : op.start(), v);
  } else if (tile > 0) {
    store_piece<true>(op, b, at, tile, carry, v);
  } else {
    store_piece<false>(op, b, at, tile, carry, v);
  }
}

// How rows are shared among the warps of a block of threads.
template <class Op>
struct ColumnPlan {
  int32_t warps;   // that share 32 rows: a power of 2
  int64_t blocks;  // of threads

  explicit ColumnPlan(const Problem& p) : warps(1) {
    while (warps < kColumnWarps && static_cast<int64_t>(warps) * kPiece<Op> < p.length) warps *= 2;
    blocks = ceil_div(ceil_div(p.rows, 32), kColumnWarps / warps);
  }
};
// A chunk that is not a whole row is of whole blocks.
static_assert(kColumnWarps * 8 % kBlock == 0);

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
      join_to_piece(op, joined_pieces<kLevel>(op, totals, half), v);
    }
    join_pieces<kLevel + 1>(op, totals, first, piece, v);
  }
}

template <class Op>
__global__ void __launch_bounds__(kColumnThreads)
    scan_columns(const __grid_constant__ Problem p, const __grid_constant__ typename Op::Buffers b,
                 const __grid_constant__ ColumnPlan<Op> plan) {
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
  int turn = 0;
  for (int64_t n = blockIdx.x; n < plan.blocks; n += gridDim.x) {
    const Column column(p, (n * (kColumnWarps / plan.warps) + warp / plan.warps) * 32 + lane);
    int64_t tile = 0;
    Carry carry{};
    State before{};
    C maximum{};
    typename Op::Element raw[kElements];
    load_piece(b, PieceSpot<Op>(p, column, piece * kElements), raw);
    for (int64_t first = 0; first < p.length; first += chunk) {
      const PieceSpot<Op> at(p, column, first + piece * kElements);
      State v[kElements];
      find_leaves(op, b, at, raw, v);
      // The next chunk's elements come while this one is scanned.
      if (first + chunk < p.length) load_piece(b, PieceSpot<Op>(p, column, first + chunk + piece * kElements), raw);

      if constexpr (Op::kHasMaxima) {
        maxima[turn][warp][lane] = join_maxima(v, at.count);
        __syncthreads();
        for (int w = 0; w < plan.warps; ++w) {
          const bool has_front = first + w > 0;
          if (w == piece && has_front) {
#pragma unroll
            for (int k = 0; k < kElements; ++k) v[k].m = larger(maximum, v[k].m);
          }
          if (first + static_cast<int64_t>(w) * kElements < p.length) {
            const C next = maxima[turn][first_warp + w][lane];
            maximum = has_front ? larger(maximum, next) : next;
          }
        }
#pragma unroll
        for (int k = 0; k < kElements; ++k) v[k] = op.settle(v[k]);
      }

      join_piece(op, v);
      if (plan.warps > 1) {
        totals[turn][warp][lane] = v[kElements - 1];
        __syncthreads();
        constexpr int kPieces = kPiecesOfBlock<Op>;
        const int own_block = piece / kPieces;
        join_pieces<0>(op, totals[turn], first_warp + own_block * kPieces, piece % kPieces, v);
        const int in_tile = static_cast<int>(first % kTile) / kBlock, blocks = plan.warps / kPieces;
        for (int block = 0; block < blocks || block == 0; ++block) {
          if (block == own_block && in_tile + block > 0) join_to_piece(op, before, v);
          // A chunk of less than a block is the only one.
          if (blocks == 0) break;
          const State total = joined_pieces<kPieceLevels<Op>>(op, totals[turn], first_warp + block * kPieces);
          before = in_tile + block > 0 ? op.combine(before, total) : total;
        }
      }
      if (column.is_own) finish_piece(op, b, at, tile, carry, v);
      if ((first + chunk) % kTile == 0) {
        carry = carried(op, tile, carry, before);
        ++tile;
      }
      turn ^= 1;
    }
  }
}

}  // namespace
}  // namespace baracuda::scan
