// SPDX-License-Identifier: Apache-2.0
// How CUDA kernels reach the tensors: neighbouring columns of a row by one access, values that are only moved as bits,
// ids of either width.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/dtype.h"
#include "ops/segment/launch.h"
#include "ops/segment/math.h"

namespace baracuda::segment {
namespace {

template <size_t kBytes>
struct BitsOf;
template <>
struct BitsOf<2> {
  using type = uint16_t;
};
template <>
struct BitsOf<4> {
  using type = uint32_t;
};
template <>
struct BitsOf<8> {
  using type = uint64_t;
};
// What kernels that move values see of T, one kernel for all types of a width.
template <typename T>
using Bits = typename BitsOf<sizeof(T)>::type;

template <typename T>
const Bits<T>* bits_of(const T* values) {
  return reinterpret_cast<const Bits<T>*>(values);
}
template <typename T>
Bits<T>* bits_of(T* values) {
  return reinterpret_cast<Bits<T>*>(values);
}

template <typename T, int V>
struct alignas(sizeof(T) * V) Columns {
  T at[V];
};

// The words in which neighbouring columns are loaded and stored: 16-bit values stay two to a register until they are
// looked at.
template <size_t kBytes>
struct WordsOf {
  using type = typename BitsOf<kBytes>::type;
};
template <>
struct WordsOf<8> {
  using type = uint2;
};
template <>
struct WordsOf<16> {
  using type = uint4;
};
template <typename T, int V>
using Words = typename WordsOf<sizeof(T) * V>::type;

template <int V, typename T>
__device__ __forceinline__ Words<T, V> load_words(const T* from) {
  return *reinterpret_cast<const Words<T, V>*>(from);
}
// For what a launch reads only once: it should be the first to leave the caches.
template <int V, typename T>
__device__ __forceinline__ Words<T, V> load_words_once(const T* from) {
  return __ldcs(reinterpret_cast<const Words<T, V>*>(from));
}
template <int V, typename T>
__device__ __forceinline__ Columns<T, V> load(const T* from) {
  return bits_as<Columns<T, V>>(load_words<V>(from));
}
template <int V, typename T>
__device__ __forceinline__ Columns<T, V> load_once(const T* from) {
  return bits_as<Columns<T, V>>(load_words_once<V>(from));
}
// Results should be the first to leave the caches, too: the room is for what is read several times.
template <int V, typename T>
__device__ __forceinline__ void store(T* to, const Columns<T, V>& columns) {
  __stcs(reinterpret_cast<Words<T, V>*>(to), bits_as<Words<T, V>>(columns));
}

// How many columns an access can take, at most `most`: 16 bytes, a divisor of the row, all addresses (or'ed) aligned.
inline int columns_per_access(int32_t d, size_t element_bytes, uintptr_t addresses, int most) {
  int columns = 1;
  for (int wider = 2; wider <= most && wider * element_bytes <= 16; wider *= 2) {
    if (d % wider == 0 && addresses % (wider * element_bytes) == 0) columns = wider;
  }
  return columns;
}

// The addresses, or'ed, of all tensors of columns that are read or written by several columns at once.
template <class Tag>
uintptr_t addresses_of(const Buffers<Tag>& b) {
  uintptr_t all = reinterpret_cast<uintptr_t>(b.result);
  for (int i = 0; i < 2; ++i) {
    all |= reinterpret_cast<uintptr_t>(b.rows[i]) | reinterpret_cast<uintptr_t>(b.segments[i]);
  }
  return all;
}

// Ids, offsets or rows of either width, read as 32-bit words without a branch: one kernel serves both and its loads
// stay together.
struct Index {
  const uint32_t* words;
  int32_t wide;  // 1 for 64 bits, else 0
  int32_t num_segments;

  BARACUDA_HD Index(const void* data, bool is_wide, int32_t segments)
      : words(static_cast<const uint32_t*>(data)), wide(is_wide ? 1 : 0), num_segments(segments) {}

  // The number itself.
  __device__ __forceinline__ int64_t operator[](int64_t i) const {
    const uint32_t* word = words + (i << wide);
    const uint32_t upper = wide != 0 ? word[wide] : static_cast<uint32_t>(static_cast<int32_t>(word[0]) >> 31);
    return static_cast<int64_t>(static_cast<uint64_t>(upper) << 32 | word[0]);
  }
  // The key of an id.
  __device__ __forceinline__ int32_t key(int64_t row) const {
    const uint32_t* id = words + (row << wide);
    // A narrow id's upper word is itself, masked away.
    const uint32_t upper = id[wide] & static_cast<uint32_t>(-wide);
    return key_of(static_cast<uint64_t>(upper) << 32 | id[0], num_segments);
  }
};

// Stores rows in the width of the index.
__device__ __forceinline__ void store_row_index(void* rows, bool wide, int64_t at, int64_t row) {
  if (wide) {
    static_cast<int64_t*>(rows)[at] = row;
  } else {
    static_cast<int32_t*>(rows)[at] = static_cast<int32_t>(row);
  }
}

// The ids or offsets of a call.
template <class Tag>
Index index_of(const Problem& p, const Buffers<Tag>& b) {
  return Index(b.index, b.wide_index, p.num_segments);
}

// Rules that read rows once and are cheap to compute are limited by memory and take as many columns as an access holds;
// the registers of the others hold two.
template <class Tag>
constexpr int most_columns() {
  using Fold = Rule<Tag>;
  if constexpr (Fold::kKind == Kind::kReduce) {
    return std::is_same_v<typename Fold::First, typename Fold::Second> ? 2 : 4;
  } else {
    return Fold::kAnyGrouping && !Fold::kReadsRowsAgain ? 4 : 2;
  }
}

// Calls enqueue<V>() for the columns that a lane takes at once, at most `most`.
template <class Tag, class Enqueue>
Status with_columns(const Problem& p, const Buffers<Tag>& b, int most, const Enqueue& enqueue) {
  using T = typename Tag::Element;
  const int columns = columns_per_access(p.d, sizeof(T), addresses_of(b), most);
  constexpr int kMost = sizeof(T) <= 4 ? most_columns<Tag>() : 2;
  if constexpr (kMost == 4) {
    if (columns == 4) return enqueue(std::integral_constant<int, 4>());
  }
  return columns == 1 ? enqueue(std::integral_constant<int, 1>()) : enqueue(std::integral_constant<int, 2>());
}

}  // namespace
}  // namespace baracuda::segment
