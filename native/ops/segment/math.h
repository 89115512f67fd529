// SPDX-License-Identifier: Apache-2.0
// The formulas of the segment operators, shared by both backends: which segment a row has, which of two values wins.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"

namespace baracuda::segment {

// The selection rules: names only, since they are part of the names of symbols. What they do is below.
struct Max {};

namespace {

// An id's bits as an unsigned number: a negative id is a large one, and the upper half of a 64-bit id counts.
BARACUDA_HD uint64_t unsigned_id(int32_t id) { return static_cast<uint32_t>(id); }
BARACUDA_HD uint64_t unsigned_id(int64_t id) { return static_cast<uint64_t>(id); }

// A row's sort key: its segment, or num_segments for a row that belongs to none.
BARACUDA_HD int32_t key_of(uint64_t id, int32_t num_segments) {
  return id < static_cast<uint64_t>(num_segments) ? static_cast<int32_t>(id) : num_segments;
}

// A number that compares as the value does: -0 equal to +0, every NaN alike.
BARACUDA_HD float comparable(float x) { return x; }
BARACUDA_HD double comparable(double x) { return x; }
#if defined(__CUDA_ARCH__)
// One conversion, exact.
BARACUDA_HD float comparable(Half x) { return widen(x); }
BARACUDA_HD float comparable(Bfloat16 x) { return widen(x); }
#else
// The same order in 16 bits, for twice the lanes and without the f16 conversion, which compilers do not vectorise: sign
// and magnitude become two's complement, NaN the largest number. `infinity` is its bits.
BARACUDA_HD int16_t comparable_bits(uint16_t bits, int16_t infinity) {
  const int16_t magnitude = static_cast<int16_t>(bits & 0x7fff);
  const int16_t sign = static_cast<int16_t>(-(bits >> 15));
  const int16_t number = static_cast<int16_t>((magnitude ^ sign) - sign);
  return magnitude > infinity ? INT16_MAX : number;
}
BARACUDA_HD int16_t comparable(Half x) { return comparable_bits(x.bits, 0x7c00); }
BARACUDA_HD int16_t comparable(Bfloat16 x) { return comparable_bits(x.bits, 0x7f80); }
#endif

template <typename T>
BARACUDA_HD T negative_infinity();
template <>
BARACUDA_HD float negative_infinity<float>() {
  return bits_as<float>(0xff800000u);
}
template <>
BARACUDA_HD double negative_infinity<double>() {
  return bits_as<double>(static_cast<uint64_t>(0xfff0000000000000u));
}
template <>
BARACUDA_HD Half negative_infinity<Half>() {
  return Half{0xfc00u};
}
template <>
BARACUDA_HD Bfloat16 negative_infinity<Bfloat16>() {
  return Bfloat16{0xff80u};
}

// Whether a later row's value replaces the best so far. Rows of a segment are offered in ascending order, so the test
// is strict: an equal value never replaces an earlier one.
template <typename T>
BARACUDA_HD bool wins(Max, T later, T best) {
  const auto a = comparable(later), b = comparable(best);
  // Greater, or the first NaN. No short circuit: the loops over columns must stay free of branches.
  return !(a <= b) & (b == b);
}

// A value of at most 32 bits and its row as one integer, for selections in any order: the largest wins, 0 is below all.
BARACUDA_HD uint64_t candidate(Max, float value, int32_t row) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  const int32_t number = bits >> 31 != 0 ? -magnitude : magnitude;
  const uint32_t ordered = static_cast<uint32_t>(magnitude > 0x7f800000 ? INT32_MAX : number) ^ 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | ~static_cast<uint32_t>(row);
}
// The row of a candidate; of 0 it is -1, which is no row.
BARACUDA_HD int32_t row_of(uint64_t candidate) { return static_cast<int32_t>(~static_cast<uint32_t>(candidate)); }

// The result of a segment without rows.
template <typename T>
BARACUDA_HD T of_no_rows(Max) {
  return negative_infinity<T>();
}

// Values are chosen by their bits, never by arithmetic.
template <typename T>
BARACUDA_HD T choose(bool first, T a, T b) {
  return first ? a : b;
}
BARACUDA_HD Half choose(bool first, Half a, Half b) { return Half{first ? a.bits : b.bits}; }
BARACUDA_HD Bfloat16 choose(bool first, Bfloat16 a, Bfloat16 b) { return Bfloat16{first ? a.bits : b.bits}; }

// What a rule keeps of a segment's column, in two components, and how a row and a later part change it. Rows come in
// ascending order.
template <class Rule, typename T>
struct Selection {
  using First = T;         // the best value
  using Second = int32_t;  // the row that holds it
  // Parts may be joined in any grouping, and the join begins with the first part itself.
  static constexpr bool kAnyGrouping = true;

  static BARACUDA_HD void begin(T& best, int32_t& holder, T value, int32_t row) { best = value, holder = row; }
  static BARACUDA_HD void add(T& best, int32_t& holder, T later, int32_t row) {
    const bool better = wins(Rule{}, later, best);
    best = choose(better, later, best);
    holder = better ? row : holder;
  }
  static BARACUDA_HD void join(T& best, int32_t& holder, T later, int32_t row) { add(best, holder, later, row); }
};

}  // namespace
}  // namespace baracuda::segment
