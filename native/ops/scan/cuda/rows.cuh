// SPDX-License-Identifier: Apache-2.0
// Scans of dense rows. A block of threads has one tile, or as many short rows as fit in its place: a warp has four
// lines, each of one block of 128 elements or of several rows that are shorter, and a lane four neighbouring elements
// of a line.
#pragma once

#include <cstdint>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/scan/cuda/look_back.cuh"
#include "ops/scan/math.h"

namespace baracuda::scan {
namespace {

constexpr int kQuad = 4;
constexpr int kLinesPerWarp = 4;
constexpr int kRowThreads = 512;
constexpr int kRowWarps = kRowThreads / 32;
constexpr int kLines = kRowWarps * kLinesPerWarp;
static_assert(kLines * kBlock == kTile && 32 * kQuad == kBlock);

// How rows lie in a block of threads.
struct RowPlan {
  int32_t lanes;   // that have a row's elements in a line: a power of 2
  int32_t lines;   // that a row has in a block of threads: 1, or as a power of 2 all of one warp or of several
  int64_t blocks;  // of threads
  int64_t step;    // from a lane's elements to those in its warp's next line
  bool has_vectors;

  explicit RowPlan(const Problem& p, bool vectors) : lanes(1), lines(1), has_vectors(vectors) {
    while (lanes < 32 && lanes * kQuad < p.length) lanes *= 2;
    if (p.length > kBlock) lines = kLinesPerWarp;
    while (lines < kLines && static_cast<int64_t>(lines) * kBlock < p.length) lines *= 2;
    blocks = p.tiles > 1 ? p.rows * p.tiles : ceil_div(p.rows, static_cast<int64_t>(kLines / lines) * (32 / lanes));
    step = lines == 1 ? (32 / lanes) * p.length : p.reverse ? -kBlock : kBlock;
  }
};

// What tiles of one row tell each other, in zeroed memory; nothing if rows have one tile.
template <class Op>
struct RowBoards {
  unsigned long long* next;  // the tile that no block of threads has taken yet
  Board<typename Op::Carry> carries;
  Board<typename Op::C> maxima;
};

template <typename T>
struct alignas(sizeof(T) * kQuad < 16 ? sizeof(T) * kQuad : 16) Quad {
  T of[kQuad];
};

// Up to four elements of a lane, the first at `spot`.
struct QuadSpot {
  Spot spot;
  int32_t count;
};

// Where a lane has its elements: those of its warp's first line, and from there those of the others.
struct LaneSpot {
  int64_t offset, place;  // in the tensor, and along the scan in the row
  int64_t rest;           // elements of the row from there on, or of shorter rows whole rows
  int32_t at;

  __device__ LaneSpot(const Problem& p, const RowPlan& plan, int64_t first_row, int64_t tile) {
    const int lane = static_cast<int>(threadIdx.x % 32), line = static_cast<int>(threadIdx.x / 32) * kLinesPerWarp;
    const int64_t row =
        first_row + static_cast<int64_t>(line / plan.lines) * (32 / plan.lanes) + lane / plan.lanes;
    at = (line & (plan.lines - 1)) * kBlock + (lane & (plan.lanes - 1)) * kQuad;
    place = tile * kTile + at;
    offset = row * p.length + (p.reverse ? p.length - 1 - place : place);
    rest = plan.lines == 1 ? p.rows - row : row < p.rows ? p.length - place : 0;
  }

