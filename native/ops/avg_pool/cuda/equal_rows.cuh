// SPDX-License-Identifier: Apache-2.0
// The backward on CUDA for windows that lie far apart: rows of grad_input that are in the same windows along d and h
// are equal. A block makes each row of its tile once, in shared memory, and then writes it wherever it stands.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/pool_strips.cuh"
#include "core/pool_tiles.cuh"
#include "ops/avg_pool/cuda/divisors.cuh"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

// At most so much of shared memory has a block, so that a multiprocessor has several.
constexpr int64_t kEqualRowBytes = 40 << 10;
constexpr int64_t kEqualRowElements = 16384;

// A range of windows along an axis has the sum of its bounds as its key, counted from that of the tile's first place:
// bounds never descend, so that places of one key have one range. Axes are d and h.
template <typename T>
struct EqualRowsCall {
  BackwardBuffers<T> buffers;
  CommonDivisor<Compute<T>> by;
  PoolRule windows[3];  // of a place
  PoolRule counts[3];   // what a window counts along each axis
  int32_t extents[3], bins[3];
  int32_t places[2];    // of a tile
  int32_t most[3];      // windows of a tile
  int32_t keys[2];
  int32_t vectors, all_vectors;  // of rows, in a tile and in the tensor
  int32_t vector_rows;           // that threads stand in
  Divider by_pieces, by_tiles_h, by_tiles_d, by_vectors, by_places_h, by_columns, by_windows_h, by_keys_h;

  // Without keys there are no such tiles.
  EqualRowsCall(const Problem& p, const BackwardBuffers<T>& b) : buffers(b), by(p), keys{} {}

  BARACUDA_HD int32_t width() const { return vectors * kStripLanes<T>; }
  BARACUDA_HD int32_t window_numel() const { return most[0] * most[1] * most[2]; }
  BARACUDA_HD int32_t rows() const { return keys[0] * keys[1]; }
};

struct WindowPlace {
  int32_t d, h, w;
};

// Where a block's shared memory has what.
template <typename T>
struct EqualRowsMemory {
  Strip<T>* rows;            // [key of d][key of h][vector]
  Compute<T>* quotients;     // [d][h][w]
  Compute<T>* sums;          // along d and h, [key of d][key of h][w]
  PoolRange* ranges[2];      // of each key; without windows where a tile has no such place
  uint16_t* keys[2];         // of each place
};

template <typename T>
__device__ __forceinline__ EqualRowsMemory<T> memory_of(const EqualRowsCall<T>& call) {
  EqualRowsMemory<T> memory;
  memory.rows = dynamic_shared<Strip<T>>();
  memory.quotients = reinterpret_cast<Compute<T>*>(memory.rows + call.rows() * call.vectors);
  memory.sums = memory.quotients + call.window_numel();
  memory.ranges[0] = reinterpret_cast<PoolRange*>(memory.sums + call.rows() * call.most[2]);
  memory.ranges[1] = memory.ranges[0] + call.keys[0];
  memory.keys[0] = reinterpret_cast<uint16_t*>(memory.ranges[1] + call.keys[1]);
  memory.keys[1] = memory.keys[0] + call.places[0];
  return memory;
}

