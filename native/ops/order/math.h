// SPDX-License-Identifier: Apache-2.0
// Elements as unsigned integers in the order of the elements, shared by both backends: equal elements are equal
// integers, and NaNs are the largest one.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/host_device.h"
#include "ops/order/problem.h"

namespace baracuda::order {
namespace {

template <typename T>
constexpr bool kIsFloat = !std::is_integral_v<T>;

// The bits of an element, by its width.
template <size_t kBytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using type = uint8_t;
};
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
template <typename T>
using Bits = typename BitsOf<sizeof(T)>::type;

// What keys are kept in, and how many of its bits a key has.
template <typename T>
using Word = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <typename T>
constexpr int kKeyBits = 8 * static_cast<int>(sizeof(T));

// The bits of a positive infinity.
template <typename T>
constexpr Word<T> kInfinityBits = 0;
template <>
constexpr uint32_t kInfinityBits<float> = 0x7f800000u;
template <>
constexpr uint64_t kInfinityBits<double> = 0x7ff0000000000000u;
template <>
constexpr uint32_t kInfinityBits<Half> = 0x7c00u;
template <>
constexpr uint32_t kInfinityBits<Bfloat16> = 0x7f80u;

// All bits of a key: the key of NaNs, and of the largest integer.
template <typename T>
constexpr Word<T> kLastKey = static_cast<Word<T>>(static_cast<Bits<T>>(~Bits<T>{0}));

// No float has the key 0: it would be a NaN's with a sign.
template <typename T>
BARACUDA_HD Word<T> key_of(T x) {
  constexpr Word<T> kSign = Word<T>{1} << (kKeyBits<T> - 1);
  const Word<T> bits = bits_as<Bits<T>>(x);
  if constexpr (kIsFloat<T>) {
    const Word<T> magnitude = bits & (kSign - 1);
    if (magnitude > kInfinityBits<T>) return kLastKey<T>;
    // Negative numbers descend with their magnitudes; a zero has no sign.
    return bits > kSign ? kLastKey<T> - bits : kSign + magnitude;
  } else if constexpr (std::is_signed_v<T>) {
    return bits ^ kSign;
  } else {
    return bits;
  }
}

// Which element counts, by its place in ascending order; `nans` are at the end of it.
BARACUDA_HD int64_t rank_of(const Problem& p, int64_t nans) {
  if (p.choice == Choice::kKth) return p.rank;
  const int64_t count = p.length - nans;
  if (p.choice == Choice::kMedian) return nans > 0 ? count : (count - 1) / 2;
  return count > 0 ? (count - 1) / 2 : 0;
}

// Whether it takes to know how many NaNs there are.
template <typename T>
BARACUDA_HD bool counts_nans(const Problem& p) {
  return kIsFloat<T> && p.choice != Choice::kKth;
}

// Of the digits of a key, from the lowest on.
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;

// The first element of a row, whose others are inner apart.
BARACUDA_HD int64_t begin_of(const Problem& p, int64_t row) {
  return p.inner == 1 ? row * p.length : row / p.inner * p.length * p.inner + row % p.inner;
}

}  // namespace
}  // namespace baracuda::order
