// SPDX-License-Identifier: Apache-2.0
// How values are compared and chosen, and the first and last of each type. Nothing is added up here.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"

namespace baracuda::segment {
namespace {

// Values are chosen by their bits, never by arithmetic.
template <typename T>
BARACUDA_HD T choose(bool first, T a, T b) {
  return first ? a : b;
}
BARACUDA_HD Half choose(bool first, Half a, Half b) { return Half{first ? a.bits : b.bits}; }
BARACUDA_HD Bfloat16 choose(bool first, Bfloat16 a, Bfloat16 b) { return Bfloat16{first ? a.bits : b.bits}; }
BARACUDA_HD int32_t choose(bool first, int32_t a, int32_t b) {
#if defined(__CUDA_ARCH__)
  return first ? a : b;
#else
  // Beside 16-bit values, compilers turn `?:` into branches.
  const int32_t mask = -static_cast<int32_t>(first);
  return (a & mask) | (b & ~mask);
#endif
}

// A number that compares as the value does: -0 equal to +0, every NaN alike.
BARACUDA_HD int32_t comparable(int32_t x) { return x; }
BARACUDA_HD int64_t comparable(int64_t x) { return x; }
BARACUDA_HD float comparable(float x) { return x; }
BARACUDA_HD double comparable(double x) { return x; }
#if defined(__CUDA_ARCH__)
// One conversion, exact.
BARACUDA_HD float comparable(Half x) { return widen(x); }
BARACUDA_HD float comparable(Bfloat16 x) { return widen(x); }
#else
// A 16-bit integer that compares as the value does: sign and magnitude become two's complement, and NaN the smallest
// number, which no other value has. Vectors hold twice as many of them as of floats, and none is converted from f16,
// which compilers do not vectorise.
constexpr int16_t kNan16 = INT16_MIN;
BARACUDA_HD int16_t comparable_bits(uint16_t bits, int16_t infinity) {
  const int16_t magnitude = static_cast<int16_t>(bits & 0x7fff);
  const int16_t sign = static_cast<int16_t>(-(bits >> 15));
  const int16_t number = static_cast<int16_t>((magnitude ^ sign) - sign);
  return magnitude > infinity ? kNan16 : number;
}
BARACUDA_HD int16_t comparable(Half x) { return comparable_bits(x.bits, 0x7c00); }
BARACUDA_HD int16_t comparable(Bfloat16 x) { return comparable_bits(x.bits, 0x7f80); }
#endif

// No short circuits: the loops over columns must stay free of branches.
template <typename Number>
BARACUDA_HD bool is_nan(Number x) {
  return x != x;
}

// The results of segments without rows.
template <typename T>
struct Limits {
  static BARACUDA_HD T lowest() { return T(1) << (8 * sizeof(T) - 1); }
  static BARACUDA_HD T highest() { return ~lowest(); }
};
template <>
struct Limits<float> {
  static BARACUDA_HD float lowest() { return bits_as<float>(0xff800000u); }
  static BARACUDA_HD float highest() { return bits_as<float>(0x7f800000u); }
};
template <>
struct Limits<double> {
  static BARACUDA_HD double lowest() { return bits_as<double>(static_cast<uint64_t>(0xfff0000000000000u)); }
  static BARACUDA_HD double highest() { return bits_as<double>(static_cast<uint64_t>(0x7ff0000000000000u)); }
};
template <>
struct Limits<Half> {
  static BARACUDA_HD Half lowest() { return Half{0xfc00u}; }
  static BARACUDA_HD Half highest() { return Half{0x7c00u}; }
};
template <>
struct Limits<Bfloat16> {
  static BARACUDA_HD Bfloat16 lowest() { return Bfloat16{0xff80u}; }
  static BARACUDA_HD Bfloat16 highest() { return Bfloat16{0x7f80u}; }
};

// Orders. wins: whether a later row's value replaces the best so far. Rows of a segment are offered in ascending order,
// so the test is strict: an equal value never replaces an earlier one. The first NaN replaces every number.
struct Largest {
  template <typename Number>
  static BARACUDA_HD bool wins(Number later, Number best) {
    return !(later <= best) & (best == best);
  }
  static BARACUDA_HD int32_t ordered(int32_t number) { return number; }
  // What no value loses to.
  template <typename T>
  static BARACUDA_HD T last() {
    return Limits<T>::lowest();
  }
};
struct Smallest {
  template <typename Number>
  static BARACUDA_HD bool wins(Number later, Number best) {
    return !(later >= best) & (best == best);
  }
  static BARACUDA_HD int32_t ordered(int32_t number) { return -number; }
  template <typename T>
  static BARACUDA_HD T last() {
    return Limits<T>::highest();
  }
};
#if !defined(__CUDA_ARCH__)
// NaN is the smallest number; one less, it wraps to the largest.
template <>
BARACUDA_HD bool Largest::wins<int16_t>(int16_t later, int16_t best) {
  return static_cast<int16_t>(later - 1) > static_cast<int16_t>(best - 1);
}
template <>
BARACUDA_HD bool Smallest::wins<int16_t>(int16_t later, int16_t best) {
  return later < best;
}
#endif

}  // namespace
}  // namespace baracuda::segment