template <typename T>
size_t equal_row_bytes(const EqualRowsCall<T>& call) {
  const size_t sums = static_cast<size_t>(call.window_numel()) + static_cast<size_t>(call.rows()) * call.most[2];
  return static_cast<size_t>(call.rows()) * call.vectors * sizeof(Strip<T>) + sums * sizeof(Compute<T>) +
         static_cast<size_t>(call.keys[0] + call.keys[1]) * sizeof(PoolRange) +
         static_cast<size_t>(call.places[0] + call.places[1]) * sizeof(uint16_t);
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads) add_equal_rows(const __grid_constant__ EqualRowsCall<T> call) {
  using C = Compute<T>;
  constexpr int kLanes = kStripLanes<T>;
  const EqualRowsMemory<T> memory = memory_of(call);
  const uint32_t tile_h = call.by_pieces.divide(blockIdx.x), tile_d = call.by_tiles_h.divide(tile_h);
  const uint32_t plane = call.by_tiles_d.divide(tile_d);
  const int32_t piece = static_cast<int32_t>(blockIdx.x - tile_h * call.by_pieces.divisor);
  const int32_t begins[] = {
      static_cast<int32_t>(tile_d - plane * call.by_tiles_d.divisor) * call.places[0],
      static_cast<int32_t>(tile_h - tile_d * call.by_tiles_h.divisor) * call.places[1], piece * call.width()};
  int32_t firsts[3], origins[2];
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    const PoolRange range = call.windows[a](begins[a]);
    firsts[a] = range.first;
    if (a < 2) origins[a] = range.first + range.end;
  }

  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const auto window_of = [&](int32_t number, const Divider& by_h) {
    const uint32_t row = call.by_columns.divide(static_cast<uint32_t>(number)), slab = by_h.divide(row);
    return WindowPlace{static_cast<int32_t>(slab), static_cast<int32_t>(row - slab * by_h.divisor),
                     number - static_cast<int32_t>(row * call.by_columns.divisor)};
  };
  for (int32_t i = thread; i < call.window_numel(); i += kTileThreads) {
    const WindowPlace at = window_of(i, call.by_windows_h);
    const int32_t d = firsts[0] + at.d, h = firsts[1] + at.h, w = firsts[2] + at.w;
    if (d >= call.bins[0] || h >= call.bins[1] || w >= call.bins[2]) continue;
    const uint32_t row = (plane * static_cast<uint32_t>(call.bins[0]) + static_cast<uint32_t>(d)) *
                             static_cast<uint32_t>(call.bins[1]) + static_cast<uint32_t>(h);
    C term[1] = {widen(call.buffers.source[row * static_cast<uint32_t>(call.bins[2]) + static_cast<uint32_t>(w)])};
    if (call.by.is_common) {
      divide_by_common<T, 1>(call.by, term);
    } else {
      term[0] /= static_cast<C>(call.counts[0](d).size() * call.counts[1](h).size() * call.counts[2](w).size());
    }
    memory.quotients[i] = term[0];
  }
#pragma unroll
  for (int a = 0; a < 2; ++a) {
    for (int32_t i = thread; i < call.keys[a]; i += kTileThreads) memory.ranges[a][i] = {0, 0};
  }
  __syncthreads();
#pragma unroll
  for (int a = 0; a < 2; ++a) {
    for (int32_t i = thread; i < call.places[a] && begins[a] + i < call.extents[a]; i += kTileThreads) {
      const PoolRange range = call.windows[a](begins[a] + i);
      const int32_t key = range.first + range.end - origins[a];
      memory.keys[a][i] = static_cast<uint16_t>(key);
      // Places of one key write the same.
      memory.ranges[a][key] = {range.first - firsts[a], range.end - firsts[a]};
    }
  }
  __syncthreads();

  const int32_t columns = call.most[2];
  for (int32_t i = thread; i < call.rows() * columns; i += kTileThreads) {
    const WindowPlace at = window_of(i, call.by_keys_h);
    const PoolRange ds = memory.ranges[0][at.d], hs = memory.ranges[1][at.h];
    C sum = 0;
    for (int32_t h = hs.first; h < hs.end; ++h) {
      C along_d = 0;
#pragma unroll 1
      for (int32_t d = ds.first; d < ds.end; ++d) along_d += memory.quotients[(d * call.most[1] + h) * columns + at.w];
      sum += along_d;
    }
    memory.sums[i] = sum;
  }
  __syncthreads();

  const TileThread vectors(call.by_vectors);
  const int32_t vector = piece * call.vectors + vectors.column;
  const bool has_vector = vectors.row < call.vector_rows && vector < call.all_vectors;
  if (has_vector) {
    PoolRange ranges[kLanes];
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      const PoolRange range = call.windows[2](vector * kLanes + lane);
      ranges[lane] = {range.first - firsts[2], range.end - firsts[2]};
    }
#pragma unroll 1
    for (int32_t row = vectors.row; row < call.rows(); row += call.vector_rows) {
      Strip<T> strip;
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        C total = 0;
#pragma unroll 1
        for (int32_t w = ranges[lane].first; w < ranges[lane].end; ++w) total += memory.sums[row * columns + w];
        strip.lanes[lane] = narrow<T>(total);
      }
      memory.rows[row * call.vectors + vectors.column] = strip;
    }
  }
  __syncthreads();

  if (!has_vector) return;
  const int32_t places = call.places[0] * call.places[1];
#pragma unroll 4
  for (int32_t place = vectors.row; place < places; place += call.vector_rows) {
    const int32_t d = static_cast<int32_t>(call.by_places_h.divide(static_cast<uint32_t>(place)));
    const int32_t h = place - d * call.places[1];
    if (begins[0] + d >= call.extents[0] || begins[1] + h >= call.extents[1]) continue;
    const int32_t row = memory.keys[0][d] * call.keys[1] + memory.keys[1][h];
    const uint32_t to = (plane * static_cast<uint32_t>(call.extents[0]) + static_cast<uint32_t>(begins[0] + d)) *
                            static_cast<uint32_t>(call.extents[1]) + static_cast<uint32_t>(begins[1] + h);
    reinterpret_cast<Strip<T>*>(call.buffers.destination)[to * static_cast<uint32_t>(call.all_vectors) +
                                                          static_cast<uint32_t>(vector)] =
        memory.rows[row * call.vectors + vectors.column];
  }
}

