// SPDX-License-Identifier: Apache-2.0
// Selecting from rows whose keys stand in shared memory, so that a row is read once: their digits are counted from the
// highest on, and a key counts on as long as it begins with the digits that are known.
#pragma once

#include "core/cuda_shared.cuh"
#include "ops/order/cuda/rows.cuh"
#include "ops/order/launch.h"

namespace baracuda::order {
namespace {

// A digit, and what is left of the keys that have it.
struct Chosen {
  uint32_t digit, rank, candidates;
};

struct alignas(16) RowCounts {
  uint32_t digits[kDigits];
  Chosen chosen;
  uint32_t nans;
  uint32_t place;
  uint32_t unused[3];
};

// By a whole warp: calls use(digit, rank, count) in one lane, with the digit of the key with a rank, the key's rank
// among those that have the digit, and how many have it. The counts, which begin at 16 bytes, become 0.
template <typename Count, class Use>
__device__ __forceinline__ void choose_digit(Count* digits, uint64_t rank, const Use& use) {
  constexpr int kLanes = 16 / static_cast<int>(sizeof(Count)), kOwn = kDigits / 32;
  struct alignas(16) Vector {
    Count lanes[kLanes];
  };
  const int lane = static_cast<int>(threadIdx.x % 32);
  Vector* const mine = reinterpret_cast<Vector*>(digits + lane * kOwn);
  Vector own[kOwn / kLanes];
  uint64_t sum = 0;
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    if (j % kLanes == 0) {
      own[j / kLanes] = mine[j / kLanes];
      mine[j / kLanes] = Vector{};
    }
    sum += own[j / kLanes].lanes[j % kLanes];
  }
  uint64_t upto = sum;
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t before = __shfl_up_sync(kFullWarp, upto, distance);
    if (lane >= distance) upto += before;
  }
  uint64_t before = upto - sum;
  if (rank < before || rank >= upto) return;
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    const Count count = own[j / kLanes].lanes[j % kLanes];
    if (rank >= before && rank < before + count) use(lane * kOwn + j, rank - before, count);
    before += count;
  }
}

// Rows of more than 32 elements; kGroup threads see to one, and `row_bytes` are those of its counts and keys.
template <typename T, int kGroup, int kThreads>
__global__ void __launch_bounds__(kThreads)
    select_rows(const __grid_constant__ Problem p, const __grid_constant__ SelectionBuffers<T> b, uint32_t row_bytes) {
  using W = Word<T>;
  const uint32_t group = threadIdx.x / kGroup, lane = threadIdx.x % kGroup;
  RowCounts& counts = *reinterpret_cast<RowCounts*>(dynamic_shared<char>() + group * row_bytes);
  W* const keys = reinterpret_cast<W*>(&counts + 1);
  const uint32_t length = static_cast<uint32_t>(p.length);
  for (uint32_t i = lane; i < kDigits; i += kGroup) counts.digits[i] = 0;
  constexpr int kGroups = kThreads / kGroup;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kGroups + group; row < p.rows;
       row += static_cast<int64_t>(gridDim.x) * kGroups) {
    if (lane == 0) counts.nans = 0, counts.place = UINT32_MAX;
    meet<kGroup>();
    int shift = kKeyBits<T> - kDigitBits;
    uint32_t nans = 0;
    for_keys<T, uint32_t>(b.input + begin_of(p, row), p.inner, lane, length, kGroup, [&](uint32_t place, W key) {
      keys[place] = key;
      atomicAdd(counts.digits + (key >> (kKeyBits<T> - kDigitBits)), 1u);
      nans += kIsFloat<T> && key == kLastKey<T>;
    });
    if (nans > 0) atomicAdd(&counts.nans, nans);
    meet<kGroup>();
    uint32_t rank = static_cast<uint32_t>(rank_of(p, counts.nans));
    W prefix = 0;
    for (;;) {
      if (lane < 32) {
        choose_digit(counts.digits, rank, [&](int digit, uint64_t left, uint32_t candidates) {
          counts.chosen = Chosen{static_cast<uint32_t>(digit), static_cast<uint32_t>(left), candidates};
        });
      }
      meet<kGroup>();
      const Chosen chosen = counts.chosen;
      prefix = static_cast<W>(prefix << kDigitBits) | chosen.digit;
      rank = chosen.rank;
      if (shift == 0 || chosen.candidates == 1) break;
      for (uint32_t i = lane; i < length; i += kGroup) {
        const W upto = keys[i] >> (shift - kDigitBits);
        if (upto >> kDigitBits == prefix) atomicAdd(counts.digits + (upto & (kDigits - 1)), 1u);
      }
      shift -= kDigitBits;
      meet<kGroup>();
    }
    for (uint32_t i = lane; i < length; i += kGroup) {
      if (keys[i] >> shift == prefix) {
        atomicMin(&counts.place, i);
        break;
      }
    }
    meet<kGroup>();
    if (lane == 0) store(p, b, row, counts.place);
  }
}

// Rows of at most 32 elements, of which each is compared with all.
template <typename T>
__global__ void __launch_bounds__(256)
    select_short_rows(const __grid_constant__ Problem p, const __grid_constant__ SelectionBuffers<T> b, int width,
                      int64_t padded_rows) {
  using W = Word<T>;
  const ShortRows rows(width);
  const int64_t step = grid_threads() / width;
  const int length = static_cast<int>(p.length), first = rows.lane - rows.place;
  for (int64_t row = rows.row(); row < padded_rows; row += step) {
    const bool is_there = row < p.rows && rows.place < length;
    const W key = is_there ? key_of(b.input[begin_of(p, row) + rows.place * p.inner]) : W{0};
    int nans = 0, less = 0, equal = 0;
    if (counts_nans<T>(p)) nans = __popc(__ballot_sync(kFullWarp, is_there && key == kLastKey<T>) & rows.lanes);
    for (int other = 0; other < length; ++other) {
      const W others = __shfl_sync(kFullWarp, key, first + other);
      less += others < key;
      equal += others == key;
    }
    const int rank = static_cast<int>(rank_of(p, nans));
    const bool has_rank = is_there && rank >= less && rank < less + equal;
    const uint32_t equals = __ballot_sync(kFullWarp, has_rank) & rows.lanes;
    if (has_rank && rows.lane == __ffs(static_cast<int>(equals)) - 1) store(p, b, row, rows.place);
  }
}

}  // namespace
}  // namespace baracuda::order
