// SPDX-License-Identifier: Apache-2.0
// Tiles whose sums are not all finite, or whose boxes have no tables: they are found out and summed again as the
// definition says, with every zero weight skipped.
#pragma once

#include "core/cuda_warp.cuh"
#include "ops/roi_align/cuda/backward/box_sums.cuh"

namespace baracuda::roi_align {
namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Whether any sum that will be stored is infinite or NaN.
template <class P>
__device__ __forceinline__ bool any_not_finite(const Sums<P>& sums, int channels, int lane) {
  using C = typename P::C;
  bool bad = false;
#pragma unroll
  for (int k = 0; k < P::kChannelsPerLane; ++k) {
    C probe = C(0);  // 0 times infinity or NaN is NaN, and NaN stays
#pragma unroll
    for (int i = 0; i < kUnitRows; ++i) {
#pragma unroll
      for (int j = 0; j < P::kColumns; ++j) probe = fma(sums.value[k][i][j], C(0), probe);
    }
    bad = bad || (!(probe == C(0)) && k * 32 + lane < channels);
  }
  return __any_sync(kFullWarp, bad);
}

// The weight of a unit's i-th bin on one of its pixels.
template <typename C, int kPixels>
__device__ __forceinline__ C weight_at(const Axis<C>& axis, const UnitWeights<C, kPixels>* entries, UnitRecord record,
                                       bool tabulated, int i, int32_t pixel) {
  if (!tabulated) return pixel_weight(axis, i, pixel);
  return entries[record.start() + i].weight[pixel % kPixels];
}

// One pixel of one channel over the boxes [first, last) of a tile's mask, every zero weight skipped: the definition.
template <class P>
__device__ typename P::C exact_sum(const Problem& p, const typename P::T* grad_output,
                                   const TileTables<typename P::C>& tables, const uint32_t* mask, int32_t channel,
                                   int32_t row, int32_t column, int64_t first, int64_t last) {
  using C = typename P::C;
  C sum = C(0);
  for (int64_t r = first; r < last; ++r) {
    if ((mask[r / 32] >> (r % 32) & 1u) == 0) continue;
    UnitRecord y = tables.y_record(r, row / kUnitRows), x = tables.x_record(r, column / kUnitColumns);
    const bool y_tabulated = y.bits != kUntabulated, x_tabulated = x.bits != kUntabulated;
    if (!y_tabulated) y = UnitRecord::make(0, 0, p.pooled_h);
    if (!x_tabulated) x = UnitRecord::make(0, 0, p.pooled_w);
    const Box<C>& box = tables.boxes[r];
    const auto* y_entries = tables.y_entries + r * tables.y_capacity;
    const auto* x_entries = tables.x_entries + r * tables.x_capacity;
    const typename P::T* grad = grad_output + (r * p.c + channel) * p.pooled_h * p.pooled_w;
    for (int i = 0; i < x.count(); ++i) {
      const C column_weight = weight_at(box.x, x_entries, x, x_tabulated, i, column);
      if (column_weight == C(0)) continue;
      C row_sum = C(0);
      for (int j = 0; j < y.count(); ++j) {
        const C weight = weight_at(box.y, y_entries, y, y_tabulated, j, row);
        if (weight == C(0)) continue;
        const int bin = (y.first_bin() + j) * p.pooled_w + x.first_bin() + i;
        row_sum = fma(weight, widen(grad[bin]), row_sum);
      }
      sum = fma(column_weight, row_sum, sum);
    }
  }
  return sum;
}

// Sums a warp's two rows again with every zero weight skipped, straight to memory.
template <class P>
__device__ __noinline__ void store_exact(const Problem& p, const typename P::T* grad_output,
                                         const TileTables<typename P::C>& tables, const TileWork& work,
                                         const TileOutput<typename P::T>& out, const TileItem& item, int32_t tile,
                                         int32_t block, int pair, int lane) {
  using C = typename P::C;
  const int64_t first = block * p.rois_per_block;
  const int64_t last = first + p.rois_per_block < p.num_rois ? first + p.rois_per_block : p.num_rois;
  const uint32_t* mask = work.masks + static_cast<int64_t>(tile) * work.mask_words;
  for (int channel = lane; channel < item.channels; channel += 32) {
    for (int at = 0; at < kUnitRows * P::kColumns; ++at) {
      const int32_t row = item.row + pair * kUnitRows + at / P::kColumns;
      const int32_t column = item.column + at % P::kColumns;
      if (row >= p.h || column >= p.w) continue;
      const C sum = exact_sum<P>(p, grad_output, tables, mask, item.channel + channel, row, column, first, last);
      const int64_t index = (static_cast<int64_t>(item.image) * p.c + item.channel + channel) * out.plane +
                            static_cast<int64_t>(row) * p.w + column;
      if (out.partials != nullptr) {
        out.partials[block * out.numel + index] = sum;
      } else {
        out.grad_input[index] = narrow<typename P::T>(C(0) + sum);
      }
    }
  }
}

#endif  // sm_90

}  // namespace
}  // namespace baracuda::roi_align
