// SPDX-License-Identifier: Apache-2.0
// How dense rows lie in a block of threads, and what its lanes and warps do with them: a warp has four lines, each of
// one block of 128 elements or of several rows that are shorter, and a lane four neighbouring elements of a line.
#pragma once

#include <cstdint>
#include <limits>

#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "ops/scan/cuda/tile_chain.cuh"
#include "ops/scan/math.h"

namespace baracuda::scan {
namespace {

constexpr int kQuad = 4;
constexpr int kLinesPerWarp = 4;
constexpr int kRowThreads = 512;
constexpr int kRowWarps = kRowThreads / 32;
constexpr int kLines = kRowWarps * kLinesPerWarp;
constexpr int kLineBitsOfWarp = 2, kLineBits = 6;
static_assert(kLinesPerWarp == 1 << kLineBitsOfWarp && kLines == 1 << kLineBits);
static_assert(kLines * kBlock == kTile && 32 * kQuad == kBlock);

// How rows lie in a block of threads.
struct RowPlan {
  int32_t lane_bits;  // a row has 2^lane_bits lanes of a line, of 32,
  int32_t line_bits;  // and 2^line_bits lines of a block of threads: one, or all of one warp or of several
  int32_t step;       // from a lane's elements to those in its warp's next line
  bool has_vectors;
  int64_t blocks;  // of threads, each of which has a place for kTile elements

  explicit RowPlan(const Problem& p, bool vectors) : lane_bits(0), line_bits(0), has_vectors(vectors) {
    while (lane_bits < 5 && (int64_t{kQuad} << lane_bits) < p.length) ++lane_bits;
    if (p.length > kBlock) line_bits = kLineBitsOfWarp;
    while (line_bits < kLineBits && (int64_t{kBlock} << line_bits) < p.length) ++line_bits;
    blocks = p.tiles > 1 ? p.rows * p.tiles : ceil_div(p.rows, rows_of_block());
    step = has_short_rows() ? rows_of_line() * static_cast<int32_t>(p.length) : p.reverse ? -kBlock : kBlock;
  }
  BARACUDA_HD bool has_short_rows() const { return line_bits == 0; }
  BARACUDA_HD int32_t rows_of_line() const { return 32 >> lane_bits; }
  BARACUDA_HD int64_t rows_of_block() const { return kLines >> line_bits << (5 - lane_bits); }
};

template <typename T>
struct alignas(sizeof(T) * kQuad < 16 ? sizeof(T) * kQuad : 16) Quad {
  T of[kQuad];
  __device__ __forceinline__ Quad reversed() const { return {{of[3], of[2], of[1], of[0]}}; }
};

// Where a lane has its elements: those of its warp's first line, and from there those of the others.
struct LaneSpot {
  int64_t offset, place;  // in the tensor, and along the scan in the row
  int32_t at;             // along the scan in the tile
  int32_t rest;           // elements of the row from there on that the tile has, or of shorter rows whole rows

  __device__ LaneSpot(const Problem& p, const RowPlan& plan, int64_t first_row, int64_t tile) {
    const int lane = static_cast<int>(threadIdx.x % 32), line = static_cast<int>(threadIdx.x / 32) * kLinesPerWarp;
    const int64_t row = first_row + (line >> plan.line_bits << (5 - plan.lane_bits)) + (lane >> plan.lane_bits);
    at = (line & ((1 << plan.line_bits) - 1)) * kBlock + (lane & ((1 << plan.lane_bits) - 1)) * kQuad;
    place = tile * kTile + at;
    offset = row * p.length + (p.reverse ? p.length - 1 - place : place);
    const int64_t all = plan.has_short_rows() ? p.rows - row : row < p.rows ? p.length - place : 0;
    rest = static_cast<int32_t>(all < kTile ? all : kTile);
  }

  // Elements of one of the lines, of which four count; negative behind the row's end.
  __device__ __forceinline__ int32_t count(const Problem& p, const RowPlan& plan, int l) const {
    if (!plan.has_short_rows()) return rest - l * kBlock;
    return rest > l * plan.rows_of_line() ? static_cast<int32_t>(p.length) - at : 0;
  }

