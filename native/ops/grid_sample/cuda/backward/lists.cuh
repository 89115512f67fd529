// SPDX-License-Identifier: Apache-2.0
// The lists of crowded tiles on CUDA, whatever the number of their samples: in the workspace, ordered by stable
// counting sorts in linear time.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/grid_sample/cuda/backward/bins.cuh"
#include "ops/grid_sample/cuda/backward/list_sort.cuh"
#include "ops/grid_sample/cuda/backward/reserve.cuh"

namespace baracuda::grid_sample {
namespace {

// Lists the samples of crowded tiles.
template <typename C, typename Index, class P>
__global__ void __launch_bounds__(kBinThreads)
    fill_lists(P p, TileGrid tiles, const C* grid, Storage<C, Index> s) {
  let_kernel_after_start();
  wait_for_kernel_before();
  if (s.totals->crowded == 0) return;
  const int64_t total = p.n * p.samples;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kBinThreads; base < total; base += grid_threads()) {
    const int64_t i = base + threadIdx.x;
    TouchedTiles<int64_t> touched;
    Index sample = 0;
    if (i < total) {
      const Division at(i, p.samples);
      sample = static_cast<Index>(at.remainder);
      touched = TouchedTiles<int64_t>(locate_sample(grid[2 * i], grid[2 * i + 1], p), p, tiles, at.quotient);
    }
    for (int k = 0; k < 4; ++k) {
      int64_t tile = touched.tile(k, tiles);
      if (tile >= 0 && s.records[tile].list == 0) tile = -1;
      if (!__any_sync(kFullWarp, tile >= 0)) continue;
      const Index slot = append(tile, s.records, &TileRecord<Index>::taken);
      if (tile >= 0) s.listed[s.records[tile].list - 1 + slot] = sample;
    }
  }
}

// One crowded tile's samples and where each of them lies.
template <typename C, typename Index, class P>
struct CrowdedTile {
  const P& p;
  TilePlace place;
  const C* grid;  // the image's
  Index* list;
  int64_t count;

  __device__ Position<C> position(Index sample) const {
    const C* coordinates = grid + 2 * static_cast<int64_t>(sample);
    return locate_sample(coordinates[0], coordinates[1], p);
  }
  // Whether a tap of a sample lies in the image and in this tile, whatever its weight.
  __device__ bool holds(const Position<C>& at, int tap) const {
    const int32_t x = at.x.low + tap % 2, y = at.y.low + tap / 2;
    return is_pixel(x, p.input_w) && is_pixel(y, p.input_h) && x >= place.column && x - place.column < kTileWidth &&
           y >= place.row && y - place.row < kTileHeight;
  }
};

// A sample's contributions to a tile.
template <typename C, typename Index>
struct CrowdedSample {
  Index sample;
  // The taps that exist in the tile, above the first tap's pixel, which may lie above and left of the tile.
  uint32_t packed;
  C x, y;  // fractions

  static constexpr int kTapShift = 16;
  static constexpr int kPixelBias = kTileWidth + 1;

  template <class P>
  __device__ static CrowdedSample load(const CrowdedTile<C, Index, P>& tile, Index sample) {
    const Position<C> at = tile.position(sample);
    const Taps<C> taps = value_taps(at, tile.p);
    uint32_t exist = 0;
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      exist |= static_cast<uint32_t>(pixel_of_tap(at, tap, taps.weight[tap], tile.place) < kTilePixels) << tap;
    }
    const int first = (at.y.low - tile.place.row) * kTileWidth + at.x.low - tile.place.column + kPixelBias;
    return {sample, exist << kTapShift | static_cast<uint32_t>(first), at.x.fraction, at.y.fraction};
  }
  // A tap's pixel, or kDigits for none.
  __device__ static int digit(uint32_t packed, int tap) {
    const int first = static_cast<int>(packed & ((1u << kTapShift) - 1)) - kPixelBias;
    return (packed >> (kTapShift + tap) & 1) != 0 ? first + tap / 2 * kTileWidth + tap % 2 : kDigits;
  }
};

