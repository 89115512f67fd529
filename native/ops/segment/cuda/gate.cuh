// SPDX-License-Identifier: Apache-2.0
// Launches that are always enqueued, because only the device knows whether they are needed, end at once where another
// way has done the call.
#pragma once

#include <cstdint>

namespace baracuda::segment {
namespace {

struct Gate {
  const uint32_t* word = nullptr;  // on the device; none: always open

  // A launch that is seldom needed begins fewer blocks, each of which takes several turns: an idle block takes some
  // nanoseconds, too.
  uint32_t blocks(uint32_t wanted) const {
    constexpr uint32_t kMost = 1024;
    return word != nullptr && wanted > kMost ? kMost : wanted;
  }

  // For kernels whose launches have waited for the one that wrote the word.
  __device__ __forceinline__ bool is_closed() const { return word != nullptr && *word != 0; }
};

}  // namespace
}  // namespace baracuda::segment
