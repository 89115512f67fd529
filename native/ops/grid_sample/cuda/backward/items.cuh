// SPDX-License-Identifier: Apache-2.0
// What the blocks that stage tiles work on, and in which order they take it.
#pragma once

#include "core/cuda_division.cuh"
#include "ops/grid_sample/cuda/backward/tiling.cuh"

namespace baracuda::grid_sample {
namespace {

// A tile or a part of one, and a chunk of channels. Items are numbered parts first: they take longest.
struct TileWork {
  int64_t tile;
  int32_t part, parts;  // -1 and 1: the whole tile
  int32_t chunk, channel, channels;

  template <typename C>
  __device__ TileWork(const Problem& p, const TileGrid& tiles, const Storage<C, uint32_t>& s, int64_t item)
      : part(-1), parts(1) {
    const int64_t noted = at_most(static_cast<int64_t>(s.totals->parts), s.most_parts);
    const int64_t first = noted == 0 ? 0 : noted * ceil_div(p.c, kChannelChunk);
    const bool is_whole = item >= first;
    const Division at(is_whole ? item - first : item, is_whole ? tiles.total : noted);
    tile = at.remainder;
    if (!is_whole) {
      const int64_t number = s.parts[at.remainder];
      tile = number / kMostParts;
      part = static_cast<int32_t>(number % kMostParts);
      parts = static_cast<int32_t>(groups_of<uint32_t>(s.records[tile].count, part_samples(s.capacity)));
    }
    chunk = static_cast<int32_t>(at.quotient);
    channel = chunk * kChannelChunk;
    channels = p.c - channel < kChannelChunk ? p.c - channel : kChannelChunk;
  }

  __device__ bool is_part() const { return part >= 0; }
};

// Draws the block's item, whose number `item` in shared memory then holds; false if there is none left. There are
// blocks for all tiles and as many parts as there may be. With kTakesTurns the owner of a later chunk waits for those
// of an earlier one, which must therefore have started: tickets order the starts. Every thread calls, once.
template <bool kTakesTurns, typename C>
__device__ __forceinline__ bool take_item(const Problem& p, const TileGrid& tiles, const Storage<C, uint32_t>& s,
                                          int64_t& item) {
  const int64_t chunks = ceil_div(p.c, kChannelChunk);
  if (threadIdx.x == 0) {
    item = kTakesTurns && chunks > 1 ? static_cast<int64_t>(atomicAdd(&s.totals->tickets, Counter{1})) : blockIdx.x;
  }
  const int64_t noted = at_most(static_cast<int64_t>(s.totals->parts), s.most_parts);
  __syncthreads();
  return item < (tiles.total + noted) * chunks;
}

}  // namespace
}  // namespace baracuda::grid_sample
