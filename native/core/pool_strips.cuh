// SPDX-License-Identifier: Apache-2.0
// How pooling walks through what it writes on CUDA, shared by the pooling families: a thread owns a strip of a row, 16
// bytes of a gradient or one window, in several rows one after the other. What it reads along w it finds once; what a
// row reads along d and h is found once for each row of a block. What is done with it is the families'.
#pragma once

#include <cstdint>

#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "core/pool_rules.h"
#include "core/pool_windows.h"

namespace baracuda {
namespace {

constexpr int kStripThreads = 256;
// Rows that a thread has one after the other, so that what it knows of its columns is used often.
constexpr int64_t kRowsOfStrip = 8;
// So many blocks keep every multiprocessor busy; calls with fewer have fewer rows to a thread.
constexpr int64_t kStripBlocks = 1056;

template <typename T>
constexpr int kStripLanes = 16 / sizeof(T);
// Columns of windows that a strip may have: windows that begin every second element, and are up to three wide, or such
// that begin at every element.
template <typename T>
constexpr int kFewStripColumns = kStripLanes<T> / 2 + 1;
template <typename T>
constexpr int kManyStripColumns = kStripLanes<T> + 2;

template <typename T>
struct alignas(16) Strip {
  T lanes[kStripLanes<T>];
};

// At least as many columns of windows as `lanes` neighbouring elements have.
inline int64_t most_strip_columns(const PoolAxis& axis, int64_t lanes) {
  if (axis.is_adaptive()) return ceil_div(lanes * axis.bins, axis.extent) + 1;
  return (lanes - 1 + (static_cast<int64_t>(axis.kernel) - 1) * axis.dilation) / axis.stride + 1;
}

// How strips are dealt out: a block has `rows` rows, `together` at a time, of `strips` strips each.
struct StripShape {
  Divider strips, pieces, h, d;
  PoolRule sources[3];  // what a place reads along each axis
  uint32_t all_rows;
  int32_t rows, together;
  int32_t width;

  uint32_t blocks() const {
    return static_cast<uint32_t>(ceil_div(all_rows, rows) * static_cast<int64_t>(pieces.divisor));
  }
};

// Of a tensor [planes, extents] of fewer than 2^31 elements, at least one, with rows of whole strips.
inline StripShape strip_shape(int64_t planes, const int32_t (&extents)[3], const PoolRule (&sources)[3],
                              int64_t lanes) {
  const int64_t strips = extents[2] / lanes, rows = planes * extents[0] * extents[1];
  const int64_t pieces = ceil_div(strips, kStripThreads), in_piece = ceil_div(strips, pieces);
  const int64_t together = kStripThreads / in_piece;
  // A thread describes at most one of a block's rows.
  const int64_t most = at_most(kRowsOfStrip, kStripThreads / together);
  const int64_t each = at_least(at_most(rows * pieces / (together * kStripBlocks), most), 1);
  return {Divider(in_piece),
          Divider(pieces),
          Divider(extents[1]),
          Divider(extents[0]),
          {sources[0], sources[1], sources[2]},
          static_cast<uint32_t>(rows),
          static_cast<int32_t>(together * each),
          static_cast<int32_t>(together),
          extents[2]};
}

// Of a gradient's strips, which read windows.
inline StripShape gradient_strips(const PoolAxis* axes, int64_t planes, int64_t lanes) {
  return strip_shape(planes, {axes[0].extent, axes[1].extent, axes[2].extent},
                     {rule_of_windows(axes[0]), rule_of_windows(axes[1]), rule_of_windows(axes[2])}, lanes);
}

// Of single windows, which read elements.
inline StripShape window_strips(const PoolAxis* axes, int64_t planes) {
  return strip_shape(planes, {axes[0].bins, axes[1].bins, axes[2].bins},
                     {rule_of_elements(axes[0]), rule_of_elements(axes[1]), rule_of_elements(axes[2])}, 1);
}

// A row's plane, and what it reads along d and h.
struct StripRow {
  uint32_t plane;
  PoolRange d, h;
};

// The windows along w that hold some of a strip's elements.
template <int kLanes, int kColumns>
struct StripColumns {
  int32_t first;
  uint32_t lanes[kColumns];  // which elements window first + c holds, a bit each

  __device__ StripColumns(const PoolRule& windows, int32_t place) : first(0), lanes{} {
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      const PoolRange range = windows(place + lane);
      if (lane == 0) first = range.first;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (first + c >= range.first && first + c < range.end) lanes[c] |= 1u << lane;
      }
    }
  }
};

// What a thread has of a block: rows [team, shape.rows) in steps of shape.together, and the strip at `place`.
struct StripPlace {
  uint32_t first_row;
  int32_t team, place;
  bool has_strip;
};

// Describes the block's rows in `rows`, which has room for kStripThreads; all its threads take part.
template <int kLanes>
__device__ __forceinline__ StripPlace begin_strips(const StripShape& shape, StripRow* rows) {
  const uint32_t batch = shape.pieces.divide(blockIdx.x), t = threadIdx.x;
  const uint32_t first_row = batch * static_cast<uint32_t>(shape.rows);
  if (t < static_cast<uint32_t>(shape.rows) && first_row + t < shape.all_rows) {
    const uint32_t row = first_row + t, slab = shape.h.divide(row), plane = shape.d.divide(slab);
    rows[t] = {plane, shape.sources[0](static_cast<int32_t>(slab - plane * shape.d.divisor)),
               shape.sources[1](static_cast<int32_t>(row - slab * shape.h.divisor))};
  }
  __syncthreads();
  const uint32_t team = shape.strips.divide(t);
  const uint32_t piece = blockIdx.x - batch * shape.pieces.divisor;
  const uint32_t strip = piece * shape.strips.divisor + t - team * shape.strips.divisor;
  const int32_t place = static_cast<int32_t>(strip) * kLanes;
  return {first_row, static_cast<int32_t>(team), place,
          team < static_cast<uint32_t>(shape.together) && place < shape.width};
}

// Whether strips can be written so, in one of both numbers of columns.
template <typename T>
bool has_strips(const PoolAxis* axes, const void* grad_input) {
  const PoolAxis& w = axes[2];
  return has_rules(axes[0]) && has_rules(axes[1]) && has_rules(w) && w.extent % kStripLanes<T> == 0 &&
         reinterpret_cast<uintptr_t>(grad_input) % 16 == 0 &&
         most_strip_columns(w, kStripLanes<T>) <= kManyStripColumns<T>;
}

// Elements of a window along h and w that a thread may have at once.
constexpr int64_t kMostWindow = 3;

inline bool has_small_windows(const PoolAxis* axes) {
  return has_rules(axes[0]) && has_rules(axes[1]) && has_rules(axes[2]) && most_elements(axes[1]) <= kMostWindow &&
         most_elements(axes[2]) <= kMostWindow;
}

}  // namespace
}  // namespace baracuda
