// SPDX-License-Identifier: Apache-2.0
// The backward for sm_90: tiles of pixels whose sums live in registers, fed through a ring of bulk copies.
//
// A CTA owns a tile of pixels for a block of channels, and within it a warp owns two rows: a lane is a channel, so that
// weights and control flow are the same for the whole warp. One producer warp walks the boxes that touch the tile in
// ascending order, a box a lane; each lane sends its box's gradient bins and the tile's weights on their way to the
// next stage by a few bulk copies. A consumer adds, for every unit of its columns and every bin that the unit meets,
// ascending, the bin's sum over its two rows (ascending) to the unit's pixels: the canonical order.
//
// A pixel of a unit whose weight is 0 still takes fma(0, t, sum). For finite t that changes no sum but a zero's sign,
// which the total's +0 start absorbs. Where t is not finite the sum becomes infinite or NaN and stays so: the warp then
// throws its tile away and sums it again with every zero weight skipped (store_exact). The common case pays one test a
// tile. A box whose weights are not tabulated sends its tiles the same way.
#pragma once

#include "core/cuda_barriers.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/cuda_zeros.cuh"
#include "ops/roi_align/cuda/backward/exact.cuh"
#include "ops/roi_align/cuda/backward/partials.cuh"
#include "ops/roi_align/cuda/backward/producer.cuh"
#include "ops/roi_align/cuda/backward/store.cuh"

namespace baracuda::roi_align {
namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

template <class P>
__device__ void consume(const Problem& p, const BackwardBuffers<typename P::T>& b,
                        const TileTables<typename P::C>& tables, const TileWork& work, const StageLayout<P>& layout,
                        const TileOutput<typename P::T>& out, Ring ring, int pair, int lane, typename P::C* strip) {
  const auto header_here = [&] { return reinterpret_cast<const StageHeader*>(ring.stage() + layout.header_at); };
  const auto release = [&] {
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.empty_here());
    ring.advance();
  };
  for (;;) {
    Sums<P> sums;
    sums.clear();
    for (;;) {
      barrier_wait(ring.full_here(), ring.phase());
      // Both at once: the record is there, or is not used.
      const UnitRecord rows = reinterpret_cast<const UnitRecord*>(ring.stage() + layout.y_records_at)[pair];
      const int32_t flags = header_here()->flags;
      if ((flags & kHasBox) != 0) {
        add_box_to_tile<P>(layout, ring.stage(), rows, lane, strip, sums);
      } else if ((flags & kUntabulatedBox) != 0) {
        sums.value[0][0][0] = canonical_nan<typename P::C>();  // the tile is summed again, see below
      }
      if (flags >= kLastOfItem) break;
      release();
    }
    const StageHeader header = *header_here();
    release();
    if (header.flags == kExit) return;
    const TileItem& item = header.item;
    if (any_not_finite<P>(sums, item.channels, lane)) {
      store_exact<P>(p, b.grad_output, tables, work, out, item, header.tile, header.block, pair, lane);
    } else if (out.partials != nullptr) {
      store_rows<P>(p, out.partials + header.block * out.numel, item, pair, lane, strip, sums);
    } else {
      store_rows<P>(p, out.grad_input, item, pair, lane, strip, sums);
    }
  }
}

#endif  // sm_90

// Parameters that are passed on by reference stay in constant memory.
template <class P>
__global__ void __launch_bounds__(P::kThreads, P::kCtasPerMultiprocessor)
    sum_tiles(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<typename P::T> b,
              const __grid_constant__ TileTables<typename P::C> tables, const __grid_constant__ TileWork work,
              const __grid_constant__ TileOutput<typename P::T> out, int32_t stages) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using C = typename P::C;
  char* const shared = dynamic_shared<char>();
  const StageLayout<P> layout(p);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  C* strips = reinterpret_cast<C*>(shared + static_cast<size_t>(stages) * layout.stage_bytes);
  __shared__ uint64_t full[P::kMaxStages];
  __shared__ uint64_t empty[P::kMaxStages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(shared_address(&full[s]), 1);
      barrier_init(shared_address(&empty[s]), P::kConsumers);
    }
    publish_barriers();
  }
  __syncthreads();
  wait_for_kernel_before();
  const Ring ring{shared, shared_address(full), shared_address(empty), layout.stage_bytes,
                  static_cast<uint32_t>(stages)};
  if (warp == P::kConsumers) {
    produce<P>(p, b, tables, work, layout, ring, lane);
  } else {
    consume<P>(p, b, tables, work, layout, out, ring, warp, lane, strips + warp * (kStripBytes<P> / sizeof(C)));
  }
#endif
}

// The most that the tiles' box masks and the boxes' records may take. Batches of many images and tens of thousands of
// boxes pass it and go the general way.
constexpr int64_t kMaxMaskBytes = int64_t{64} << 20;
constexpr int64_t kMaxRecordBytes = int64_t{256} << 20;
// Items are handed out by a 32-bit counter.
constexpr int64_t kMaxItems = int64_t{1} << 30;