  __device__ __forceinline__ Spot spot(const Problem& p, const RowPlan& plan, int l, int k) const {
    const int32_t behind = (plan.has_short_rows() ? 0 : l * kBlock) + k;
    const int64_t there = place + behind;
    return {offset + l * plan.step + (p.reverse ? -k : k), p.reverse ? p.length - 1 - there : there, at + behind};
  }
};

// The elements of a lane's lines that have all their elements, asked for together; in the order of the scan.
template <typename T>
__device__ __forceinline__ void load_whole(const T* first, int32_t step, bool reverse,
                                           Quad<T> (&lines)[kLinesPerWarp]) {
  if (reverse) first -= kQuad - 1;
#pragma unroll
  for (int l = 0; l < kLinesPerWarp; ++l) lines[l] = *reinterpret_cast<const Quad<T>*>(first + l * step);
  if (!reverse) return;
#pragma unroll
  for (int l = 0; l < kLinesPerWarp; ++l) lines[l] = lines[l].reversed();
}

template <typename T>
__device__ __forceinline__ void store_whole(T* first, int32_t step, bool reverse,
                                            const Quad<T> (&lines)[kLinesPerWarp]) {
  if (reverse) first -= kQuad - 1;
#pragma unroll
  for (int l = 0; l < kLinesPerWarp; ++l) {
    *reinterpret_cast<Quad<T>*>(first + l * step) = reverse ? lines[l].reversed() : lines[l];
  }
}

// As many elements of a line as there are.
template <typename T>
__device__ __forceinline__ Quad<T> load_some(const T* first, int32_t count, bool reverse) {
  Quad<T> quad{};
#pragma unroll
  for (int k = 0; k < kQuad; ++k) {
    if (k < count) quad.of[k] = reverse ? first[-k] : first[k];
  }
  return quad;
}

template <typename T>
__device__ __forceinline__ void store_some(T* first, int32_t count, bool reverse, const Quad<T>& quad) {
#pragma unroll
  for (int k = 0; k < kQuad; ++k) {
    if (k < count) (reverse ? first[-k] : first[k]) = quad.of[k];
  }
}

// Joins the halves of the groups that 2^lane_bits lanes hold, from pairs of elements on; level by level in all lines,
// so that their shuffles are under way together.
template <class Op>
__device__ __forceinline__ void join_halves(const Op& op, typename Op::State (&v)[kLinesPerWarp][kQuad],
                                            int32_t lane_bits) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int l = 0; l < kLinesPerWarp; ++l) {
    v[l][1] = op.combine(v[l][0], v[l][1]);
    v[l][3] = op.combine(v[l][2], v[l][3]);
    v[l][2] = op.combine(v[l][1], v[l][2]);
    v[l][3] = op.combine(v[l][1], v[l][3]);
  }
#pragma unroll
  for (int bit = 0; bit < 5; ++bit) {
    if (bit >= lane_bits) break;
    const int half = 1 << bit;
    const int from = (lane & ~(2 * half - 1)) | (half - 1);
    typename Op::State last[kLinesPerWarp];
#pragma unroll
    for (int l = 0; l < kLinesPerWarp; ++l) last[l] = shuffled(v[l][kQuad - 1], from);
    if ((lane & half) != 0) {
#pragma unroll
      for (int l = 0; l < kLinesPerWarp; ++l) {
#pragma unroll
        for (int k = 0; k < kQuad; ++k) v[l][k] = op.combine(last[l], v[l][k]);
      }
    }
  }
}

// What each of a warp's whole lines adds by itself, joined as join_halves joins; the last lane has it.
template <class Op>
__device__ __forceinline__ void add_up_lines(const Op& op, const typename Op::State (&v)[kLinesPerWarp][kQuad],
                                             typename Op::State (&all)[kLinesPerWarp]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int l = 0; l < kLinesPerWarp; ++l) {
    all[l] = op.combine(op.combine(v[l][0], v[l][1]), op.combine(v[l][2], v[l][3]));
  }