// Samples of a lane whose positions are asked for together.
constexpr int kSortBatch = 4;

// A warp's next 32 * kSortBatch samples of a tile, from `begin` on and before `end`.
template <typename C, typename Index, class P>
__device__ __forceinline__ void load_batch(const CrowdedTile<C, Index, P>& tile, int64_t begin, int64_t end,
                                           CrowdedSample<C, Index> (&batch)[kSortBatch]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Index samples[kSortBatch];
#pragma unroll
  for (int k = 0; k < kSortBatch; ++k) {
    const int64_t i = begin + k * 32 + lane;
    samples[k] = i < end ? tile.list[i] : 0;
  }
#pragma unroll
  for (int k = 0; k < kSortBatch; ++k) {
    batch[k] = CrowdedSample<C, Index>{};
    if (begin + k * 32 + lane < end) batch[k] = CrowdedSample<C, Index>::load(tile, samples[k]);
  }
}

// Adds a batch's taps to the warp's counts.
template <typename C, typename Index>
__device__ __forceinline__ void count_batch(const CrowdedSample<C, Index> (&batch)[kSortBatch], int64_t left,
                                            Index* counts) {
  const unsigned before_lane = (1u << threadIdx.x % 32) - 1;
#pragma unroll
  for (int k = 0; k < kSortBatch; ++k) {
    if (k * 32 >= left) break;
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const int digit = CrowdedSample<C, Index>::digit(batch[k].packed, tap);
      const unsigned same = __match_any_sync(kFullWarp, digit);
      if (digit < kDigits && (same & before_lane) == 0) counts[digit] += static_cast<Index>(__popc(same));
      __syncwarp();
    }
  }
}

// Writes a batch's contributions where the warp's places say. A lane is a tap of eight samples at a time, so that a
// pixel meets its samples in order.
template <typename C, typename Index>
__device__ __forceinline__ void place_batch(const CrowdedSample<C, Index> (&batch)[kSortBatch], int64_t left,
                                            Index* places, Index* entry_samples, C* entry_weights) {
  const int lane = static_cast<int>(threadIdx.x) % 32, tap = lane % 4;
#pragma unroll
  for (int k = 0; k < kSortBatch; ++k) {
    if (k * 32 >= left) break;
#pragma unroll
    for (int item = 0; item < 4; ++item) {
      const int source = item * 8 + lane / 4;
      const int digit =
          CrowdedSample<C, Index>::digit(__shfl_sync(kFullWarp, batch[k].packed, source), tap);
      const Index sample = __shfl_sync(kFullWarp, batch[k].sample, source);
      const C x = __shfl_sync(kFullWarp, batch[k].x, source), y = __shfl_sync(kFullWarp, batch[k].y, source);
      const unsigned same = __match_any_sync(kFullWarp, digit);
      const int rank = __popc(same & ((1u << lane) - 1));
      const Index first = digit < kDigits ? places[digit] : 0;
      __syncwarp();
      if (digit < kDigits) {
        if (rank == 0) places[digit] = first + static_cast<Index>(__popc(same));
        entry_samples[first + rank] = sample;
        entry_weights[first + rank] = (tap / 2 == 0 ? C(1) - y : y) * (tap % 2 == 0 ? C(1) - x : x);
      }
      __syncwarp();
    }
  }
}

// Taps of a tile's samples in the tile, whatever their weights.
template <typename C, typename Index, class P>
__device__ void count_taps(const CrowdedTile<C, Index, P>& tile, SortShared<Index>& shared) {
  if (threadIdx.x == 0) shared.entries = 0;
  __syncthreads();
  Counter taps_here = 0;
  for (int64_t i = threadIdx.x; i < tile.count; i += kSortThreads<Index>) {
    const Position<C> at = tile.position(tile.list[i]);
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) taps_here += tile.holds(at, tap);
  }
  atomicAdd(&shared.entries, taps_here);
  __syncthreads();
}

