// SPDX-License-Identifier: Apache-2.0
// Moves of short rows: a lane reads one destination row whole, and a warp's rows, which are one stretch of the
// destination, are written as vectors by way of shared memory.
#pragma once

#include "ops/pad/cuda/rows.cuh"

namespace baracuda::pad {
namespace {

constexpr int kShortThreads = 128;
constexpr int kShortBlocks = 16;  // of a multiprocessor, hence 32 registers
constexpr int kWarp = 32;
// Rows of more than one vector and at most two, which are whole words of shared memory.
constexpr int32_t kBankBytes = 4;
constexpr int32_t kShortRowBytes = 2 * kVectorBytes;

struct ShortRows {
  uint32_t count;
  int32_t bytes;  // of one
  bool filled;    // whether some elements hold the value
};

template <typename Word>
bool find_short_rows(const Slice<Word>& s, ShortRows* rows) {
  const DeviceAxis& inner = s.axes[0];
  const int64_t bytes = int64_t{inner.extent.divisor} * static_cast<int64_t>(sizeof(Word));
  if (!s.compact || s.folds || s.head != 0 || inner.count == 0) return false;
  if (bytes <= kVectorBytes || bytes > kShortRowBytes || bytes % kBankBytes != 0) return false;
  *rows = {s.run_extent / inner.extent.divisor, static_cast<int32_t>(bytes), !is_filled_nowhere(s)};
  return true;
}

// Two vectors with the value outside the bytes [begin, end).
template <typename Word>
__device__ __forceinline__ void fill_outside(Word value, int32_t begin, int32_t end, uint4* row) {
  const uint4 filled = filled_with(value);
#pragma unroll
  for (int32_t v = 0; v < 2; ++v) {
    row[v] = joined(filled, row[v], begin - v * kVectorBytes);
    row[v] = joined(row[v], filled, end - v * kVectorBytes);
  }
}

// Puts row `number` where its words are written from.
template <typename Word>
__device__ __forceinline__ void stage_row(const Slice<Word>& s, const SourceVectors& vectors, const ShortRows& rows,
                                          uint32_t number, char* stage) {
  constexpr int32_t kBytes = sizeof(Word);
  const DeviceAxis& inner = s.axes[0];
  const CompactRow source = compact_row<false>(s, number);
  const int32_t begin = static_cast<int32_t>(inner.begin) * kBytes;
  const int32_t end = source.inside ? begin + static_cast<int32_t>(inner.count) * kBytes : begin;
  const int64_t at = vectors.begin + int64_t{source.source} * kBytes - begin;
  const int32_t shift = static_cast<int32_t>(at) & (kVectorBytes - 1);
  const int32_t first = static_cast<int32_t>(at >> kVectorShift);
  // Of the three vectors that the row may lie in only those that hold some of it are read.
  bool reads[3], readable = true;
#pragma unroll
  for (int32_t v = 0; v < 3; ++v) {
    const int32_t from = v * kVectorBytes - shift;
    reads[v] = max(begin, from) < min(end, from + kVectorBytes);
    const uint32_t among = static_cast<uint32_t>(first + v) - vectors.first;
    readable = readable && (vectors.all || !reads[v] || among < vectors.count);
  }
  if (!readable) {
#pragma unroll 1
    for (uint32_t k = 0; k < inner.extent.divisor; ++k) {
      const uint32_t offset = k - inner.begin;
      Word word = s.value;
      if (source.inside && offset < inner.count) {
        word = reinterpret_cast<const Word*>(s.source)[source.source + static_cast<int32_t>(offset)];
      }
      reinterpret_cast<Word*>(stage)[k] = word;
    }
    return;
  }
  uint4 loaded[3];
#pragma unroll
  for (int32_t v = 0; v < 3; ++v) loaded[v] = begin_load_if(vectors.base + first + v, reads[v]);
  uint4 row[2];
#pragma unroll
  for (int32_t v = 0; v < 2; ++v) row[v] = shifted(loaded[v], loaded[v + 1], static_cast<uint32_t>(shift));
  if (rows.filled) fill_outside(s.value, begin, end, row);
  if (rows.bytes == kShortRowBytes) {
    reinterpret_cast<uint4*>(stage)[0] = row[0];
    reinterpret_cast<uint4*>(stage)[1] = row[1];
    return;
  }
  const uint32_t words[] = {row[0].x, row[0].y, row[0].z, row[0].w, row[1].x, row[1].y, row[1].z};
#pragma unroll
  for (int32_t k = 0; k < kShortRowBytes / kBankBytes - 1; ++k) {
    if (k * kBankBytes < rows.bytes) reinterpret_cast<uint32_t*>(stage)[k] = words[k];
  }
}

template <typename Word>
__global__ void __launch_bounds__(kShortThreads, kShortBlocks)
    write_short_rows(const __grid_constant__ Slice<Word> s, const __grid_constant__ SourceVectors vectors,
                     const __grid_constant__ ShortRows rows) {
  __shared__ uint4 stages[kShortThreads * kShortRowBytes / kVectorBytes];
  const int32_t lane = static_cast<int32_t>(threadIdx.x % kWarp);
  const uint32_t warp_begin = threadIdx.x - threadIdx.x % kWarp;
  char* const stage = reinterpret_cast<char*>(stages) + warp_begin * kShortRowBytes;
  const uint32_t first = blockIdx.x * kShortThreads + warp_begin, number = first + threadIdx.x % kWarp;
  if (number < rows.count) stage_row(s, vectors, rows, number, stage + lane * rows.bytes);
  __syncwarp();
  if (first >= rows.count) return;
  const int32_t bytes = static_cast<int32_t>(min(rows.count - first, static_cast<uint32_t>(kWarp))) * rows.bytes;
  char* const to = s.destination + static_cast<int64_t>(first) * rows.bytes;
#pragma unroll
  for (int32_t round = 0; round < kShortRowBytes / kVectorBytes; ++round) {
    const int32_t at = (round * kWarp + lane) * kVectorBytes;
    if (at + kVectorBytes <= bytes) {
      *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(stage + at);
      continue;
    }
#pragma unroll 1
    for (int32_t k = at; k < bytes; k += kBankBytes) {
      *reinterpret_cast<uint32_t*>(to + k) = *reinterpret_cast<const uint32_t*>(stage + k);
    }
  }
}

}  // namespace
}  // namespace baracuda::pad