  __device__ __forceinline__ QuadSpot line(const Problem& p, const RowPlan& plan, int l) const {
    const int32_t behind = plan.lines == 1 ? 0 : l * kBlock;
    int64_t count = rest - behind;
    if (plan.lines == 1) count = rest > static_cast<int64_t>(l) * (32 / plan.lanes) ? p.length - place : 0;
    const int64_t there = place + behind;
    return {{offset + l * plan.step, p.reverse ? p.length - 1 - there : there, at + behind},
            static_cast<int32_t>(count < 0 ? 0 : count < kQuad ? count : kQuad)};
  }
};

// Blocks of threads of a multiprocessor, for whose states there are registers.
template <class Op>
constexpr int kRowBlocks = sizeof(typename Op::State) <= 4 ? 3 : sizeof(typename Op::State) <= 8 ? 2 : 1;

template <typename T>
__device__ __forceinline__ Quad<T> load_quad(const T* from, const QuadSpot& q, bool reverse, bool has_vectors) {
  Quad<T> quad{};
  const T* const first = from + q.spot.offset;
  if (has_vectors && q.count == kQuad) {
    const Quad<T> loaded = *reinterpret_cast<const Quad<T>*>(reverse ? first - (kQuad - 1) : first);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) quad.of[k] = reverse ? loaded.of[kQuad - 1 - k] : loaded.of[k];
    return quad;
  }
#pragma unroll
  for (int k = 0; k < kQuad; ++k) {
    if (k < q.count) quad.of[k] = reverse ? first[-k] : first[k];
  }
  return quad;
}

template <typename T>
__device__ __forceinline__ void store_quad(T* to, const Quad<T>& quad, const QuadSpot& q, bool reverse,
                                           bool has_vectors) {
  T* const first = to + q.spot.offset;
  if (has_vectors && q.count == kQuad) {
    Quad<T> stored;
#pragma unroll
    for (int k = 0; k < kQuad; ++k) stored.of[k] = reverse ? quad.of[kQuad - 1 - k] : quad.of[k];
    *reinterpret_cast<Quad<T>*>(reverse ? first - (kQuad - 1) : first) = stored;
    return;
  }
#pragma unroll
  for (int k = 0; k < kQuad; ++k) {
    if (k < q.count) (reverse ? first[-k] : first[k]) = quad.of[k];
  }
}

__device__ __forceinline__ Spot behind(const Spot& spot, int k, bool reverse) {
  return {reverse ? spot.offset - k : spot.offset + k, reverse ? spot.index - k : spot.index + k, spot.at + k};
}

// Joins the halves of the groups that `lanes` lanes hold, from pairs of elements on.
template <class Op>
__device__ __forceinline__ void join_line(const Op& op, typename Op::State (&v)[kQuad], int32_t lanes) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  v[1] = op.combine(v[0], v[1]);
  v[3] = op.combine(v[2], v[3]);
  v[2] = op.combine(v[1], v[2]);
  v[3] = op.combine(v[1], v[3]);
#pragma unroll
  for (int half = 1; half < 32; half *= 2) {
    if (half >= lanes) break;
    const typename Op::State last = shuffled(v[kQuad - 1], (lane & ~(2 * half - 1)) | (half - 1));
    if ((lane & half) != 0) {
#pragma unroll
      for (int k = 0; k < kQuad; ++k) v[k] = op.combine(last, v[k]);
    }
  }
}

// Makes each m the maximum of its row's elements in the line up to it.
template <typename C>
__device__ __forceinline__ void join_maxima(Scaled<C> (&v)[kQuad], int32_t lanes) {
  const int lane = static_cast<int>(threadIdx.x % 32), place = lane & (lanes - 1);
#pragma unroll
  for (int k = 1; k < kQuad; ++k) v[k].m = larger(v[k - 1].m, v[k].m);
  C upto = v[kQuad - 1].m;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    if (distance >= lanes) break;
    const C before = shuffled(upto, lane - distance < 0 ? lane : lane - distance);
    if (place >= distance) upto = larger(before, upto);
  }
  const C before = shuffled(upto, lane == 0 ? 0 : lane - 1);
  if (place > 0) {
#pragma unroll
    for (int k = 0; k < kQuad; ++k) v[k].m = larger(before, v[k].m);
  }
}

