// SPDX-License-Identifier: Apache-2.0
// The backward to images of few channels on CUDA: a block owns a tile, or a part of one, and sums each pixel at once
// from a table of its contributions. The gradients to the samples' positions were written before.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "ops/grid_sample/cuda/backward/items.cuh"
#include "ops/grid_sample/cuda/backward/order.cuh"
#include "ops/grid_sample/cuda/backward/parts.cuh"
#include "ops/grid_sample/cuda/backward/reserve.cuh"

namespace baracuda::grid_sample {
namespace {

// A thread owns two pixels, half a tile apart, whose contributions one network sorts.
constexpr int kNarrowThreads = kTilePixels / 2;
// A pixel's contributions in the table; the few pixels that have more put the rest in a common list. Where that is too
// short, as at a border to which samples are moved, contributions are listed by pixel instead.
constexpr int kTabled = 8;
constexpr int kMostOverflowing = 32;
// With at most so many of a pixel there is one chunk.
static_assert(kTabled + kMostOverflowing <= kChunk);

// An entry is a slot above its tap; kNoEntry comes after every other.
constexpr int kNarrowTapBits = 2;
constexpr uint32_t kNoEntry = 0xffff;

template <typename C>
struct alignas(4 * sizeof(C) < 16 ? 4 * sizeof(C) : 16) NarrowValues {
  C lane[kNarrowChannels];
};

template <typename C>
struct alignas(2 * sizeof(C)) NarrowFractions {
  C x, y;
};

template <typename C, int kCapacity>
struct NarrowShared {
  NarrowValues<C> gradients[kCapacity];     // by slot
  NarrowFractions<C> fractions[kCapacity];  // by slot
  union {
    OrderScratch<kCapacity> order;
    alignas(16) uint16_t table[kTilePixels][kTabled];
    uint16_t entries[4 * kCapacity];  // by pixel, ascending
  };
  uint32_t counts[kTilePixels];  // of a pixel's contributions; where they are listed, where they end
  uint32_t warp_sums[kNarrowThreads / 32];
  uint32_t overflowing;
  uint32_t overflow[kMostOverflowing];  // pixel above entry
};

// Sums of up to kNarrowChannels channels.
template <typename C>
struct NarrowSums {
  C lane[kNarrowChannels];

  template <int kCapacity>
  __device__ __forceinline__ void add(uint32_t entry, const NarrowShared<C, kCapacity>& shared) {
    const uint32_t slot = entry >> kNarrowTapBits;
    const NarrowFractions<C> at = shared.fractions[slot];
    const C weight_x = entry % 2 == 0 ? C(1) - at.x : at.x;
    const C weight_y = entry / 2 % 2 == 0 ? C(1) - at.y : at.y;
    const C weight = weight_y * weight_x;
    const NarrowValues<C> gradient = shared.gradients[slot];
#pragma unroll
    for (int k = 0; k < kNarrowChannels; ++k) lane[k] = fma(weight, gradient.lane[k], lane[k]);
  }
};

// Sums a pixel that has more contributions than the table holds: finds them one by one, ascending.
template <typename C, int kCapacity>
__device__ NarrowSums<C> sum_overflowing(int pixel, const NarrowShared<C, kCapacity>& shared) {
  NarrowSums<C> sums{};
  int last = -1;
  for (uint32_t i = 0; i < shared.counts[pixel]; ++i) {
    int next = kNoEntry;
    const auto offer = [&](int entry) {
      if (entry > last && entry < next) next = entry;
    };
    for (int k = 0; k < kTabled; ++k) offer(shared.table[pixel][k]);
    for (uint32_t k = 0; k < shared.overflowing; ++k) {
      if (static_cast<int>(shared.overflow[k] >> 16) == pixel) offer(shared.overflow[k] & 0xffff);
    }
    sums.add(static_cast<uint32_t>(next), shared);
    last = next;
  }
  return sums;
}

// Sorts eight pairs of 16-bit numbers, high and low halves apart.
__device__ __forceinline__ void sort_halves(uint32_t (&keys)[kTabled]) {
  // Batcher's odd-even merge sort of eight.
  constexpr int kComparisons = 19;
  constexpr uint8_t kPairs[kComparisons][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6},
                                               {5, 7}, {1, 2}, {5, 6}, {0, 4}, {1, 5}, {2, 6}, {3, 7},
                                               {2, 4}, {3, 5}, {1, 2}, {3, 4}, {5, 6}};
#pragma unroll
  for (int i = 0; i < kComparisons; ++i) {
    uint32_t& a = keys[kPairs[i][0]];
    uint32_t& b = keys[kPairs[i][1]];
    const uint32_t low = __vminu2(a, b);
    b = __vmaxu2(a, b);
    a = low;
  }
}

// Writes a pixel's sums; `output` is its place in the first plane.
template <typename T>
__device__ __forceinline__ void store_sums(const Problem& p, const NarrowSums<Compute<T>>& sums, T* output) {
#pragma unroll
  for (int k = 0; k < kNarrowChannels; ++k) {
    if (k < p.c) output[k * p.pixels] = narrow<T>(Compute<T>(0) + sums.lane[k]);
  }
}

// Replaces the pixels' counts by the sums before them. Every thread calls, between two barriers.
template <typename C, int kCapacity>
__device__ __forceinline__ void sum_counts(NarrowShared<C, kCapacity>& shared) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const uint32_t first = shared.counts[2 * thread], both = first + shared.counts[2 * thread + 1];
  uint32_t before = both;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kFullWarp, before, distance);
    if (lane >= distance) before += other;
  }
  if (lane == 31) shared.warp_sums[warp] = before;
  __syncthreads();
  before -= both;
  for (int i = 0; i < warp; ++i) before += shared.warp_sums[i];
  shared.counts[2 * thread] = before;
  shared.counts[2 * thread + 1] = before + first;
}