// Detection heads pool to 7 x 7 or 14 x 14 bins, whose constants save address arithmetic and allow wider reads. 64 sums
// of 4 bytes a lane, 32 of 8; with the producer 8 warps: a ninth would cost 128 -> 96 registers.
constexpr int kBoxHeadBins = 7;
constexpr int kMaskHeadBins = 14;
template <typename T>
using BoxHeadTile = TileShape<T, 7, 4, sizeof(T) == 8 ? 1 : 2, 2, kBoxHeadBins, kBoxHeadBins>;
// More bins make fat stages: one CTA a multiprocessor, a large tile so that each is copied to few, 32 channels.
template <typename T, int kBinsOnAxis, int kPooledSize>
using WideTile = TileShape<T, 13, sizeof(T) == 8 ? 4 : 10, 1, 1, kBinsOnAxis, kPooledSize>;

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
    const int64_t records = int64_t{RecordPlaces(p.h, kUnitRows, P::kConsumers).count()} +
                            RecordPlaces(p.w, kUnitColumns, P::kColumnUnits).count();
    if (entry_capacity(p.w, p.pooled_w, kUnitColumns) > kMostEntries) return false;
    if (entry_capacity(p.h, p.pooled_h, kUnitRows) > kMostEntries) return false;
    return tiles <= kMaxItems && tiles * blocks <= kMaxItems &&
           tiles * ceil_div(p.num_rois, 32) <= kMaxMaskBytes / 4 && p.num_rois * records <= kMaxRecordBytes / 4;
  }

  TilePlan(const Problem& p, void* workspace) : TilePlan(p, workspace, WorkspaceLayout()) {}

 private:
  TilePlan(const Problem& p, void* workspace, WorkspaceLayout layout)
      : applies(can_apply(p)), tables(p, P::kColumnUnits, P::kConsumers, workspace, &layout) {
    if (!applies) return;
    work.rows = P::kRows;
    work.columns = P::kColumns;
    work.row_tiles = static_cast<int32_t>(ceil_div(p.h, P::kRows));
    work.column_tiles = static_cast<int32_t>(ceil_div(p.w, P::kColumns));
    work.channel_blocks = static_cast<int32_t>(ceil_div(p.c, P::kChannels));
    work.box_blocks = static_cast<int32_t>(ceil_div(p.num_rois, p.rois_per_block));
    work.mask_words = static_cast<int32_t>(ceil_div(p.num_rois, 32));
    work.tiles = p.n * work.row_tiles * work.column_tiles;
    work.across = Divider(work.column_tiles);
    work.down = Divider(work.row_tiles);
    const int64_t tiles = work.tiles;
    work.masks = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(tiles * work.mask_words));
    work.counts = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(tiles));
    work.order = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(tiles));
    work.next = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(kCounters));
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
  BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(work.next, kCounters * sizeof(int32_t), stream));
  const uint32_t table_blocks = blocks_for(2 * static_cast<int64_t>(p.num_rois), kPrepareWarps);
  BARACUDA_RETURN_IF_FAILED(launch_early("roi_align_backward box kernel", prepare_boxes<typename P::C>,
                                         kMarkBlocks + table_blocks, kPrepareThreads, 0, stream, p, b.rois,
                                         plan.tables, work));
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<sum_tiles<P>>("roi_align_backward kernel"));
  const TileOutput<T> out{b.grad_input, plan.partials, static_cast<int64_t>(p.h) * p.w, p.input_numel};
  const int64_t items = static_cast<int64_t>(work.tiles) * work.channel_blocks * work.box_blocks;
  const int64_t resident = static_cast<int64_t>(multiprocessors) * P::kCtasPerMultiprocessor;
  BARACUDA_RETURN_IF_FAILED(launch_early("roi_align_backward kernel", sum_tiles<P>,
                                         static_cast<uint32_t>(at_most(items, resident)), P::kThreads, shared_bytes,
                                         stream, p, b, plan.tables, work, out, stages));
  if (plan.partials == nullptr) return Status::kOk;
  return launch_early("roi_align_backward partial sum kernel", add_partials<T>,
                      blocks_for(p.input_numel, kTotalThreads), kTotalThreads, 0, stream, plan.partials, b.grad_input,
                      p.input_numel, work.box_blocks);
}

// Calls `use` with the tile shape for this problem.
template <typename T, class Use>
auto with_tile_shape(const Problem& p, Use use) {
  if (p.pooled_h == kBoxHeadBins && p.pooled_w == kBoxHeadBins) return use(BoxHeadTile<T>());
  if (p.pooled_h == kMaskHeadBins && p.pooled_w == kMaskHeadBins) {
    return use(WideTile<T, kMaskHeadBins, kMaskHeadBins>());
  }
  return use(WideTile<T, kMostBins, 0>());
}

}  // namespace
}  // namespace baracuda::roi_align
