// SPDX-License-Identifier: Apache-2.0
// Sums of a bucket's rows in tables in shared memory. A block has a bucket, a warp a share of its segments: it adds
// these segments' rows in the order in which they come, so that no two warps meet in a sum.
#pragma once

#include "core/cuda_shared.cuh"
#include "ops/segment/cuda/call.cuh"
#include "ops/segment/cuda/elements/buckets.cuh"
#include "ops/segment/cuda/gate.cuh"

namespace baracuda::segment {
namespace {

// Segments of a block, and of a warp.
constexpr int kMostRangeBits = 13;
constexpr int kOwnerBits = 4;
static_assert(1 << kOwnerBits == kSortWarps);
constexpr int kOwnedBits = kMostRangeBits - kOwnerBits;
// Neighbouring segments have different owners, so that neighbours in demand keep all warps busy. An owner's sums stand
// side by side, and two words behind the owner's before them, so that those of neighbouring segments lie in different
// banks of shared memory.
constexpr int kOwnerGap = 2;
// Owners of a row's segment, and one for rows that the block does not sum.
constexpr int kSlotBits = kOwnerBits + 1;
constexpr int kSlots = 1 << kSlotBits;
static_assert(kSlots * kSortWarps == kSortThreads);
// A segment's rows since its last piece, and whether pieces were joined before.
constexpr uint32_t kPieceRowsMask = 0x7fff;
constexpr uint32_t kIsJoined = 0x8000;

template <class Tag>
struct SumTables {
  using T = typename Tag::Element;
  using Sum = typename Rule<Tag>::First;
  static constexpr int kItems = kFewElementItems<T>, kTile = kSortThreads * kItems;
  // Of the sums of a range of segments.
  static constexpr int places_of(int32_t range_bits) { return (1 << range_bits) + kSortWarps * kOwnerGap; }
  static constexpr size_t bytes(int32_t range_bits) {
    return places_of(range_bits) * (2 * sizeof(Sum) + sizeof(uint16_t)) +
           kTile * (sizeof(Bits<T>) + sizeof(uint16_t)) + kSlots * kSortWarps * sizeof(uint16_t);
  }
  Sum* sums;         // [places]: of the piece at hand
  Sum* joined;       // [places]: of the pieces before
  Bits<T>* values;   // [kTile]: an owner's rows beside one another
  uint16_t* counts;  // [places]
  uint16_t* locals;  // [kTile]: where in the tables a row's segment stands
  uint16_t* places;  // [kSortWarps][kSlots]: a warp's rows of an owner; then where they begin in the tile

  __device__ SumTables(unsigned char* memory, int32_t range_bits) {
    sums = reinterpret_cast<Sum*>(memory);
    joined = sums + places_of(range_bits);
    values = reinterpret_cast<Bits<T>*>(joined + places_of(range_bits));
    counts = reinterpret_cast<uint16_t*>(values + kTile);
    locals = counts + places_of(range_bits);
    places = locals + kTile;
  }
  // Where the segment of this number in the range stands.
  static __device__ __forceinline__ uint32_t place(uint32_t number, int32_t range_bits) {
    const uint32_t owner = number % kSortWarps;
    return owner * ((1u << (range_bits - kOwnerBits)) + kOwnerGap) + number / kSortWarps;
  }
};

// A segment's sum in registers while rows are added.
template <class Tag>
struct RunningSum {
  using Fold = Rule<Tag>;
  using T = typename Tag::Element;
  typename Fold::First sum{}, joined{};
  uint32_t count = 0;

  __device__ __forceinline__ void load(const SumTables<Tag>& tables, uint32_t local) {
    sum = tables.sums[local], count = tables.counts[local];
    if ((count & kIsJoined) != 0) joined = tables.joined[local];
  }
  __device__ __forceinline__ void store(const SumTables<Tag>& tables, uint32_t local) const {
    tables.sums[local] = sum, tables.counts[local] = static_cast<uint16_t>(count);
    if ((count & kIsJoined) != 0) tables.joined[local] = joined;
  }
  __device__ __forceinline__ void add(T x) {
    Nothing none;
    if ((count & kPieceRowsMask) == 1u << kLongPieceBits) {
      join();
      Fold::none(sum, none, 0);
      count = kIsJoined;
    }
    Fold::add(sum, none, x, x, 0);
    ++count;
  }
  // The piece at hand becomes one of those before.
  __device__ __forceinline__ void join() {
    Nothing none;
    if ((count & kIsJoined) == 0) {
      joined = sum;
    } else {
      Fold::join(joined, none, sum, none);
    }
  }
};

// Those of `lanes` whose place is the same, of places of one owner. By words: in this loop the predicates of
// lanes_with_equal would be more than there are.
__device__ __forceinline__ uint32_t lanes_with_same(uint32_t place, uint32_t lanes) {
#pragma unroll
  for (int bit = 0; bit < kOwnedBits; ++bit) {
    const uint32_t mine = place >> bit & 1;
    lanes &= __ballot_sync(kFullWarp, mine != 0) ^ (mine - 1);
  }
  return lanes;
}

// Adds the rows [begin, end) of the tile to the sums of their segments, of which this warp is the owner.
template <class Tag>
__device__ __forceinline__ void add_owned(const SumTables<Tag>& tables, int32_t begin, int32_t end) {
  using T = typename Tag::Element;
  const int32_t lane = threadIdx.x % 32;
  const uint32_t below = (1u << lane) - 1;
#pragma unroll 1
  for (int32_t first = begin; first < end; first += 32) {
    // Lanes beyond the end have the last row again, which is nobody's.
    const int32_t at = min(first + lane, end - 1);
    const uint32_t local = tables.locals[at];
    const Bits<T> value = tables.values[at];
    const uint32_t rows = kFullWarp >> max(first + 32 - end, 0);
    const uint32_t equals = lanes_with_same(local, rows);
    // The first lane of a segment adds the rows of all, in their order.
    const bool leads = (rows >> lane & 1) != 0 && (equals & below) == 0;
    uint32_t left = leads ? equals & (equals - 1) : 0;
    RunningSum<Tag> running;
    if (leads) {
      running.load(tables, local);
      running.add(bits_as<T>(value));
    }
    while (__any_sync(kFullWarp, left != 0)) {
      const Bits<T> other = __shfl_sync(kFullWarp, value, left != 0 ? __ffs(left) - 1 : lane);
      if (left != 0) {
        running.add(bits_as<T>(other));
        left &= left - 1;
      }
    }
    if (leads) running.store(tables, local);
    __syncwarp();
  }
}

// A tile of a bucket's rows, read before it is needed.
template <typename T>
struct BucketTile {
  static constexpr int kItems = kFewElementItems<T>;
  Bits<T> values[kItems];
  uint32_t locals[kItems];

