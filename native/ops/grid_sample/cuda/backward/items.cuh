// SPDX-License-Identifier: Apache-2.0
// What the blocks that stage tiles work on, and in which order they take it.
#pragma once

#include "core/cuda_division.cuh"
#include "ops/grid_sample/cuda/backward/tiling.cuh"

namespace baracuda::grid_sample {
namespace {

// A tile or a part of one, and a chunk of channels.
struct TileWork {
  int64_t tile;
  int32_t part, parts;  // -1 and 1: the whole tile
  int32_t chunk, channel, channels;

  __device__ bool is_part() const { return part >= 0; }
};

// Which items come first: parts, as they take longest, or tiles, whose blocks need not ask then how many parts there
// are.
enum class Order { kPartsFirst, kTilesFirst };

template <typename C>
__device__ __forceinline__ int64_t parts_of(const Storage<C, uint32_t>& s) {
  return at_most(static_cast<int64_t>(s.totals->parts), s.most_parts);
}

template <Order kOrder, typename C>
__device__ __forceinline__ TileWork work_of(const Problem& p, const TileGrid& tiles, const Storage<C, uint32_t>& s,
                                            int64_t item) {
  const int64_t chunks = ceil_div(p.c, kChannelChunk);
  bool is_whole = true;
  int64_t parts = 0;
  if constexpr (kOrder == Order::kPartsFirst) {
    parts = parts_of(s);
    is_whole = item >= parts * chunks;
    if (is_whole) item -= parts * chunks;
  } else {
    is_whole = item < tiles.total * chunks;
    if (!is_whole) {
      parts = parts_of(s);
      item -= tiles.total * chunks;
    }
  }
  const Division at(item, is_whole ? tiles.total : parts);
  TileWork work{at.remainder, -1, 1, static_cast<int32_t>(at.quotient), 0, 0};
  if (!is_whole) {
    const int64_t number = s.parts[at.remainder];
    work.tile = number / kMostParts;
    work.part = static_cast<int32_t>(number % kMostParts);
    const uint32_t each = static_cast<uint32_t>(s.part_samples);
    work.parts = static_cast<int32_t>(groups_of(s.records[work.tile].count, each));
  }
  work.channel = work.chunk * kChannelChunk;
  work.channels = p.c - work.channel < kChannelChunk ? p.c - work.channel : kChannelChunk;
  return work;
}

// Draws the block's item, whose number `item` in shared memory then holds; false if there is none left. There are
// blocks for all tiles and as many parts as there may be. With kTakesTurns the owner of a later chunk waits for those
// of an earlier one, which must therefore have started: tickets order the starts. Every thread calls, once.
template <Order kOrder, bool kTakesTurns, typename C>
__device__ __forceinline__ bool take_item(const Problem& p, const TileGrid& tiles, const Storage<C, uint32_t>& s,
                                          int64_t& item) {
  const int64_t chunks = ceil_div(p.c, kChannelChunk);
  if (threadIdx.x == 0) {
    item = kTakesTurns && chunks > 1 ? static_cast<int64_t>(atomicAdd(&s.totals->tickets, Counter{1})) : blockIdx.x;
  }
  int64_t parts = kOrder == Order::kPartsFirst ? parts_of(s) : 0;
  __syncthreads();
  if (item < (tiles.total + parts) * chunks) return true;
  if constexpr (kOrder == Order::kTilesFirst) parts = parts_of(s);
  return item < (tiles.total + parts) * chunks;
}

}  // namespace
}  // namespace baracuda::grid_sample
