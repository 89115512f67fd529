// SPDX-License-Identifier: Apache-2.0
// The backward on CUDA for windows of three elements that begin at every second one, along h and w and mostly d: a block
// divides the gradients of its windows once, in shared memory, and a thread adds them for 2 x 2 rows of four elements.
//
// With u = place + padding, a place of even u = 2 m is in windows m - 1 and m, one of odd u = 2 m + 1 in window m alone.
// Windows that are not there count as zeros: sums begin at zero, so that no more zeros change them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/pool_tiles.cuh"
#include "ops/avg_pool/cuda/divisors.cuh"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

// Elements of a row that a thread has at once.
constexpr int kHalvingLanes = 4;
// Threads along w, at most, and blocks of rows that a thread has one after the other.
constexpr int64_t kHalvingGroups = 64;
constexpr int64_t kHalvingEach = 4;
// Pairs of rows of a tile, at most: what shared memory holds of narrow rows.
constexpr int64_t kHalvingPairs = 512;
// So many gradients a thread asks for at once.
constexpr int kHalvingBatch = 4;

// Axes are d, h and w. Where windows along d are single elements, slices are planes, and d has one pair.
template <typename T>
struct HalvingCall {
  BackwardBuffers<T> buffers;
  CommonDivisor<Compute<T>> by;
  PoolRule counts[3];  // what a window counts along each axis
  int32_t extents[3], bins[3], paddings[2];
  int32_t pairs[2];   // of places along d and h, of a tile
  int32_t rows;       // of a tile's windows
  int32_t groups;     // of kHalvingLanes elements, of a tile
  int32_t all_groups;
  int32_t group_rows, column_rows;  // that threads stand in
  Divider by_pieces, by_tiles_h, by_tiles_d, by_groups, by_columns, by_pairs_h;
  WindowRows windows_h;

  __device__ __forceinline__ int32_t columns() const { return 2 * groups + 1; }
  // An even number, for loads of two.
  __device__ __forceinline__ int32_t pitch() const { return 2 * groups + 2; }
};

// What a thread writes at once: up to 16 bytes, or 32 by two stores.
template <typename T>
struct alignas(sizeof(T) == 2 ? 8 : 16) HalvingLanes {
  T lanes[kHalvingLanes];
};

template <typename C>
struct alignas(2 * sizeof(C)) Couple {
  C first, second;
};

// The quotients that the tile's blocks read: those of windows [d, h, w) from first_d, first_h and first_w on, of a plane
// that begins at `plane`.
template <typename T>
__device__ __forceinline__ void divide_windows(const HalvingCall<T>& call, uint32_t plane, int32_t first_d,
                                               int32_t first_h, int32_t first_w, Compute<T>* quotients) {
  using C = Compute<T>;
  const TileThread thread(call.by_columns);
  if (thread.row >= call.column_rows) return;
  const uint32_t bins_d = static_cast<uint32_t>(call.bins[0]), bins_h = static_cast<uint32_t>(call.bins[1]);
  const uint32_t bins_w = static_cast<uint32_t>(call.bins[2]);
  // Those before the first are large numbers.
  const uint32_t w = static_cast<uint32_t>(first_w + thread.column);
  const uint32_t rows_there = w < bins_w ? static_cast<uint32_t>(call.rows) : 0;
  for (int32_t begin = thread.row; begin < call.rows; begin += kHalvingBatch * call.column_rows) {
    T given[kHalvingBatch];
    C terms[kHalvingBatch];
#pragma unroll
    for (int k = 0; k < kHalvingBatch; ++k) {
      const uint32_t row = static_cast<uint32_t>(begin + k * call.column_rows), slab = call.windows_h.divide(row);
      const uint32_t d = static_cast<uint32_t>(first_d) + slab;
      const uint32_t h = static_cast<uint32_t>(first_h) + row - slab * call.windows_h.count;
      const bool is_there = (row < rows_there) & (d < bins_d) & (h < bins_h);
      given[k] = is_there ? call.buffers.source[plane + (d * bins_h + h) * bins_w + w] : T{};
    }
#pragma unroll
    for (int k = 0; k < kHalvingBatch; ++k) terms[k] = widen(given[k]);
    if (call.by.is_common) {
      divide_by_common<T, kHalvingBatch>(call.by, terms);
    } else if (rows_there > 0) {
      const int32_t count_w = call.counts[2](static_cast<int32_t>(w)).size();
#pragma unroll
      for (int k = 0; k < kHalvingBatch; ++k) {
        const uint32_t row = static_cast<uint32_t>(begin + k * call.column_rows), slab = call.windows_h.divide(row);
        const int32_t d = first_d + static_cast<int32_t>(slab);
        const int32_t h = first_h + static_cast<int32_t>(row - slab * call.windows_h.count);
        // Windows that are not there are zeros, whatever they count.
        const int32_t count = call.counts[0](d).size() * call.counts[1](h).size() * count_w;
        terms[k] /= static_cast<C>(count > 0 ? count : 1);
      }
    }
#pragma unroll
    for (int k = 0; k < kHalvingBatch; ++k) {
      const int32_t row = begin + k * call.column_rows;
      if (row < call.rows) quotients[row * call.pitch() + thread.column] = terms[k];
    }
  }
}

