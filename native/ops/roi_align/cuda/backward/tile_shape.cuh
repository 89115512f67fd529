// SPDX-License-Identifier: Apache-2.0
// The shapes of the tile kernel: what a CTA and its warps own, and what they keep in shared memory beside the stages.
#pragma once

#include "ops/roi_align/cuda/backward/tile_tables.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

// The shape of a tile and of the CTA that owns it.
template <typename ElementType, int kConsumerWarps, int kUnits, int kLaneChannels, int kCtas, int kBinsOnAxis,
          int kPooledSize>
struct TileShape {
  using T = ElementType;
  using C = Compute<T>;
  static constexpr int kConsumers = kConsumerWarps;
  static constexpr int kRows = kConsumers * kUnitRows;
  static constexpr int kColumnUnits = kUnits;
  static constexpr int kColumns = kUnits * kUnitColumns;
  static constexpr int kChannelsPerLane = kLaneChannels;
  static constexpr int kChannels = 32 * kLaneChannels;
  static constexpr int kThreads = 32 * (kConsumers + 1);
  static constexpr int kCtasPerMultiprocessor = kCtas;
  static constexpr int kMaxBins = kBinsOnAxis;  // that an axis may have
  static constexpr int kPooled = kPooledSize;   // bins of both axes, if they are known here; else 0
  // A warp whose rows meet at most so many ph adds a bin's ph up wherever it needs the bin; others do it once, for all
  // the bins, and keep the sums in shared memory.
  static constexpr int kSummedInPlace = kMaxBins > 8 ? 0 : 2;
  // The bins whose sums are kept at a time.
  static constexpr int kKeptBins = sizeof(C) == 8 && kMaxBins > 8 ? 8 : kMaxBins;
  static constexpr int kMaxStages = 6;  // 6 were 3 % faster than 4; with a seventh two CTAs no longer fit
};

// Where an item of work lies.
struct TileItem {
  int32_t image, row, column, channel, channels;
};

// A bin's sums over a warp's two rows, in a lane's channels.
template <class P>
struct alignas(P::kChannelsPerLane * kUnitRows * sizeof(typename P::C)) BinSums {
  typename P::C value[P::kChannelsPerLane][kUnitRows];
};

// A warp's strip holds each lane's sums of bins while boxes are added, and in the end transposes: 32 channels of a part
// of a tile's row, each 4 words longer than it needs so that 16-byte accesses meet no conflict. The part is 16 or 8
// columns, whole runs of 16 bytes in every type.
template <class P>
constexpr int kStripColumns = P::kColumns % 16 == 0 ? 16 : 8;
template <class P>
constexpr int kStripPitch = kStripColumns<P> + 4;
template <class P>
constexpr uint32_t kTransposedBytes = 32 * kStripPitch<P> * sizeof(typename P::C);
template <class P>
constexpr uint32_t kKeptBytes = 32 * P::kKeptBins * sizeof(BinSums<P>);
template <class P>
constexpr uint32_t kStripBytes = kTransposedBytes<P> > kKeptBytes<P> ? kTransposedBytes<P> : kKeptBytes<P>;

// What a tile's sums become: the result, rounded once, or with several blocks of boxes a partial plane.
template <typename T>
struct TileOutput {
  T* grad_input;
  Compute<T>* partials;  // [box_blocks][n c h w]; nullptr when there is one block
  int64_t plane;         // h w
  int64_t numel;
};

}  // namespace
}  // namespace baracuda::roi_align
