// SPDX-License-Identifier: Apache-2.0
// RoIAlign on CUDA: one launch tabulates every box's weights, then warps own what they write, the forward the bins of a
// box, the backward a thread a pixel. The backward's fast path stands in cuda_tiles.cuh.
#include "ops/roi_align/cuda_tables.cuh"
#include "ops/roi_align/cuda_tiles.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

// The forward: a warp owns a box's bins for some channels, which share the weights. Lanes are first columns of the image,
// so that rows are read whole, and then bins.
constexpr int kForwardWarps = 4;
template <typename T>
constexpr int kForwardChannels = sizeof(T) == 8 ? 2 : 4;
// Bins of one pass over the box's pixels: two a lane, of at most so many ph.
constexpr int kPassBins = 64;
constexpr int kPassRows = 8;
// Rows whose loads are under way together: a bin of a detection head has some six.
constexpr int kRowGroup = 8;
// A column a lane; the odd word spreads the bins of one column over the banks.
constexpr int kForwardPitch = 33;

// The bins of one pass.
struct PoolPass {
  int32_t ph, phs, pw, pws;
};

// A bin's weights by pixel. The bin is tabulated.
template <typename C>
__device__ __forceinline__ const C* weights_by_pixel(const TabulatedAxis<C>& axis, const BinEntry& entry) {
  return axis.weights + (static_cast<int64_t>(entry.weights) - first_in_group(entry.pixels.first));
}

// The bins of one box for some channels, a bin a lane, in no hurry: for boxes with bins that are not tabulated.
template <typename T>
__device__ __noinline__ void pool_untabulated(const Problem& p, const TabulatedAxis<Compute<T>>& y,
                                              const TabulatedAxis<Compute<T>>& x, int32_t channels, const T* planes,
                                              T* outputs) {
  using C = Compute<T>;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  for (int64_t i = threadIdx.x % 32; i < channels * bins; i += 32) {
    const int32_t pw = static_cast<int32_t>(i % p.pooled_w), ph = static_cast<int32_t>(i / p.pooled_w % p.pooled_h);
    const T* plane = planes + i / bins * p.h * p.w;
    const PixelRange rows = y.pixels(ph), columns = x.pixels(pw);
    C sum = C(0);
    for (int32_t column = columns.first; column <= columns.last; ++column) {
      const C column_weight = x.weight(pw, column);
      if (column_weight == C(0)) continue;
      C column_sum = C(0);
      for (int32_t row = rows.first; row <= rows.last; ++row) {
        const C weight = y.weight(ph, row);
        if (weight != C(0)) column_sum = fma(weight, widen(plane[static_cast<int64_t>(row) * p.w + column]), column_sum);
      }
      sum = fma(column_weight, column_sum, sum);
    }
    outputs[i] = narrow<T>(sum);
  }
}