// Orders crowded tiles' contributions by pixel, then sample. A sample meets a pixel once, so that taps need no order.
template <typename C, typename Index, class P>
__global__ void __launch_bounds__(kSortThreads<Index>)
    sort_lists(P p, TileGrid tiles, const C* grid, Storage<C, Index> s) {
  constexpr int kThreads = kSortThreads<Index>, kWarps = kSortWarps<Index>;
  __shared__ SortShared<Index> shared;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  // Does not let the next kernel start: its blocks would crowd on the few multiprocessors that have no list.
  wait_for_kernel_before();
  const int64_t crowded = static_cast<int64_t>(s.totals->crowded);
  for (int64_t job = blockIdx.x; job < crowded; job += gridDim.x) {
    const int64_t number = s.crowded[job];
    TileRecord<Index>& record = s.records[number];
    const TilePlace place(tiles, number);
    const CrowdedTile<C, Index, P> tile{p, place, grid + static_cast<int64_t>(place.image) * p.samples * 2,
                                        s.listed + (record.list - 1), static_cast<int64_t>(record.count)};
    const bool has_bits = p.samples <= static_cast<int64_t>(8 * sizeof(shared.places));
    if (has_bits) {
      sort_by_bits(tile.list, tile.count, p.samples, shared);
    } else {
      // Each sample is here for at least one tap: with room for those there is also room for the sort's second list.
      count_taps(tile, shared);
      if (threadIdx.x == 0) shared.entries = record.entries = atomicAdd(&s.totals->entries, shared.entries);
      __syncthreads();
      sort_by_digits(tile.list, s.entry_samples + shared.entries, tile.count, p.samples, shared);
    }
    // A warp's samples follow each other, so that its contributions to a pixel do. Spelled out, because the compiler
    // folds division and product into one step here, and not behind a call of groups_of().
    const int64_t each = (tile.count + kThreads - 1) / kThreads * 32;
    const int64_t first = warp * each;
    const int64_t end = first + each < tile.count ? first + each : tile.count;
    Index* const places = shared.places[warp];
    for (int digit = lane; digit < kDigits; digit += 32) places[digit] = 0;
    __syncwarp();
    constexpr int64_t kStride = 32 * kSortBatch;
    CrowdedSample<C, Index> batch[kSortBatch];
    for (int64_t base = first; base < end; base += kStride) {
      load_batch(tile, base, end, batch);
      count_batch(batch, end - base, places);
    }
    __syncthreads();
    for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kThreads) {
      Index count = 0;
#pragma unroll 8
      for (int w = 0; w < kWarps; ++w) count += shared.places[w][d];
      shared.starts[d] = count;
    }
    sum_digits(shared.starts, &shared.total);
    if (threadIdx.x == 0 && has_bits) {
      shared.entries = record.entries = atomicAdd(&s.totals->entries, static_cast<Counter>(shared.total));
    }
    Index* begins = s.begins + number * (kTilePixels + 1);
    if (threadIdx.x == 0) begins[kTilePixels] = shared.total;
    for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kThreads) {
      Index next = shared.starts[d];
      begins[d] = next;
#pragma unroll 8
      for (int w = 0; w < kWarps; ++w) {
        const Index in_warp = shared.places[w][d];
        shared.places[w][d] = next;
        next += in_warp;
      }
    }
    __syncthreads();
    Index* const entry_samples = s.entry_samples + shared.entries;
    C* const entry_weights = s.entry_weights + shared.entries;
    for (int64_t base = first; base < end; base += kStride) {
      if (each > kStride) load_batch(tile, base, end, batch);  // else it is still there
      place_batch(batch, end - base, places, entry_samples, entry_weights);
    }
    __syncthreads();  // the next tile's list reuses the places
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
