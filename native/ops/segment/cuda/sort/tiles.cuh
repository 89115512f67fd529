// SPDX-License-Identifier: Apache-2.0
// The radix sort of many rows: one launch counts all digits, then each digit takes one launch, in which a tile of
// records learns what the tiles before it hold by looking back at what they have published.
#pragma once

#include "core/cuda_shared.cuh"
#include "ops/segment/cuda/gate.cuh"
#include "ops/segment/cuda/sort/digits.cuh"

namespace baracuda::segment {
namespace {

// Of 16 records a thread a tile takes 82 KiB of shared memory, of 8 it takes 50, which all devices have.
constexpr int kItemsAnywhere = 8;
// Blocks that count on a multiprocessor at the same time.
constexpr int kCountBlocks = 3;
// States that a thread reads at once as it looks back: several steps are in flight, few are read in vain.
constexpr int kLookBack = 8;

// What the tiles publish about a digit: first one more than the records that it has in the tile, then the records up to
// the tile's end, with the top bit. 0 is nothing yet. The first tile publishes the second kind at once.
constexpr uint32_t kUpToEnd = 0x80000000u;

struct LookBack {
  uint32_t* ticket;   // [1]: the next tile, so that the tiles before have been begun and will publish
  uint32_t* states;   // [tiles][digits]: less than 2^29, for tiles are short in short lists alone
};

// totals[pass][digit], which holds zeros; also clears what the passes publish in, `state_quads` times 16 bytes.
template <int kItems, class Source>
__global__ void __launch_bounds__(kSortThreads)
    count_digits(Source source, int32_t n, int32_t digit_bits, int32_t passes, uint32_t* totals, uint4* states,
                 int64_t state_quads, Gate gate) {
  let_kernel_after_start();
  if (gate.is_closed()) return;
  constexpr int64_t kTile = kSortThreads * kItems;
  __shared__ uint32_t counts[kMaxPasses * kMostDigits];
  const int32_t digits = passes << digit_bits;
#pragma unroll 1
  for (int64_t i = grid_thread(); i < state_quads; i += grid_threads()) states[i] = make_uint4(0, 0, 0, 0);
  for (int32_t i = threadIdx.x; i < digits; i += kSortThreads) counts[i] = 0;
  __syncthreads();
  for (int64_t begin = blockIdx.x * kTile; begin < n; begin += gridDim.x * kTile) {
    if (n - begin >= kTile) {
      int32_t keys[kItems];
      source.template read_keys<kSortThreads>(begin + threadIdx.x, keys);
#pragma unroll 1
      for (int32_t pass = 0; pass < passes; ++pass) {
        const Digit digit{pass * digit_bits, digit_bits};
#pragma unroll
        for (int j = 0; j < kItems; ++j) atomicAdd(counts + (pass << digit_bits | digit.of(keys[j])), 1u);
      }
    } else {
#pragma unroll 1
      for (int64_t i = begin + threadIdx.x; i < n; i += kSortThreads) {
        const int32_t key = source.key(i);
        for (int32_t pass = 0; pass < passes; ++pass) {
          const Digit digit{pass * digit_bits, digit_bits};
          atomicAdd(counts + (pass << digit_bits | digit.of(key)), 1u);
        }
      }
    }
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < digits; i += kSortThreads) {
    if (counts[i] != 0) atomicAdd(&totals[i], counts[i]);
  }
}

// How many records of this thread's digit the tiles before hold; there must be one.
__device__ __forceinline__ uint32_t look_back(const uint32_t* states, uint32_t tile, uint32_t digits) {
  uint32_t before = 0;
  const int32_t mine = threadIdx.x, step = digits;
  int32_t next = static_cast<int32_t>(tile) - 1;
  while ((before & kUpToEnd) == 0) {
    uint32_t seen[kLookBack];
#pragma unroll
    for (int k = 0; k < kLookBack; ++k) {
      const int32_t at = next * step + mine - k * step;
      seen[k] = *static_cast<const volatile uint32_t*>(states + (at > mine ? at : mine));
    }
    // Goes back from tile to tile without branches and adds what each has published, until a tile has published nothing
    // yet, which is asked again, or the sum up to its end, which is all that there is to know. The first tile publishes
    // nothing but such a sum: so it does no harm that where there are no more tiles before, the first is read again.
    const int32_t last = next;
    bool goes_on = true;
#pragma unroll
    for (int k = 0; k < kLookBack; ++k) {
      if (goes_on) before += seen[k];
      goes_on = goes_on && static_cast<int32_t>(seen[k]) > 0;
      if (goes_on) --next;
    }
    before -= last - next;
  }
  return before & ~kUpToEnd;
}

// What a block of move_records keeps in shared memory.
template <int kItems>
struct SortTables {
  static constexpr int kTile = kSortThreads * kItems;
  static constexpr size_t kBytes = kTile * sizeof(Record) + kMostDigits * (4 + 2 * kSortWarps);
  Record* staged;    // [kTile]: the tile in the order of its digits
  int32_t* place;    // [digits]: what to add to an index of `staged` for the index of the list
  uint16_t* counts;  // [kSortWarps][kMostDigits]: a warp's records of a digit; then where they begin in `staged`

