// SPDX-License-Identifier: Apache-2.0
// The ring of stages between the producer and the consumers of the tile kernel: what a stage holds, and where a warp
// stands in the ring.
#pragma once

#include "ops/roi_align/cuda/backward/tile_shape.cuh"

namespace baracuda::roi_align {
namespace {

// What travels with a stage; all but the flags only where an item ends. From kLastOfItem on the flags end an item.
enum StageFlags : int32_t { kHasBox = 1, kUntabulatedBox = 2, kLastOfItem = 4, kExit = 8 };
struct alignas(16) StageHeader {
  int32_t flags;
  int32_t tile;
  int32_t block;  // of boxes
  TileItem item;
};

// Byte offsets within one stage.
template <class P>
struct StageLayout {
  using C = typename P::C;
  static constexpr uint32_t kXRecordBytes = RecordPlaces::pitch_of(P::kColumnUnits) * sizeof(UnitRecord);
  static constexpr uint32_t kYRecordBytes = RecordPlaces::pitch_of(P::kConsumers) * sizeof(UnitRecord);
  // Where copies begin and end with others' entries.
  static constexpr uint32_t kOtherEntries = 2 * (kBulkEntries<UnitWeights<C, kUnitRows>> - 1);

  int32_t bins, pooled_h, pooled_w;
  uint32_t header_at, x_records_at, y_records_at, x_at, y_at, stage_bytes;

  BARACUDA_HD explicit StageLayout(const Problem& p)
      : bins(P::kPooled > 0 ? P::kPooled * P::kPooled : p.pooled_h * p.pooled_w),
        pooled_h(P::kPooled > 0 ? P::kPooled : p.pooled_h),
        pooled_w(P::kPooled > 0 ? P::kPooled : p.pooled_w) {
    header_at = (P::kChannels * static_cast<uint32_t>(bins) * sizeof(typename P::T) + 15) & ~15u;
    x_records_at = header_at + sizeof(StageHeader);
    y_records_at = x_records_at + kXRecordBytes;
    x_at = y_records_at + kYRecordBytes;
    y_at = x_at + static_cast<uint32_t>(pooled_w) * P::kColumnUnits * sizeof(UnitWeights<C, kUnitColumns>);
    stage_bytes = y_at + (static_cast<uint32_t>(pooled_h) * P::kConsumers + kOtherEntries) *
                             sizeof(UnitWeights<C, kUnitRows>);
    stage_bytes = (stage_bytes + 15) & ~15u;
  }
};

// The stages of a CTA and where its reader or writer stands.
struct Ring {
  char* stages;
  uint32_t full, empty;  // shared addresses of the first stage's barriers; 8 bytes a stage
  uint32_t stage_bytes;
  uint32_t count;
  uint32_t place = 0;  // the stage's number, above the phase: one register, of which the sums leave few

  __device__ __forceinline__ uint32_t index() const { return place >> 1; }
  __device__ __forceinline__ uint32_t phase() const { return place & 1; }
  __device__ __forceinline__ char* stage() const { return stages + index() * stage_bytes; }
  __device__ __forceinline__ uint32_t full_here() const { return full + index() * 8; }
  __device__ __forceinline__ uint32_t empty_here() const { return empty + index() * 8; }
  __device__ __forceinline__ void advance() {
    place += 2;
    if (index() == count) place = phase() ^ 1;
  }
};

}  // namespace
}  // namespace baracuda::roi_align