// Sums a tile or a part of one.
template <typename T, int kCapacity, class P>
__device__ void sum_narrow_tile(const P& p, const TileGrid& tiles, const TileWork& work, const BackwardBuffers<T>& b,
                                const Storage<Compute<T>, uint32_t>& s, NarrowShared<Compute<T>, kCapacity>& shared) {
  using C = Compute<T>;
  constexpr int kListRounds = groups_of(kCapacity, kNarrowThreads);
  const int64_t tile = work.tile;
  const TilePlace place(tiles, tile);
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t x = place.column + thread % kTileWidth, y = place.row + thread / kTileWidth;
  const int64_t first_sample = static_cast<int64_t>(place.image) * p.samples;
  int count = listed_samples(s.records[tile]);
  TileRange range = TileRange::whole();
  const uint32_t* staged = s.staged + tile * kListed;
  if (work.is_part() && count <= kListed) {
    uint32_t* const list = reinterpret_cast<uint32_t*>(shared.gradients);
    const TilePart part = list_part<kNarrowThreads, kCapacity>(p, place, work.part, work.parts, count, staged,
                                                               b.grid + 2 * first_sample, shared.counts, list);
    range = part.range;
    count = part.count;
    staged = list;
  } else if (count > s.most_whole && count <= kListed) {
    return;  // its parts are items of their own
  }
  if (count > kCapacity) {
    if (thread == 0) reserve_list(s, tile);
    return;
  }
  shared.counts[thread] = shared.counts[thread + kNarrowThreads] = 0;
  if (thread == 0) shared.order.count = shared.overflowing = 0;
  __syncthreads();

  ListedSamples<kNarrowThreads, kListRounds> listed(count, staged);
  Position<C> positions[kListRounds];
#pragma unroll
  for (int round = 0; round < kListRounds; ++round) {
    if (round * kNarrowThreads + thread >= count) continue;
    const C* coordinates = b.grid + 2 * (first_sample + (listed.marked[round] & ~kHome<uint32_t>));
    positions[round] = locate_sample(coordinates[0], coordinates[1], p);
  }
  listed.order(count, p.samples, shared.order);
  int slots[kListRounds];
#pragma unroll
  for (int round = 0; round < kListRounds; ++round) {
    if (round * kNarrowThreads + thread >= count) continue;
    const int slot = slots[round] = listed.slot(round, shared.order);
    shared.fractions[slot] = {positions[round].x.fraction, positions[round].y.fraction};
    const T* gradient = b.grad_output + first_sample * p.c + (listed.marked[round] & ~kHome<uint32_t>);
    NarrowValues<C> values{};
#pragma unroll
    for (int k = 0; k < kNarrowChannels; ++k) {
      if (k < p.c) values.lane[k] = widen(gradient[k * p.samples]);
    }
    shared.gradients[slot] = values;
  }
  __syncthreads();  // the order's scratch becomes the table
  uint4* const rows = reinterpret_cast<uint4*>(shared.table);
  static_assert(sizeof(shared.table[0]) == sizeof(uint4));
  rows[thread] = rows[thread + kNarrowThreads] = make_uint4(~0u, ~0u, ~0u, ~0u);
  __syncthreads();
  // Calls use(number, pixel, entry) for each tap of the thread's samples on the pixels.
  const auto for_each_tap = [&](auto use) {
#pragma unroll
    for (int round = 0; round < kListRounds; ++round) {
      if (round * kNarrowThreads + thread >= count) continue;
      const Taps<C> taps = value_taps(positions[round], p);
#pragma unroll
      for (int tap = 0; tap < 4; ++tap) {
        const int pixel = range.within(pixel_of_tap(positions[round], tap, taps.weight[tap], place));
        if (pixel == kTilePixels) continue;
        use(round * 4 + tap, pixel, static_cast<uint32_t>(slots[round]) << kNarrowTapBits | static_cast<uint32_t>(tap));
      }
    }
  };
  for_each_tap([&](int, int pixel, uint32_t entry) {
    const uint32_t rank = atomicAdd(&shared.counts[pixel], 1u);
    if (rank < kTabled) {
      shared.table[pixel][rank] = static_cast<uint16_t>(entry);
    } else {
      const uint32_t at = atomicAdd(&shared.overflowing, 1u);
      if (at < kMostOverflowing) shared.overflow[at] = static_cast<uint32_t>(pixel) << 16 | entry;
    }
  });
  __syncthreads();
  const auto output_of = [&](int half) -> T* {
    const int32_t row = y + half * (kTileHeight / 2);
    if (x >= p.input_w || row >= p.input_h || !range.holds(row - place.row, x - place.column)) return nullptr;
    return b.grad_input + static_cast<int64_t>(place.image) * p.c * p.pixels + static_cast<int64_t>(row) * p.input_w +
           x;
  };
  if (shared.overflowing > kMostOverflowing) {
    const uint32_t most = shared.counts[thread] > shared.counts[thread + kNarrowThreads]
                              ? shared.counts[thread]
                              : shared.counts[thread + kNarrowThreads];
    if (__syncthreads_or(most > kChunk)) {
      if (thread == 0) reserve_list(s, tile);
      return;
    }
    sum_counts(shared);
    __syncthreads();
    for_each_tap([&](int, int pixel, uint32_t entry) {
      shared.entries[atomicAdd(&shared.counts[pixel], 1u)] = static_cast<uint16_t>(entry);
    });
    __syncthreads();
    // Each entry's place among those of its pixel.
    uint16_t places[kListRounds * 4];
    for_each_tap([&](int i, int pixel, uint32_t entry) {
      const uint32_t end = shared.counts[pixel];
      uint32_t at = pixel == 0 ? 0 : shared.counts[pixel - 1];
      uint32_t rank = at;
#pragma unroll 4
      for (; at < end; ++at) rank += shared.entries[at] < entry;
      places[i] = static_cast<uint16_t>(rank);
    });
    __syncthreads();
    for_each_tap([&](int i, int, uint32_t entry) { shared.entries[places[i]] = static_cast<uint16_t>(entry); });
    __syncthreads();
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int pixel = thread + half * kNarrowThreads;
      T* const output = output_of(half);
      if (output == nullptr) continue;
      NarrowSums<C> sums{};
#pragma unroll 4
      for (uint32_t i = pixel == 0 ? 0 : shared.counts[pixel - 1]; i < shared.counts[pixel]; ++i) {
        sums.add(shared.entries[i], shared);
      }
      store_sums(p, sums, output);
    }
    return;
  }

  const uint4 low_row = rows[thread], high_row = rows[thread + kNarrowThreads];
  const uint32_t lows[4] = {low_row.x, low_row.y, low_row.z, low_row.w};
  const uint32_t highs[4] = {high_row.x, high_row.y, high_row.z, high_row.w};
  uint32_t keys[kTabled];