  explicit __device__ SortTables(unsigned char* bytes) {
    staged = reinterpret_cast<Record*>(bytes);
    place = reinterpret_cast<int32_t*>(staged + kTile);
    counts = reinterpret_cast<uint16_t*>(place + kMostDigits);
  }
};

// Moves every record to its place among all records of its digit, in the order in which they come.
template <int kItems, class Source>
__global__ void __launch_bounds__(kSortThreads, kItems > kItemsAnywhere ? 1 : 2)
    move_records(Source source, int32_t n, Digit digit, const uint32_t* totals, LookBack published, Record* list,
                 Gate gate) {
  let_kernel_after_start();
  // The word is older than the launch that counts.
  if (gate.is_closed()) {
    wait_for_kernel_before();
    return;
  }
  unsigned char* const shared_bytes = dynamic_shared<unsigned char>();
  __shared__ uint64_t shared_sums[kSortWarps];
  __shared__ uint32_t shared_tile;
  constexpr int kTile = SortTables<kItems>::kTile;
  const SortTables<kItems> tables(shared_bytes);
  const uint32_t warp = threadIdx.x / 32;
  uint16_t* mine = tables.counts + warp * kMostDigits;
  // The tickets and the ids are older than the launch that counts, which waited for all before it. So tiles are handed
  // out, and those of ids are ranked, while the launch before ends.
  if (threadIdx.x == 0) shared_tile = atomicAdd(published.ticket, 1u);
#pragma unroll
  for (int i = 0; i < kSortWarps * kMostDigits / 8; i += kSortThreads) {
    reinterpret_cast<uint4*>(tables.counts)[i + threadIdx.x] = make_uint4(0, 0, 0, 0);
  }
  if constexpr (Source::kIsList) wait_for_kernel_before();
  __syncthreads();
  const uint32_t tile = shared_tile;
  const int64_t begin = static_cast<int64_t>(tile) * kTile;
  const int32_t filled = n - begin < kTile ? static_cast<int32_t>(n - begin) : kTile;
  // A warp takes 32 records after 32 records, so that its counts give each record its rank among its equals.
  const int64_t first = begin + warp * (32 * kItems) + threadIdx.x % 32;
  Record records[kItems];
  if (filled == kTile) {
    source.read(first, records);
  } else {
    read_to_end(source, first, n, records);
  }
  uint32_t values[kItems];
  int32_t ranks[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) values[j] = digit.of(records[j].key);
  rank_records<kDigitBits>(values, mine, ranks);
  __syncthreads();

  // A thread has a digit from here on.
  const uint32_t digits = digit.count();
  const bool has_digit = threadIdx.x < digits;
  uint16_t* of_digit = tables.counts + threadIdx.x;
  volatile uint32_t* state = published.states + (tile * digits + threadIdx.x);
  uint32_t in_warps[kSortWarps], in_tile = 0, all = 0;
  if constexpr (!Source::kIsList) wait_for_kernel_before();
  if (has_digit) {
#pragma unroll
    for (int i = 0; i < kSortWarps; ++i) {
      in_warps[i] = of_digit[i * kMostDigits];
      in_tile += in_warps[i];
    }
    *state = tile == 0 ? in_tile | kUpToEnd : in_tile + 1;
    all = totals[threadIdx.x];
  }
  const uint64_t sums = sum_before(static_cast<uint64_t>(all) << 32 | in_tile, shared_sums);
  const int32_t start = static_cast<int32_t>(sums);
  if (has_digit) {
    uint32_t next = start;
#pragma unroll
    for (int i = 0; i < kSortWarps; ++i) {
      of_digit[i * kMostDigits] = static_cast<uint16_t>(next);
      next += in_warps[i];
    }
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kItems; ++j) ranks[j] += mine[values[j]];
#pragma unroll
  for (int j = 0; j < kItems; ++j) tables.staged[ranks[j]] = records[j];
  // By now the tiles before have published.
  if (has_digit) {
    uint32_t before = 0;
    if (tile > 0) {
      before = look_back(published.states, tile, digits);
      *state = (before + in_tile) | kUpToEnd;
    }
    tables.place[threadIdx.x] = static_cast<int32_t>(static_cast<uint32_t>(sums >> 32) + before) - start;
  }
  __syncthreads();
  // Neighbours in the tile's order are neighbours in the list, so whole runs are written.
  if (filled == kTile) {
#pragma unroll
    for (int j = 0; j < kItems; ++j) records[j] = tables.staged[threadIdx.x + j * kSortThreads];
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      list[tables.place[digit.of(records[j].key)] + static_cast<int32_t>(threadIdx.x) + j * kSortThreads] = records[j];
    }
  } else {
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < filled; i += kSortThreads) {
      const Record record = tables.staged[i];
      list[tables.place[digit.of(record.key)] + i] = record;
    }
  }
}

}  // namespace
}  // namespace baracuda::segment
