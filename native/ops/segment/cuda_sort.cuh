// SPDX-License-Identifier: Apache-2.0
// Orders rows by segment on CUDA, stably: a radix sort, least significant digit first. A pass counts the digits of
// every tile, sums the counts, and moves each record to its place: three launches, no waiting between blocks, and no
// atomics but integer counts in shared memory.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "ops/segment/chunks.h"
#include "ops/segment/cuda_columns.cuh"

namespace baracuda::segment {
namespace {

constexpr int kSortThreads = 256;
constexpr int kSortWarps = kSortThreads / 32;
constexpr int kSortItems = 8;  // records a thread keeps in registers
constexpr int kSortTile = kSortThreads * kSortItems;
// 1024 digits: two passes up to a million segments, three up to 2^30, while a tile of 2048 records still writes runs of
// records and its tables (44 KiB) fit the 48 KiB that need no opt-in.
constexpr int kMaxDigitBits = 10;

// A block adds up the counts of so few tiles itself, which takes less time than a launch.
constexpr int64_t kFewTiles = 32;

struct Digit {
  int32_t shift, bits;
  BARACUDA_HD uint32_t count() const { return 1u << bits; }
  BARACUDA_HD uint32_t of(int32_t key) const { return (static_cast<uint32_t>(key) >> shift) & (count() - 1); }
};

// Where a pass takes its records from: the ids, or the list of the pass before. Beyond the end loops read the last
// record again, because loads without a condition are issued together.
struct FromIds {
  Ids ids;
  __device__ Record operator()(int64_t i) const { return {ids.key(i), static_cast<int32_t>(i)}; }
};
struct FromList {
  const Record* list;
  __device__ Record operator()(int64_t i) const { return list[i]; }
};

// The sum of `value` over the threads before this one; `total` is the sum over all. The caller's next use of `shared`
// (one word a warp) needs a barrier in between.
__device__ uint64_t sum_before(uint64_t value, uint64_t* shared, uint64_t* total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) shared[warp] = sum;
  __syncthreads();
  uint64_t before = 0, all = 0;
#pragma unroll
  for (int i = 0; i < kSortWarps; ++i) {
    if (i < warp) before += shared[i];
    all += shared[i];
  }
  *total = all;
  return before + sum - value;
}

// counts[digit][tile]
template <class Source>
__global__ void __launch_bounds__(kSortThreads)
    count_digits(Source source, int64_t n, Digit digit, int64_t tiles, uint32_t* counts) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  uint32_t* histogram = reinterpret_cast<uint32_t*>(shared_bytes);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    for (uint32_t i = threadIdx.x; i < digit.count(); i += kSortThreads) histogram[i] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kSortItems; ++j) {
      const int64_t i = tile * kSortTile + j * kSortThreads + threadIdx.x;
      const uint32_t value = digit.of(source(i < n ? i : n - 1).key);
      if (i < n) atomicAdd(&histogram[value], 1u);
    }
    __syncthreads();
    // The next round clears what the same thread reads here.
    for (uint32_t i = threadIdx.x; i < digit.count(); i += kSortThreads) counts[i * tiles + tile] = histogram[i];
  }
}

