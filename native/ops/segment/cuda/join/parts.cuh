// SPDX-License-Identifier: Apache-2.0
// The kept parts of one segment, as the threads of a block that joins them read them.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/segment/cuda/state.cuh"

namespace baracuda::segment {
namespace {

constexpr int kJoinWarps = 16;
constexpr int kJoinThreads = 32 * kJoinWarps;
// Few, so that a long segment keeps many blocks busy and a warp fetches several parts at once. Their loads are sectors.
constexpr int kJoinColumns = 8;
constexpr int kJoinSlots = 32 / kJoinColumns;

template <class Fold, class Ranks>
struct SegmentParts {
  const Ranks& list;
  const Parts<Fold>& parts;
  int32_t key, begin, count;  // the segment, its first rank, its pieces
  int64_t column;             // lanes beyond the last column read the first one's
  int64_t first, stride;      // where its parts lie; only the first piece's lies half a stride behind `first`

  __device__ __forceinline__ SegmentParts(const Ranks& list, const Parts<Fold>& parts, int32_t d, int32_t key,
                                    int64_t column_block)
      : list(list), parts(parts), key(key), begin(list.begin(key)),
        count((list.length(key) + list.piece_rows() - 1) >> list.piece_bits),
        column(column_block * kJoinColumns + threadIdx.x % kJoinColumns),
        first(list.slot(begin, false) * d + (column < d ? column : 0)), stride(2 * int64_t{d}) {}

  // The part of a piece. A number beyond the last piece's is taken for the last one's, which needs no branch.
  __device__ __forceinline__ State<Fold, 1> part(int32_t piece) const {
    const int32_t at = piece < count ? piece : count - 1;
    return load_part<1>(parts, first + at * stride + (at == 0 ? stride / 2 : 0));
  }
  // The part of a piece that is not the segment's first. Neither factor is negative, so that one 32-bit multiplication
  // does.
  __device__ __forceinline__ State<Fold, 1> later_part(int32_t piece) const {
    const uint32_t at = piece < count ? piece : count - 1;
    return load_part<1>(parts, first + static_cast<int64_t>(uint64_t{at} * static_cast<uint32_t>(stride)));
  }
};

}  // namespace
}  // namespace baracuda::segment
