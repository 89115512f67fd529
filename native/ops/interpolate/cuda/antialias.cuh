// SPDX-License-Identifier: Apache-2.0
// The antialiased modes on CUDA, both directions. First the tables of both axes; then a block has a tile of
// destinations: it sums source rows for each of the tile's rows, a vector of columns a thread, into shared memory, and
// from there along the width. A window of columns that does not fit is taken in chunks, between which the sums stay in
// registers; so no extent and no scale is too large, and nothing is stored between the axes.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "ops/interpolate/antialias.h"
#include "ops/interpolate/cuda/columns.cuh"
#include "ops/interpolate/launch.h"

namespace baracuda::interpolate {
namespace {

constexpr int kTableThreads = 128;
constexpr int kFilterThreads = 256;
constexpr int kFilterBlocks = 4;  // of a multiprocessor, at least
// Destinations of a tile, of which a thread has so many, all in one column.
constexpr int kTileEach = 4;
constexpr int32_t kTile = kTileEach * kFilterThreads;
constexpr int32_t kLeastColumnBits = 3, kMostColumnBits = 6, kMostRowBits = 4;
// Where there are fewer, tiles are made smaller, that all multiprocessors have work.
constexpr int64_t kWantedTiles = 512;

// Columns of a vector, whose sums a thread has in registers.
template <typename T>
constexpr int kFilterVector = sizeof(T) == 8 ? 2 : 4;

// ---- tables

// The totals of the gradient's output pixels or the entries of the forward's, of both axes one after the other.
template <typename C>
__global__ void __launch_bounds__(kTableThreads)
    enter_outputs(const __grid_constant__ Tables<C> tables, int32_t rows, int32_t columns) {
  for (int64_t i = grid_thread(); i < static_cast<int64_t>(rows) + columns; i += grid_threads()) {
    const int axis = i < rows ? 0 : 1;
    const int32_t o = static_cast<int32_t>(axis == 0 ? i : i - rows);
    enter_output(tables.filters[axis], tables.axes[axis], o, tables.is_backward);
  }
}

template <typename C>
__global__ void __launch_bounds__(kTableThreads)
    enter_inputs(const __grid_constant__ Tables<C> tables, int32_t rows, int32_t columns) {
  for (int64_t i = grid_thread(); i < static_cast<int64_t>(rows) + columns; i += grid_threads()) {
    const int axis = i < rows ? 0 : 1;
    enter_input(tables.filters[axis], tables.axes[axis], static_cast<int32_t>(axis == 0 ? i : i - rows));
  }
}

template <typename C>
Status enqueue_tables(const Tables<C>& tables, Stream stream) {
  const AxisTable<C>&height = tables.axes[0], &width = tables.axes[1];
  const bool is_backward = tables.is_backward;
  const int32_t rows = is_backward ? tables.filters[0].output : height.active;
  const int32_t columns = is_backward ? tables.filters[1].output : width.active;
  BARACUDA_RETURN_IF_FAILED(launch_kernel("interpolate kernel", enter_outputs<C>,
                                          blocks_for(static_cast<int64_t>(rows) + columns, kTableThreads),
                                          kTableThreads, 0, stream, tables, rows, columns));
  if (!is_backward) return Status::kOk;
  return launch_kernel("interpolate_backward kernel", enter_inputs<C>,
                       blocks_for(static_cast<int64_t>(height.active) + width.active, kTableThreads), kTableThreads, 0,
                       stream, tables, height.active, width.active);
}

// ---- sums

// How a call is cut: tiles of 2^row_bits rows and 2^column_bits columns of `lanes` planes.
struct Tiling {
  int32_t column_bits, row_bits, lanes, chunk;
  int64_t column_tiles, row_tiles, tiles;
  int32_t source_rows, source_columns;
  int64_t planes;

