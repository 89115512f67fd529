// SPDX-License-Identifier: Apache-2.0
// The most frequent elements of rows whose keys do not fit shared memory: a part of a row is counted there, and its
// keys and counts go to the row's table in the workspace.
#pragma once

#include "ops/order/cuda/mode.cuh"

namespace baracuda::order {
namespace {

constexpr int kModeThreads = 512;
// Elements of a part, and slots for them.
constexpr int64_t kModePart = 3072;
constexpr uint32_t kPartSlots = 4096;

// Of a row beside its table; zeros before the first pass. What is looked for is large where it is least.
struct alignas(16) ModeState {
  unsigned long long best;   // the complement of the key
  unsigned long long found;  // the row's length less the lowest place
  uint32_t most, zeros;
};

// The rows of one pass: all of them, or so many that their tables fit.
template <class W>
struct ModeTables {
  W* keys;           // [rows, slots]
  uint32_t* counts;  // likewise
  ModeState* states;
  int64_t first_row, rows;
  uint32_t slots;

  __device__ Table<W> of(int64_t row) const {
    const int64_t begin = (row - first_row) * slots;
    return {keys + begin, counts + begin, slots};
  }
  __device__ ModeState& state(int64_t row) const { return states[row - first_row]; }
};

template <typename T>
__global__ void __launch_bounds__(kModeThreads)
    fill_tables(const __grid_constant__ Problem p, const __grid_constant__ ModeBuffers<T> b,
                const __grid_constant__ ModeTables<Word<T>> tables, int64_t parts) {
  using W = Word<T>;
  TableState& state = *dynamic_shared<TableState>();
  const Table<W> own = table_behind<W>(state, kPartSlots);
  for (int64_t task = blockIdx.x; task < tables.rows * parts; task += gridDim.x) {
    const int64_t row = tables.first_row + task / parts, begin = task % parts * kModePart;
    clear(own, threadIdx.x, kModeThreads);
    if (threadIdx.x == 0) state.zeros = 0;
    __syncthreads();
    count_keys(b.input + begin_of(p, row), p.inner, begin + threadIdx.x, at_most(begin + kModePart, p.length),
               kModeThreads, own, state);
    __syncthreads();
    const Table<W> table = tables.of(row);
    for (uint32_t i = threadIdx.x; i < kPartSlots; i += kModeThreads) {
      if (own.counts[i] > 0) table.count(own.keys[i], own.counts[i]);
    }
    if (threadIdx.x == 0 && state.zeros > 0) atomicAdd(&tables.state(row).zeros, state.zeros);
    __syncthreads();
  }
}

// The largest count of each row, or, once that is known, the least key that has it.
template <typename T, bool kHasMost>
__global__ void __launch_bounds__(kModeThreads)
    read_tables(const __grid_constant__ ModeTables<Word<T>> tables, int64_t parts) {
  using W = Word<T>;
  __shared__ Frequent<W> of_warps[kModeThreads / 32];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  for (int64_t task = blockIdx.x; task < tables.rows * parts; task += gridDim.x) {
    const int64_t row = tables.first_row + task / parts, begin = task % parts * kPart;
    const Table<W> table = tables.of(row);
    ModeState& state = tables.state(row);
    const uint32_t least = kHasMost ? state.most : 1;
    Frequent<W> own{0, static_cast<W>(~W{0})};
    if (begin == 0 && threadIdx.x == 0 && state.zeros >= least) own.join(state.zeros, 0);
    const int64_t end = at_most(begin + kPart, table.slots);
    for (int64_t i = begin + threadIdx.x; i < end; i += kModeThreads) {
      const uint32_t times = table.counts[i];
      if (times >= least && times > 0) own.join(times, kHasMost ? table.keys[i] : W{0});
    }
    for (int other = 16; other > 0; other /= 2) {
      const uint32_t times = __shfl_xor_sync(kFullWarp, own.times, other);
      own.join(times, __shfl_xor_sync(kFullWarp, own.key, other));
    }
    if (lane == 0) of_warps[warp] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < kModeThreads / 32; ++i) own.join(of_warps[i].times, of_warps[i].key);
      if (own.times > 0 && kHasMost) atomicMax(&state.best, ~static_cast<unsigned long long>(own.key));
      if (own.times > 0 && !kHasMost) atomicMax(&state.most, own.times);
    }
    __syncthreads();
  }
}

template <typename T>
__global__ void __launch_bounds__(kModeThreads)
    find_modes(const __grid_constant__ Problem p, const __grid_constant__ ModeBuffers<T> b,
               const __grid_constant__ ModeTables<Word<T>> tables, const __grid_constant__ Parts parts) {
  for (int64_t number = blockIdx.x; number < parts.tasks; number += gridDim.x) {
    const Task task(p, parts, tables.first_row, number);
    ModeState& state = tables.state(task.row);
    // Without a count there are NaNs alone.
    const Word<T> best = state.most > 0 ? static_cast<Word<T>>(~state.best) : kLastKey<T>;
    int64_t lowest = p.length;
    for_keys<T, int64_t>(b.input + begin_of(p, task.row), p.inner, task.begin + threadIdx.x, task.end, kModeThreads,
             [&](int64_t place, Word<T> key) {
               if (key == best && place < lowest) lowest = place;
             });
    if (lowest < p.length) atomicMax(&state.found, static_cast<unsigned long long>(p.length - lowest));
  }
}

template <typename T>
__global__ void __launch_bounds__(128)
    store_modes(const __grid_constant__ Problem p, const __grid_constant__ ModeBuffers<T> b,
                const __grid_constant__ ModeTables<Word<T>> tables) {
  for (int64_t i = grid_thread(); i < tables.rows; i += grid_threads()) {
    store(p, b, tables.first_row + i, p.length - static_cast<int64_t>(tables.states[i].found));
  }
}

}  // namespace
}  // namespace baracuda::order