#pragma unroll
  for (int bit = 0; bit < 5; ++bit) {
    // The last lane of each pair of groups has what both hold; the others have anything.
    typename Op::State before[kLinesPerWarp];
#pragma unroll
    for (int l = 0; l < kLinesPerWarp; ++l) before[l] = shuffled(all[l], lane - (1 << bit) < 0 ? 0 : lane - (1 << bit));
#pragma unroll
    for (int l = 0; l < kLinesPerWarp; ++l) all[l] = op.combine(before[l], all[l]);
  }
}

// Makes each m the maximum of its row's elements in the line up to it.
template <typename C>
__device__ __forceinline__ void join_maxima(Scaled<C> (&v)[kQuad], int32_t lane_bits) {
  const int lane = static_cast<int>(threadIdx.x % 32), place = lane & ((1 << lane_bits) - 1);
#pragma unroll
  for (int k = 1; k < kQuad; ++k) v[k].m = larger(v[k - 1].m, v[k].m);
  C upto = v[kQuad - 1].m;
#pragma unroll
  for (int bit = 0; bit < 5; ++bit) {
    if (bit >= lane_bits) break;
    const int distance = 1 << bit;
    const C before = shuffled(upto, lane - distance < 0 ? lane : lane - distance);
    if (place >= distance) upto = larger(before, upto);
  }
  const C before = shuffled(upto, lane == 0 ? 0 : lane - 1);
  if (place > 0) {
#pragma unroll
    for (int k = 0; k < kQuad; ++k) v[k].m = larger(before, v[k].m);
  }
}

// What each line adds by itself, four of a warp together.
template <typename V>
struct alignas(16) LinesOf {
  V of[kLinesPerWarp];
};

// The maximum of the lines from `from` up to `end`.
template <typename C>
__device__ __forceinline__ C maximum_of_lines(const LinesOf<C>* maxima, int from, int end) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto of_line = [&](int line) {
    const bool counts = line >= from && line < end;
    return counts ? maxima[line / kLinesPerWarp].of[line % kLinesPerWarp] : -std::numeric_limits<C>::infinity();
  };
  static_assert(kLines == 64, "two lines a lane");
  C found = larger(of_line(2 * lane), of_line(2 * lane + 1));
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    found = larger(found, shuffled(found, lane + distance < 32 ? lane + distance : lane));
  }
  return shuffled(found, 0);
}

// What the lines from `from` up to `end` add, one after the other. Both are a warp's first, and not the same.
template <class Op>
__device__ __forceinline__ typename Op::State joined_lines(const Op& op,
                                                           const LinesOf<typename Op::State>* totals, int from,
                                                           int end) {
  using State = typename Op::State;
  if constexpr (Op::kHasLinks) {
    // Links take long and do not wait for each other: each lane finds those of two lines.
    const int lane = static_cast<int>(threadIdx.x % 32);
    const auto of_line = [&](int line) { return totals[line / kLinesPerWarp].of[line % kLinesPerWarp]; };
    const State low = of_line(lane), high = of_line(lane + 32);
    const auto low_link = op.link(of_line(lane == 0 ? 0 : lane - 1), low);
    const auto high_link = op.link(of_line(lane + 31), high);
    State before = of_line(from);
    for (int line = from + 1; line < end; ++line) {
      before = op.follow(before, shuffled(line < 32 ? low_link : high_link, line % 32), of_line(line));
    }
    return before;
  } else {
    // Four lines are on their way while the four before are joined; the last ones are the caller's own.
    int warp = from / kLinesPerWarp;
    LinesOf<State> lines = totals[warp], next = totals[warp + 1];
    State before = lines.of[0];
#pragma unroll
    for (int l = 1; l < kLinesPerWarp; ++l) before = op.combine(before, lines.of[l]);
#pragma unroll 2
    for (++warp; warp < end / kLinesPerWarp; ++warp) {
      lines = next;
      next = totals[warp + 1];
#pragma unroll
      for (int l = 0; l < kLinesPerWarp; ++l) before = op.combine(before, lines.of[l]);
    }
    return before;
  }
}

}  // namespace
}  // namespace baracuda::scan
