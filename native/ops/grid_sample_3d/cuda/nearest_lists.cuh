// SPDX-License-Identifier: Apache-2.0
// Lists of nearest samples by their voxels on CUDA: a counting sort by integer atomics, in any order; then each list is
// sorted.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/grid_sample/cuda/backward/list_sort.cuh"
#include "ops/grid_sample_3d/launch.h"
#include "ops/grid_sample_3d/math.h"

namespace baracuda::grid_sample_3d {
namespace {

constexpr int kNearestThreads = 256, kNearestWarps = kNearestThreads / 32;
// Blocks that share a multiprocessor: much of what they do is to wait for memory. Of sm_75, four fill it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kNearestBlocks = 4;
#else
constexpr int kNearestBlocks = 5;
#endif

// A number of a sample or a voxel among those of all volumes.
using Number = uint32_t;
constexpr Number kNowhere = UINT32_MAX;

// Voxels of a thread that gives them places for their lists.
constexpr int kReservedVoxels = 4;
// Lists of at most so many samples are sorted by a lane, and by a warp, which compare each sample with all; longer ones
// by a block. Those are added by a block, too: one chunk is the most that a voxel's own lanes take.
constexpr Number kLaneList = 16, kWarpList = kChunk;

struct alignas(16) NearestTotals {
  Number listed, long_lists;
};

// The samples of all volumes, by voxel.
struct NearestLists {
  int32_t samples, voxels;        // of all volumes
  Divider by_samples, by_voxels;  // of one volume
  size_t cleared_bytes;           // from the totals
  NearestTotals* totals;
  Number* counts;      // [voxel]: its samples
  Number* begins;      // [voxel]: where its list begins
  Number* long_lists;  // the voxels that have one
  Number* places;      // [sample]: its voxel, or kNowhere
  Number* listed;      // [sample]: by voxel, ascending; at first each sample's rank among those of its voxel
  Number* unsorted;    // [sample]: by voxel

  NearestLists(const Problem& p, WorkspaceLayout& layout, void* workspace)
      : samples(static_cast<int32_t>(p.n * p.samples)),
        voxels(static_cast<int32_t>(p.n * p.voxels)),
        by_samples(p.samples),
        by_voxels(p.voxels) {
    const size_t before = layout.bytes();
    totals = take<NearestTotals>(layout, workspace, 1);
    counts = take<Number>(layout, workspace, voxels);
    cleared_bytes = layout.bytes() - before;
    begins = take<Number>(layout, workspace, voxels);
    long_lists = take<Number>(layout, workspace, samples / kWarpList);
    places = take<Number>(layout, workspace, samples);
    listed = take<Number>(layout, workspace, samples);
    unsorted = take<Number>(layout, workspace, samples);
  }

