// SPDX-License-Identifier: Apache-2.0
// How the gradients of pooling operators cut their sums over boxes: a rule of the shapes alone, which both backends
// follow. Host code only.
#pragma once

#include <cstdint>

#include "core/checked.h"
#include "core/integer_math.h"

namespace baracuda {

// Consecutive boxes of one partial sum of grad_input [n, c, h, w]; the partial sums are added in order. A small map
// gives few owners, so its long sums are cut and the cuts become owners too. Some 512 owners of 16 x 16 pixels and 64
// channels keep any machine busy, and no block has fewer than 64 boxes, below which adding partial sums costs more than
// it saves.
inline int64_t rois_per_block_of(int32_t n, int32_t c, int32_t h, int32_t w, int32_t num_rois) {
  const int64_t owners =
      CheckedCount(1).times(n).times(ceil_div(c, 64)).times(ceil_div(h, 16)).times(ceil_div(w, 16)).value();
  const int64_t most = ceil_div(num_rois, 64) > 1 ? ceil_div(num_rois, 64) : 1;
  int64_t blocks = owners > 0 ? ceil_div(512, owners) : 1;
  if (blocks > most) blocks = most;
  return num_rois > 0 ? ceil_div(num_rois, blocks) : 1;
}

}  // namespace baracuda
