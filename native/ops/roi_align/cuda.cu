// SPDX-License-Identifier: Apache-2.0
// RoIAlign on CUDA: one launch tabulates every box's weights, then threads own what they write, the forward a bin, the
// backward a pixel. The backward's fast path stands in cuda_tiles.cuh.
#include "ops/roi_align/cuda_tables.cuh"
#include "ops/roi_align/cuda_tiles.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

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
  if (p.input_numel > 0) BARACUDA_RETURN_IF_FAILED(tabulate(p, b.rois, tables, nullptr, stream));
  return launch_kernel("roi_align kernel", pool_bins<T>, blocks_for(p.output_numel, kForwardThreads), kForwardThreads,
                       0, stream, p, b, tables);
}

// --- backward --------------------------------------------------------------------------------------------------------

// The general backward, for machines before sm_90 and shapes that the tile kernel does not take: a thread owns a pixel of
// a channel.
constexpr int kPixelThreads = 256;

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
      total = total + exact_sum(p, b.grad_output, tables, image, channel, row, column, first, last);
    }
    b.grad_input[i] = narrow<T>(total);
  }
}

// The most that the tiles' box masks may take. Batches of many images and tens of thousands of boxes pass it and go the
// general way.
constexpr int64_t kMaxMaskBytes = int64_t{64} << 20;
// Items are handed out by a 32-bit counter.
constexpr int64_t kMaxItems = int64_t{1} << 30;

// Everything the tile path keeps in the workspace after the tables; `applies` is decided by the shapes alone.
template <typename T>
struct TilePlan {
  bool applies = false;
  TileWork work{};
  Compute<T>* partials = nullptr;
  size_t bytes;

  TilePlan(const Problem& p, const BoxTables<Compute<T>>& tables, void* workspace) : bytes(tables.bytes) {
    using P = TilePolicy<T>;
    if (p.input_numel == 0 || p.output_numel == 0) return;
    if (p.pooled_h > kMostBins || p.pooled_w > kMostBins) return;
    work.row_tiles = (p.h + P::kRows - 1) / P::kRows;
    work.column_tiles = (p.w + P::kColumns - 1) / P::kColumns;
    work.channel_blocks = (p.c + P::kChannels - 1) / P::kChannels;
    work.box_blocks = static_cast<int32_t>((p.num_rois + p.rois_per_block - 1) / p.rois_per_block);
    work.mask_words = (p.num_rois + 31) / 32;
    const int64_t tiles = static_cast<int64_t>(p.n) * work.row_tiles * work.column_tiles;
    if (tiles > kMaxItems || tiles * work.channel_blocks * work.box_blocks > kMaxItems) return;
    if (tiles * work.mask_words > kMaxMaskBytes / 4) return;
    work.tiles = static_cast<int32_t>(tiles);
    applies = true;
    WorkspaceLayout layout;
    layout.reserve<char>(static_cast<int64_t>(tables.bytes));
    work.masks = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(tiles * work.mask_words));
    work.counts = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(tiles));
    work.order = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(tiles));
    work.next = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(2));
    if (work.box_blocks > 1) {
      partials = workspace_array<Compute<T>>(workspace, layout.reserve<Compute<T>>(work.box_blocks * p.input_numel));
    }
    bytes = layout.bytes();
  }
};

// Stages that fit beside the strips, for as many CTAs a multiprocessor as the policy wants; fewer than two: none.
template <typename T>
int stages_that_fit(const Problem& p, int shared_bytes, size_t* bytes) {
  using P = TilePolicy<T>;
  const StageLayout<T> layout(p.pooled_h, p.pooled_w);
  constexpr size_t kStrips = P::kConsumers * kStripBytes<T>;
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

template <typename T>
Status run_tiles(const Problem& p, const BackwardBuffers<T>& b, const BoxTables<Compute<T>>& tables,
                 const TilePlan<T>& plan, int stages, size_t shared_bytes, int multiprocessors, Stream stream) {
  using P = TilePolicy<T>;
  BARACUDA_RETURN_IF_FAILED(tabulate(p, b.rois, tables, plan.work.next, stream));
  BARACUDA_RETURN_IF_FAILED(launch_kernel("roi_align tile mask kernel", mark_tiles<T>, blocks_for(plan.work.tiles, 1),
                                          kMaskThreads, 0, stream, p, tables, plan.work));
  const auto kernel = p.pooled_h <= kFewBins && p.pooled_w <= kFewBins ? sum_tiles<T, kFewBins> : sum_tiles<T, kMostBins>;
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes("roi_align_backward kernel", kernel, shared_bytes));
  const TileOutput<T> out{b.grad_input, plan.partials, static_cast<int64_t>(p.h) * p.w, p.input_numel};
  const int64_t items = static_cast<int64_t>(plan.work.tiles) * plan.work.channel_blocks * plan.work.box_blocks;
  const int64_t resident = static_cast<int64_t>(multiprocessors) * P::kCtasPerMultiprocessor;
  BARACUDA_RETURN_IF_FAILED(launch_kernel("roi_align_backward kernel", kernel,
                                          blocks_for(items < resident ? items : resident, 1), P::kThreads,
                                          shared_bytes, stream, p, b, tables, plan.work, out, stages));
  if (plan.partials == nullptr) return Status::kOk;
  return launch_kernel("roi_align partial sum kernel", add_partials<T>, blocks_for(p.input_numel, kTotalThreads),
                       kTotalThreads, 0, stream, plan.partials, b.grad_input, p.input_numel, plan.work.box_blocks);
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  const BoxTables<Compute<T>> tables(p, workspace);
  const TilePlan<T> plan(p, tables, workspace);
  DeviceTraits device;
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  // A bulk copy moves whole 16-byte units.
  const int64_t box_bytes = static_cast<int64_t>(p.c) * p.pooled_h * p.pooled_w * static_cast<int64_t>(sizeof(T));
  const bool copyable = box_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(b.grad_output) % 16 == 0;
  if (plan.applies && copyable && device.compute_capability >= 90) {
    size_t shared_bytes = 0;
    const int stages = stages_that_fit<T>(p, device.shared_bytes, &shared_bytes);
    if (stages > 0) {
      return run_tiles(p, b, tables, plan, stages, shared_bytes, device.multiprocessors, stream);
    }
  }
  Problem sized = p;
  if (p.output_numel == 0) {
    sized.num_rois = 0;  // nothing is tabulated and every pixel's sum is empty
  } else {
    BARACUDA_RETURN_IF_FAILED(tabulate(p, b.rois, tables, nullptr, stream));
  }
  return launch_kernel("roi_align_backward pixel kernel", sum_pixels<T>, blocks_for(p.input_numel, kPixelThreads),
                       kPixelThreads, 0, stream, sized, b, tables);
}

}  // namespace

template <typename T>
size_t scratch_bytes(const Problem& p, const ForwardBuffers<T>*) {
  return BoxTables<Compute<T>>(p, nullptr).bytes;
}

template <typename T>
size_t scratch_bytes(const Problem& p, const BackwardBuffers<T>*) {
  return TilePlan<T>(p, BoxTables<Compute<T>>(p, nullptr), nullptr).bytes;
}

template <typename Buffers>
size_t workspace_size(const Problem& problem) {
  return scratch_bytes(problem, static_cast<const Buffers*>(nullptr));
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