 private:
  template <typename U>
  static U* take(WorkspaceLayout& layout, void* workspace, int64_t count) {
    return workspace_array<U>(workspace, layout.reserve<U>(count));
  }
};

// Finds each sample's voxel and its rank among those of the voxel, in the order of arrival; a warp's samples of one
// voxel make one atomic. Writes the gradient to the grid, where it is asked for: it is 0.
template <typename C>
__device__ void find_voxels(const Problem& p, const C* grid, C* grad_grid, const NearestLists& s, uint32_t block) {
  const unsigned lane = threadIdx.x % 32;
  const Number i = block * kNearestThreads + threadIdx.x;
  const bool exists = i < static_cast<Number>(s.samples);
  Number voxel = kNowhere;
  if (exists) {
    const int64_t first = int64_t{kAxes} * i;
    const Position<C> at = locate_sample(grid + first, p);
    if (!at.is_outside()) {
      voxel = static_cast<Number>(s.by_samples.divide(i) * p.voxels + first_voxel(at, p));
    }
    if (grad_grid != nullptr) {
      for (int axis = 0; axis < kAxes; ++axis) grad_grid[first + axis] = C(0);
    }
  }
  const unsigned same = __match_any_sync(kFullWarp, voxel);
  const int head = __ffs(static_cast<int>(same)) - 1;
  Number rank = 0;
  if (voxel != kNowhere && static_cast<int>(lane) == head) {
    rank = atomicAdd(&s.counts[voxel], static_cast<Number>(__popc(same)));
  }
  rank = __shfl_sync(kFullWarp, rank, head) + static_cast<Number>(__popc(same & ((1u << lane) - 1)));
  if (exists) {
    s.places[i] = voxel;
    s.listed[i] = rank;
  }
}

// Gives each voxel a place for its list; lists of a block's voxels follow each other. Learns which ones are long.
__global__ void __launch_bounds__(kNearestThreads) reserve_nearest(NearestLists s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  __shared__ Number warp_totals[kNearestWarps];
  __shared__ Number first;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int32_t quads = groups_of(s.voxels, kReservedVoxels);
  const int32_t quad = static_cast<int32_t>(blockIdx.x) * kNearestThreads + thread;
  // What is behind the last voxel was cleared with the counts.
  const uint4 found = quad < quads ? reinterpret_cast<const uint4*>(s.counts)[quad] : make_uint4(0, 0, 0, 0);
  const Number counts[kReservedVoxels] = {found.x, found.y, found.z, found.w};
  const Number sum = counts[0] + counts[1] + counts[2] + counts[3];
  const Number up_to_here = grid_sample::sum_up_to_lane(sum);
  if (lane == 31) warp_totals[warp] = up_to_here;
  __syncthreads();
  Number begin = up_to_here - sum, total = 0;
  for (int w = 0; w < kNearestWarps; ++w) {
    if (w < warp) begin += warp_totals[w];
    total += warp_totals[w];
  }
  if (thread == 0) first = atomicAdd(&s.totals->listed, total);
  __syncthreads();
  if (quad >= quads) return;
  begin += first;
  const Number second = begin + counts[0], third = second + counts[1];
  reinterpret_cast<uint4*>(s.begins)[quad] = make_uint4(begin, second, third, third + counts[2]);
#pragma unroll
  for (int k = 0; k < kReservedVoxels; ++k) {
    if (counts[k] <= kWarpList) continue;
    s.long_lists[atomicAdd(&s.totals->long_lists, Number{1})] = static_cast<Number>(quad * kReservedVoxels + k);
  }
}

__global__ void __launch_bounds__(kNearestThreads) list_nearest(NearestLists s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const Number i = static_cast<Number>(grid_thread());
  if (i >= static_cast<Number>(s.samples)) return;
  const Number voxel = s.places[i];
  if (voxel != kNowhere) s.unsorted[s.begins[voxel] + s.listed[i]] = i;
}

// Puts every `stride`-th sample of a list from `start` on in its place.
__device__ __forceinline__ void place_samples(const Number* unsorted, Number count, Number start, Number stride,
                                              Number* listed) {
  for (Number i = start; i < count; i += stride) {
    const Number own = unsorted[i];
    Number place = 0;
    for (Number k = 0; k < count; ++k) place += unsorted[k] < own;
    listed[place] = own;
  }
}

// Sorts the lists that are not long: a lane its voxel's, a warp the longer ones among them.
__global__ void __launch_bounds__(kNearestThreads) sort_nearest(NearestLists s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const unsigned lane = threadIdx.x % 32;
  const Number voxel = static_cast<Number>(grid_thread());
  const bool exists = voxel < static_cast<Number>(s.voxels);
  const Number count = exists ? s.counts[voxel] : 0, begin = exists ? s.begins[voxel] : 0;
  if (count <= kLaneList) place_samples(s.unsorted + begin, count, 0, 1, s.listed + begin);
  unsigned left = __ballot_sync(kFullWarp, count > kLaneList && count <= kWarpList);
  for (; left != 0; left &= left - 1) {
    const int source = __ffs(static_cast<int>(left)) - 1;
    const Number first = __shfl_sync(kFullWarp, begin, source);
    place_samples(s.unsorted + first, __shfl_sync(kFullWarp, count, source), lane, 32, s.listed + first);
  }
}

// Sorts the long lists, a block each, in linear time.
__global__ void __launch_bounds__(grid_sample::kSortThreads<Number>) sort_long_nearest(NearestLists s) {
  wait_for_kernel_before();
  __shared__ grid_sample::SortShared<Number> shared;
  for (Number job = blockIdx.x; job < s.totals->long_lists; job += gridDim.x) {
    const Number voxel = s.long_lists[job], begin = s.begins[voxel], count = s.counts[voxel];
    for (Number i = threadIdx.x; i < count; i += blockDim.x) s.listed[begin + i] = s.unsorted[begin + i];
    __syncthreads();
    grid_sample::sort_by_digits(s.listed + begin, s.unsorted + begin, int64_t{count}, int64_t{s.samples}, shared);
  }
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