#pragma unroll
  for (int i = 0; i < kTabled; ++i) keys[i] = __byte_perm(lows[i / 2], highs[i / 2], i % 2 == 0 ? 0x5410 : 0x7632);
  sort_halves(keys);
  NarrowSums<C> sums[2] = {};
#pragma unroll
  for (int i = 0; i < kTabled; ++i) {
    const uint32_t low = keys[i] & 0xffff, high = keys[i] >> 16;
    if (low != kNoEntry) sums[0].add(low, shared);
    if (high != kNoEntry) sums[1].add(high, shared);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int pixel = thread + half * kNarrowThreads;
    if (shared.counts[pixel] > kTabled) sums[half] = sum_overflowing(pixel, shared);
    T* const output = output_of(half);
    if (output != nullptr) store_sums(p, sums[half], output);
  }
}

// The gradient to the input, for the tiles that are not crowded; reserves the lists of those that are.
template <typename T, int kCapacity, class P>
__global__ void __launch_bounds__(kNarrowThreads, sizeof(T) < 8 && kCapacity == kUsualCapacity ? 10 : 8)
    sum_narrow(P p, TileGrid tiles, BackwardBuffers<T> b, Storage<Compute<T>, uint32_t> s) {
  __shared__ NarrowShared<Compute<T>, kCapacity> shared;
  __shared__ int64_t item;
  let_kernel_after_start();
  wait_for_kernel_before();
  // Blocks have little to do: they begin with what they need not ask for.
  constexpr Order kOrder = Order::kTilesFirst;
  if (!take_item<kOrder, false>(p, tiles, s, item)) return;
  sum_narrow_tile(p, tiles, work_of<kOrder>(p, tiles, s, item), b, s, shared);
}

}  // namespace
}  // namespace baracuda::grid_sample
