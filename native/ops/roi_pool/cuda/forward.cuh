// SPDX-License-Identifier: Apache-2.0
// The forward on CUDA: one thread a bin. Neighbouring threads have neighbouring bins of a row, which share the lines of
// the image that they read.
#pragma once

#include <type_traits>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "ops/roi_pool/launch.h"
#include "ops/roi_pool/math.h"

namespace baracuda::roi_pool {
namespace {

constexpr int kPoolThreads = 128;

// How to find a bin's place from its number.
struct BinDividers {
  Divider pooled_w, pooled_h, c;
};

struct BinPlace {
  int64_t r;
  int32_t channel, ph, pw;
};

template <typename Index>
__device__ __forceinline__ BinPlace place_of(int64_t bin, const Problem& p, const BinDividers& by) {
  if constexpr (std::is_same_v<Index, uint32_t>) {
    const uint32_t row = by.pooled_w.divide(static_cast<uint32_t>(bin));
    const uint32_t plane = by.pooled_h.divide(row);
    const uint32_t r = by.c.divide(plane);
    return {r, static_cast<int32_t>(plane - r * by.c.divisor),
            static_cast<int32_t>(row - plane * by.pooled_h.divisor),
            static_cast<int32_t>(static_cast<uint32_t>(bin) - row * by.pooled_w.divisor)};
  } else {
    const Division row(bin, p.pooled_w), plane(row.quotient, p.pooled_h), box(plane.quotient, p.c);
    return {box.quotient, static_cast<int32_t>(box.remainder), static_cast<int32_t>(plane.remainder),
            static_cast<int32_t>(row.remainder)};
  }
}

// `Index` counts the bins: uint32_t where they are fewer than 2^31, else int64_t.
template <typename T, typename Index>
__global__ void __launch_bounds__(kPoolThreads)
    pool_bins(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T> b,
              const __grid_constant__ BinDividers by) {
  using C = Compute<T>;
  const int64_t plane_pixels = static_cast<int64_t>(p.h) * p.w;
  for (int64_t bin = grid_thread(); bin < p.output_numel; bin += grid_threads()) {
    const BinPlace place = place_of<Index>(bin, p, by);
    const Box<C> box = make_box(b.rois + 5 * place.r, p);
    const PixelRange rows = bin_pixels(box.y, place.ph), columns = bin_pixels(box.x, place.pw);
    if (box.image < 0 || rows.first >= rows.end || columns.first >= columns.end) {
      b.output[bin] = narrow<T>(C(0));
      b.argmax[bin] = kNoPixel;
      continue;
    }
    const T* plane = b.input + (static_cast<int64_t>(box.image) * p.c + place.channel) * plane_pixels;
    int32_t kept = rows.first * p.w + columns.first;
    C best = widen(plane[kept]);
    for (int32_t row = rows.first; row < rows.end; ++row) {
      const int32_t first = row * p.w;
      // The loads of four columns are under way together.
#pragma unroll 4
      for (int32_t column = columns.first; column < columns.end; ++column) {
        const C next = widen(plane[first + column]);
        if (takes_over(next, best)) {
          best = next;
          kept = first + column;
        }
      }
    }
    b.output[bin] = plane[kept];
    b.argmax[bin] = kept;
  }
}

template <typename T, typename Index>
Status enqueue_bins(const Problem& p, const ForwardBuffers<T>& b, Stream stream) {
  // Every extent that divides is at least 1, since there are outputs.
  const BinDividers by{Divider(p.pooled_w), Divider(p.pooled_h), Divider(p.c)};
  return launch_kernel("roi_pool kernel", pool_bins<T, Index>, blocks_for(p.output_numel, kPoolThreads), kPoolThreads,
                       0, stream, p, b, by);
}

}  // namespace
}  // namespace baracuda::roi_pool
