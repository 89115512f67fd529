// SPDX-License-Identifier: Apache-2.0
// Stable counting sorts of a crowded tile's samples by one block, in linear time.
#pragma once

#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "ops/grid_sample/cuda/backward/tiling.cuh"

namespace baracuda::grid_sample {
namespace {

// A list has one block, however long it is: as many threads as fit.
template <typename Index>
constexpr int kSortThreads = sizeof(Index) == 4 ? 1024 : 512;
template <typename Index>
constexpr int kSortWarps = kSortThreads<Index> / 32;
// Records of a thread in a round: enough to make the block's two barriers cheap.
constexpr int kSortItems = 4;
constexpr int kDigits = 256;
static_assert(kTilePixels == kDigits);

template <typename Index>
struct SortShared {
  Index starts[kDigits];                     // where a digit's next record goes
  Index places[kSortWarps<Index>][kDigits];  // the same for each warp; first its counts
  Index warp_totals[kSortWarps<Index>];
  Index total;
  Counter entries;
};

// Adds the calling lane to its digit's count, kDigits for none. Lanes with one digit make one atomic: a crowded tile's
// samples often share a pixel. Every lane of the warp calls.
template <typename Index>
__device__ void count_digit(int digit, Index* counts) {
  const unsigned same = __match_any_sync(kFullWarp, digit);
  const bool first = (same & ((1u << threadIdx.x % 32) - 1)) == 0;
  if (digit < kDigits && first) atomicAdd(&counts[digit], static_cast<Index>(__popc(same)));
}

// Replaces counts by the sums before them; `total` is the sum of all. The block's first warp works.
template <typename Index>
__device__ void sum_digits(Index* counts, Index* total) {
  __syncthreads();
  if (threadIdx.x < 32) {
    constexpr int kEach = kDigits / 32;
    Index sum = 0;
    for (int k = 0; k < kEach; ++k) sum += counts[threadIdx.x * kEach + k];
    Index before = sum;
    for (int distance = 1; distance < 32; distance *= 2) {
      const Index other = __shfl_up_sync(kFullWarp, before, distance);
      if (threadIdx.x >= distance) before += other;
    }
    if (threadIdx.x == 31) *total = before;
    before -= sum;
    for (int k = 0; k < kEach; ++k) {
      const Index count = counts[threadIdx.x * kEach + k];
      counts[threadIdx.x * kEach + k] = before;
      before += count;
    }
  }
  __syncthreads();
}

// Calls emit(place, record) for each of `count` records in the order of their digits, equal digits in the order of the
// records. load(i) answers record i, whose digit is kDigits for one to leave out. shared.starts holds the digits' first
// places.
template <typename Index, class Load, class Emit>
__device__ void scatter_in_order(int64_t count, SortShared<Index>& shared, Load load, Emit emit) {
  using Record = decltype(load(0));
  constexpr int kThreads = kSortThreads<Index>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Index* places = shared.places[warp];
  for (int64_t base = 0; base < count; base += kThreads * kSortItems) {
    __syncwarp();  // the round before has read its places
    for (int digit = lane; digit < kDigits; digit += 32) places[digit] = 0;
    __syncwarp();
    // A warp's records follow each other.
    Record records[kSortItems];
    unsigned ranks[kSortItems];
#pragma unroll
    for (int item = 0; item < kSortItems; ++item) {
      const int64_t i = base + (warp * kSortItems + item) * 32 + lane;
      records[item] = i < count ? load(i) : Record{kDigits};
      const int digit = records[item].digit;
      const unsigned same = __match_any_sync(kFullWarp, digit);
      const unsigned rank = __popc(same & ((1u << lane) - 1));
      const Index before = digit < kDigits ? places[digit] : 0;
      ranks[item] = static_cast<unsigned>(before) + rank;
      __syncwarp();
      if (digit < kDigits && rank == 0) places[digit] = before + __popc(same);
      __syncwarp();
    }
    __syncthreads();
    for (int d = threadIdx.x; d < kDigits; d += kThreads) {
      Index next = shared.starts[d];
      for (int w = 0; w < kSortWarps<Index>; ++w) {
        const Index in_warp = shared.places[w][d];
        shared.places[w][d] = next;
        next += in_warp;
      }
      shared.starts[d] = next;
    }
    __syncthreads();
#pragma unroll
    for (int item = 0; item < kSortItems; ++item) {
      const int digit = records[item].digit;
      if (digit < kDigits) emit(places[digit] + ranks[item], records[item]);
    }
  }
  __syncthreads();
}

// The sum of a warp's values up to and with the calling lane's. Every lane of the warp calls.
template <typename Value>
__device__ __forceinline__ Value sum_up_to_lane(Value value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const Value other = __shfl_up_sync(kFullWarp, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

// Sets the samples' bits; a warp's samples often share a word. Every lane of the warp calls, with 0 for no bit.
__device__ __forceinline__ void set_bits(uint32_t word, uint32_t bits, uint32_t* words) {
  const uint32_t first = __shfl_sync(kFullWarp, word, 0);
  if (__all_sync(kFullWarp, bits == 0 || word == first)) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) bits |= __shfl_xor_sync(kFullWarp, bits, distance);
    if (threadIdx.x % 32 != 0) bits = 0;
  }
  if (bits != 0) atomicOr(&words[word], bits);
}

// Sorts `count` samples ascending through a bit for each sample of the image. They fit in shared.places.
template <typename Index>
__device__ void sort_by_bits(Index* list, int64_t count, int64_t samples, SortShared<Index>& shared) {
  constexpr int kThreads = kSortThreads<Index>, kWarps = kSortWarps<Index>;
  static_assert(kWarps <= 32);
  uint32_t* const words = reinterpret_cast<uint32_t*>(shared.places);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int word_count = static_cast<int>(groups_of<int64_t>(samples, 32));
  for (int i = static_cast<int>(threadIdx.x); i < word_count; i += kThreads) words[i] = 0;
  __syncthreads();
  for (int64_t base = warp * 32; base < count; base += kThreads) {
    const bool exists = base + lane < count;
    const uint32_t sample = exists ? static_cast<uint32_t>(list[base + lane]) : 0;
    set_bits(sample / 32, exists ? 1u << sample % 32 : 0, words);
  }
  __syncthreads();
  // A warp's words follow each other.
  const int each = groups_of(word_count, kWarps);
  const int first = warp * each, end = first + each < word_count ? first + each : word_count;
  Index found = 0;
  for (int i = first + lane; i < end; i += 32) found += __popc(words[i]);
  found = sum_up_to_lane(found);
  if (lane == 31) shared.warp_totals[warp] = found;
  __syncthreads();
  const Index own = lane < kWarps ? shared.warp_totals[lane] : 0;
  Index place = __shfl_sync(kFullWarp, sum_up_to_lane(own) - own, warp);
  for (int base = first; base < end; base += 32) {
    const uint32_t word = base + lane < end ? words[base + lane] : 0;
    const Index up_to_here = sum_up_to_lane(static_cast<Index>(__popc(word)));
    const Index before = place + up_to_here - __popc(word);
    // A lane is a bit of each word in turn.
    for (unsigned left = __ballot_sync(kFullWarp, word != 0); left != 0; left &= left - 1) {
      const int source = __ffs(left) - 1;
      const uint32_t bits = __shfl_sync(kFullWarp, word, source);
      const Index at = __shfl_sync(kFullWarp, before, source) + __popc(bits & ((1u << lane) - 1));
      if ((bits >> lane & 1) != 0) list[at] = static_cast<Index>(base + source) * 32 + lane;
    }
    place += __shfl_sync(kFullWarp, up_to_here, 31);
  }
  __syncthreads();
}

// Sorts `count` samples ascending, an even number of radix passes that end where they began.
template <typename Index>
__device__ void sort_by_digits(Index* list, Index* other, int64_t count, int64_t samples, SortShared<Index>& shared) {
  constexpr int kThreads = kSortThreads<Index>;
  struct Record {
    int digit;
    Index sample;
  };
  int bits = 1;
  while (samples > int64_t{1} << bits) ++bits;
  const int passes = 2 * groups_of(bits, 16);
  const int width = groups_of(bits, passes);
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = pass * width;
    const auto digit_of = [&](Index sample) { return static_cast<int>(sample >> shift) & ((1 << width) - 1); };
    for (int d = threadIdx.x; d < kDigits; d += kThreads) shared.starts[d] = 0;
    __syncthreads();
    for (int64_t base = 0; base < count; base += kThreads) {
      const int64_t i = base + threadIdx.x;
      count_digit(i < count ? digit_of(list[i]) : kDigits, shared.starts);
    }
    sum_digits(shared.starts, &shared.total);
    scatter_in_order(
        count, shared, [&](int64_t i) { return Record{digit_of(list[i]), list[i]}; },
        [&](Index place, const Record& record) { other[place] = record.sample; });
    Index* const swapped = list;
    list = other;
    other = swapped;
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