// Replaces each digit's counts by the sums over the tiles before, one block a digit, and keeps the digit's total.
__global__ void __launch_bounds__(kSortThreads) sum_counts(int64_t tiles, uint32_t* counts, uint32_t* totals) {
  __shared__ uint64_t shared[kSortWarps];
  uint32_t* mine = counts + blockIdx.x * tiles;
  uint64_t sum = 0;
  for (int64_t first = 0; first < tiles; first += kSortThreads) {
    const int64_t tile = first + threadIdx.x;
    uint64_t total;
    const uint64_t before = sum_before(tile < tiles ? mine[tile] : 0, shared, &total);
    if (tile < tiles) mine[tile] = static_cast<uint32_t>(sum + before);
    sum += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = static_cast<uint32_t>(sum);
}

// What a block of move_records keeps in shared memory.
struct SortTables {
  Record* staged;     // [kSortTile]: the tile in the order of its digits
  uint32_t* start;    // [digits]: where a digit begins in `staged`
  uint32_t* place;    // [digits]: what to add, modulo 2^32, to an index of `staged` for the index of the list
  uint32_t* all;      // [digits]: records of a digit in the whole list
  uint16_t* earlier;  // [kSortWarps][digits]: records of a digit in earlier warps of the tile

  __device__ SortTables(unsigned char* bytes, uint32_t digits) {
    staged = reinterpret_cast<Record*>(bytes);
    start = reinterpret_cast<uint32_t*>(staged + kSortTile);
    place = start + digits;
    all = place + digits;
    earlier = reinterpret_cast<uint16_t*>(all + digits);
  }
  static size_t bytes(uint32_t digits) { return kSortTile * sizeof(Record) + digits * (12 + 2 * kSortWarps); }
};

// Fills start, place and earlier from the warps' counts, which `earlier` holds. A thread takes consecutive digits; the
// two sums over digits, of records in the tile and in the list, share one 64-bit word.
__device__ void place_digits(const SortTables& tables, Digit digit, int64_t tile, int64_t tiles, const uint32_t* counts,
                             const uint32_t* totals, uint64_t* shared) {
  const uint32_t digits = digit.count();
  const uint32_t each = (digits + kSortThreads - 1) / kSortThreads;
  const uint32_t first = threadIdx.x * each, end = first + each < digits ? first + each : digits;
  uint64_t sums = 0;
  for (uint32_t i = first; i < end; ++i) {
    uint32_t in_tile = 0;
#pragma unroll
    for (int warp = 0; warp < kSortWarps; ++warp) {
      const uint16_t count = tables.earlier[warp * digits + i];
      tables.earlier[warp * digits + i] = static_cast<uint16_t>(in_tile);
      in_tile += count;
    }
    uint32_t before = 0, all = 0;
    if (tiles > kFewTiles) {
      before = counts[i * tiles + tile];
      all = totals[i];
    } else if (tiles > 1) {
#pragma unroll 4
      for (int64_t other = 0; other < tiles; ++other) {
        const uint32_t count = counts[i * tiles + other];
        before += other < tile ? count : 0;
        all += count;
      }
    } else {
      all = in_tile;
    }
    tables.start[i] = in_tile;
    tables.place[i] = before;
    tables.all[i] = all;
    sums += static_cast<uint64_t>(all) << 32 | in_tile;
  }
  uint64_t total;
  sums = sum_before(sums, shared, &total);
  for (uint32_t i = first; i < end; ++i) {
    const uint32_t in_tile = tables.start[i], start = static_cast<uint32_t>(sums);
    tables.start[i] = start;
    tables.place[i] += static_cast<uint32_t>(sums >> 32) - start;
    sums += static_cast<uint64_t>(tables.all[i]) << 32 | in_tile;
  }
}

// Moves every record to its place among all records of its digit, in the order in which they come.
template <class Source>
__global__ void __launch_bounds__(kSortThreads)
    move_records(Source source, int64_t n, Digit digit, int64_t tiles, const uint32_t* counts, const uint32_t* totals,
                 Record* list) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  __shared__ uint64_t shared_sums[kSortWarps];
  const uint32_t digits = digit.count();
  const SortTables tables(shared_bytes, digits);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint16_t* mine = tables.earlier + warp * digits;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    for (uint32_t i = lane; i < digits; i += 32) mine[i] = 0;
    __syncwarp();
    // A warp takes 32 records after 32 records, so that its counts give each record its rank among its equals.
    const int64_t first = tile * kSortTile + warp * (32 * kSortItems) + lane;
    Record records[kSortItems];
    uint32_t ranks[kSortItems];
#pragma unroll
    for (int j = 0; j < kSortItems; ++j) {
      const int64_t i = first + j * 32;
      records[j] = source(i < n ? i : n - 1);
    }
#pragma unroll
    for (int j = 0; j < kSortItems; ++j) {
      const bool valid = first + j * 32 < n;
      const uint32_t value = valid ? digit.of(records[j].key) : digits;
      const uint32_t equals = __match_any_sync(0xffffffffu, value);
      const uint32_t lower = __popc(equals & ((1u << lane) - 1));
      const uint32_t before = valid ? mine[value] : 0;
      __syncwarp();
      if (valid && lower == 0) mine[value] = static_cast<uint16_t>(before + __popc(equals));
      __syncwarp();
      ranks[j] = before + lower;
    }
    __syncthreads();
    place_digits(tables, digit, tile, tiles, counts, totals, shared_sums);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kSortItems; ++j) {
      if (first + j * 32 >= n) continue;
      const uint32_t value = digit.of(records[j].key);
      tables.staged[tables.start[value] + mine[value] + ranks[j]] = records[j];
    }
    __syncthreads();
    // Neighbours in the tile's order are neighbours in the list, so whole runs are written.
    const int64_t left = n - tile * kSortTile;
    const uint32_t filled = left < kSortTile ? static_cast<uint32_t>(left) : kSortTile;
    for (uint32_t i = threadIdx.x; i < filled; i += kSortThreads) {
      const Record record = tables.staged[i];
      list[tables.place[digit.of(record.key)] + i] = record;
    }
    __syncthreads();
  }
}

