// SPDX-License-Identifier: Apache-2.0
// Joining the halves of a block on the CPU: of every two neighbouring groups of 1, 2, 4 and so on up to 64 states, the
// last one of the first group to each of the second.
#pragma once

#include <cstdint>

#include "ops/scan/math.h"

namespace baracuda::scan {
namespace {

template <int kHalf, class Op>
inline void join_groups(const Op& op, typename Op::State* states) {
  for (int begin = 0; begin < kBlock; begin += 2 * kHalf) {
    const typename Op::State last = states[begin + kHalf - 1];
    for (int j = 0; j < kHalf; ++j) states[begin + kHalf + j] = op.combine(last, states[begin + kHalf + j]);
  }
}

// Not inlined: its loops are unrolled to thousands of instructions, and every kind of row has a call of it.
template <class Op>
[[gnu::noinline]] void join_halves(const Op& op, typename Op::State* states) {
  join_groups<1>(op, states);
  join_groups<2>(op, states);
  join_groups<4>(op, states);
  join_groups<8>(op, states);
  join_groups<16>(op, states);
  join_groups<32>(op, states);
  join_groups<64>(op, states);
}

// Of a block that ends after `count` states.
template <class Op>
inline void join_halves(const Op& op, typename Op::State* states, int32_t count) {
  for (int32_t half = 1; half < count; half *= 2) {
    for (int32_t second = half; second < count; second += 2 * half) {
      const typename Op::State last = states[second - 1];
      const int32_t end = second + half < count ? second + half : count;
      for (int32_t j = second; j < end; ++j) states[j] = op.combine(last, states[j]);
    }
  }
}

}  // namespace
}  // namespace baracuda::scan
