// SPDX-License-Identifier: Apache-2.0
// RoIAlign on CUDA. One launch tabulates every box's weights; then threads own what they write: the forward a bin, the
// backward a pixel for a few channels.
#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "ops/roi_align/launch.h"
#include "ops/roi_align/tables.h"

namespace baracuda::roi_align {
namespace {

// One warp tabulates one axis of one box: lanes take the bins, then the pixels of each bin.
constexpr int kTableThreads = 32;

template <typename T>
__device__ void tabulate_axis(const Axis<T>& axis, int32_t bins, BinEntry* entries, T* weights, int64_t capacity,
                              PixelRange* touched) {
  const int lane = threadIdx.x;
  for (int32_t bin = lane; bin < bins; bin += kTableThreads) entries[bin] = {bin_pixels(axis, bin), -1};
  __syncwarp();
  if (lane == 0) {
    int64_t used = 0;
    PixelRange all = no_pixels();
    for (int32_t bin = 0; bin < bins; ++bin) {
      const PixelRange pixels = entries[bin].pixels;
      all = join(all, pixels);
      if (pixels.count() > capacity - used) continue;
      entries[bin].weights = static_cast<int32_t>(used);
      used += pixels.count();
    }
    *touched = all;
  }
  __syncwarp();
  for (int32_t bin = 0; bin < bins; ++bin) {
    const BinEntry entry = entries[bin];
    if (entry.weights < 0) continue;
    for (int32_t k = lane; k < entry.pixels.count(); k += kTableThreads) {
      weights[entry.weights + k] = pixel_weight(axis, bin, entry.pixels.first + k);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kTableThreads) tabulate_boxes(Problem p, const T* rois, BoxTables<T> tables) {
  const int64_t jobs = 2 * static_cast<int64_t>(p.num_rois);
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const int64_t r = job / 2;
    const Box<T> box = make_box(rois + 5 * r, p);
    if (job % 2 == 0 && threadIdx.x == 0) tables.boxes[r] = box;
    if (box.image < 0) continue;
    if (job % 2 == 0) {
      tabulate_axis(box.y, p.pooled_h, tables.y_bins + r * p.pooled_h, tables.y_weights + r * tables.y_capacity,
                    tables.y_capacity, &tables.touched[2 * r]);
    } else {
      tabulate_axis(box.x, p.pooled_w, tables.x_bins + r * p.pooled_w, tables.x_weights + r * tables.x_capacity,
                    tables.x_capacity, &tables.touched[2 * r + 1]);
    }
  }
}

template <typename T>
Status tabulate(const Problem& p, const T* rois, const BoxTables<T>& tables, Stream stream) {
  return launch_kernel("roi_align table kernel", tabulate_boxes<T>, blocks_for(2 * static_cast<int64_t>(p.num_rois), 1),
                       kTableThreads, 0, stream, p, rois, tables);
}

constexpr int kForwardThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kForwardThreads)
    pool_bins(Problem p, ForwardBuffers<T> b, BoxTables<Compute<T>> tables) {
  using C = Compute<T>;
  const int64_t plane = static_cast<int64_t>(p.h) * p.w;
  for (int64_t i = grid_thread(); i < p.output_numel; i += grid_threads()) {
    const int32_t pw = static_cast<int32_t>(i % p.pooled_w);
    const int32_t ph = static_cast<int32_t>(i / p.pooled_w % p.pooled_h);
    const int64_t task = i / p.pooled_w / p.pooled_h;
    const int64_t r = task / p.c;
    C sum = C(0);
    const int32_t image = p.input_numel > 0 ? tables.boxes[r].image : -1;
    if (image >= 0) {
      const T* pixels = b.input + (static_cast<int64_t>(image) * p.c + task % p.c) * plane;
      const TabulatedAxis<C> y = tables.y(r), x = tables.x(r);
      const PixelRange rows = y.pixels(ph), columns = x.pixels(pw);
      for (int32_t column = columns.first; column <= columns.last; ++column) {
        const C column_weight = x.weight(pw, column);
        if (column_weight == C(0)) continue;
        C column_sum = C(0);
        for (int32_t row = rows.first; row <= rows.last; ++row) {
          const C weight = y.weight(ph, row);
          if (weight == C(0)) continue;
          column_sum = fma(weight, widen(pixels[static_cast<int64_t>(row) * p.w + column]), column_sum);
        }
        sum = fma(column_weight, column_sum, sum);
      }
    }
    b.output[i] = narrow<T>(sum);
  }
}

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  const BoxTables<Compute<T>> tables(p, workspace);
  if (p.input_numel > 0) BARACUDA_RETURN_IF_FAILED(tabulate(p, b.rois, tables, stream));
  return launch_kernel("roi_align kernel", pool_bins<T>, blocks_for(p.output_numel, kForwardThreads), kForwardThreads,
                       0, stream, p, b, tables);
}

// The backward's owner: one thread a pixel of an 8 x 32 tile, for kChannels channels in registers.
constexpr int kTileRows = 8;
constexpr int kTileColumns = 32;
constexpr int kChannels = 8;

template <typename T>
__global__ void __launch_bounds__(kTileRows* kTileColumns)
    sum_pixels(Problem p, BackwardBuffers<T> b, BoxTables<Compute<T>> tables) {
  using C = Compute<T>;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  const int64_t row_tiles = (p.h + kTileRows - 1) / kTileRows;
  const int64_t column_tiles = (p.w + kTileColumns - 1) / kTileColumns;
  const int64_t channel_blocks = (p.c + kChannels - 1) / kChannels;
  const int64_t tasks = p.n * channel_blocks * row_tiles * column_tiles;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int32_t first_column = static_cast<int32_t>(task % column_tiles) * kTileColumns;
    const int32_t first_row = static_cast<int32_t>(task / column_tiles % row_tiles) * kTileRows;
    const int32_t channel = static_cast<int32_t>(task / column_tiles / row_tiles % channel_blocks) * kChannels;
    const int32_t image = static_cast<int32_t>(task / column_tiles / row_tiles / channel_blocks);
    const int32_t channels = p.c - channel < kChannels ? p.c - channel : kChannels;
    const int32_t column = first_column + static_cast<int32_t>(threadIdx.x) % kTileColumns;
    const int32_t row = first_row + static_cast<int32_t>(threadIdx.x) / kTileColumns;
    const bool inside = row < p.h && column < p.w;

    C totals[kChannels] = {};
    for (int64_t block = 0; block < p.num_rois; block += p.rois_per_block) {
      const int64_t end = block + p.rois_per_block < p.num_rois ? block + p.rois_per_block : p.num_rois;
      C sums[kChannels] = {};
      for (int64_t r = block; r < end; ++r) {
        if (!tables.touches(r, image, first_row, kTileRows, first_column, kTileColumns)) continue;
        const TabulatedAxis<C> y = tables.y(r), x = tables.x(r);
        const T* grad_bins = b.grad_output + (r * p.c + channel) * bins;
        if (!inside) continue;
        for (int32_t pw = 0; pw < p.pooled_w; ++pw) {
          if (!x.pixels(pw).has(column)) continue;
          const C column_weight = x.weight(pw, column);
          if (column_weight == C(0)) continue;
          C row_sums[kChannels] = {};
          for (int32_t ph = 0; ph < p.pooled_h; ++ph) {
            if (!y.pixels(ph).has(row)) continue;
            const C weight = y.weight(ph, row);
            if (weight == C(0)) continue;
            const T* grad = grad_bins + static_cast<int64_t>(ph) * p.pooled_w + pw;
#pragma unroll
            for (int k = 0; k < kChannels; ++k) {
              if (k < channels) row_sums[k] = fma(weight, widen(grad[k * bins]), row_sums[k]);
            }
          }
#pragma unroll
          for (int k = 0; k < kChannels; ++k) sums[k] = fma(column_weight, row_sums[k], sums[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kChannels; ++k) totals[k] = totals[k] + sums[k];
    }
    if (!inside) continue;
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (k >= channels) break;
      const int64_t at = ((static_cast<int64_t>(image) * p.c + channel + k) * p.h + row) * p.w + column;
      b.grad_input[at] = narrow<T>(totals[k]);
    }
  }
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  const BoxTables<Compute<T>> tables(p, workspace);
  Problem sized = p;
  if (p.output_numel == 0) {
    sized.num_rois = 0;  // nothing is tabulated and every pixel's sum is empty
  } else {
    BARACUDA_RETURN_IF_FAILED(tabulate(p, b.rois, tables, stream));
  }
  const int64_t tasks = static_cast<int64_t>(p.n) * ((p.c + kChannels - 1) / kChannels) *
                        ((p.h + kTileRows - 1) / kTileRows) * ((p.w + kTileColumns - 1) / kTileColumns);
  return launch_kernel("roi_align_backward kernel", sum_pixels<T>, blocks_for(tasks, 1), kTileRows * kTileColumns, 0,
                       stream, sized, b, tables);
}

}  // namespace

template <typename Buffers>
size_t workspace_size(const Problem& problem) {
  return BoxTables<Compute<typename Buffers::Element>>(problem, nullptr).bytes;
}

#define BARACUDA_PROVIDE(T)                                             \
  BARACUDA_PROVIDE_LAUNCH(Problem, ForwardBuffers<T>)                   \
  BARACUDA_PROVIDE_LAUNCH(Problem, BackwardBuffers<T>)                  \
  template size_t workspace_size<ForwardBuffers<T>>(const Problem&);    \
  template size_t workspace_size<BackwardBuffers<T>>(const Problem&);
BARACUDA_PROVIDE(float)
BARACUDA_PROVIDE(double)
BARACUDA_PROVIDE(Half)
BARACUDA_PROVIDE(Bfloat16)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::roi_align