  // Of at least one row. Beyond the end the first one again, as one that no block sums: loads without a condition are
  // issued together.
  __device__ __forceinline__ void load(const Bits<T>* from, const uint16_t* of, uint32_t begin, uint32_t end) {
    const uint32_t first = begin + threadIdx.x / 32 * (32 * kItems) + threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const uint32_t i = first + j * 32 < end ? first + j * 32 : begin;
      locals[j] = __ldcs(of + i), values[j] = __ldcs(from + i);
    }
#pragma unroll
    for (int j = 0; j < kItems; ++j) locals[j] |= first + j * 32 < end ? 0 : kNoLocal;
  }
};

// Registers for two blocks a multiprocessor.
template <class Tag>
__global__ void __launch_bounds__(kSortThreads, 2)
    sum_elements(Call<Tag> call, Buckets buckets, int32_t range_bits, BucketWords words,
                 const Bits<typename Tag::Element>* values, const uint16_t* locals) {
  using Fold = Rule<Tag>;
  using T = typename Tag::Element;
  wait_for_kernel_before();
  let_kernel_after_start();
  if (*words.taken == 0) return;
  constexpr int kItems = SumTables<Tag>::kItems, kTile = SumTables<Tag>::kTile;
  __shared__ uint64_t shared_sums[kSortWarps];
  __shared__ uint16_t owner_begins[kSlots];
  const SumTables<Tag> tables(dynamic_shared<unsigned char>(), range_bits);
  const int32_t ranges = 1 << (buckets.local_bits - range_bits);
  const uint32_t bucket = blockIdx.x / ranges, range = blockIdx.x % ranges;
  const uint32_t warp = threadIdx.x / 32, end = words.starts[bucket + 1];
  uint16_t* const mine = tables.places + warp * kSlots;
  Nothing none;
  for (int32_t i = threadIdx.x; i < SumTables<Tag>::places_of(range_bits); i += kSortThreads) {
    Fold::none(tables.sums[i], none, 0);
    tables.counts[i] = 0;
  }
  uint32_t at = words.starts[bucket];
  BucketTile<T> tile;
  if (at < end) tile.load(values, locals, at, end);
#pragma unroll 1
  for (; at < end; at += kTile) {
    uint32_t slots[kItems];
    int32_t ranks[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const uint32_t local = tile.locals[j];
      const bool is_mine = local != kNoLocal && local >> range_bits == range;
      slots[j] = is_mine ? local % kSortWarps : kSortWarps;
    }
    mine[threadIdx.x % 32] = 0;
    __syncwarp();
    rank_records<kSlotBits>(slots, mine, ranks);
    __syncthreads();
    // A thread has a slot and a warp: first all warps' rows of the first slot, then those of the next one.
    uint16_t* const place = tables.places + threadIdx.x % kSortWarps * kSlots + threadIdx.x / kSortWarps;
    const uint16_t begin = static_cast<uint16_t>(sum_before(*place, shared_sums));
    *place = begin;
    if (threadIdx.x % kSortWarps == 0) owner_begins[threadIdx.x / kSortWarps] = begin;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      // Rows that the block does not sum come last, where nobody looks at them: so none needs a condition.
      const int32_t to = ranks[j] + mine[slots[j]];
      tables.values[to] = tile.values[j];
      const uint32_t number = tile.locals[j] & ((1u << range_bits) - 1);
      tables.locals[to] = static_cast<uint16_t>(SumTables<Tag>::place(number, range_bits));
    }
    const int32_t owned = owner_begins[warp], owned_end = owner_begins[warp + 1];
    __syncthreads();
    if (at + kTile < end) tile.load(values, locals, at + kTile, end);
    add_owned(tables, owned, owned_end);
  }
  __syncthreads();
  const int64_t first = static_cast<int64_t>(bucket) << buckets.local_bits | range << range_bits;
  for (int32_t i = threadIdx.x; i < 1 << range_bits && first + i < call.num_segments; i += kSortThreads) {
    RunningSum<Tag> running;
    running.load(tables, SumTables<Tag>::place(i, range_bits));
    T result = call.of_no_rows;
    if (running.count != 0) {
      running.join();
      result = Fold::output(running.joined, none, 1);
    }
    call.result[first + i] = result;
  }
}

}  // namespace
}  // namespace baracuda::segment