// One pass of one box. `planes` and `outputs` are the first channel's; `channels` of them exist.
template <typename T>
__device__ __forceinline__ void pool_pass(const Problem& p, const PoolPass& pass, const TabulatedAxis<Compute<T>>& y,
                          const TabulatedAxis<Compute<T>>& x, PixelRange columns, int32_t channels, const T* planes,
                          T* outputs, Compute<T> (*strip)[kForwardChannels<T>][kForwardPitch]) {
  using C = Compute<T>;
  constexpr int kChannels = kForwardChannels<T>;
  constexpr int kSlots = kPassBins / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t plane = static_cast<int64_t>(p.h) * p.w;
  PixelRange reach[kSlots];
  const C* x_weights[kSlots];
  const C(*column_sums_of[kSlots])[kForwardPitch];  // [channel][column] of the bin's ph
  C sums[kSlots][kChannels];
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const int bin = slot * 32 + lane;
    const BinEntry entry = bin < pass.phs * pass.pws ? x.bins[pass.pw + bin % pass.pws] : BinEntry{{0, -1}, 0};
    reach[slot] = entry.pixels;
    x_weights[slot] = weights_by_pixel(x, entry);
    column_sums_of[slot] = strip[bin / pass.pws < kPassRows ? bin / pass.pws : 0];
#pragma unroll
    for (int k = 0; k < kChannels; ++k) sums[slot][k] = C(0);
  }
  for (int32_t first = columns.first; first <= columns.last; first += 32) {
    const int32_t column = first + lane < columns.last ? first + lane : columns.last;
    for (int i = 0; i < pass.phs; ++i) {
      const BinEntry entry = y.bins[pass.ph + i];
      const C* y_weight = weights_by_pixel(y, entry) + entry.pixels.first;
      C column_sums[kChannels] = {};
      const T* pixel = planes + static_cast<int64_t>(entry.pixels.first) * p.w + column;
      // Rows in groups, so that a group's loads are under way together; a row beyond the bin weighs 0.
      for (int32_t left = entry.pixels.count(); left > 0; left -= kRowGroup) {
        C weights[kRowGroup];
        T values[kRowGroup][kChannels];
#pragma unroll
        for (int row = 0; row < kRowGroup; ++row) {
          weights[row] = C(0);
          if (row >= left) continue;
          weights[row] = y_weight[row];
#pragma unroll
          for (int k = 0; k < kChannels; ++k) values[row][k] = pixel[k < channels ? k * plane : 0];
          pixel += p.w;
        }
#pragma unroll
        for (int row = 0; row < kRowGroup; ++row) {
          if (weights[row] == C(0)) continue;
#pragma unroll
          for (int k = 0; k < kChannels; ++k) {
            column_sums[k] = fma(weights[row], widen(values[row][k]), column_sums[k]);
          }
        }
        y_weight += kRowGroup;
      }
#pragma unroll
      for (int k = 0; k < kChannels; ++k) strip[i][k][lane] = column_sums[k];
    }
    __syncwarp();
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int32_t last = reach[slot].last < first + 31 ? reach[slot].last : first + 31;
      for (int32_t at = reach[slot].first > first ? reach[slot].first : first; at <= last; ++at) {
        const C weight = x_weights[slot][at];
        if (weight == C(0)) continue;
#pragma unroll
        for (int k = 0; k < kChannels; ++k) {
          sums[slot][k] = fma(weight, column_sums_of[slot][k][at - first], sums[slot][k]);
        }
      }
    }
    __syncwarp();
  }
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const int bin = slot * 32 + lane;
    if (bin >= pass.phs * pass.pws) continue;
    T* output = outputs + static_cast<int64_t>(pass.ph + bin / pass.pws) * p.pooled_w + pass.pw + bin % pass.pws;
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (k < channels) output[k * bins] = narrow<T>(sums[slot][k]);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kForwardWarps * 32)
    pool_boxes(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T> b,
               const __grid_constant__ BoxTables<Compute<T>> tables) {
  using C = Compute<T>;
  constexpr int kChannels = kForwardChannels<T>;
  __shared__ C strips[kForwardWarps][kPassRows][kChannels][kForwardPitch];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t groups = ceil_div(p.c, kChannels), jobs = groups * p.num_rois;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  for (int64_t job = static_cast<int64_t>(blockIdx.x) * kForwardWarps + warp; job < jobs;
       job += static_cast<int64_t>(gridDim.x) * kForwardWarps) {
    // Boxes innermost: the planes at work at one time then stay in L2, wherever the boxes lie.
    const int64_t r = job % p.num_rois;
    const int32_t channel = static_cast<int32_t>(job / p.num_rois) * kChannels;
    const int32_t channels = p.c - channel < kChannels ? p.c - channel : kChannels;
    T* outputs = b.output + (r * p.c + channel) * bins;
    const int32_t image = p.input_numel > 0 ? tables.boxes[r].image : -1;
    if (image < 0) {
      for (int64_t i = lane; i < channels * bins; i += 32) outputs[i] = narrow<T>(C(0));
      continue;
    }
    const T* planes = b.input + (static_cast<int64_t>(image) * p.c + channel) * p.h * p.w;
    const TabulatedAxis<C> y = tables.y(r), x = tables.x(r);
    bool tabulated = true;
    for (int32_t bin = lane; bin < p.pooled_h; bin += 32) tabulated = tabulated && y.bins[bin].weights >= 0;
    for (int32_t bin = lane; bin < p.pooled_w; bin += 32) tabulated = tabulated && x.bins[bin].weights >= 0;
    if (!__all_sync(kAllLanes, tabulated)) {
      pool_untabulated(p, y, x, channels, planes, outputs);
      continue;
    }
    const PixelRange columns = tables.touched[2 * r + 1];
    PoolPass pass;
    for (pass.pw = 0; pass.pw < p.pooled_w; pass.pw += kPassBins) {
      pass.pws = p.pooled_w - pass.pw < kPassBins ? p.pooled_w - pass.pw : kPassBins;
      const int32_t most = kPassBins / pass.pws < kPassRows ? kPassBins / pass.pws : kPassRows;
      for (pass.ph = 0; pass.ph < p.pooled_h; pass.ph += most) {
        pass.phs = p.pooled_h - pass.ph < most ? p.pooled_h - pass.ph : most;
        pool_pass(p, pass, y, x, columns, channels, planes, outputs, strips[warp]);
      }
    }
  }
}

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  const BoxTables<Compute<T>> tables(p, workspace);
  if (p.input_numel > 0) BARACUDA_RETURN_IF_FAILED(tabulate(p, b.rois, tables, stream));
  const int64_t jobs = p.output_numel > 0 ? ceil_div(p.c, kForwardChannels<T>) * p.num_rois : 0;
  return launch_kernel("roi_align kernel", pool_boxes<T>, blocks_for(jobs, kForwardWarps), kForwardWarps * 32, 0,
                       stream, p, b, tables);
}

