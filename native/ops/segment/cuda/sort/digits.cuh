// SPDX-License-Identifier: Apache-2.0
// The parts of a radix sort that all its kernels share: where records come from, and how a block ranks records of equal
// digits in the order in which they come.
#pragma once

#include "core/cuda_instructions.cuh"
#include "core/cuda_launch.cuh"
#include "ops/segment/cuda/columns.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

constexpr int kSortThreads = 512;
constexpr int kSortWarps = kSortThreads / 32;
// 512 digits, one a thread: two launches up to 262,000 segments, four up to 2^31.
constexpr int kDigitBits = 9;
constexpr int kMostDigits = 1 << kDigitBits;
constexpr int kMaxPasses = 4;
static_assert(kMostDigits == kSortThreads);
// Records a thread keeps in registers. What tiles read of each other grows with the square of their number, so they are
// as large as registers allow, but no larger than leaves so many tiles: all multiprocessors have work.
constexpr int kMostItems = 16;
constexpr int kLeastItems = 2;
constexpr int64_t kTilesWanted = 100;
struct Digit {
  int32_t shift, bits;
  BARACUDA_HD uint32_t count() const { return 1u << bits; }
  BARACUDA_HD uint32_t of(int32_t key) const { return (static_cast<uint32_t>(key) >> shift) & (count() - 1); }
};

// Where a pass takes its records from: the ids, or the list of the pass before. read() takes records 32 apart, which
// must exist: by one address, without comparisons.
struct FromIds {
  static constexpr bool kIsList = false;
  Index ids;
  __device__ int32_t key(int64_t i) const { return ids.key(i); }
  __device__ Record operator()(int64_t i) const { return {ids.key(i), static_cast<int32_t>(i)}; }

  template <int kStride, int kItems>
  __device__ __forceinline__ void read_keys(int64_t first, int32_t (&keys)[kItems]) const {
    const uint32_t none = static_cast<uint32_t>(ids.num_segments);
    if (ids.wide != 0) {
      const uint2* from = reinterpret_cast<const uint2*>(ids.words) + first;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const uint2 id = from[j * kStride];
        keys[j] = static_cast<int32_t>(id.y == 0 && id.x < none ? id.x : none);
      }
    } else {
      const uint32_t* from = ids.words + first;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const uint32_t id = from[j * kStride];
        keys[j] = static_cast<int32_t>(id < none ? id : none);
      }
    }
  }
  template <int kItems>
  __device__ __forceinline__ void read(int64_t first, Record (&records)[kItems]) const {
    int32_t keys[kItems];
    read_keys<32>(first, keys);
#pragma unroll
    for (int j = 0; j < kItems; ++j) records[j] = {keys[j], static_cast<int32_t>(first) + j * 32};
  }
};
struct FromList {
  static constexpr bool kIsList = true;
  const Record* list;
  __device__ int32_t key(int64_t i) const { return list[i].key; }
  __device__ Record operator()(int64_t i) const { return list[i]; }

  template <int kItems>
  __device__ __forceinline__ void read(int64_t first, Record (&records)[kItems]) const {
    const Record* from = list + first;
#pragma unroll
    for (int j = 0; j < kItems; ++j) records[j] = from[j * 32];
  }
};

// The key of records beyond the end of the list. All its digits are the highest, and such records come after all others
// of that digit, so they change no other record's place: they need no condition until records are written.
constexpr int32_t kBeyond = -1;
template <int kItems, class Source>
__device__ __forceinline__ void read_to_end(const Source& source, int64_t first, int32_t n, Record (&records)[kItems]) {
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    // Loads without a condition are issued together.
    const int64_t i = first + j * 32;
    records[j] = source(i < n ? i : n - 1);
    if (i >= n) records[j].key = kBeyond;
  }
}

// The sum of `value` over the threads before this one. The caller's next use of `shared` (one word a warp) needs a
// barrier in between.
__device__ uint64_t sum_before(uint64_t value, uint64_t* shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t other = __shfl_up_sync(kFullWarp, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) shared[warp] = sum;
  __syncthreads();
  uint64_t before = lane < warp ? shared[lane] : 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) before += __shfl_xor_sync(kFullWarp, before, distance);
  return before + sum - value;
}

// The lanes of the warp whose digit, of at most kBits, equals this lane's. The instruction for it takes a turn for each
// distinct value.
template <int kBits>
__device__ __forceinline__ uint32_t lanes_with_equal(uint32_t digit) {
  static_assert(kBits % 2 == 1);
  uint32_t equals = lanes_with_equal_bit(digit, 1);
#pragma unroll
  for (int bit = 1; bit < kBits; bit += 2) {
    equals = and_of_three(equals, lanes_with_equal_bit(digit, 1u << bit), lanes_with_equal_bit(digit, 2u << bit));
  }
  return equals;
}

// Ranks a thread's records among the records of the same digit in its warp's part of a tile; records before in the list
// have lower ranks. `counts` holds zeros, and in the end the warp's records of each digit.
template <int kBits, int kItems, typename Count>
__device__ __forceinline__ void rank_records(const uint32_t (&digits)[kItems], Count* counts,
                                             int32_t (&ranks)[kItems]) {
  const uint32_t up_to_mine = kFullWarp >> (31 - threadIdx.x % 32);
  uint32_t equals[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) equals[j] = lanes_with_equal<kBits>(digits[j]);
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int32_t through = counts[digits[j]] + __popc(equals[j] & up_to_mine);
    __syncwarp();
    // Of the lanes with one digit the last knows how many there are.
    if ((equals[j] & ~up_to_mine) == 0) counts[digits[j]] = static_cast<Count>(through);
    __syncwarp();
    ranks[j] = through - 1;
  }
}

}  // namespace
}  // namespace baracuda::segment
