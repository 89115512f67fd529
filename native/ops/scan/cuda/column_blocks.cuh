// SPDX-License-Identifier: Apache-2.0
// Scans of rows that lie side by side (inner > 1), each by many warps: a warp has one block of 128 elements of up to 32
// rows, so that few long rows occupy a device, too. First each block's own total, then what stands in front of each,
// then the results; rows are read twice. A row of one block has nothing in front of it, and is read once.
#pragma once

#include <cstdint>

#include "core/cuda_launch.cuh"
#include "ops/scan/cuda/columns.cuh"
#include "ops/scan/math.h"

namespace baracuda::scan {
namespace {

constexpr int kBlockThreads = 128;
constexpr int64_t kBlocksOfTile = kTile / kBlock;

// How rows and blocks are shared among warps.
struct BlockPlan {
  int64_t blocks;    // of a row
  int32_t row_bits;  // a warp has 2^row_bits rows, and of few rows neighbouring blocks
  int64_t groups;    // of so many rows

  explicit BlockPlan(const Problem& p) : blocks(ceil_div(p.length, kBlock)), row_bits(0) {
    while (row_bits < 5 && int64_t{1} << row_bits < p.rows) ++row_bits;
    groups = ceil_div(p.rows, int64_t{1} << row_bits);
  }
  BARACUDA_HD int64_t blocks_of_warp() const { return 32 >> row_bits; }
  int64_t warps(int64_t of_blocks) const { return groups * ceil_div(of_blocks, blocks_of_warp()); }
};

// What stands in front, in the order of the scan and side by side for all rows.
template <class Op>
struct Fronts {
  typename Op::State* befores;       // [blocks, rows]: what a block adds, then what its tile has in front of it
  typename Op::Carry* carries;       // [tiles, rows]: what a tile adds, then what stands in front of the next one
  typename Op::C* maxima;            // [blocks, rows]: as befores
  typename Op::C* maxima_of_tiles;   // [tiles, rows]: as carries
};

enum class Pass {
  kMaxima,   // the maximum that each block has
  kTotals,   // what each block adds
  kResults,  // each block's results behind what stands in front of it
};

template <class Op, Pass kPass>
__global__ void __launch_bounds__(kBlockThreads)
    scan_blocks(const __grid_constant__ Problem p, const __grid_constant__ typename Op::Buffers b,
                const __grid_constant__ BlockPlan plan, const __grid_constant__ Fronts<Op> fronts,
                const __grid_constant__ int64_t warps) {
  using State = typename Op::State;
  using C = typename Op::C;
  constexpr int kElements = kPiece<Op>;
  const Op op(p);
  const int lane = static_cast<int>(threadIdx.x % 32);
  // The last block of a row stands in front of nothing.
  const int64_t wanted = kPass == Pass::kResults ? plan.blocks : plan.blocks - 1;
  for (int64_t n = grid_thread() / 32; n < warps; n += grid_threads() / 32) {
    const Division by(n, plan.groups);
    const Column column(p, (by.remainder << plan.row_bits) + (lane & ((1 << plan.row_bits) - 1)));
    const int64_t block = by.quotient * plan.blocks_of_warp() + (lane >> plan.row_bits);
    const bool is_own = column.is_own && block < wanted;
    const int64_t tile = block / kBlocksOfTile, place = block * p.rows + column.row;
    const bool is_first = block % kBlocksOfTile == 0;  // of its tile
    typename Op::Carry carry{};
    State before{};
    C maximum{};
    if constexpr (kPass == Pass::kResults) {
      if (is_own && tile > 0) carry = fronts.carries[(tile - 1) * p.rows + column.row];
      if (is_own && !is_first) before = fronts.befores[place];
    }
    if constexpr (Op::kHasMaxima && kPass != Pass::kMaxima) {
      if (is_own && !is_first) maximum = fronts.maxima[place];
      if (is_own && tile > 0) {
        const C in_front = fronts.maxima_of_tiles[(tile - 1) * p.rows + column.row];
        maximum = is_first ? in_front : larger(in_front, maximum);
      }
    }
    State halves[kPieceLevels<Op>];  // of 1, 2, 4 pieces, which what comes behind them is joined to
    State total{};
#pragma unroll 1
    for (int piece = 0; piece < kPiecesOfBlock<Op>; ++piece) {
      const PieceSpot<Op> at(p, column, block * kBlock + piece * kElements);
      if (__all_sync(kFullWarp, at.count == 0) != 0) break;
      typename Op::Element raw[kElements];
      State v[kElements];
      load_piece(b, at, raw);
      find_leaves(op, b, at, raw, v);
      if constexpr (Op::kHasMaxima) {
        const C own = join_maxima(v, at.count);
        const bool has_front = kPass == Pass::kMaxima ? piece > 0 : block + piece > 0;
#pragma unroll
        for (int k = 0; k < kElements; ++k) v[k].m = has_front ? larger(maximum, v[k].m) : v[k].m;
        maximum = has_front ? larger(maximum, own) : own;
        if constexpr (kPass == Pass::kMaxima) continue;
#pragma unroll
        for (int k = 0; k < kElements; ++k) v[k] = op.settle(v[k]);
      }
      join_piece(op, v);
      bool is_left = true;  // of the halves so far
#pragma unroll
      for (int level = 0; level < kPieceLevels<Op>; ++level) {
        if ((piece >> level & 1) != 0) {
          join_to_piece(op, halves[level], v);
        } else if (is_left) {
          halves[level] = v[kElements - 1];
          is_left = false;
        }
      }
      total = v[kElements - 1];
      if constexpr (kPass == Pass::kResults) {
        if (!is_first) join_to_piece(op, before, v);
        if (is_own) finish_piece(op, b, at, tile, carry, v);
      }
    }
    if (!is_own) continue;
    if constexpr (kPass == Pass::kMaxima) fronts.maxima[place] = maximum;
    if constexpr (kPass == Pass::kTotals) fronts.befores[place] = total;
  }
}

// What is read ahead of the joins that need one another's result.
constexpr int kAhead = 16;

// Makes of what each of `count` neighbours by `step` adds what stands in front of each of them, but for the first, and
// answers what all add. The last one is not looked at unless `has_last`.
template <typename V, class Join>
__device__ __forceinline__ V join_in_front(V* values, int64_t step, int64_t count, bool has_last, const Join& join) {
  V front{};
  for (int64_t first = 0; first < count; first += kAhead) {
    V own[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i < count && (has_last || first + i + 1 < count)) own[i] = values[(first + i) * step];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= count) break;
      if (first + i > 0) values[(first + i) * step] = front;
      if (has_last || first + i + 1 < count) front = first + i > 0 ? join(front, own[i]) : own[i];
    }
  }
  return front;
}

