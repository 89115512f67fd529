// SPDX-License-Identifier: Apache-2.0
// How the tiles of a row follow each other within one launch. A tile publishes what it adds by itself as soon as it
// knows it, waits for what stands in front of it, and publishes what stands in front of the next tile. One by one that
// takes a round trip through memory for each tile; so one warp of the launch, the follower, reads what tiles add, of
// all that are there, and publishes the same ahead of them. Each of these joins is one of two neighbours, in the order
// that results are defined by, so that whoever is first publishes the same bits. No tile needs the follower to come to
// its end, wherever and whenever that runs.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/cuda_division.cuh"
#include "core/cuda_warp.cuh"

namespace baracuda::scan {
namespace {

// Words of 32 bits that something has.
template <typename V>
constexpr int kWords = static_cast<int>((sizeof(V) + 3) / 4);

template <typename V>
struct alignas(4) WordsOf {
  uint32_t words[kWords<V>];
};

template <typename V>
__device__ __forceinline__ WordsOf<V> words_of(const V& value) {
  WordsOf<V> found{};
  memcpy(found.words, &value, sizeof(V));
  return found;
}
template <typename V>
__device__ __forceinline__ V value_of(const WordsOf<V>& words) {
  V value;
  memcpy(&value, words.words, sizeof(V));
  return value;
}

// Another lane's value.
template <typename V>
__device__ __forceinline__ V shuffled(const V& value, int lane) {
  WordsOf<V> words = words_of(value);
#pragma unroll
  for (int i = 0; i < kWords<V>; ++i) words.words[i] = __shfl_sync(kFullWarp, words.words[i], lane);
  return value_of<V>(words);
}

// What tiles have published, in zeroed memory. Each word has its own mark beside it in the same 64 bits, so that no
// order of stores matters: a value is there when all of its marks are.
template <typename V>
struct Board {
  uint64_t* totals;   // [tiles of all rows, words]
  uint64_t* carries;  // likewise, of what stands in front of the next tile of the row

  static int64_t words(int64_t tiles) { return tiles * kWords<V>; }
};

constexpr uint64_t kMark = uint64_t{1} << 32;

template <typename V>
__device__ __forceinline__ void publish(uint64_t* board, int64_t tile, const V& value) {
  const WordsOf<V> words = words_of(value);
#pragma unroll
  for (int i = 0; i < kWords<V>; ++i) {
    *const_cast<volatile uint64_t*>(board + tile * kWords<V> + i) = kMark | words.words[i];
  }
}

// What a board has at a place, by the marks that came with it.
template <typename V>
struct Found {
  uint64_t words[kWords<V>];

  Found() = default;
  __device__ __forceinline__ Found(const uint64_t* board, int64_t tile) {
#pragma unroll
    for (int i = 0; i < kWords<V>; ++i) words[i] = *const_cast<const volatile uint64_t*>(board + tile * kWords<V> + i);
  }
  __device__ __forceinline__ bool is_there() const {
    uint64_t marks = kMark;
#pragma unroll
    for (int i = 0; i < kWords<V>; ++i) marks &= words[i];
    return marks != 0;
  }
  __device__ __forceinline__ V value() const {
    WordsOf<V> found;
#pragma unroll
    for (int i = 0; i < kWords<V>; ++i) found.words[i] = static_cast<uint32_t>(words[i]);
    return value_of<V>(found);
  }
};

// Says what a tile adds; `place` is the tile's on the board. By one lane.
template <typename V>
__device__ __forceinline__ void announce(const Board<V>& board, int64_t place, int64_t tile, const V& total) {
  publish(board.totals, place, total);
  // Of a row's first tile both are the same: the follower reads the one, the next tile the other.
  if (tile == 0) publish(board.carries, place, total);
}

// What stands in front of a tile that was announced to add `total`; anything if it is its row's first. A whole warp
// takes part. join(a, b) joins what comes before to what comes after.
template <typename V, class Join>
__device__ __forceinline__ V wait_for_front(const Board<V>& board, int64_t place, int64_t tile, const V& total,
                                            const Join& join) {
  const bool tells = threadIdx.x % 32 == 0;
  if (tile == 0) return total;
  while (true) {
    const Found<V> front(board.carries, place - 1);
    if (__all_sync(kFullWarp, front.is_there()) == 0) continue;
    if (tells) publish(board.carries, place, join(front.value(), total));
    return front.value();
  }
}

// Both at once.
template <typename V, class Join>
__device__ __forceinline__ V exchange(const Board<V>& board, int64_t place, int64_t tile, const V& total,
                                      const Join& join) {
  if (threadIdx.x % 32 == 0) announce(board, place, tile, total);
  return wait_for_front(board, place, tile, total, join);
}

// Nothing that a join has to know beside what it joins.
struct NoLink {};
__device__ __forceinline__ NoLink shuffled(NoLink, int) { return {}; }

// Windows of 32 tiles that the follower asks for at a time, all on their way together.
template <typename V>
constexpr int kWindows = kWords<V> <= 2 ? 4 : 2;

// What the follower does with `count` tiles, of which each row has `tiles`. `chain` has
//   Link link(a, b)     what joining a to b, which comes after it, needs and can know before a is complete
//   V join(a, link, b)
template <typename V, class Chain>
__device__ __forceinline__ void follow_tiles(const Board<V>& board, int64_t count, int64_t tiles, const Chain& chain) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  V carry{};
  for (int64_t done = 0; done < count;) {
    Found<V> found[kWindows<V>];
#pragma unroll
    for (int w = 0; w < kWindows<V>; ++w) {
      const int64_t tile = done + 32 * w + lane;
      found[w] = Found<V>(board.totals, tile < count ? tile : count - 1);
    }
    const int64_t first = done;
#pragma unroll
    for (int w = 0; w < kWindows<V>; ++w) {
      const int64_t tile = first + 32 * w + lane;
      const uint32_t missing = ~__ballot_sync(kFullWarp, tile < count && found[w].is_there());
      const uint32_t begins = __ballot_sync(kFullWarp, Division(tile, tiles).remainder == 0);
      const int end = missing == 0 ? 32 : __ffs(static_cast<int>(missing)) - 1;
      const V total = found[w].value(), before = shuffled(total, lane == 0 ? 0 : lane - 1);
      const auto link = chain.link(lane == 0 ? carry : before, total);
      V own{};
#pragma unroll 8
      for (int from = 0; from < end; ++from) {
        const V next = shuffled(total, from);
        const V joined = chain.join(carry, shuffled(link, from), next);
        carry = (begins >> from & 1) != 0 ? next : joined;
        if (lane == from) own = carry;
      }
      if (lane < end) publish(board.carries, tile, own);
      done += end;
      if (end < 32) break;
    }
  }
}

}  // namespace
}  // namespace baracuda::scan