// --- backward --------------------------------------------------------------------------------------------------------

// The general backward, for machines before sm_90 and shapes that the tile kernel does not take: a thread owns a pixel of
// a channel.
constexpr int kPixelThreads = 256;

// One pixel of one channel over boxes [first, last): the definition.
template <typename T>
__device__ Compute<T> sum_boxes(const Problem& p, const T* grad_output, const BoxTables<Compute<T>>& tables,
                                int32_t image, int32_t channel, int32_t row, int32_t column, int64_t first,
                                int64_t last) {
  using C = Compute<T>;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  C sum = C(0);
  for (int64_t r = first; r < last; ++r) {
    if (!tables.touches(r, image, row, 1, column, 1)) continue;
    const TabulatedAxis<C> y = tables.y(r), x = tables.x(r);
    const T* grad = grad_output + (r * p.c + channel) * bins;
    for (int32_t pw = 0; pw < p.pooled_w; ++pw) {
      if (!x.pixels(pw).has(column)) continue;
      const C column_weight = x.weight(pw, column);
      if (column_weight == C(0)) continue;
      C row_sum = C(0);
      for (int32_t ph = 0; ph < p.pooled_h; ++ph) {
        if (!y.pixels(ph).has(row)) continue;
        const C weight = y.weight(ph, row);
        if (weight == C(0)) continue;
        row_sum = fma(weight, widen(grad[static_cast<int64_t>(ph) * p.pooled_w + pw]), row_sum);
      }
      sum = fma(column_weight, row_sum, sum);
    }
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kPixelThreads)
    sum_pixels(Problem p, BackwardBuffers<T> b, BoxTables<Compute<T>> tables) {
  using C = Compute<T>;
  for (int64_t i = grid_thread(); i < p.input_numel; i += grid_threads()) {
    const int32_t column = static_cast<int32_t>(i % p.w);
    const int32_t row = static_cast<int32_t>(i / p.w % p.h);
    const int32_t channel = static_cast<int32_t>(i / p.w / p.h % p.c);
    const int32_t image = static_cast<int32_t>(i / p.w / p.h / p.c);
    C total = C(0);
    for (int64_t first = 0; first < p.num_rois; first += p.rois_per_block) {
      const int64_t last = first + p.rois_per_block < p.num_rois ? first + p.rois_per_block : p.num_rois;
      total = total + sum_boxes(p, b.grad_output, tables, image, channel, row, column, first, last);
    }
    b.grad_input[i] = narrow<T>(total);
  }
}

// The most that the tiles' box masks and the boxes' records may take. Batches of many images and tens of thousands of
// boxes pass it and go the general way.
constexpr int64_t kMaxMaskBytes = int64_t{64} << 20;
constexpr int64_t kMaxRecordBytes = int64_t{256} << 20;
// Items are handed out by a 32-bit counter.
constexpr int64_t kMaxItems = int64_t{1} << 30;

// Detection heads pool to 7 x 7 bins, whose constants save address arithmetic, or to 14 x 14. 64 sums of 4 bytes a lane,
// 32 of 8; with the producer 8 warps: a ninth would cost 128 -> 96 registers.
constexpr int kBoxHeadBins = 7;
template <typename T>
using BoxHeadTile = TileShape<T, 7, 4, sizeof(T) == 8 ? 1 : 2, 2, kBoxHeadBins, kBoxHeadBins>;
// More bins make fat stages: one CTA a multiprocessor, a large tile so that each is copied to few, 32 channels.
template <typename T>
using WideTile = TileShape<T, 13, sizeof(T) == 8 ? 4 : 10, 1, 1, kMostBins, 0>;

// Everything the tile path keeps in the workspace; `applies` is decided by the shapes alone.
template <class P>
struct TilePlan {
  using C = typename P::C;
  bool applies = false;
  TileTables<C> tables;
  TileWork work{};
  C* partials = nullptr;
  size_t bytes = 0;

  static bool can_apply(const Problem& p) {
    if (p.input_numel == 0 || p.output_numel == 0) return false;
    if (p.pooled_h > P::kMaxBins || p.pooled_w > P::kMaxBins) return false;
    const int64_t tiles = p.n * ceil_div(p.h, P::kRows) * ceil_div(p.w, P::kColumns);
    const int64_t blocks = ceil_div(p.c, P::kChannels) * ceil_div(p.num_rois, p.rois_per_block);
    const int64_t records = ceil_div(p.h, kUnitRows) + ceil_div(p.w, kUnitColumns);
    if (entry_capacity(p.w, p.pooled_w, kUnitColumns) > kMostEntries) return false;
    if (entry_capacity(p.h, p.pooled_h, kUnitRows) > kMostEntries) return false;
    return tiles <= kMaxItems && tiles * blocks <= kMaxItems &&
           tiles * ceil_div(p.num_rois, 32) <= kMaxMaskBytes / 4 && p.num_rois * records <= kMaxRecordBytes / 4;
  }

  TilePlan(const Problem& p, void* workspace) : TilePlan(p, workspace, WorkspaceLayout()) {}

 private:
  TilePlan(const Problem& p, void* workspace, WorkspaceLayout layout)
      : applies(can_apply(p)), tables(p, workspace, &layout) {
    if (!applies) return;
    work.rows = P::kRows;
    work.columns = P::kColumns;
    work.row_tiles = static_cast<int32_t>(ceil_div(p.h, P::kRows));
    work.column_tiles = static_cast<int32_t>(ceil_div(p.w, P::kColumns));
    work.channel_blocks = static_cast<int32_t>(ceil_div(p.c, P::kChannels));
    work.box_blocks = static_cast<int32_t>(ceil_div(p.num_rois, p.rois_per_block));
    work.mask_words = static_cast<int32_t>(ceil_div(p.num_rois, 32));
    work.tiles = p.n * work.row_tiles * work.column_tiles;
    const int64_t tiles = work.tiles;
    work.masks = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(tiles * work.mask_words));
    work.counts = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(tiles));
    work.order = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(tiles));
    work.next = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(2));
    if (work.box_blocks > 1) {
      partials = workspace_array<C>(workspace, layout.reserve<C>(work.box_blocks * p.input_numel));
    }
    bytes = layout.bytes();
  }
};

