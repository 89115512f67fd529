// SPDX-License-Identifier: Apache-2.0
// How the tiles of a row follow each other within one launch. A tile publishes what it adds by itself as soon as it
// knows it, and what stands in front of the next tile as soon as it knows what stands in front of itself. For that it
// looks back over what other tiles add to the nearest one that has published a carry, and joins them in their order:
// which one that is does not show in the result, since every carry is what the joins from the row's begin on give.
#pragma once

#include <cstdint>
#include <cstring>

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
  uint64_t* carries;  // likewise, of what stands in front of the next tile

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

// Whether a value is there, which then is `value`.
template <typename V>
__device__ __forceinline__ bool is_published(const uint64_t* board, int64_t tile, V* value) {
  WordsOf<V> words;
  uint64_t marks = kMark;
#pragma unroll
  for (int i = 0; i < kWords<V>; ++i) {
    const uint64_t word = *const_cast<const volatile uint64_t*>(board + tile * kWords<V> + i);
    words.words[i] = static_cast<uint32_t>(word);
    marks &= word;
  }
  *value = value_of<V>(words);
  return marks != 0;
}

// Tiles that a lane looks back at, one of every 32.
constexpr int kDepth = 4;

// What stands in front of a tile that is not its row's first, for a warp that has all its lanes; `tile` counts from the
// row's first one, whose place on the board is `first`. join(a, b) joins what comes before to what comes after.
template <typename V, class Join>
__device__ __forceinline__ V look_back(const Board<V>& board, int64_t first, int64_t tile, const Join& join) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  V found[kDepth];
  int depth = 0, begin = 0;
  while (true) {
    const int64_t place = tile - 1 - lane - 32 * depth;
    V carry{}, total{};
    const bool has_carry = place >= 0 && is_published(board.carries, first + place, &carry);
    const bool has_total = place >= 0 && is_published(board.totals, first + place, &total);
    const uint32_t carries = __ballot_sync(kFullWarp, has_carry), totals = __ballot_sync(kFullWarp, has_total);
    if (carries != 0) {
      // Everything nearer than the nearest carry must be there, too.
      begin = __ffs(static_cast<int>(carries)) - 1;
      const uint32_t nearer = (1u << begin) - 1;
      if ((totals & nearer) == nearer) {
#pragma unroll
        for (int d = 0; d < kDepth; ++d) {
          if (d == depth) found[d] = lane == begin ? carry : total;
        }
        break;
      }
    } else if (totals == kFullWarp && depth + 1 < kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        if (d == depth) found[d] = total;
      }
      ++depth;
    }
  }
  V joined{};
#pragma unroll
  for (int d = kDepth - 1; d >= 0; --d) {
    if (d > depth) continue;
#pragma unroll
    for (int from = 31; from >= 0; --from) {
      const V next = shuffled(found[d], from);
      if (d == depth && from >= begin) {
        joined = next;  // of those the last one is the carry
      } else {
        joined = join(joined, next);
      }
    }
  }
  return joined;
}

}  // namespace
}  // namespace baracuda::scan
