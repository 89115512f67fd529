// SPDX-License-Identifier: Apache-2.0
// Division of 64-bit numbers in kernels, for divisors that differ from call to call.
#pragma once

#include <cstdint>

namespace baracuda {
namespace {

// Quotient and remainder; 32-bit division takes a fifth of the time of 64-bit.
struct Division {
  int64_t quotient, remainder;

  __device__ Division(int64_t a, int64_t b) {
    if ((a | b) >> 32 == 0) {
      quotient = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
      remainder = static_cast<uint32_t>(a) % static_cast<uint32_t>(b);
    } else {
      quotient = a / b;
      remainder = a % b;
    }
  }
};

}  // namespace
}  // namespace baracuda