template <class Op>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<Op>)
    scan_rows(const __grid_constant__ Problem p, const __grid_constant__ typename Op::Buffers b,
              const __grid_constant__ RowPlan plan, const __grid_constant__ RowBoards<Op> boards) {
  using T = typename Op::Element;
  using State = typename Op::State;
  using Carry = typename Op::Carry;
  using C = typename Op::C;
  __shared__ State totals[kLines];
  __shared__ C maxima[kLines];
  __shared__ Carry carry_in_front;
  __shared__ C maximum_in_front;
  __shared__ unsigned long long taken;
  const Op op(p);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const bool is_last_warp = warp == kRowWarps - 1;
  if (p.tiles > 1) wait_for_kernel_before();
  for (int64_t n = blockIdx.x; n < plan.blocks; n += gridDim.x) {
    int64_t first_row = n * (kLines / plan.lines) * (32 / plan.lanes), tile = 0, first_tile = 0;
    if (p.tiles > 1) {
      // Tiles are taken in their order: one that waits for others waits for what runs already.
      if (threadIdx.x == 0) taken = atomicAdd(boards.next, 1ull);
      __syncthreads();
      const Division by(static_cast<int64_t>(taken), p.tiles);
      first_row = by.quotient, tile = by.remainder, first_tile = first_row * p.tiles;
    }
    const LaneSpot mine(p, plan, first_row, tile);
    State v[kLinesPerWarp][kQuad];
    Quad<T> raw[kLinesPerWarp];
#pragma unroll
    for (int l = 0; l < kLinesPerWarp; ++l) {
      raw[l] = load_quad(b.input, mine.line(p, plan, l), p.reverse, plan.has_vectors);
    }
#pragma unroll
    for (int l = 0; l < kLinesPerWarp; ++l) {
      const QuadSpot q = mine.line(p, plan, l);
#pragma unroll
      for (int k = 0; k < kQuad; ++k) {
        v[l][k] = k < q.count ? op.leaf(b, raw[l].of[k], behind(q.spot, k, p.reverse)) : State{};
      }
    }
    // The warp's first line, and of rows with several lines the row's.
    const int own = warp * kLinesPerWarp, from = own & ~(plan.lines - 1);

    if constexpr (Op::kHasMaxima) {
#pragma unroll
      for (int l = 0; l < kLinesPerWarp; ++l) {
        join_maxima(v[l], plan.lanes);
        if (lane == 31) maxima[own + l] = v[l][kQuad - 1].m;
      }
      if (plan.lines > 1) {
        __syncthreads();
        C before{};
        for (int line = from; line < own; ++line) before = line == from ? maxima[line] : larger(before, maxima[line]);
#pragma unroll
        for (int l = 0; l < kLinesPerWarp; ++l) {
          const int line = own + l;
          if (line > from) {
#pragma unroll
            for (int k = 0; k < kQuad; ++k) v[l][k].m = larger(before, v[l][k].m);
          }
          before = line == from ? maxima[line] : larger(before, maxima[line]);
        }
        if (p.tiles > 1) {
          const auto join = [](C a, C c) { return larger(a, c); };
          if (is_last_warp) {
            C in_front{};
            if (tile + 1 < p.tiles && lane == 0) {
              publish(tile == 0 ? boards.maxima.carries : boards.maxima.totals, first_tile + tile, before);
            }
            if (tile > 0) {
              in_front = look_back(boards.maxima, first_tile, tile, join);
              if (lane == 0) {
                if (tile + 1 < p.tiles) {
                  publish(boards.maxima.carries, first_tile + tile, join(in_front, before));
                }
                maximum_in_front = in_front;
              }
            }
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

#pragma unroll
    for (int l = 0; l < kLinesPerWarp; ++l) {
      join_line(op, v[l], plan.lanes);
      if (lane == 31) totals[own + l] = v[l][kQuad - 1];
    }
    Carry carry{};
    if (plan.lines > 1) {
      __syncthreads();
      State before{};
      for (int line = from; line < own; ++line) {
        before = line == from ? totals[line] : op.combine(before, totals[line]);
      }
#pragma unroll
      for (int l = 0; l < kLinesPerWarp; ++l) {
        const int line = own + l;
        if (line > from) {
#pragma unroll
          for (int k = 0; k < kQuad; ++k) v[l][k] = op.combine(before, v[l][k]);
        }
        before = line == from ? totals[line] : op.combine(before, totals[line]);
      }
      if (p.tiles > 1) {
        if (is_last_warp) {
          // All of a tile that is not its row's last one.
          const bool is_followed = tile + 1 < p.tiles;
          if (is_followed && lane == 0) {
            if (tile == 0) {
              publish(boards.carries.carries, first_tile, carried(op, 0, carry, before));
            } else {
              publish(boards.carries.totals, first_tile + tile, op.lift(before, tile * kTile));
            }
          }
          if (tile > 0) {
            const auto join = [&](const Carry& a, const Carry& c) { return op.join(a, c); };
            const Carry in_front = look_back(boards.carries, first_tile, tile, join);
            if (lane == 0) {
              if (is_followed) {
                publish(boards.carries.carries, first_tile + tile, carried(op, tile, in_front, before));
              }
              carry_in_front = in_front;
            }
          }
        }
        __syncthreads();
        if (tile > 0) carry = carry_in_front;
      }
    }

#pragma unroll
    for (int l = 0; l < kLinesPerWarp; ++l) {
      const QuadSpot q = mine.line(p, plan, l);
      Quad<T> results{};
      Quad<int64_t> indices{};
#pragma unroll
      for (int k = 0; k < kQuad; ++k) {
        if (k >= q.count) continue;
        const Carry found = carried(op, tile, carry, v[l][k]);
        results.of[k] = op.result(b, found, behind(q.spot, k, p.reverse));
        if constexpr (Op::kHasIndices) indices.of[k] = op.index_of(found);
      }
      store_quad(b.output, results, q, p.reverse, plan.has_vectors);
      if constexpr (Op::kHasIndices) store_quad(b.indices, indices, q, p.reverse, plan.has_vectors);
    }
    // What is shared belongs to the next tile from here on.
    if (n + gridDim.x < plan.blocks) __syncthreads();
  }
}

}  // namespace
}  // namespace baracuda::scan
