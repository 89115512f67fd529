// SPDX-License-Identifier: Apache-2.0
// The radix sort of few rows: one launch a digit, in which every block counts all ids itself.
#pragma once

#include "core/cuda_shared.cuh"
#include "core/integer_math.h"
#include "ops/segment/cuda/sort/digits.cuh"

namespace baracuda::segment {
namespace {

// Up to so many rows a block counts all ids in less time than a launch takes; 11 bits then spare a launch up to 2047
// segments, and take 48 KiB of shared memory.
constexpr int32_t kFewRows = 32768;
constexpr int kFewDigitBits = 11;

// Moves every record to its place among all records of its digit, in the order in which they come. A thread has one
// record, and every block counts all digits by itself, so that no other launch or block has to be waited for. If the
// digit is the whole key, the first block also writes where each key begins; `begins` is NULL otherwise.
template <class Source>
__global__ void __launch_bounds__(kSortThreads)
    move_few_records(Source source, int32_t n, Digit digit, int32_t num_segments, Record* list, int32_t* begins,
                     uint32_t* zeros, int64_t zero_count) {
  wait_for_kernel_before();
  let_kernel_after_start();
  unsigned char* const shared_bytes = dynamic_shared<unsigned char>();
  __shared__ uint64_t shared_sums[kSortWarps];
  const uint32_t digits = digit.count();
  uint32_t* before = reinterpret_cast<uint32_t*>(shared_bytes);  // [digits]: records in tiles before; then its place
  uint32_t* all = before + digits;                               // [digits]: records in this tile and later ones
  uint8_t* in_warp = reinterpret_cast<uint8_t*>(all + digits);   // [kSortWarps][digits]: at most 32
  const int warp = threadIdx.x / 32;
  const int32_t tile_begin = static_cast<int32_t>(blockIdx.x) * kSortThreads;
  const int64_t mine = tile_begin + static_cast<int32_t>(threadIdx.x);
  for (int64_t i = grid_thread(); i < zero_count; i += grid_threads()) zeros[i] = 0;
  const Record record = mine < n ? source(mine) : Record{kBeyond, 0};
  uint32_t* words = reinterpret_cast<uint32_t*>(shared_bytes);
  for (uint32_t i = threadIdx.x; i < digits * (2 + kSortWarps / 4); i += kSortThreads) words[i] = 0;
  __syncthreads();
  for (int32_t batch = threadIdx.x; batch < n; batch += kSortThreads * kMostItems) {
    int32_t keys[kMostItems];
#pragma unroll
    for (int j = 0; j < kMostItems; ++j) {
      const int32_t i = batch + j * kSortThreads;
      keys[j] = source.key(i < n ? i : n - 1);
    }
#pragma unroll
    for (int j = 0; j < kMostItems; ++j) {
      const int32_t i = batch + j * kSortThreads;
      if (i < n) atomicAdd((i < tile_begin ? before : all) + digit.of(keys[j]), 1u);
    }
  }
  const uint32_t values[1] = {digit.of(record.key)};
  int32_t ranks[1];
  rank_records<kFewDigitBits>(values, in_warp + warp * digits, ranks);
  __syncthreads();
  // A thread takes consecutive digits.
  const uint32_t each = groups_of<uint32_t>(digits, kSortThreads);
  const uint32_t from = threadIdx.x * each, to = from + each < digits ? from + each : digits;
  uint64_t sum = 0;
  for (uint32_t i = from; i < to; ++i) sum += before[i] + all[i];
  sum = sum_before(sum, shared_sums);
  for (uint32_t i = from; i < to; ++i) {
    const uint32_t begin = static_cast<uint32_t>(sum);
    sum += before[i] + all[i];
    before[i] += begin;
    if (begins != nullptr && blockIdx.x == 0 && i <= static_cast<uint32_t>(num_segments)) {
      begins[i] = static_cast<int32_t>(begin);
      if (i == static_cast<uint32_t>(num_segments)) begins[i + 1] = n;
    }
  }
  __syncthreads();
  if (mine >= n) return;
  uint32_t place = before[values[0]] + ranks[0];
  for (int i = 0; i < warp; ++i) place += in_warp[i * digits + values[0]];
  list[place] = record;
}

}  // namespace
}  // namespace baracuda::segment
