// SPDX-License-Identifier: Apache-2.0
// Selecting from rows that are longer than shared memory: every pass reads them and counts the next digit of those keys
// that begin with the digits that are known.
#pragma once

#include "ops/order/cuda/select_rows.cuh"

namespace baracuda::order {
namespace {

constexpr int kLongThreads = 512;

// Of a row; zeros before the first pass.
struct alignas(16) RowState {
  uint64_t digits[kDigits];
  uint64_t nans, prefix, rank;
  uint64_t found;  // the row's length less the lowest place, 0 before one is found
  int32_t shift;   // of the prefix
  int32_t is_known;  // whether one key alone has the prefix
};

template <typename T>
__global__ void __launch_bounds__(kLongThreads)
    count_digits(const __grid_constant__ Problem p, const __grid_constant__ SelectionBuffers<T> b,
                 const __grid_constant__ Parts parts, RowState* states, int shift) {
  using W = Word<T>;
  constexpr int kFirst = kKeyBits<T> - kDigitBits;
  __shared__ uint32_t digits[kDigits];
  __shared__ uint32_t nans_of_all;
  wait_for_kernel_before();
  for (int64_t number = blockIdx.x; number < parts.tasks; number += gridDim.x) {
    const Task task(p, parts, 0, number);
    RowState& state = states[task.row];
    if (state.is_known != 0) continue;
    const W prefix = static_cast<W>(state.prefix);
    for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kLongThreads) digits[i] = 0;
    if (threadIdx.x == 0) nans_of_all = 0;
    __syncthreads();
    uint32_t nans = 0;
    for_keys<T, int64_t>(b.input + begin_of(p, task.row), p.inner, task.begin + threadIdx.x, task.end, kLongThreads,
             [&](int64_t, W key) {
               const W upto = key >> shift;
               if (shift == kFirst || upto >> kDigitBits == prefix) atomicAdd(digits + (upto & (kDigits - 1)), 1u);
               nans += kIsFloat<T> && shift == kFirst && key == kLastKey<T>;
             });
    if (nans > 0) atomicAdd(&nans_of_all, nans);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kLongThreads) {
      if (digits[i] > 0) atomicAdd(as_atomic(state.digits + i), static_cast<unsigned long long>(digits[i]));
    }
    if (threadIdx.x == 0 && nans_of_all > 0) {
      atomicAdd(as_atomic(&state.nans), static_cast<unsigned long long>(nans_of_all));
    }
    __syncthreads();
  }
}

// A warp a row.
inline __global__ void __launch_bounds__(128)
    choose_digits(const __grid_constant__ Problem p, RowState* states, int shift, bool is_first) {
  wait_for_kernel_before();
  for (int64_t row = grid_thread() / 32; row < p.rows; row += grid_threads() / 32) {
    RowState& state = states[row];
    const bool is_known = state.is_known != 0;
    const uint64_t rank = is_first ? static_cast<uint64_t>(rank_of(p, static_cast<int64_t>(state.nans))) : state.rank;
    __syncwarp();
    if (is_known) continue;
    choose_digit(state.digits, rank, [&](int digit, uint64_t left, uint64_t candidates) {
      state.prefix = state.prefix << kDigitBits | static_cast<uint64_t>(digit);
      state.rank = left;
      state.shift = shift;
      state.is_known = candidates == 1;
    });
  }
}

template <typename T>
__global__ void __launch_bounds__(kLongThreads)
    find_places(const __grid_constant__ Problem p, const __grid_constant__ SelectionBuffers<T> b,
                const __grid_constant__ Parts parts, RowState* states) {
  using W = Word<T>;
  wait_for_kernel_before();
  for (int64_t number = blockIdx.x; number < parts.tasks; number += gridDim.x) {
    const Task task(p, parts, 0, number);
    RowState& state = states[task.row];
    const W prefix = static_cast<W>(state.prefix);
    const int shift = state.shift;
    int64_t lowest = p.length;
    for_keys<T, int64_t>(b.input + begin_of(p, task.row), p.inner, task.begin + threadIdx.x, task.end, kLongThreads,
             [&](int64_t place, W key) {
               if (key >> shift == prefix && place < lowest) lowest = place;
             });
    if (lowest < p.length) {
      atomicMax(as_atomic(&state.found), static_cast<unsigned long long>(p.length - lowest));
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(128)
    store_places(const __grid_constant__ Problem p, const __grid_constant__ SelectionBuffers<T> b,
                 const RowState* states) {
  wait_for_kernel_before();
  for (int64_t row = grid_thread(); row < p.rows; row += grid_threads()) {
    store(p, b, row, p.length - static_cast<int64_t>(states[row].found));
  }
}

}  // namespace
}  // namespace baracuda::order
