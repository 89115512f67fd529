// SPDX-License-Identifier: Apache-2.0
// The backward's first step on CUDA: which samples reach which tile of pixels, and, beside it, gradients of scattered
// samples side by side. A tile's list is filled by integer atomics in an order that changes from run to run and is
// undone by sorting.
#pragma once

#include <type_traits>

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/grid_sample/cuda/backward/laying.cuh"
#include "ops/grid_sample/cuda/backward/parts.cuh"
#include "ops/grid_sample/cuda/backward/slopes.cuh"
#include "ops/grid_sample/cuda/backward/tiling.cuh"

namespace baracuda::grid_sample {
namespace {

// Adds the calling lane to the counter of its tile, -1 for none, and answers what the counter held before it. Runs of
// lanes with one tile make one atomic. Every lane of the warp calls.
template <typename Tile, typename Index>
__device__ Index append(Tile tile, TileRecord<Index>* records, Index TileRecord<Index>::* counter) {
  const unsigned lane = threadIdx.x % 32;
  const Tile before = __shfl_up_sync(kFullWarp, tile, 1);
  const unsigned heads = __ballot_sync(kFullWarp, lane == 0 || before != tile);
  const unsigned head = 31 - __clz(heads & (kFullWarp >> (31 - lane)));
  Index base = 0;
  if (lane == head && tile >= 0) {
    const unsigned later = lane == 31 ? 0 : heads >> (lane + 1);
    const unsigned length = later == 0 ? 32 - lane : static_cast<unsigned>(__ffs(later));
    base = atomicAdd(&(records[tile].*counter), static_cast<Index>(length));
  }
  return __shfl_sync(kFullWarp, base, head) + (lane - head);
}

// Stages every sample with its tiles as far as there is room, or, without kStages, only counts. Writes the gradients of
// samples that have no tap, where they are asked for; with kSlopes, for narrow images, every sample's. With kLays the
// first `laying` blocks lay the gradients where that pays.
template <typename T, typename Index, bool kStages, bool kSlopes, bool kLays, class P>
__global__ void __launch_bounds__(kBinThreads, !kSlopes                  ? (sizeof(Compute<T>) == 8 ? 4 : 8)
                                               : sizeof(Compute<T>) == 8 ? 2
                                                                         : 4)
    bin_samples(P p, TileGrid tiles, BackwardBuffers<T> b, Storage<Compute<T>, Index> s, uint32_t laying) {
  using C = Compute<T>;
  using Tile = std::conditional_t<kStages, int32_t, int64_t>;
  const int64_t total = p.n * p.samples;
  let_kernel_after_start();
  if constexpr (kLays) {
    if (blockIdx.x < laying) {
      return lay_gradients(p, tiles, b, static_cast<StepValues<T>*>(s.laid), laying, s.totals);
    }
  }
  const int64_t stride = static_cast<int64_t>(gridDim.x - laying) * kBinThreads;
  for (int64_t base = static_cast<int64_t>(blockIdx.x - laying) * kBinThreads; base < total; base += stride) {
    const int64_t i = base + threadIdx.x;
    TouchedTiles<Tile> touched;
    Index sample = 0;
    if (i < total) {
      const Division at(i, p.samples);
      sample = static_cast<Index>(at.remainder);
      const Position<C> position = locate_sample(b.grid[2 * i], b.grid[2 * i + 1], p);
      touched = TouchedTiles<Tile>(position, p, tiles, at.quotient);
      if (touched.home < 0) {
        if (kHasBoth<P> || b.grad_grid != nullptr) b.grad_grid[2 * i] = b.grad_grid[2 * i + 1] = C(0);
      } else if (kSlopes) {
        sum_slopes<kNarrowChannels>(p, b, i, at.quotient, at.remainder, position);
      }
    }
    wait_for_kernel_before();  // it clears the counters, and knows nothing of what was read and written so far
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Tile tile = touched.tile(k, tiles);
      if (!__any_sync(kFullWarp, tile >= 0)) continue;
      const Index slot = append(tile, s.records, &TileRecord<Index>::count);
      if constexpr (kStages) {
        if (tile >= 0 && slot < kListed) {
          s.staged[static_cast<int64_t>(tile) * kListed + slot] = k == 0 ? sample | kHome<Index> : sample;
          note_parts(s, tile, slot);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
