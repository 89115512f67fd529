// SPDX-License-Identifier: Apache-2.0
// The backward on CUDA by tiles of grad_input (core/pool_tiles.cuh), for maximum pooling and its relatives: a block
// keeps its elements' sums in shared memory and its windows in registers, and adds each window's gradient to the
// element that it names.
//
// An element's windows are a box of neighbours. A window's rank is its place in the box of the element that it names,
// in row-major order: no element has two windows of one rank. So a block adds those of rank 0, then those of rank 1 and
// so on, each to a sum of its own, and every sum has its terms in the order of the windows.
#pragma once

#include <cstdint>

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/dtype.h"
#include "core/pool_tiles.cuh"
#include "ops/max_pool/cuda/places.cuh"

namespace baracuda::max_pool {
namespace {

// Elements of a group, whose sums are 16 bytes, where rows and addresses allow it.
template <typename T>
constexpr int kTileLanes = 16 / sizeof(Compute<T>);

// Windows that a thread keeps, one below the other.
constexpr int kTileRows = 8;
constexpr int64_t kTileSumBytes = 32 << 10;
// Blocks that a multiprocessor has registers for: as many as fit its shared memory, less one that would spill.
constexpr int kTileBlocksTogether = 5;
// A rank has a barrier and some six instructions for each window, whether it is of that rank or not.
constexpr int64_t kMostRanks = 32;

// A window is kept as a code: its rank and, below it, the byte where its element's sum begins. Most of a code is a sum
// of numbers that are found beforehand: for the element's place along each axis, and for the window's.
constexpr uint32_t kOneRank = 1u << 16, kNoWindow = 0xffffffffu;
// What windows name that are not there.
constexpr uint64_t kNothing = ~uint64_t{0};
static_assert(kTileSumBytes <= kOneRank, "bytes fit below ranks");

// The elements of a tile that a window may hold along an axis, counted from the tile's first one.
struct alignas(8) TileSpan {
  uint32_t first, count;

  __device__ __forceinline__ bool holds(uint32_t place) const { return place - first < count; }
};

// An Axis says which windows may hold an element, with(element), and which elements a window may hold, of(window).
template <typename T, class Axis>
struct TileCall {
  const T* grad_output;
  const int64_t* indices;
  T* grad_input;
  TileShape shape;
  Axis axes[3];
  PlainDivider width, height;
  uint32_t plane_numel, plane_bins;
  uint32_t sums;           // in shared memory: a tile's elements, to whole vectors
  uint32_t sum_bytes[3];   // from one element to the next along each axis
  uint32_t rank_steps[3];  // what one window more along each axis adds to a code
};

template <class Axis>
__device__ __forceinline__ TileSpan span_in_tile(const Axis& axis, int32_t window, int32_t begin, int32_t count) {
  const auto span = axis.of(window);
  const int32_t first = span.first > begin ? span.first - begin : 0;
  const int32_t end = span.end < begin + count ? span.end - begin : count;
  return {static_cast<uint32_t>(first), end > first ? static_cast<uint32_t>(end - first) : 0};
}

// Adds the first kRows windows of every thread of the block.
template <int kRows, typename C>
__device__ __forceinline__ void add_by_ranks(C* sums, uint32_t (&codes)[kTileRows], const C (&terms)[kTileRows],
                                             int32_t ranks) {
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const auto sum_of = [&](int k) { return reinterpret_cast<C*>(reinterpret_cast<char*>(sums) + codes[k]); };
    C added[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (codes[k] < kOneRank) added[k] = *sum_of(k) + terms[k];
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (codes[k] < kOneRank) *sum_of(k) = added[k];
      // Those that were of this rank become of one that is never reached.
      codes[k] -= kOneRank;
    }
    __syncthreads();
  }
}

template <typename T, int kLanes, class Axis>
__global__ void __launch_bounds__(kTileThreads, kTileBlocksTogether)
    add_tiles(const __grid_constant__ TileCall<T, Axis> call) {
  using C = Compute<T>;
  const TileShape& shape = call.shape;
  const Tile tile(shape, blockIdx.x);
  // The first windows that may hold elements of the tile, and how many there are at most.
  int32_t firsts[3], counts[3];
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    firsts[a] = call.axes[a].with(tile.begin[a]).first;
    const int32_t rest = shape.bins[a] - firsts[a];
    counts[a] = rest < shape.windows[a] ? rest : shape.windows[a];
  }

