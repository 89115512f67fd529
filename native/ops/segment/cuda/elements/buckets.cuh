// SPDX-License-Identifier: Apache-2.0
// Rows of one column go to buckets of neighbouring segments, their values with them, in the order in which they come:
// one launch counts each tile's, one adds up what the tiles before have, one moves.
#pragma once

#include "core/cuda_shared.cuh"
#include "ops/segment/cuda/sort/digits.cuh"

namespace baracuda::segment {
namespace {

constexpr int kBucketBits = kDigitBits;
constexpr int kBuckets = 1 << kBucketBits;
static_assert(kBuckets == kSortThreads);
// A row's segment within its bucket. One of kBuckets << 15 segments at most, so that this is no segment.
constexpr uint32_t kNoLocal = 0xffff;
constexpr int kLeastLocalBits = 9;
constexpr int kMostLocalBits = 15;

struct Buckets {
  int32_t n;
  int32_t num_segments;
  int32_t local_bits;  // of a segment's number within its bucket

  // Rows without a segment are spread over all buckets, so that they fill none.
  __device__ __forceinline__ uint32_t of(int32_t key, uint32_t row) const {
    const uint32_t bucket = key == num_segments ? row : static_cast<uint32_t>(key) >> local_bits;
    return bucket % kBuckets;
  }
  __device__ __forceinline__ uint32_t local(int32_t key) const {
    return key == num_segments ? kNoLocal : static_cast<uint32_t>(key) & ((1u << local_bits) - 1);
  }
  // More rows than this in one bucket would keep its block busy long after all others.
  BARACUDA_HD uint32_t most() const {
    const int64_t used = ceil_div(int64_t{num_segments}, int64_t{1} << local_bits);
    return static_cast<uint32_t>(4 * (n / used) + (1 << 13));
  }
  // More rows than this to segments that their tiles had before are of so few segments that one warp adds them all.
  BARACUDA_HD uint32_t most_repeats() const { return static_cast<uint32_t>(n - n / 32); }
};

// Rows of a tile, a thread's share of which lie in registers; and of one that every device has room for.
template <typename T>
constexpr int kElementItems = sizeof(T) <= 4 ? 16 : 8;
template <typename T>
constexpr int kFewElementItems = sizeof(T) <= 4 ? 8 : 4;

// Which segments a tile has had, a bit for each of 2^16 numbers that they are scattered over: enough to tell rows that
// all go to few segments from rows of many.
struct SeenSegments {
  static constexpr int kWords = 1 << 11;
  uint32_t* words;
  // Whether one of this number was there before.
  __device__ __forceinline__ uint32_t repeats(uint32_t number) const {
    const uint32_t mark = number * 0x9e3779b1u >> 16;
    return atomicOr(words + mark / 32, 1u << mark % 32) >> mark % 32 & 1;
  }
};

// counts[tile][bucket]: how many rows of the tile go to the bucket; repeats[tile]: how many go to a segment that a row
// before them went to. A block has a tile.
template <int kItems>
__global__ void __launch_bounds__(kSortThreads)
    count_buckets(FromIds source, Buckets buckets, uint32_t* counts, uint32_t* repeats) {
  let_kernel_after_start();
  constexpr int64_t kTile = kSortThreads * kItems;
  __shared__ uint32_t of_tile[kBuckets], seen_words[SeenSegments::kWords], repeated;
  const SeenSegments seen{seen_words};
  of_tile[threadIdx.x] = 0;
  for (int i = threadIdx.x; i < SeenSegments::kWords; i += kSortThreads) seen_words[i] = 0;
  if (threadIdx.x == 0) repeated = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * kTile, n = buckets.n;
  uint32_t mine = 0;
  if (n - begin >= kTile) {
    int32_t keys[kItems];
    source.read_keys<kSortThreads>(begin + threadIdx.x, keys);
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const uint32_t row = static_cast<uint32_t>(begin) + threadIdx.x + j * kSortThreads;
      atomicAdd(of_tile + buckets.of(keys[j], row), 1u);
      mine += seen.repeats(keys[j] == buckets.num_segments ? row : static_cast<uint32_t>(keys[j]));
    }
  } else {
#pragma unroll 1
    for (int64_t i = begin + threadIdx.x; i < n; i += kSortThreads) {
      const uint32_t row = static_cast<uint32_t>(i);
      const int32_t key = source.key(i);
      atomicAdd(of_tile + buckets.of(key, row), 1u);
      mine += seen.repeats(key == buckets.num_segments ? row : static_cast<uint32_t>(key));
    }
  }
  atomicAdd(&repeated, mine);
  __syncthreads();
  counts[static_cast<int64_t>(blockIdx.x) * kBuckets + threadIdx.x] = of_tile[threadIdx.x];
  if (threadIdx.x == 0) repeats[blockIdx.x] = repeated;
}

// What is known of the buckets once rows have been counted.
struct BucketWords {
  uint32_t* taken;    // [1]: whether the sums are made here, and not by the list
  uint32_t* repeats;  // [1]: of all tiles
  uint32_t* totals;   // [kBuckets]
  uint32_t* starts;   // [kBuckets + 1]: a bucket's first row in the list
};

// Makes each tile's count what the tiles before it have, and finds the totals. A thread has a bucket and a share of the
// tiles; the first block adds up the repeats, too.
constexpr int kFrontThreads = 1024, kFrontBuckets = 8, kFrontShares = kFrontThreads / kFrontBuckets;
__global__ void __launch_bounds__(kFrontThreads)
    find_fronts(uint32_t* counts, const uint32_t* repeats, int32_t tiles, BucketWords words) {
  wait_for_kernel_before();
  let_kernel_after_start();
  __shared__ uint32_t sums[kFrontShares][kFrontBuckets], repeated;
  const int bucket = threadIdx.x % kFrontBuckets, share = threadIdx.x / kFrontBuckets;
  uint32_t* const mine = counts + blockIdx.x * kFrontBuckets + bucket;
  const int32_t tiles_of_share = groups_of(tiles, kFrontShares);
  const int64_t first = int64_t{share} * tiles_of_share;
  const int64_t end = first + tiles_of_share < tiles ? first + tiles_of_share : tiles;
  uint32_t sum = 0;
#pragma unroll 8
  for (int64_t tile = first; tile < end; ++tile) sum += mine[tile * kBuckets];
  sums[share][bucket] = sum;
  if (threadIdx.x == 0) repeated = 0;
  __syncthreads();
  uint32_t before = 0;
#pragma unroll 8
  for (int other = 0; other < share; ++other) before += sums[other][bucket];
  if (share == kFrontShares - 1) words.totals[blockIdx.x * kFrontBuckets + bucket] = before + sum;
#pragma unroll 8
  for (int64_t tile = first; tile < end; ++tile) {
    const uint32_t count = mine[tile * kBuckets];
    mine[tile * kBuckets] = before;
    before += count;
  }
  if (blockIdx.x != 0) return;
  uint32_t all = 0;
  for (int32_t tile = threadIdx.x; tile < tiles; tile += kFrontThreads) all += repeats[tile];
  atomicAdd(&repeated, all);
  __syncthreads();
  if (threadIdx.x == 0) *words.repeats = repeated;
}

// What a block of move_elements keeps in shared memory.
template <typename T, int kItems>
struct MoveTables {
  static constexpr int kTile = kSortThreads * kItems;
  static constexpr size_t kBytes =
      kTile * (sizeof(Bits<T>) + sizeof(uint32_t)) + kBuckets * (sizeof(int32_t) + 2 * kSortWarps);
  Bits<T>* values;   // [kTile]: in the order of buckets
  uint32_t* places;  // [kTile]: a row's bucket and, in the lower half, its segment within
  int32_t* shift;    // [kBuckets]: what to add to an index of the tile for that of the list
  uint16_t* counts;  // [kSortWarps][kBuckets]: a warp's rows of a bucket; then where they begin in the tile