// kOdd is 1 where the padding along w is odd.
template <typename T, bool kHasDepth, int kOdd>
__global__ void __launch_bounds__(kTileThreads) add_halving(const __grid_constant__ HalvingCall<T> call) {
  using C = Compute<T>;
  constexpr int kSlices = kHasDepth ? 2 : 1;
  C* const quotients = dynamic_shared<C>();
  const uint32_t tile_h = call.by_pieces.divide(blockIdx.x), tile_d = call.by_tiles_h.divide(tile_h);
  const uint32_t plane = call.by_tiles_d.divide(tile_d);
  const int32_t first_group = static_cast<int32_t>(blockIdx.x - tile_h * call.by_pieces.divisor) * call.groups;
  const int32_t first_h = static_cast<int32_t>(tile_h - tile_d * call.by_tiles_h.divisor) * call.pairs[1];
  const int32_t first_d = static_cast<int32_t>(tile_d - plane * call.by_tiles_d.divisor) * call.pairs[0];
  const uint32_t plane_bins = static_cast<uint32_t>(call.bins[0]) * static_cast<uint32_t>(call.bins[1]) *
                              static_cast<uint32_t>(call.bins[2]);
  divide_windows(call, plane * plane_bins, kHasDepth ? first_d - 1 : 0, first_h - 1,
                 2 * first_group - 1 + kOdd, quotients);
  __syncthreads();

  const TileThread thread(call.by_groups);
  const int32_t group = first_group + thread.column;
  if (thread.row >= call.group_rows || group >= call.all_groups) return;
  const int32_t pitch = call.pitch(), slab = static_cast<int32_t>(call.windows_h.count) * pitch;
  const int32_t blocks = call.pairs[0] * call.pairs[1];
  for (int32_t block = thread.row; block < blocks; block += call.group_rows) {
    const int32_t pair_d = static_cast<int32_t>(call.by_pairs_h.divide(static_cast<uint32_t>(block)));
    const int32_t pair_h = block - pair_d * call.pairs[1];
    const C* const corner = quotients + pair_d * slab + pair_h * pitch + 2 * thread.column;
    C along_w[kSlices][2][3];
#pragma unroll
    for (int d = 0; d < kSlices; ++d) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const C* const row = corner + d * slab + h * pitch;
        const Couple<C> couple = *reinterpret_cast<const Couple<C>*>(row);
        along_w[d][h][0] = couple.first, along_w[d][h][1] = couple.second, along_w[d][h][2] = row[2];
      }
    }
    // The sums along d; the second slice has but the second window.
    if constexpr (kHasDepth) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int c = 0; c < 3; ++c) along_w[0][h][c] += along_w[1][h][c];
      }
    }
    const int32_t z = kHasDepth ? 2 * (first_d + pair_d) - call.paddings[0] : 0;
    const int32_t y = 2 * (first_h + pair_h) - call.paddings[1];
#pragma unroll
    for (int d = 0; d < kSlices; ++d) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        C sums[3];
#pragma unroll
        for (int c = 0; c < 3; ++c) sums[c] = h == 0 ? along_w[d][0][c] + along_w[d][1][c] : along_w[d][1][c];
        if (z + d < 0 || z + d >= call.extents[0] || y + h < 0 || y + h >= call.extents[1]) continue;
        const C totals[kHalvingLanes] = {kOdd ? sums[0] : sums[0] + sums[1], kOdd ? sums[0] + sums[1] : sums[1],
                                         kOdd ? sums[1] : sums[1] + sums[2], kOdd ? sums[1] + sums[2] : sums[2]};
        HalvingLanes<T> narrowed;