  const TileThread columns(shape.columns);
  const uint32_t bins_h = static_cast<uint32_t>(shape.bins[1]), bins_w = static_cast<uint32_t>(shape.bins[2]);
  const uint32_t corner = tile.plane * call.plane_bins +
                          (static_cast<uint32_t>(firsts[0]) * bins_h + static_cast<uint32_t>(firsts[1])) * bins_w +
                          static_cast<uint32_t>(firsts[2] + columns.column);
  const bool has_column = columns.row < shape.column_rows && columns.column < counts[2];
  uint64_t named[kTileRows];
  T given[kTileRows];
#pragma unroll
  for (int k = 0; k < kTileRows; ++k) {
    named[k] = kNothing;
    given[k] = T{};
    if (k >= shape.rows) continue;
    const uint32_t row = static_cast<uint32_t>(columns.row + k * shape.column_rows);
    const uint32_t d = shape.window_rows.divide(row), h = row - d * shape.window_rows.count;
    const bool is_there = has_column && d < static_cast<uint32_t>(counts[0]) && h < static_cast<uint32_t>(counts[1]);
    const uint32_t at = corner + (d * bins_h + h) * bins_w;
    if (!is_there) continue;
    named[k] = static_cast<uint64_t>(call.indices[at]);
    given[k] = call.grad_output[at];
  }

  C* const sums = dynamic_shared<C>();
  TileSpan* const spans_d = reinterpret_cast<TileSpan*>(sums + call.sums);
  TileSpan* const spans_h = spans_d + shape.windows[0];
  uint32_t* const codes_d = reinterpret_cast<uint32_t*>(spans_h + shape.windows[1]);
  uint32_t* const codes_h = codes_d + shape.elements[0];
  uint32_t* const codes_w = codes_h + shape.elements[1];
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const auto describe_windows = [&](int a, TileSpan* spans) {
#pragma unroll 1
    for (int32_t i = thread; i < counts[a]; i += kTileThreads) {
      spans[i] = span_in_tile(call.axes[a], firsts[a] + i, tile.begin[a], tile.count[a]);
    }
  };
  const auto describe_elements = [&](int a, uint32_t* codes) {
#pragma unroll 1
    for (int32_t i = thread; i < tile.count[a]; i += kTileThreads) {
      const int32_t first = call.axes[a].with(tile.begin[a] + i).first - firsts[a];
      codes[i] = static_cast<uint32_t>(i) * call.sum_bytes[a] - static_cast<uint32_t>(first) * call.rank_steps[a];
    }
  };
  describe_windows(0, spans_d);
  describe_windows(1, spans_h);
  describe_elements(0, codes_d);
  describe_elements(1, codes_h);
  describe_elements(2, codes_w);
  using Zeros = Vector<C, kTileLanes<T>>;
  for (uint32_t i = threadIdx.x; i < call.sums / kTileLanes<T>; i += kTileThreads) {
    reinterpret_cast<Zeros*>(sums)[i] = Zeros{};
  }
  TileSpan span_w{0, 0};
  if (has_column) span_w = span_in_tile(call.axes[2], firsts[2] + columns.column, tile.begin[2], tile.count[2]);
  const uint32_t code_w = static_cast<uint32_t>(columns.column) * call.rank_steps[2];
  __syncthreads();

  uint32_t codes[kTileRows];
  C terms[kTileRows];
#pragma unroll
  for (int k = 0; k < kTileRows; ++k) {
    codes[k] = kNoWindow;
    terms[k] = widen(given[k]);
    if (k >= shape.rows) continue;
    const uint32_t row = static_cast<uint32_t>(columns.row + k * shape.column_rows);
    // Rows past the last one have windows that name nothing.
    const uint32_t last = static_cast<uint32_t>(shape.windows[0] - 1), quotient = shape.window_rows.divide(row);
    const uint32_t window_d = quotient < last ? quotient : last, window_h = row - quotient * shape.window_rows.count;
    const uint32_t element = static_cast<uint32_t>(named[k]), element_row = call.width.divide(element);
    const uint32_t slab = call.height.divide(element_row);
    const uint32_t d = slab - static_cast<uint32_t>(tile.begin[0]);
    const uint32_t h = element_row - slab * call.height.divisor - static_cast<uint32_t>(tile.begin[1]);
    const uint32_t w = element - element_row * call.width.divisor - static_cast<uint32_t>(tile.begin[2]);
    // A window may name an element that it cannot hold.
    const bool adds = (named[k] < call.plane_numel) & spans_d[window_d].holds(d) & spans_h[window_h].holds(h) &
                      span_w.holds(w);
    if (!adds) continue;
    codes[k] = codes_d[d] + codes_h[h] + codes_w[w] + window_d * call.rank_steps[0] +
               window_h * call.rank_steps[1] + code_w;
  }
  const int32_t ranks = shape.box[0] * shape.box[1] * shape.box[2];
  if (shape.rows <= 2) {
    add_by_ranks<2>(sums, codes, terms, ranks);
  } else if (shape.rows <= 5) {
    add_by_ranks<5>(sums, codes, terms, ranks);
  } else {
    add_by_ranks<kTileRows>(sums, codes, terms, ranks);
  }

