// SPDX-License-Identifier: Apache-2.0
// Moves of compact slices: rows are found in 32 bits, and a vector that holds an edge is put together from two shifted
// pieces by masks, or word by word where edges fold, without a path of its own that all lanes of a warp would wait for.
#pragma once

#include "ops/pad/cuda/slice.cuh"

namespace baracuda::pad {
namespace {

constexpr int kFillThreads = 256;
constexpr int kFillBlocks = 8;  // of a multiprocessor, hence 32 registers
constexpr int kFoldThreads = 128;
constexpr int kFoldBlocks = 12;  // of a multiprocessor, hence 40 registers
constexpr int kVectorShift = 4;
static_assert(1 << kVectorShift == kVectorBytes);

// The source as aligned vectors: numbers count from the vector that holds the first byte that may be read.
struct SourceVectors {
  const uint4* base;
  int64_t begin;          // from base to the place 0, in bytes
  uint32_t first, count;  // those that may be read whole
  bool all;               // whether all that hold something are among them
};

template <typename Word>
SourceVectors source_vectors(const Slice<Word>& s) {
  SourceVectors vectors{};
  const uint64_t begin = reinterpret_cast<uint64_t>(s.source) + static_cast<uint64_t>(s.readable_begin);
  const int64_t skip = static_cast<int64_t>(begin % kVectorBytes);
  const int64_t last = (skip + s.readable_end - s.readable_begin) / kVectorBytes;
  vectors.base = reinterpret_cast<const uint4*>(s.source + (s.readable_begin - skip));
  vectors.begin = skip - s.readable_begin;
  vectors.first = skip > 0;
  vectors.count = last > vectors.first ? static_cast<uint32_t>(last - vectors.first) : 0;
  vectors.all = skip == 0 && (s.readable_end - s.readable_begin) % kVectorBytes == 0;
  return vectors;
}

// Writes a vector that reaches beyond the destination's ends, or for which no whole vectors may be read. Not inlined:
// what its loop needs would be made ready by every thread.
template <bool kFolds, typename Word>
__device__ __noinline__ void write_words(const Slice<Word>& s, int32_t first) {
  constexpr int32_t kWords = kVectorBytes / sizeof(Word);
  const DeviceAxis& inner = s.axes[0];
#pragma unroll 1
  for (int32_t k = 0; k < kWords; ++k) {
    const uint32_t element = static_cast<uint32_t>(first + k);
    if (element >= s.run_extent) continue;
    const uint32_t number = divide_by_several(inner.extent, element);
    const uint32_t column = element - number * inner.extent.divisor;
    const CompactRow row = compact_row<kFolds>(s, number);
    const uint32_t offset = kFolds ? static_cast<uint32_t>(folded_once(inner.fold, column)) : column - inner.begin;
    Word word = s.value;
    const int32_t place = row.source + static_cast<int32_t>(offset);
    if (kFolds || (row.inside && offset < inner.count)) word = reinterpret_cast<const Word*>(s.source)[place];
    reinterpret_cast<Word*>(s.destination)[element] = word;
  }
}

// A vector's worth of one source row on its way: it begins `shift` bytes into `low`. Only those two vectors are read
// that hold some of the bytes [begin, end).
struct Piece {
  uint4 low, high;
  uint32_t shift;
  bool readable;

