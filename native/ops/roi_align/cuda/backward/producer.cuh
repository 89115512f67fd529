// SPDX-License-Identifier: Apache-2.0
// The warp of the tile kernel that sends boxes on their way to the stages.
#pragma once

#include "core/cuda_barriers.cuh"
#include "ops/roi_align/cuda/backward/batches.cuh"
#include "ops/roi_align/cuda/backward/stages.cuh"

namespace baracuda::roi_align {
namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Sends boxes to stages until there is no more work. The copies of a box arrive at its stage by themselves; by then the
// producer is some stages ahead.
template <class P>
__device__ void produce(const Problem& p, const BackwardBuffers<typename P::T>& b,
                        const TileTables<typename P::C>& tables, const TileWork& work, const StageLayout<P>& layout,
                        Ring ring, int lane) {
  using XEntry = typename TileTables<typename P::C>::XEntry;
  using YEntry = typename TileTables<typename P::C>::YEntry;
  static_assert(kBulkEntries<XEntry> == 1, "a tile's first column entry is the stage's first");
  constexpr int kYStep = kBulkEntries<YEntry>;
  BatchQueue<P> queue(p, tables, work, lane);
  Batch<P> batch = queue.next();
  const auto wait_for_stage = [&] { barrier_wait(ring.empty_here(), ring.phase() ^ 1); };
  const auto header_here = [&] { return reinterpret_cast<StageHeader*>(ring.stage() + layout.header_at); };
  while (!batch.exits) {
    const Batch<P> following = queue.next();
    // What the lane's box sends.
    const bool tabulated = batch.x.first().bits != kUntabulated && batch.y.first().bits != kUntabulated;
    const int x_start = batch.x.first().start(), x_count = batch.x.last().end() - x_start;
    const int y_start = batch.y.first().start() & -kYStep;
    const int y_count = ((batch.y.last().end() + kYStep - 1) & -kYStep) - y_start;
    const uint32_t grad_bytes =
        static_cast<uint32_t>(batch.item.channels * layout.bins) * static_cast<uint32_t>(sizeof(typename P::T));
    const uint32_t x_bytes = static_cast<uint32_t>(x_count) * static_cast<uint32_t>(sizeof(XEntry));
    const uint32_t y_bytes = static_cast<uint32_t>(y_count) * static_cast<uint32_t>(sizeof(YEntry));
    for (int i = 0; i < batch.count; ++i) {
      wait_for_stage();
      if (lane == i) {
        char* const stage = ring.stage();
        const uint32_t full = ring.full_here();
        const int32_t last = batch.ends_item && i + 1 == batch.count ? kLastOfItem : 0;
        if (last != 0) *header_here() = {0, batch.tile, batch.block, batch.item};
        header_here()->flags = (tabulated ? kHasBox : kUntabulatedBox) | last;
        if (tabulated) {
          const int64_t box = batch.box;
          batch.x.store(stage + layout.x_records_at);
          batch.y.store(stage + layout.y_records_at);
          barrier_arrive_expect(full, grad_bytes + x_bytes + y_bytes);
          bulk_copy(stage, b.grad_output + (box * p.c + batch.item.channel) * layout.bins, grad_bytes, full);
          if (x_bytes != 0) {
            bulk_copy(stage + layout.x_at, tables.x_entries + box * tables.x_capacity + x_start, x_bytes, full);
          }
          if (y_bytes != 0) {
            bulk_copy(stage + layout.y_at, tables.y_entries + box * tables.y_capacity + y_start, y_bytes, full);
          }
        } else {
          barrier_arrive(full);
        }
      }
      ring.advance();
      if (batch.count - i <= queue.kSteps) queue.advance();
    }
    if (batch.ends_item && batch.count == 0) {
      wait_for_stage();
      if (lane == 0) {
        *header_here() = {kLastOfItem, batch.tile, batch.block, batch.item};
        barrier_arrive(ring.full_here());
      }
      ring.advance();
    }
    batch = following;
  }
  wait_for_stage();
  if (lane == 0) {
    header_here()->flags = kExit;
    barrier_arrive(ring.full_here());
  }
}

#endif  // sm_90

}  // namespace
}  // namespace baracuda::roi_align