// Stages that fit beside the strips, for as many CTAs a multiprocessor as the shape wants; fewer than two: none.
template <class P>
int stages_that_fit(const Problem& p, int shared_bytes, size_t* bytes) {
  const StageLayout<P> layout(p);
  constexpr size_t kStrips = P::kConsumers * kStripBytes<P>;
  // Static barriers and the system's 1 KiB a CTA come out of the same memory.
  constexpr size_t kOverhead = 1024 + 256;
  for (int ctas = P::kCtasPerMultiprocessor; ctas >= 1; --ctas) {
    const size_t room = (static_cast<size_t>(shared_bytes) + 1024) / ctas - kOverhead - kStrips;
    int stages = static_cast<int>(room / layout.stage_bytes);
    if (stages > P::kMaxStages) stages = P::kMaxStages;
    if (stages >= (ctas > 1 ? 3 : 2)) {
      *bytes = stages * static_cast<size_t>(layout.stage_bytes) + kStrips;
      return stages;
    }
  }
  return 0;
}

template <class P>
Status run_tiles(const Problem& p, const BackwardBuffers<typename P::T>& b, const TilePlan<P>& plan, int stages,
                 size_t shared_bytes, int multiprocessors, Stream stream) {
  using T = typename P::T;
  const TileWork& work = plan.work;
  const cudaError_t cleared = cudaMemsetAsync(work.next, 0, 2 * sizeof(int32_t), static_cast<cudaStream_t>(stream));
  if (cleared != cudaSuccess) return cuda_failure(cleared, "roi_align_backward counters");
  const uint32_t table_blocks = blocks_for(2 * static_cast<int64_t>(p.num_rois), kPrepareWarps);
  BARACUDA_RETURN_IF_FAILED(launch_kernel("roi_align_backward box kernel", prepare_boxes<typename P::C>,
                                          kMarkBlocks + table_blocks, kPrepareThreads, 0, stream, p, b.rois,
                                          plan.tables, work));
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes("roi_align_backward kernel", sum_tiles<P>, shared_bytes));
  const TileOutput<T> out{b.grad_input, plan.partials, static_cast<int64_t>(p.h) * p.w, p.input_numel};
  const int64_t items = static_cast<int64_t>(work.tiles) * work.channel_blocks * work.box_blocks;
  const int64_t resident = static_cast<int64_t>(multiprocessors) * P::kCtasPerMultiprocessor;
  BARACUDA_RETURN_IF_FAILED(launch_early("roi_align_backward kernel", sum_tiles<P>,
                                         static_cast<uint32_t>(at_most(items, resident)), P::kThreads, shared_bytes,
                                         stream, p, b, plan.tables, work, out, stages));
  if (plan.partials == nullptr) return Status::kOk;
  return launch_kernel("roi_align_backward partial sum kernel", add_partials<T>,
                       blocks_for(p.input_numel, kTotalThreads), kTotalThreads, 0, stream, plan.partials, b.grad_input,
                       p.input_numel, work.box_blocks);
}