#pragma unroll
        for (int lane = 0; lane < kHalvingLanes; ++lane) narrowed.lanes[lane] = narrow<T>(C(0) + totals[lane]);
        const uint32_t row = (plane * static_cast<uint32_t>(call.extents[0]) + static_cast<uint32_t>(z + d)) *
                                 static_cast<uint32_t>(call.extents[1]) + static_cast<uint32_t>(y + h);
        T* const to = call.buffers.destination + row * static_cast<uint32_t>(call.extents[2]) +
                      kHalvingLanes * static_cast<uint32_t>(group);
        *reinterpret_cast<HalvingLanes<T>*>(to) = narrowed;
      }
    }
  }
}

inline bool is_halving(const PoolAxis& axis) {
  return has_rules(axis) && axis.kernel == 3 && axis.stride == 2 && axis.padding <= 1;
}
// Of windows that are single elements.
inline bool is_single(const PoolAxis& axis) {
  return has_rules(axis) && axis.kernel == 1 && axis.stride == 1 && axis.bins == axis.extent;
}

template <typename T>
bool has_halving(const Problem& p, const BackwardBuffers<T>& b) {
  return (is_halving(p.axes[0]) || is_single(p.axes[0])) && is_halving(p.axes[1]) && is_halving(p.axes[2]) &&
         p.axes[2].extent % kHalvingLanes == 0 &&
         reinterpret_cast<uintptr_t>(b.destination) % alignof(HalvingLanes<T>) == 0;
}

// Indices of 32 bits; for calls with has_halving().
template <typename T>
Status enqueue_halving(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  const PoolAxis *const d = &p.axes[0], *const h = &p.axes[1], *const w = &p.axes[2];
  const bool has_depth = is_halving(*d);
  const int64_t planes = has_depth ? p.planes : p.planes * d->extent;
  const auto pairs_of = [](const PoolAxis& axis) { return ceil_div(int64_t{axis.extent} + axis.padding, 2); };
  const int64_t all_d = has_depth ? pairs_of(*d) : 1, all_h = pairs_of(*h), all_groups = w->extent / kHalvingLanes;
  const int64_t pieces = ceil_div(all_groups, kHalvingGroups), groups = ceil_div(all_groups, pieces);
  const int64_t group_rows = kTileThreads / groups;
  // As many blocks of rows as threads have one after the other, fewer where multiprocessors would have none.
  const int64_t each = at_most(group_rows * kHalvingEach, kHalvingPairs);
  const int64_t most = at_least(at_most(planes * pieces * all_d * all_h / kTileBlocks, each), 1);
  int64_t pairs_d = 1, pairs_h = has_depth ? 1 : most;
  while (has_depth && 2 * pairs_d * pairs_h <= most && pairs_d * pairs_h < all_d * all_h) {
    (pairs_d < pairs_h && pairs_d < all_d || pairs_h >= all_h ? pairs_d : pairs_h) *= 2;
  }
  const int64_t tiles_d = ceil_div(all_d, pairs_d), tiles_h = ceil_div(all_h, pairs_h);
  pairs_d = ceil_div(all_d, tiles_d), pairs_h = ceil_div(all_h, tiles_h);
  const int64_t windows_d = has_depth ? pairs_d + 1 : 1, windows_h = pairs_h + 1, columns = 2 * groups + 1;
  const auto counts = [&](int axis) { return rule_of_elements(p.axes[axis], p.count_padding); };
  const auto small = [](int64_t number) { return static_cast<int32_t>(number); };
  const HalvingCall<T> call{b,
                            CommonDivisor<Compute<T>>(p),
                            {counts(0), counts(1), counts(2)},
                            {has_depth ? d->extent : 1, h->extent, w->extent},
                            {has_depth ? d->bins : 1, h->bins, w->bins},
                            {d->padding, h->padding},
                            {small(pairs_d), small(pairs_h)},
                            small(windows_d * windows_h),
                            small(groups),
                            small(all_groups),
                            small(group_rows),
                            small(kTileThreads / columns),
                            Divider(pieces),
                            Divider(tiles_h),
                            Divider(tiles_d),
                            Divider(groups),
                            Divider(columns),
                            Divider(pairs_h),
                            WindowRows(small(windows_h))};
  const size_t bytes = static_cast<size_t>(windows_d * windows_h * (columns + 1)) * sizeof(Compute<T>);
  const bool is_odd = w->padding % 2 != 0;
  auto* const kernel = has_depth ? is_odd ? add_halving<T, true, 1> : add_halving<T, true, 0>
                                 : is_odd ? add_halving<T, false, 1> : add_halving<T, false, 0>;
  return launch_kernel("avg_pool_backward halving kernel", kernel,
                       static_cast<uint32_t>(planes * pieces * tiles_d * tiles_h), kTileThreads, bytes, stream, call);
}

}  // namespace
}  // namespace baracuda::avg_pool