  __device__ __forceinline__ Piece(const SourceVectors& vectors, int64_t place, int32_t begin, int32_t end) {
    const int64_t at = vectors.begin + place;
    shift = static_cast<uint32_t>(at) % kVectorBytes;
    const int32_t number = static_cast<int32_t>(at >> kVectorShift);
    const int32_t turn = kVectorBytes - static_cast<int32_t>(shift);
    const bool reads_low = begin < min(end, turn), reads_high = max(begin, turn) < end;
    const uint32_t among = static_cast<uint32_t>(number) - vectors.first;
    readable = vectors.all || ((!reads_low || among < vectors.count) && (!reads_high || among + 1 < vectors.count));
    const uint4* const from = vectors.base + number;
    low = begin_load_if(from, reads_low && readable);
    high = begin_load_if(from + 1, reads_high && readable);
  }
};

// All bits of those of word `word`'s bytes that are not before `begin`, of a vector's 16.
__device__ __forceinline__ uint32_t mask_word(int32_t begin, int32_t word) {
  return __funnelshift_lc(0, ~0u, static_cast<uint32_t>(max(begin * 8 - word * 32, 0)));
}

// A vector's bytes before `begin` from one vector, the others from another.
__device__ __forceinline__ uint4 joined(const uint4& before, const uint4& after, int32_t begin) {
  const uint4 mask{mask_word(begin, 0), mask_word(begin, 1), mask_word(begin, 2), mask_word(begin, 3)};
  return {(after.x & mask.x) | (before.x & ~mask.x), (after.y & mask.y) | (before.y & ~mask.y),
          (after.z & mask.z) | (before.z & ~mask.z), (after.w & mask.w) | (before.w & ~mask.w)};
}

// Where a vector whose word 0 is `position` words after the begin of a row's window begins, in bytes.
template <typename Word>
__device__ __forceinline__ int64_t place_of_vector(const CompactRow& row, int32_t position) {
  const uint32_t place = static_cast<uint32_t>(row.source) + static_cast<uint32_t>(position);
  return static_cast<int64_t>(static_cast<int32_t>(place)) * static_cast<int64_t>(sizeof(Word));
}

// A vector of nothing but the value.
template <typename Word>
__device__ __forceinline__ uint4 filled_with(Word value) {
  if constexpr (sizeof(Word) == 8) {
    const uint32_t low = static_cast<uint32_t>(value), high = static_cast<uint32_t>(value >> 32);
    return {low, high, low, high};
  } else {
    const uint32_t word = value * (sizeof(Word) == 1 ? 0x01010101u : sizeof(Word) == 2 ? 0x00010001u : 1u);
    return {word, word, word, word};
  }
}

// Writes a whole vector: the end of a window or its middle, the value, the begin of the next window, of which the last
// two may be missing, or the first. False where vectors that it needs may not be read.
template <typename Word>
__device__ __forceinline__ bool fill_vector(const Slice<Word>& s, const SourceVectors& vectors, int32_t first) {
  constexpr int32_t kBytes = sizeof(Word), kWords = kVectorBytes / kBytes;
  const DeviceAxis& inner = s.axes[0];
  const int32_t extent = static_cast<int32_t>(inner.extent.divisor), count = static_cast<int32_t>(inner.count);
  const uint32_t number = divide_by_several(inner.extent, static_cast<uint32_t>(first));
  const int32_t column = first - static_cast<int32_t>(number) * extent;
  const CompactRow row = compact_row<false>(s, number);
  const int32_t position = column - static_cast<int32_t>(inner.begin);
  const bool begun = position >= 0;
  const int32_t end = begun && row.inside ? min(max(count - position, 0), kWords) * kBytes : 0;
  const Piece piece(vectors, place_of_vector<Word>(row, position), 0, end);
  bool readable = piece.readable;
  uint4 other = filled_with(s.value);
  if (end < kVectorBytes) {
    const int32_t next = (begun ? extent : 0) - position;
    if (next < kWords) {
      const CompactRow next_row = begun ? row_after<false>(s, row, number) : row;
      if (next_row.inside) {
        const Piece next_piece(vectors, place_of_vector<Word>(next_row, -next), next * kBytes, kVectorBytes);
        readable = readable && next_piece.readable;
        other = joined(other, shifted(next_piece.low, next_piece.high, next_piece.shift), next * kBytes);
      }
    }
  }
  if (!readable) return false;
  reinterpret_cast<uint4*>(s.destination + static_cast<int64_t>(first) * kBytes)[0] =
      joined(shifted(piece.low, piece.high, piece.shift), other, end);
  return true;
}

template <typename Word>
__global__ void __launch_bounds__(kFillThreads, kFillBlocks)
    write_filled(const __grid_constant__ Slice<Word> s, const __grid_constant__ SourceVectors vectors) {
  constexpr int32_t kWords = kVectorBytes / sizeof(Word);
  const uint32_t thread = blockIdx.x * kFillThreads + threadIdx.x;
  if (thread >= s.threads) return;
  const int32_t first = static_cast<int32_t>(thread) * kWords - s.head;
  const bool whole = first >= 0 && first + kWords <= static_cast<int32_t>(s.run_extent);
  if (!whole || !fill_vector(s, vectors, first)) write_words<false>(s, first);
}

// Copies are on their way while other lanes gather an edge's words.
template <typename Word>
__global__ void __launch_bounds__(kFoldThreads, kFoldBlocks)
    write_folded(const __grid_constant__ Slice<Word> s, const __grid_constant__ SourceVectors vectors) {
  constexpr int32_t kBytes = sizeof(Word), kWords = kVectorBytes / kBytes;
  const DeviceAxis& inner = s.axes[0];
  const uint32_t thread = blockIdx.x * kFoldThreads + threadIdx.x;
  const int32_t first = static_cast<int32_t>(thread) * kWords - s.head;
  const bool exists = thread < s.threads;
  const bool whole = exists && first >= 0 && first + kWords <= static_cast<int32_t>(s.run_extent);
  const int32_t extent = static_cast<int32_t>(inner.extent.divisor);
  // Vectors that are not whole are taken for the first one, and written word by word.
  const uint32_t number = whole ? divide_by_several(inner.extent, static_cast<uint32_t>(first)) : 0;
  const int32_t column = whole ? first - static_cast<int32_t>(number) * extent : 0;
  const CompactRow row = compact_row<true>(s, number);
  const int32_t position = column - static_cast<int32_t>(inner.begin);
  const bool is_inside = whole && position >= 0 && position + kWords <= static_cast<int32_t>(inner.count);
  const Piece piece(vectors, place_of_vector<Word>(row, position), 0, is_inside ? kVectorBytes : 0);
  const bool is_copy = is_inside && piece.readable;
  alignas(uint4) Word words[kWords];
  if (whole && !is_copy) {
    const int32_t split = extent - column;
    int32_t next = 0;
    if (split < kWords) next = row_after<true>(s, row, number).source;
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      const bool wraps = k >= split;
      const uint32_t at = static_cast<uint32_t>(column + k - (wraps ? extent : 0));
      const int32_t place = (wraps ? next : row.source) + folded_once(inner.fold, at);
      words[k] = reinterpret_cast<const Word*>(s.source)[place];
    }
  }
  if (exists && !whole) write_words<true>(s, first);
  // Without this the copies wait for their vectors before the edge begins.
  __syncwarp();
  if (!whole) return;
  uint4 vector = shifted(piece.low, piece.high, piece.shift);
  if (!is_copy) memcpy(&vector, words, sizeof vector);
  reinterpret_cast<uint4*>(s.destination + static_cast<int64_t>(first) * kBytes)[0] = vector;
}

}  // namespace
}  // namespace baracuda::pad