// The blocks of each tile; kMaxima: of their maxima, else of what they add.
template <class Op, bool kMaxima>
__global__ void __launch_bounds__(kBlockThreads)
    join_blocks(const __grid_constant__ Problem p, const __grid_constant__ BlockPlan plan,
                const __grid_constant__ Fronts<Op> fronts) {
  const Op op(p);
  for (int64_t n = grid_thread(); n < p.tiles * p.rows; n += grid_threads()) {
    const Division by(n, p.rows);
    const int64_t tile = by.quotient, first = tile * kBlocksOfTile;
    const bool is_last = tile + 1 == p.tiles;
    const int64_t count = is_last ? plan.blocks - first : kBlocksOfTile, place = first * p.rows + by.remainder;
    if constexpr (kMaxima) {
      const auto maximum = join_in_front(fronts.maxima + place, p.rows, count, !is_last,
                                         [](auto a, auto c) { return larger(a, c); });
      if (!is_last) fronts.maxima_of_tiles[n] = maximum;
    } else {
      const auto total = join_in_front(fronts.befores + place, p.rows, count, !is_last,
                                       [&](const auto& a, const auto& c) { return op.combine(a, c); });
      if (!is_last) fronts.carries[n] = tile == 0 ? carried(op, 0, {}, total) : op.lift(total, tile * kTile);
    }
  }
}

// Makes of what each of a row's tiles adds what stands in front of the next one.
template <typename V, class Join>
__device__ __forceinline__ void join_behind(V* values, int64_t step, int64_t count, const Join& join) {
  V front = values[0];
  for (int64_t first = 1; first < count; first += kAhead) {
    V own[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i < count) own[i] = values[(first + i) * step];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= count) break;
      front = join(front, own[i]);
      values[(first + i) * step] = front;
    }
  }
}

template <class Op, bool kMaxima>
__global__ void __launch_bounds__(kBlockThreads)
    join_tiles(const __grid_constant__ Problem p, const __grid_constant__ Fronts<Op> fronts) {
  const Op op(p);
  for (int64_t row = grid_thread(); row < p.rows; row += grid_threads()) {
    if constexpr (kMaxima) {
      join_behind(fronts.maxima_of_tiles + row, p.rows, p.tiles - 1, [](auto a, auto c) { return larger(a, c); });
    } else {
      join_behind(fronts.carries + row, p.rows, p.tiles - 1,
                  [&](const auto& a, const auto& c) { return op.join(a, c); });
    }
  }
}

}  // namespace
}  // namespace baracuda::scan
