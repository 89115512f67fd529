// SPDX-License-Identifier: Apache-2.0
// The contributions to the pixels of a staged tile, in order: listed by pixel in shared memory, then sorted by the
// threads that own the pixels.
#pragma once

#include "ops/grid_sample/cuda/backward/staging.cuh"

namespace baracuda::grid_sample {
namespace {

// A pixel keeps this many contributions in registers, of which a smooth map has four to six; f64 has room for fewer.
template <typename C>
constexpr int kKept = sizeof(C) == 4 ? 8 : 6;
// Contributions that a network sorts.
constexpr int kNetwork = 8;
// A tile with a pixel of more contributions is crowded: with at most these there is one chunk.
constexpr int kMostContributions = kChunk;

// An entry is a slot above its tap.
constexpr int kTapBits = 2;

// Replaces the pixels' counts by the sums before them; thread i answers for pixel i.
template <typename T, bool kSlopes>
__device__ void sum_counts(TileShared<T, kSlopes>& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t count = shared.starts[threadIdx.x];
  uint32_t sum = count;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kFullWarp, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) shared.warp_sums[warp] = sum;
  __syncthreads();
  uint32_t before = 0;
  for (int i = 0; i < warp; ++i) before += shared.warp_sums[i];
  shared.starts[threadIdx.x] = before + sum - count;
  if (threadIdx.x == kTileThreads - 1) shared.starts[kTilePixels] = before + sum;
  __syncthreads();
}

// Places the samples of a tile or a part of it, in slots ascending by sample, and lists their taps on its pixels by
// pixel, those of a pixel that has more than registers hold in order. False if a pixel has too many.
template <typename T, bool kSlopes, class P>
__device__ bool list_entries(const P& p, const TilePlace& place, const TileRange& range, int count,
                             const uint32_t* staged, const Compute<T>* grid, TileShared<T, kSlopes>& shared) {
  using C = Compute<T>;
  constexpr int kListRounds = kRounds;
  shared.starts[threadIdx.x] = 0;
  if (threadIdx.x == 0) shared.order.count = 0;
  __syncthreads();
  ListedSamples<kTileThreads, kListRounds> listed(count, staged);
  Position<C> positions[kListRounds];
#pragma unroll
  for (int round = 0; round < kListRounds; ++round) {
    if (round * kTileThreads + static_cast<int>(threadIdx.x) >= count) continue;
    const C* coordinates = grid + 2 * static_cast<int64_t>(listed.marked[round] & ~kHome<uint32_t>);
    positions[round] = locate_sample(coordinates[0], coordinates[1], p);
  }
  listed.order(count, p.samples, shared.order);
  // Where each tap goes: its pixel, above its rank there.
  constexpr int kRankBits = 16;
  uint32_t places[kListRounds][4];
  int slots[kListRounds];
#pragma unroll
  for (int round = 0; round < kListRounds; ++round) {
    if (round * kTileThreads + static_cast<int>(threadIdx.x) >= count) continue;
    const Position<C>& at = positions[round];
    const Taps<C> taps = value_taps(at, p);
    const int slot = slots[round] = listed.slot(round, shared.order);
    shared.samples[slot] = listed.marked[round];
    shared.low_x[slot] = static_cast<int8_t>(at.x.low - place.column);
    shared.low_y[slot] = static_cast<int8_t>(at.y.low - place.row);
    shared.fractions[slot] = {at.x.fraction, at.y.fraction};
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const int pixel = range.within(pixel_of_tap(at, tap, taps.weight[tap], place));
      const uint32_t rank = pixel < kTilePixels ? atomicAdd(&shared.starts[pixel], 1u) : 0;
      places[round][tap] = static_cast<uint32_t>(pixel) << kRankBits | rank;
    }
  }
  __syncthreads();
  const uint32_t own_count = shared.starts[threadIdx.x];
  if (__syncthreads_or(own_count > kMostContributions)) return false;
  const bool has_more = __syncthreads_or(own_count > kKept<C>);
  sum_counts(shared);
#pragma unroll
  for (int round = 0; round < kListRounds; ++round) {
    if (round * kTileThreads + static_cast<int>(threadIdx.x) >= count) continue;
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const uint32_t pixel = places[round][tap] >> kRankBits, rank = places[round][tap] & ((1u << kRankBits) - 1);
      if (pixel < kTilePixels) {
        shared.entries[shared.starts[pixel] + rank] = static_cast<uint16_t>(slots[round] << kTapBits | tap);
      }
    }
  }
  __syncthreads();
  if (!has_more) return true;
