// SPDX-License-Identifier: Apache-2.0
// Counting the elements of a row in a table of keys: whichever slots keys come to, the same counts come out, and the
// most frequent key follows from these.
#pragma once

#include "core/cuda_shared.cuh"
#include "ops/order/cuda/rows.cuh"
#include "ops/order/launch.h"

namespace baracuda::order {
namespace {

// Slots of a key and its count; a slot whose key is 0 is free, and keys of 0 are counted apart.
template <class W>
struct Table {
  W* keys;
  uint32_t* counts;
  uint32_t slots;

  // Where the search for a key begins: the highest bits of its product with 2^32, or 2^64, divided by the golden ratio.
  __device__ uint32_t first_slot(W key) const {
    uint32_t hash;
    if constexpr (sizeof(W) == 8) {
      hash = static_cast<uint32_t>(key * 0x9e3779b97f4a7c15ull >> 32);
    } else {
      hash = key * 0x9e3779b1u;
    }
    return __umulhi(hash, slots);
  }

  // There is a free slot.
  __device__ void count(W key, uint32_t times) const {
    for (uint32_t slot = first_slot(key);; slot = slot + 1 == slots ? 0 : slot + 1) {
      W found = *const_cast<volatile W*>(keys + slot);
      if (found == 0) {
        using A = std::remove_pointer_t<decltype(as_atomic(keys))>;
        found = static_cast<W>(atomicCAS(as_atomic(keys + slot), A{0}, static_cast<A>(key)));
      }
      if (found == 0 || found == key) {
        atomicAdd(counts + slot, times);
        return;
      }
    }
  }
};

// The larger count, and of equal ones the smaller key.
template <class W>
struct Frequent {
  uint32_t times;
  W key;
  __device__ void join(uint32_t other_times, W other) {
    if (other_times > times || (other_times == times && other < key)) times = other_times, key = other;
  }
};

// A key counts unless it is a NaN's, which is equal to nothing and the most frequent only of NaNs.
template <typename T>
__device__ __forceinline__ bool is_counted(Word<T> key) {
  return !kIsFloat<T> || key != kLastKey<T>;
}

// Beside a table in shared memory. `best` is the key once `most` is known.
struct alignas(16) TableState {
  uint64_t best;
  uint32_t most, zeros, place;
};

// Counts a row's part in a table in shared memory; all threads of the group call it, with zeros in the table.
template <typename T>
__device__ __forceinline__ void count_keys(const T* from, int64_t inner, int64_t first, int64_t end, int64_t step,
                                           const Table<Word<T>>& table, TableState& state) {
  uint32_t zeros = 0;
  for_keys<T, int64_t>(from, inner, first, end, step, [&](int64_t, Word<T> key) {
    if (key == 0) {
      ++zeros;
    } else if (is_counted<T>(key)) {
      table.count(key, 1);
    }
  });
  if (zeros > 0) atomicAdd(&state.zeros, zeros);
}

// Table of a group's in shared memory: state, keys, counts.
template <class W>
inline int64_t table_bytes(int64_t slots) {
  return ceil_div(static_cast<int64_t>(sizeof(TableState)) + slots * static_cast<int64_t>(sizeof(W) + 4), 16) * 16;
}
template <class W>
__device__ __forceinline__ Table<W> table_behind(TableState& state, uint32_t slots) {
  W* const keys = reinterpret_cast<W*>(&state + 1);
  return {keys, reinterpret_cast<uint32_t*>(keys + slots), slots};
}
template <class W>
__device__ __forceinline__ void clear(const Table<W>& table, uint32_t lane, uint32_t lanes) {
  for (uint32_t i = lane; i < table.slots; i += lanes) table.keys[i] = 0, table.counts[i] = 0;
}

template <typename T, int kGroup, int kThreads>
__global__ void __launch_bounds__(kThreads)
    mode_of_rows(const __grid_constant__ Problem p, const __grid_constant__ ModeBuffers<T> b, uint32_t slots,
                 uint32_t row_bytes) {
  using W = Word<T>;
  const uint32_t group = threadIdx.x / kGroup, lane = threadIdx.x % kGroup;
  TableState& state = *reinterpret_cast<TableState*>(dynamic_shared<char>() + group * row_bytes);
  const Table<W> table = table_behind<W>(state, slots);
  constexpr int kGroups = kThreads / kGroup;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kGroups + group; row < p.rows;
       row += static_cast<int64_t>(gridDim.x) * kGroups) {
    clear(table, lane, kGroup);
    if (lane == 0) state = TableState{kLastKey<T>, 0, 0, UINT32_MAX};
    meet<kGroup>();
    const T* const from = b.input + begin_of(p, row);
    count_keys(from, p.inner, lane, p.length, kGroup, table, state);
    meet<kGroup>();
    Frequent<W> own{0, kLastKey<T>};
    if (lane == 0) own.join(state.zeros, 0);
    for (uint32_t i = lane; i < slots; i += kGroup) {
      if (table.counts[i] > 0) own.join(table.counts[i], table.keys[i]);
    }
    if (own.times > 0) atomicMax(&state.most, own.times);
    meet<kGroup>();
    if (own.times > 0 && own.times == state.most) {
      atomicMin(as_atomic(&state.best), static_cast<unsigned long long>(own.key));
    }
    meet<kGroup>();
    const W best = static_cast<W>(state.best);
    for (int64_t i = lane; i < p.length; i += kGroup) {
      if (key_of(from[i * p.inner]) == best) {
        atomicMin(&state.place, static_cast<uint32_t>(i));
        break;
      }
    }
    meet<kGroup>();
    if (lane == 0) store(p, b, row, state.place);
  }
}

// Rows of at most 32 elements, whose lanes see which others are equal.
template <typename T>
__global__ void __launch_bounds__(256)
    mode_of_short_rows(const __grid_constant__ Problem p, const __grid_constant__ ModeBuffers<T> b, int width,
                       int64_t padded_rows) {
  using W = Word<T>;
  const ShortRows rows(width);
  const int64_t step = grid_threads() / width;
  for (int64_t row = rows.row(); row < padded_rows; row += step) {
    const bool is_there = row < p.rows && rows.place < p.length;
    const W key = is_there ? key_of(b.input[begin_of(p, row) + rows.place * p.inner]) : W{0};
    const uint32_t present = __ballot_sync(kFullWarp, is_there) & rows.lanes;
    const uint32_t equals = __match_any_sync(kFullWarp, key) & present;
    Frequent<W> best{0, key};
    if (is_there) best.times = is_counted<T>(key) ? static_cast<uint32_t>(__popc(equals)) : 1;
    for (int other = width / 2; other > 0; other /= 2) {
      const uint32_t times = __shfl_xor_sync(kFullWarp, best.times, other);
      best.join(times, __shfl_xor_sync(kFullWarp, best.key, other));
    }
    if (is_there && key == best.key && rows.lane == __ffs(static_cast<int>(equals)) - 1) store(p, b, row, rows.place);
  }
}

}  // namespace
}  // namespace baracuda::order