  explicit __device__ MoveTables(unsigned char* bytes) {
    values = reinterpret_cast<Bits<T>*>(bytes);
    places = reinterpret_cast<uint32_t*>(values + kTile);
    shift = reinterpret_cast<int32_t*>(places + kTile);
    counts = reinterpret_cast<uint16_t*>(shift + kBuckets);
  }
};

template <typename T, int kItems>
__global__ void __launch_bounds__(kSortThreads, kItems > kFewElementItems<T> ? 1 : 2)
    move_elements(FromIds source, const Bits<T>* x, Buckets buckets, const uint32_t* fronts, BucketWords words,
                  Bits<T>* values, uint16_t* locals) {
  let_kernel_after_start();
  constexpr int kTile = kSortThreads * kItems;
  __shared__ uint64_t shared_sums[kSortWarps];
  const MoveTables<T, kItems> tables(dynamic_shared<unsigned char>());
  const uint32_t warp = threadIdx.x / 32;
  uint16_t* mine = tables.counts + warp * kBuckets;
#pragma unroll
  for (int i = 0; i < kSortWarps * kBuckets / 8; i += kSortThreads) {
    reinterpret_cast<uint4*>(tables.counts)[i + threadIdx.x] = make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  // Rows are older than the launches before, so that they are ranked while those end.
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTile;
  const int32_t filled = buckets.n - begin < kTile ? static_cast<int32_t>(buckets.n - begin) : kTile;
  const int64_t first = begin + warp * (32 * kItems) + threadIdx.x % 32;
  Record records[kItems];
  Bits<T> moved[kItems];
  if (filled == kTile) {
    source.read(first, records);
#pragma unroll
    for (int j = 0; j < kItems; ++j) moved[j] = x[first + j * 32];
  } else {
    read_to_end(source, first, buckets.n, records);
#pragma unroll
    for (int j = 0; j < kItems; ++j) moved[j] = x[first + j * 32 < buckets.n ? first + j * 32 : buckets.n - 1];
  }
  uint32_t places[kItems];
  int32_t ranks[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    // Beyond the end: the last bucket's, behind all its rows, and never written.
    const bool is_beyond = records[j].key == kBeyond;
    const uint32_t bucket = buckets.of(records[j].key, static_cast<uint32_t>(first) + j * 32);
    places[j] = is_beyond ? kBuckets - 1 : bucket;
  }
  rank_records<kBucketBits>(places, mine, ranks);
#pragma unroll
  for (int j = 0; j < kItems; ++j) places[j] = places[j] << 16 | buckets.local(records[j].key);
  wait_for_kernel_before();
  // A thread has a bucket from here on.
  const uint32_t all = words.totals[threadIdx.x];
  const bool is_taken = !__syncthreads_or(all > buckets.most() || *words.repeats > buckets.most_repeats());
  if (blockIdx.x == 0 && threadIdx.x == 0) *words.taken = is_taken ? 1 : 0;
  if (!is_taken) return;
  const uint32_t front = fronts[blockIdx.x * static_cast<int64_t>(kBuckets) + threadIdx.x];
  uint16_t* of_bucket = tables.counts + threadIdx.x;
  uint32_t in_warps[kSortWarps], in_tile = 0;
#pragma unroll
  for (int i = 0; i < kSortWarps; ++i) {
    in_warps[i] = of_bucket[i * kBuckets];
    in_tile += in_warps[i];
  }
  const uint64_t sums = sum_before(static_cast<uint64_t>(all) << 32 | in_tile, shared_sums);
  const int32_t start = static_cast<int32_t>(sums);
  const uint32_t begin_of_bucket = static_cast<uint32_t>(sums >> 32);
  uint32_t next = start;
#pragma unroll
  for (int i = 0; i < kSortWarps; ++i) {
    of_bucket[i * kBuckets] = static_cast<uint16_t>(next);
    next += in_warps[i];
  }
  tables.shift[threadIdx.x] = static_cast<int32_t>(begin_of_bucket + front) - start;
  if (blockIdx.x == 0) {
    words.starts[threadIdx.x] = begin_of_bucket;
    if (threadIdx.x == 0) words.starts[kBuckets] = static_cast<uint32_t>(buckets.n);
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kItems; ++j) ranks[j] += mine[places[j] >> 16];
#pragma unroll
  for (int j = 0; j < kItems; ++j) tables.places[ranks[j]] = places[j], tables.values[ranks[j]] = moved[j];
  __syncthreads();
  // Neighbours in the tile are neighbours in the list, so whole runs are written.
#pragma unroll 4
  for (int32_t i = threadIdx.x; i < filled; i += kSortThreads) {
    const uint32_t place = tables.places[i];
    const int32_t to = tables.shift[place >> 16] + i;
    values[to] = tables.values[i];
    locals[to] = static_cast<uint16_t>(place);
  }
}

}  // namespace
}  // namespace baracuda::segment
