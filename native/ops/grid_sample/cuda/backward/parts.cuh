// SPDX-License-Identifier: Apache-2.0
// Tiles that are summed in parts on CUDA, because they have many samples: which pixels a part owns
// and which samples reach it.
#pragma once

#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "ops/grid_sample/cuda/backward/tiling.cuh"

namespace baracuda::grid_sample {
namespace {

// Notes the parts of a tile when its list grows beyond what is summed whole. `slot` is that of one sample, each of
// which is told of once. Where no more parts have blocks, the tile is crowded.
template <typename C>
__device__ __forceinline__ void note_parts(const Storage<C, uint32_t>& s, int64_t tile, uint32_t slot) {
  const uint32_t most_whole = static_cast<uint32_t>(s.most_whole), each = static_cast<uint32_t>(s.part_samples);
  if (slot < most_whole || slot >= kListed) return;
  const auto note = [&](uint32_t part) {
    const int64_t number = static_cast<int64_t>(atomicAdd(&s.totals->parts, Counter{1}));
    if (number < s.most_parts) {
      s.parts[number] = tile * kMostParts + part;
    } else {
      s.records[tile].state = TileRecord<uint32_t>::kOverdone;
    }
  };
  if (slot == most_whole) {
    // With one more there are two.
    note(0);
    note(1);
  } else if (slot % each == 0) {
    note(slot / each);
  }
}

// Samples of a tile that are in its list, or more than any list has if it must be crowded.
__device__ __forceinline__ int listed_samples(const TileRecord<uint32_t>& record) {
  return record.count <= kListed && (record.state & TileRecord<uint32_t>::kOverdone) == 0
             ? static_cast<int>(record.count)
             : kListed + 1;
}

// Samples of a thread whose positions are asked for together.
constexpr int kPartBatch = 4;

// Calls use(whether there is a sample, sample with kHome, its position) for each of a tile's samples. Every thread
// calls, and calls `use` as often as the others.
template <int kThreads, typename C, class P, class Use>
__device__ __forceinline__ void for_each_listed(const P& p, int count, const uint32_t* staged, const C* grid, Use use) {
  for (int base = 0; base < count; base += kThreads * kPartBatch) {
    uint32_t marked[kPartBatch];
    C x[kPartBatch], y[kPartBatch];
#pragma unroll
    for (int k = 0; k < kPartBatch; ++k) {
      const int i = base + k * kThreads + static_cast<int>(threadIdx.x);
      marked[k] = i < count ? staged[i] : 0;
    }
#pragma unroll
    for (int k = 0; k < kPartBatch; ++k) {
      const C* coordinates = grid + 2 * static_cast<int64_t>(marked[k] & ~kHome<uint32_t>);
      x[k] = coordinates[0];
      y[k] = coordinates[1];
    }
#pragma unroll
    for (int k = 0; k < kPartBatch; ++k) {
      if (base + k * kThreads >= count) break;
      const bool exists = base + k * kThreads + static_cast<int>(threadIdx.x) < count;
      use(exists, marked[k], locate_sample(x[k], y[k], p));
    }
  }
}

// A part's pixels and the number of samples that reach them.
struct TilePart {
  TileRange range;
  int count;
};

// Cuts a tile into parts of about as many samples and lists those of one of them, with kHome where the sample is at
// home in it, as far as `list` has room for kCapacity; what they are depends on the tile's samples alone, and not on
// their order. `counts` holds a number for each pixel. Every thread calls.
template <int kThreads, int kCapacity, typename C, class P>
__device__ TilePart list_part(const P& p, const TilePlace& place, int part, int parts, int count,
                              const uint32_t* staged, const C* grid, uint32_t* counts, uint32_t* list) {
  constexpr int kWarps = kThreads / 32, kEach = kTilePixels / kThreads;
  __shared__ uint32_t warp_sums[kWarps], listed;
  __shared__ int ends[2];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  // The pixel of a sample's first tap, or the one beside it where that lies in the tile before.
  const auto first_pixel = [&](const Position<C>& at) {
    const int32_t row = at.y.low - place.row, column = at.x.low - place.column;
    return TileRange::number(row < 0 ? 0 : row, column < 0 ? 0 : column);
  };
  for (int i = thread; i < kTilePixels; i += kThreads) counts[i] = 0;
  if (thread == 0) {
    listed = 0;
    ends[0] = 0;
    ends[1] = kTilePixels;
  }
  __syncthreads();
  for_each_listed<kThreads>(p, count, staged, grid, [&](bool exists, uint32_t, const Position<C>& at) {
    if (exists) atomicAdd(&counts[first_pixel(at)], 1u);
  });
  __syncthreads();
  // A part ends before the pixel with which its share would be exceeded.
  uint32_t own[kEach], sum = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) sum += own[k] = counts[thread * kEach + k];
  uint32_t before = sum;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kFullWarp, before, distance);
    if (lane >= distance) before += other;
  }
  if (lane == 31) warp_sums[warp] = before;
  __syncthreads();
  before -= sum;
  for (int i = 0; i < warp; ++i) before += warp_sums[i];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const uint32_t after = before + own[k];
#pragma unroll
    for (int end = 0; end < 2; ++end) {
      const uint32_t number = static_cast<uint32_t>(part + end), share = number * static_cast<uint32_t>(count);
      if (number == 0 || number == static_cast<uint32_t>(parts)) continue;
      if (before * parts <= share && share < after * parts) ends[end] = thread * kEach + k;
    }
    before = after;
  }
  __syncthreads();
  const TileRange range{ends[0], ends[1]};
  for_each_listed<kThreads>(p, count, staged, grid, [&](bool exists, uint32_t marked, const Position<C>& at) {
    const int first = first_pixel(at);
    const bool is_home = exists && (marked & kHome<uint32_t>) != 0 && first >= range.begin && first < range.end;
    bool reaches = is_home;
    const Taps<C> taps = value_taps(at, p);
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const int pixel = pixel_of_tap(at, tap, taps.weight[tap], place);
      reaches = reaches || (exists && pixel < kTilePixels && range.within(pixel) < kTilePixels);
    }
    const unsigned found = __ballot_sync(kFullWarp, reaches);
    uint32_t slot = 0;
    if (lane == 0 && found != 0) slot = atomicAdd(&listed, static_cast<uint32_t>(__popc(found)));
    slot = __shfl_sync(kFullWarp, slot, 0) + __popc(found & ((1u << lane) - 1));
    if (reaches && slot < kCapacity) {
      list[slot] = (marked & ~kHome<uint32_t>) | (is_home ? kHome<uint32_t> : 0);
    }
  });
  __syncthreads();
  return {range, static_cast<int>(listed)};
}

}  // namespace
}  // namespace baracuda::grid_sample