// Takes the tile path in this shape if the problem and the machine allow it; `done` says whether.
template <class P>
Status try_tiles(const Problem& p, const BackwardBuffers<typename P::T>& b, void* workspace,
                 const DeviceTraits& device, Stream stream, bool* done) {
  const TilePlan<P> plan(p, workspace);
  *done = false;
  // A bulk copy moves whole 16-byte units.
  const int64_t box_bytes =
      static_cast<int64_t>(p.c) * p.pooled_h * p.pooled_w * static_cast<int64_t>(sizeof(typename P::T));
  const bool copyable = box_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(b.grad_output) % 16 == 0;
  if (!plan.applies || !copyable || device.compute_capability < 90) return Status::kOk;
  size_t shared_bytes = 0;
  const int stages = stages_that_fit<P>(p, device.shared_bytes, &shared_bytes);
  if (stages == 0) return Status::kOk;
  *done = true;
  return run_tiles(p, b, plan, stages, shared_bytes, device.multiprocessors, stream);
}

// Calls `use` with the tile shape for this problem.
template <typename T, class Use>
auto with_tile_shape(const Problem& p, Use use) {
  if (p.pooled_h == kBoxHeadBins && p.pooled_w == kBoxHeadBins) return use(BoxHeadTile<T>());
  return use(WideTile<T>());
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  DeviceTraits device;
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  bool done = false;
  BARACUDA_RETURN_IF_FAILED(with_tile_shape<T>(p, [&](auto shape) {
    return try_tiles<decltype(shape)>(p, b, workspace, device, stream, &done);
  }));
  if (done) return Status::kOk;
  const BoxTables<Compute<T>> tables(p, workspace);
  Problem sized = p;
  if (p.output_numel == 0) {
    sized.num_rois = 0;  // nothing is tabulated and every pixel's sum is empty
  } else {
    BARACUDA_RETURN_IF_FAILED(tabulate(p, b.rois, tables, stream));
  }
  return launch_kernel("roi_align_backward pixel kernel", sum_pixels<T>, blocks_for(p.input_numel, kPixelThreads),
                       kPixelThreads, 0, stream, sized, b, tables);
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  return BoxTables<Compute<T>>(p, nullptr).bytes;
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  // Which way a call goes depends on the machine and on alignment too; the size does not.
  const size_t general = BoxTables<Compute<T>>(p, nullptr).bytes;
  const size_t tiled = with_tile_shape<T>(p, [&](auto shape) { return TilePlan<decltype(shape)>(p, nullptr).bytes; });
  return general > tiled ? general : tiled;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::roi_align
