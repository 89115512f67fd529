// SPDX-License-Identifier: Apache-2.0
// Moves of 16-byte words that lie at odd multiples of 8, where no vector may be read or written: a thread takes one
// word at a time, as two halves. Such tensors are rare (a view of an odd element on), so this is plain and not fast.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/pad/launch.h"

namespace baracuda::pad {
namespace {

constexpr int kHalfThreads = 256;

__global__ void __launch_bounds__(kHalfThreads)
    write_halves(const __grid_constant__ Problem p, const __grid_constant__ Moves<Word128> b) {
  const bool folds = p.outside == Outside::kFold;
  for (int64_t element = grid_thread(); element < p.numel; element += grid_threads()) {
    int64_t rest = element, source = p.source_offset, destination = 0;
    bool has_source = true;
#pragma unroll 1
    for (int32_t a = p.rank - 1; a >= 0; --a) {
      const Axis& axis = p.axes[a];
      const int64_t index = rest % axis.extent;
      rest /= axis.extent;
      destination += index * axis.stride;
      if (index >= axis.window.begin && index < axis.window.end) {
        source += (index - axis.low) * axis.source_stride;
      } else if (folds) {
        const int64_t kept = fold(axis.rule, axis.kept, index - axis.origin);
        source += (axis.origin - axis.low + kept) * axis.source_stride;
      } else {
        has_source = false;
      }
    }
    b.destination[destination] = has_source ? b.source[source] : b.value;
  }
}

}  // namespace
}  // namespace baracuda::pad