#pragma unroll
  for (int round = 0; round < kListRounds; ++round) {
    if (round * kTileThreads + static_cast<int>(threadIdx.x) >= count) continue;
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const uint32_t pixel = places[round][tap] >> kRankBits;
      if (pixel == kTilePixels) continue;
      const uint32_t start = shared.starts[pixel], end = shared.starts[pixel + 1];
      if (end - start <= kKept<C>) continue;
      const uint16_t own = static_cast<uint16_t>(slots[round] << kTapBits | tap);
      uint32_t rank = 0;
#pragma unroll 4
      for (uint32_t i = start; i < end; ++i) rank += shared.entries[i] < own;
      places[round][tap] = pixel << kRankBits | rank;
    }
  }
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kListRounds; ++round) {
    if (round * kTileThreads + static_cast<int>(threadIdx.x) >= count) continue;
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const uint32_t pixel = places[round][tap] >> kRankBits, rank = places[round][tap] & ((1u << kRankBits) - 1);
      if (pixel == kTilePixels) continue;
      const uint32_t start = shared.starts[pixel];
      if (shared.starts[pixel + 1] - start <= kKept<C>) continue;
      shared.entries[start + rank] = static_cast<uint16_t>(slots[round] << kTapBits | tap);
    }
  }
  __syncthreads();
  return true;
}

// Bytes of a place.
constexpr uint32_t kPlaceBytes = 16;
static_assert(kPlaceBytes * kTileCapacity < 1 << 16);

// One pixel's contributions: the first kKept<C> in registers, the others in shared memory.
template <typename C>
struct PixelList {
  uint32_t extent;               // where it starts in `entries`, above its length
  uint32_t offsets[kKept<C> / 2];  // of their places, in bytes; two a word
  C weights[kKept<C>];

  static constexpr int kLengthBits = 16;
  __device__ int length() const { return static_cast<int>(extent & ((1u << kLengthBits) - 1)); }
  __device__ int start() const { return static_cast<int>(extent >> kLengthBits); }
  __device__ __forceinline__ uint32_t offset(int i) const {
    uint32_t both = offsets[i / 2];
    // Hides that it stays the same: taken apart once they would need twice the registers.
    asm volatile("" : "+r"(both));
    return both >> (16 * (i % 2)) & 0xffff;
  }
};

// An entry's weight.
template <typename C>
__device__ __forceinline__ C weight_of(const Fractions<C>* fractions, uint32_t entry) {
  const Fractions<C> at = fractions[entry >> kTapBits];
  const C weight_x = entry % 2 == 0 ? C(1) - at.x : at.x;
  const C weight_y = entry / 2 % 2 == 0 ? C(1) - at.y : at.y;
  return weight_y * weight_x;
}

__device__ __forceinline__ void put_in_order(uint32_t& a, uint32_t& b) {
  const uint32_t low = a < b ? a : b;
  b = a < b ? b : a;
  a = low;
}

// The thread's pixel's contributions, the kept ones sorted by sample.
template <typename T, bool kSlopes>
__device__ PixelList<Compute<T>> sort_entries(const TileShared<T, kSlopes>& shared) {
  using C = Compute<T>;
  PixelList<C> list;
  const uint32_t start = shared.starts[threadIdx.x];
  const int length = static_cast<int>(shared.starts[threadIdx.x + 1] - start);
  list.extent = start << PixelList<C>::kLengthBits | static_cast<uint32_t>(length);
  const uint16_t* entries = shared.entries + start;
  uint32_t keys[kNetwork];
#pragma unroll
  for (int i = 0; i < kNetwork; ++i) keys[i] = i < kKept<C> && i < length ? entries[i] : ~uint32_t{0};
  // Batcher's odd-even merge sort of eight.
  constexpr int kComparisons = 19;
  constexpr uint8_t kPairs[kComparisons][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6},
                                               {5, 7}, {1, 2}, {5, 6}, {0, 4}, {1, 5}, {2, 6}, {3, 7},
                                               {2, 4}, {3, 5}, {1, 2}, {3, 4}, {5, 6}};
#pragma unroll
  for (int i = 0; i < kComparisons; ++i) put_in_order(keys[kPairs[i][0]], keys[kPairs[i][1]]);
#pragma unroll
  for (int i = 0; i < kKept<C>; ++i) {
    const uint32_t offset = i < length ? (keys[i] >> kTapBits) * kPlaceBytes : 0;
    list.offsets[i / 2] = i % 2 == 0 ? offset : list.offsets[i / 2] | offset << 16;
    list.weights[i] = i < length ? weight_of(shared.fractions, keys[i]) : C(0);
  }
  return list;
}

}  // namespace
}  // namespace baracuda::grid_sample