  int32_t rows() const { return lanes << row_bits; }
};

inline int32_t bits_for(int32_t extent, int32_t least, int32_t most) {
  int32_t bits = least;
  while (bits < most && (1 << bits) < extent) ++bits;
  return bits;
}

template <typename C>
Tiling tiling_of(const Problem& p, const Tables<C>& tables) {
  Tiling s;
  const int32_t rows = tables.axes[0].destinations, columns = tables.axes[1].destinations;
  s.source_rows = tables.is_backward ? p.height().output : p.height().input;
  s.source_columns = tables.is_backward ? p.width().output : p.width().input;
  s.planes = p.planes();
  s.column_bits = bits_for(columns, kLeastColumnBits, kMostColumnBits);
  s.row_bits = bits_for(rows, 0, kMostRowBits);
  s.lanes = static_cast<int32_t>(at_most((kTile >> s.column_bits) >> s.row_bits, s.planes));
  s.column_tiles = ceil_div(columns, int64_t{1} << s.column_bits);
  for (;;) {
    s.row_tiles = ceil_div(rows, int64_t{1} << s.row_bits);
    s.tiles = ceil_div(s.planes, s.lanes) * s.row_tiles * s.column_tiles;
    if (s.tiles >= kWantedTiles || (s.lanes == 1 && s.row_bits == 0)) break;
    if (s.lanes > 1) {
      s.lanes = static_cast<int32_t>(ceil_div(s.lanes, 2));
    } else {
      --s.row_bits;
    }
  }
  // Four columns of the source for one of the tile, and what reaches over its edges.
  s.chunk = (4 << s.column_bits) + 16;
  return s;
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kFilterThreads, kFilterBlocks)
    filter_tiles(const T* from, T* to, const __grid_constant__ AxisTable<Compute<T>> height,
                 const __grid_constant__ AxisTable<Compute<T>> width, const __grid_constant__ Tiling s) {
  using C = Compute<T>;
  C* const sums = dynamic_shared<C>();  // [lanes << row_bits][chunk]: source columns, summed along the height
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t columns = 1 << s.column_bits, rows = 1 << s.row_bits, all_rows = s.lanes << s.row_bits;
  // The first of the thread's rows among the tile's; the next ones are `step` on.
  const int32_t first_row = thread >> s.column_bits, step = kFilterThreads >> s.column_bits;
  const C* mine[kTileEach];
#pragma unroll
  for (int e = 0; e < kTileEach; ++e) {
    const int32_t row = first_row + e * step;
    mine[e] = sums + (row < all_rows ? row : 0) * s.chunk;
  }
  for (int64_t tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
    const Division across(tile, s.column_tiles), down(across.quotient, s.row_tiles);
    const int64_t plane = down.quotient * s.lanes;
    const int32_t top = static_cast<int32_t>(down.remainder) << s.row_bits;
    const int32_t left = static_cast<int32_t>(across.remainder) << s.column_bits;
    const int32_t right = static_cast<int32_t>(at_most(static_cast<int64_t>(left) + columns, width.active));
    // The source columns of the tile, from a vector on.
    const int32_t from_column = left < right ? width.begin[left] / kCount * kCount : 0;
    const int32_t until_column = left < right ? width.end[right - 1] : 0;
    const int32_t column = left + (thread & (columns - 1));
    const int32_t begin = width.begin_of(column), end = width.end_of(column);
    C found[kTileEach];
#pragma unroll
    for (int e = 0; e < kTileEach; ++e) found[e] = C(0);
    // Of 32 bits without a sign, since the last step leads behind what a row can have.
    const uint32_t until = static_cast<uint32_t>(until_column);
    for (uint32_t next = static_cast<uint32_t>(from_column); next < until; next += static_cast<uint32_t>(s.chunk)) {
      const int32_t chunk = static_cast<int32_t>(next);
      const int32_t count = until_column - chunk < s.chunk ? until_column - chunk : s.chunk;
      const uint32_t vectors = static_cast<uint32_t>(groups_of(count, kCount));
      const uint32_t items = static_cast<uint32_t>(all_rows) * vectors;
      __syncthreads();  // the chunk before may still be read
      for (uint32_t item = threadIdx.x; item < items; item += kFilterThreads) {
        const uint32_t row = item / vectors, vector = item - row * vectors;
        const int64_t at = plane + (row >> s.row_bits);
        const int32_t y = top + static_cast<int32_t>(row & static_cast<uint32_t>(rows - 1));
        C sum[kCount];
#pragma unroll
        for (int k = 0; k < kCount; ++k) sum[k] = C(0);
        if (at < s.planes && y < height.active) {
          const int32_t first = height.begin[y], terms = height.end[y] - first;
          const C* weights = height.weights + y;
          const T* source = from + (at * s.source_rows + first) * s.source_columns + chunk + vector * kCount;
#pragma unroll 4
          for (int32_t i = 0; i < terms; ++i) {
            const C weight = *weights;
            const Vector<T, kCount> read = *reinterpret_cast<const Vector<T, kCount>*>(source);
#pragma unroll
            for (int k = 0; k < kCount; ++k) {
              const C more = baracuda::fma(weight, widen(read.elements[k]), sum[k]);
              sum[k] = weight != C(0) ? more : sum[k];
            }
            weights += height.active;
            source += s.source_columns;
          }
        }
        C* const out = sums + row * s.chunk + vector * kCount;
#pragma unroll
        for (int k = 0; k < kCount; ++k) out[k] = sum[k];
      }
      __syncthreads();
      const int32_t low = begin > chunk ? begin : chunk, high = end < chunk + count ? end : chunk + count;
      const C* weights = width.weights + static_cast<int64_t>(low - begin) * width.active + column;
#pragma unroll 2
      for (int32_t j = low; j < high; ++j) {
        const C weight = *weights;
#pragma unroll
        for (int e = 0; e < kTileEach; ++e) {
          const C more = baracuda::fma(weight, mine[e][j - chunk], found[e]);
          found[e] = weight != C(0) ? more : found[e];
        }
        weights += width.active;
      }
    }
    if (column >= width.destinations) continue;
#pragma unroll
    for (int e = 0; e < kTileEach; ++e) {
      const int32_t row = first_row + e * step;
      const int64_t at = plane + (row >> s.row_bits);
      const int32_t y = top + (row & (rows - 1));
      if (row >= all_rows || at >= s.planes || y >= height.destinations) continue;
      // Plus 0: a sum that underflows is 0, not -0.
      to[(at * height.destinations + y) * width.destinations + column] = narrow<T>(C(0) + found[e]);
    }
  }
}

// Planes of `from` become planes of `to`, whose axes are the tables' destinations.
template <typename T, int kCount>
Status enqueue_filter(const Problem& p, const T* from, T* to, bool is_backward, void* workspace, Stream stream) {
  using C = Compute<T>;
  WorkspaceLayout layout;
  const Tables<C> tables = lay_tables<C>(layout, workspace, p, is_backward);
  BARACUDA_RETURN_IF_FAILED(enqueue_tables(tables, stream));
  const Tiling s = tiling_of(p, tables);
  const char* const name = is_backward ? "interpolate_backward kernel" : "interpolate kernel";
  return launch_kernel(name, filter_tiles<T, kCount>, blocks_for(s.tiles, 1), kFilterThreads,
                       static_cast<size_t>(s.rows()) * s.chunk * sizeof(C), stream, from, to, tables.axes[0],
                       tables.axes[1], s);
}

}  // namespace
}  // namespace baracuda::interpolate