class Sorter {
 public:
  Sorter(const Problem& p, WorkspaceLayout& layout, void* workspace) : n_(p.n) {
    int32_t key_bits = 0;
    while (key_bits < 31 && p.num_segments >> key_bits != 0) ++key_bits;
    passes_ = key_bits > 0 ? (key_bits + kMaxDigitBits - 1) / kMaxDigitBits : 1;
    digit_bits_ = (key_bits + passes_ - 1) / passes_;
    tiles_ = (n_ + kSortTile - 1) / kSortTile;
    for (Record*& list : lists_) list = workspace_array<Record>(workspace, layout.reserve<Record>(n_));
    const int64_t counted = tiles_ > 1 ? tiles_ : 0;
    counts_ = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(counted << digit_bits_));
    totals_ = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(int64_t{1} << digit_bits_));
  }

  // The rows in the order of their segments; those without one come last.
  const Record* list() const { return lists_[(passes_ - 1) % 2]; }

  Status enqueue(const Ids& ids, Stream stream) const {
    BARACUDA_RETURN_IF_FAILED(enqueue_pass(0, FromIds{ids}, stream));
    for (int32_t pass = 1; pass < passes_; ++pass) {
      BARACUDA_RETURN_IF_FAILED(enqueue_pass(pass, FromList{lists_[(pass - 1) % 2]}, stream));
    }
    return Status::kOk;
  }

 private:
  template <class Source>
  Status enqueue_pass(int32_t pass, Source source, Stream stream) const {
    const Digit digit{pass * digit_bits_, digit_bits_};
    const uint32_t blocks = blocks_for(tiles_, 1);
    if (tiles_ > 1) {
      BARACUDA_RETURN_IF_FAILED(launch_kernel("segment sort count kernel", count_digits<Source>, blocks, kSortThreads,
                                              digit.count() * sizeof(uint32_t), stream, source, n_, digit, tiles_,
                                              counts_));
    }
    if (tiles_ > kFewTiles) {
      BARACUDA_RETURN_IF_FAILED(launch_kernel("segment sort sum kernel", sum_counts, digit.count(), kSortThreads, 0,
                                              stream, tiles_, counts_, totals_));
    }
    return launch_kernel("segment sort move kernel", move_records<Source>, blocks, kSortThreads,
                         SortTables::bytes(digit.count()), stream, source, n_, digit, tiles_, counts_, totals_,
                         lists_[pass % 2]);
  }

  int64_t n_;
  int32_t passes_, digit_bits_;
  int64_t tiles_;
  Record* lists_[2];
  uint32_t* counts_;
  uint32_t* totals_;
};

}  // namespace
}  // namespace baracuda::segment