  const TileThread groups(shape.groups);
  const int32_t column = groups.column * kLanes;
  if (groups.row >= shape.group_rows || column >= tile.count[2]) return;
  const uint32_t corner_of_sums =
      tile.plane * call.plane_numel +
      (static_cast<uint32_t>(tile.begin[0]) * static_cast<uint32_t>(shape.extents[1]) +
       static_cast<uint32_t>(tile.begin[1])) * static_cast<uint32_t>(shape.extents[2]) +
      static_cast<uint32_t>(tile.begin[2] + column);
  const int32_t rows = tile.count[0] * shape.elements[1];
#pragma unroll 4
  for (int32_t number = groups.row; number < rows; number += shape.group_rows) {
    const uint32_t d = shape.element_rows.divide(static_cast<uint32_t>(number));
    const uint32_t h = static_cast<uint32_t>(number) - d * shape.element_rows.divisor;
    if (h >= static_cast<uint32_t>(tile.count[1])) continue;
    const auto found = *reinterpret_cast<const Vector<C, kLanes>*>(sums + number * shape.elements[2] + column);
    Vector<T, kLanes> narrowed;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) narrowed.lanes[lane] = narrow<T>(found.lanes[lane]);
    const uint32_t at = corner_of_sums + (d * static_cast<uint32_t>(shape.extents[1]) + h) *
                                              static_cast<uint32_t>(shape.extents[2]);
    *reinterpret_cast<Vector<T, kLanes>*>(call.grad_input + at) = narrowed;
  }
}

// Where grad_input is written by groups.
template <typename T>
int64_t lanes_of_tiles(int32_t width, const T* grad_input) {
  const bool has_groups = width % kTileLanes<T> == 0 &&
                          reinterpret_cast<uintptr_t>(grad_input) % (kTileLanes<T> * sizeof(T)) == 0;
  return has_groups ? kTileLanes<T> : 1;
}

// most(axis, count) is at least as many windows as `count` neighbouring elements of one of the family's axes have; all
// extents are at least 1.
template <typename T, class FamilyAxis, class Most>
TileShape choose_sum_tiles(const FamilyAxis* axes, int64_t planes, const T* grad_input, const Most& most) {
  const auto at = [&](int axis, int64_t count) { return most(axes[axis], count); };
  if (at(0, 1) * at(1, 1) * at(2, 1) > kMostRanks) return {};
  return choose_tiles(planes, {axes[0].extent, axes[1].extent, axes[2].extent},
                      {axes[0].bins, axes[1].bins, axes[2].bins}, lanes_of_tiles(axes[2].extent, grad_input),
                      kTileSumBytes / static_cast<int64_t>(sizeof(Compute<T>)), kTileRows, at);
}

// Of fewer than 2^31 elements and windows; the shape is choose_sum_tiles(), the buffers are a family's.
template <typename T, class Axis, class Buffers>
Status enqueue_tiles(const char* name, const TileShape& shape, const Axis (&axes)[3], const Buffers& b,
                     Stream stream) {
  const auto product = [](const int32_t(&counts)[3]) {
    return static_cast<uint32_t>(counts[0]) * static_cast<uint32_t>(counts[1]) * static_cast<uint32_t>(counts[2]);
  };
  const auto steps = [](const int32_t(&counts)[3], uint32_t one, uint32_t(&found)[3]) {
    for (int a = 2; a >= 0; --a) found[a] = one, one *= static_cast<uint32_t>(counts[a]);
  };
  TileCall<T, Axis> call{b.grad_output,
                         b.indices,
                         b.grad_input,
                         shape,
                         {axes[0], axes[1], axes[2]},
                         PlainDivider(shape.extents[2]),
                         PlainDivider(shape.extents[1]),
                         product(shape.extents),
                         product(shape.bins),
                         groups_of<uint32_t>(static_cast<uint32_t>(shape.numel), kTileLanes<T>) * kTileLanes<T>,
                         {},
                         {}};
  steps(shape.elements, sizeof(Compute<T>), call.sum_bytes);
  steps(shape.box, kOneRank, call.rank_steps);
  const size_t places = static_cast<size_t>(shape.elements[0]) + shape.elements[1] + shape.elements[2];
  const size_t spans = static_cast<size_t>(shape.windows[0]) + shape.windows[1];
  const size_t bytes = call.sums * sizeof(Compute<T>) + spans * sizeof(TileSpan) + places * sizeof(uint32_t);
  const bool has_groups = lanes_of_tiles(shape.extents[2], b.grad_input) > 1;
  auto* const kernel = has_groups ? add_tiles<T, kTileLanes<T>, Axis> : add_tiles<T, 1, Axis>;
  return launch_kernel(name, kernel, static_cast<uint32_t>(shape.blocks), kTileThreads, bytes, stream, call);
}

}  // namespace
}  // namespace baracuda::max_pool