// The call in the tiles that make the fewest rows for those that they write.
template <typename T>
EqualRowsCall<T> equal_rows_call(const Problem& p, const BackwardBuffers<T>& b) {
  EqualRowsCall<T> call(p, b);
  const PoolAxis* const axes = p.axes;
  const int64_t all_vectors = axes[2].extent / kStripLanes<T>, pieces = ceil_div(all_vectors, kTileThreads);
  const int64_t vectors = ceil_div(all_vectors, pieces);
  const int64_t most_elements = at_most(kEqualRowElements, at_least(p.input_numel / kTileBlocks, kFewestTileElements));
  const int64_t most_places = at_least(most_elements / (vectors * kStripLanes<T>), 1);
  for (int a = 0; a < 3; ++a) {
    call.windows[a] = rule_of_windows(axes[a]);
    call.counts[a] = rule_of_elements(axes[a], p.count_padding);
    call.extents[a] = axes[a].extent, call.bins[a] = axes[a].bins;
  }
  call.vectors = static_cast<int32_t>(vectors), call.all_vectors = static_cast<int32_t>(all_vectors);
  call.vector_rows = static_cast<int32_t>(kTileThreads / vectors);
  call.most[2] = static_cast<int32_t>(most_windows(axes[2], call.width()));
  const TilePieces ds(axes[0].extent, most_places, [&](int64_t count) { return most_windows(axes[0], count); });
  const TilePieces hs(axes[1].extent, most_places, [&](int64_t count) { return most_windows(axes[1], count); });
  int64_t best_rows = 0, best_places = 1;
  for (int d = 0; d < ds.count; ++d) {
    for (int h = 0; h < hs.count; ++h) {
      const int64_t places = static_cast<int64_t>(ds.elements[d]) * hs.elements[h];
      const int64_t rows = at_most(2 * int64_t{ds.windows[d]}, ds.elements[d]) *
                           at_most(2 * int64_t{hs.windows[h]}, hs.elements[h]);
      if (places > most_places || 2 * rows > places) continue;
      if (best_rows != 0 && rows * best_places >= best_rows * places) continue;
      EqualRowsCall<T> next = call;
      next.places[0] = ds.elements[d], next.places[1] = hs.elements[h];
      next.most[0] = ds.windows[d], next.most[1] = hs.windows[h];
      next.keys[0] = 2 * next.most[0] + 1, next.keys[1] = 2 * next.most[1] + 1;
      if (int64_t{next.keys[0]} * next.keys[1] > kEqualRowBytes ||
          equal_row_bytes(next) > static_cast<size_t>(kEqualRowBytes)) {
        continue;
      }
      call = next, best_rows = rows, best_places = places;
    }
  }
  if (best_rows == 0) return call;
  call.by_pieces = Divider(pieces);
  call.by_tiles_h = Divider(ceil_div(call.extents[1], call.places[1]));
  call.by_tiles_d = Divider(ceil_div(call.extents[0], call.places[0]));
  call.by_vectors = Divider(vectors), call.by_places_h = Divider(call.places[1]);
  call.by_columns = Divider(call.most[2]), call.by_windows_h = Divider(call.most[1]);
  call.by_keys_h = Divider(call.keys[1]);
  return call;
}

template <typename T>
bool has_vectors(const Problem& p, const BackwardBuffers<T>& b) {
  return has_rules(p.axes[0]) && has_rules(p.axes[1]) && has_rules(p.axes[2]) &&
         p.axes[2].extent % kStripLanes<T> == 0 && reinterpret_cast<uintptr_t>(b.destination) % 16 == 0;
}

// Indices of 32 bits and short lists.
template <typename T>
Status enqueue_equal_rows(const Problem& p, const EqualRowsCall<T>& call, Stream stream) {
  const int64_t blocks = p.planes * call.by_pieces.divisor * call.by_tiles_h.divisor * call.by_tiles_d.divisor;
  return launch_kernel("avg_pool_backward equal row kernel", add_equal_rows<T>, static_cast<uint32_t>(blocks),
                       kTileThreads, equal_row_bytes(call), stream, call);
}

}  // namespace
}  // namespace baracuda::avg_pool
