// SPDX-License-Identifier: Apache-2.0
// How a tile becomes crowded: its list in the workspace is reserved.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/grid_sample/cuda/backward/tiling.cuh"

namespace baracuda::grid_sample {
namespace {

// Makes a tile crowded: reserves its list. Called by any thread that finds it so.
template <typename C, typename Index>
__device__ void reserve_list(const Storage<C, Index>& s, int64_t tile) {
  TileRecord<Index>& record = s.records[tile];
  constexpr Index kReserved = TileRecord<Index>::kReserved;
  if ((atomicOr(&record.state, kReserved) & kReserved) != 0) return;
  record.list = 1 + atomicAdd(&s.totals->listed, static_cast<Counter>(record.count));
  s.crowded[atomicAdd(&s.totals->crowded, Counter{1})] = tile;
}

constexpr int kReserveThreads = 256;

// For problems in which nothing is staged: every tile is crowded.
template <typename C, typename Index>
__global__ void __launch_bounds__(kReserveThreads) reserve_lists(TileGrid tiles, Storage<C, Index> s) {
  let_kernel_after_start();
  wait_for_kernel_before();
  for (int64_t tile = grid_thread(); tile < tiles.total; tile += grid_threads()) reserve_list(s, tile);
}

}  // namespace
}  // namespace baracuda::grid_sample
