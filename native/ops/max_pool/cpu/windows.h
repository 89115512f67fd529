// SPDX-License-Identifier: Apache-2.0
// Maximum pooling's forward on the CPU, each window by itself: for windows that the columns have no room for, and for
// those so far apart that most columns belong to none.
#pragma once

#include <cstdint>

#include "ops/max_pool/launch.h"
#include "ops/max_pool/math.h"

namespace baracuda::max_pool {
namespace {

template <typename T>
void pool_row_by_windows(const Pooling& p, const ForwardBuffers<T>& b, int64_t row) {
  using C = Compute<T>;
  const int64_t slab = row / p.h.bins;
  const Places hs = places_of(p.h, static_cast<int32_t>(row % p.h.bins));
  const Places ds = places_of(p.d, static_cast<int32_t>(slab % p.d.bins));
  const T* const input = b.input + slab / p.d.bins * p.plane_numel;
  for (int32_t w = 0; w < p.w.bins; ++w) {
    const Places ws = places_of(p.w, w);
    int64_t kept = kNoElement;
    C best = lowest<C>();
    // Places are counted in 64 bits: a step may lead beyond the last of 31.
    for (int64_t z = ds.first; z < ds.end; z += ds.step) {
      for (int64_t y = hs.first; y < hs.end; y += hs.step) {
        const int64_t first = (z * p.h.extent + y) * p.w.extent;
        if (kept == kNoElement && ws.first < ws.end) kept = first + ws.first;
        for (int64_t x = ws.first; x < ws.end; x += ws.step) {
          const C next = widen(input[first + x]);
          if (!takes_over(next, best)) continue;
          best = next;
          kept = first + x;
        }
      }
    }
    b.indices[row * p.w.bins + w] = kept;
    b.output[row * p.w.bins + w] = kept == kNoElement ? lowest<T>() : input[kept];
  }
}

}  // namespace
}  // namespace baracuda::max_pool
