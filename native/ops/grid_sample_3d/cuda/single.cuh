// SPDX-License-Identifier: Apache-2.0
// The gradient to the input of a single channel on CUDA: a block owns a tile, a thread a voxel. With one value a tap,
// what finds and orders contributions is all the work: weights are formed once, and a voxel's contributions are sorted
// in registers.
#pragma once

#include "core/cuda_shared.cuh"
#include "core/cuda_warp.cuh"
#include "ops/grid_sample_3d/cuda/lists.cuh"
#include "ops/grid_sample_3d/cuda/tiles.cuh"

namespace baracuda::grid_sample_3d {
namespace {

// Samples of a segment: 640 hold the 470 or so that reach a tile from a smooth map of 1.2 samples a voxel. f64 has room
// for fewer where a block has 64 KiB.
template <typename C>
constexpr int kSingleSegment = sizeof(C) == 4 ? 640 : 512;

// A contribution: its place among the segment's weights, below what is left of its sample's number.
constexpr int kEntryBits = 13;
constexpr uint32_t kEntryMask = (1u << kEntryBits) - 1;
static_assert(kTaps * kSingleSegment<float> <= 1 << kEntryBits);

template <typename C>
struct SingleShared {
  static constexpr int kSlots = kSingleSegment<C>;
  alignas(16) C weights[kSlots][kTaps];  // 0 where a tap is no voxel of the tile
  C gradients[kSlots];
  uint32_t samples[kSlots];
  uint32_t entries[kTaps * kSlots];  // contributions by voxel
  int starts[kTileVoxels + 1];       // where a voxel's contributions start
  int next[kTileVoxels];
  int warp_totals[kTileThreads / 32];
  int32_t warp_least[kTileThreads / 32], warp_most[kTileThreads / 32];  // numbers of samples
  int16_t places[kSlots];                                               // a sample's first tap; may be no voxel
};

// Where a tap lies in a tile, from the first one.
__device__ constexpr int voxel_offset(int tap) {
  return (tap / 4 * kTileHeight + tap / 2 % 2) * kTileWidth + tap % 2;
}

// What an axis' two taps weigh from `low` on in a tile that is `extent` voxels wide; 0 outside of it.
template <typename C>
struct LocalWeights {
  C of[2];

  __device__ LocalWeights(int low, C fraction, int extent)
      : of{low >= 0 && low < extent ? C(1) - fraction : C(0), low + 1 >= 0 && low + 1 < extent ? fraction : C(0)} {}
};

// Stages a segment of `count` samples and lists each voxel's contributions. Answers whether these begin with what tells
// their samples' order, which they do if the samples are not too far apart. Every thread calls.
template <typename T>
__device__ bool stage_single(const Problem& p, const OwnedTile& tile, const Compute<T>* grid, const T* grad_output,
                             const uint32_t* list, int count, SingleShared<Compute<T>>& shared) {
  using C = Compute<T>;
  const int thread = static_cast<int>(threadIdx.x);
  shared.starts[thread] = 0;
  __syncthreads();
  int32_t least = INT32_MAX, most = 0;
  for (int slot = thread; slot < count; slot += kTileThreads) {
    const uint32_t sample = list[slot];
    least = min(least, static_cast<int32_t>(sample));
    most = max(most, static_cast<int32_t>(sample));
    const C gradient = widen(grad_output[sample]);
    const Position<C> at = locate_sample(grid + kAxes * static_cast<int64_t>(sample), p);
    shared.samples[slot] = sample;
    shared.gradients[slot] = gradient;
    const int x = at.x.low - tile.place.column, y = at.y.low - tile.place.row, z = at.z.low - tile.place.plane;
    const LocalWeights<C> across(x, at.x.fraction, tile.width), down(y, at.y.fraction, tile.height);
    const LocalWeights<C> behind(z, at.z.fraction, tile.depth);
    const int first = (z * kTileHeight + y) * kTileWidth + x;
    shared.places[slot] = static_cast<int16_t>(first);
    C weights[kTaps];
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      weights[tap] = behind.of[tap / 4] * (down.of[tap / 2 % 2] * across.of[tap % 2]);
      if (weights[tap] != C(0)) atomicAdd(&shared.starts[first + voxel_offset(tap)], 1);
    }
    store_step(weights, shared.weights[slot]);
  }
  least = least_of_warp(least);
  most = most_of_warp(most);
  if (thread % 32 == 0) {
    shared.warp_least[thread / 32] = least;
    shared.warp_most[thread / 32] = most;
  }
  sum_counts<kTileVoxels>(shared.starts, shared.warp_totals);
#pragma unroll
  for (int warp = 0; warp < kTileThreads / 32; ++warp) {
    least = min(least, shared.warp_least[warp]);
    most = max(most, shared.warp_most[warp]);
  }
  const bool is_near = static_cast<uint32_t>(most - least) < 1u << (32 - kEntryBits);
  shared.next[thread] = shared.starts[thread];
  __syncthreads();
  for (int slot = thread; slot < count; slot += kTileThreads) {
    const uint32_t order = is_near ? (shared.samples[slot] - static_cast<uint32_t>(least)) << kEntryBits : 0;
    const int first = shared.places[slot];
    C weights[kTaps];
    load_step(shared.weights[slot], weights);
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if (weights[tap] == C(0)) continue;
      const int place = atomicAdd(&shared.next[first + voxel_offset(tap)], 1);
      shared.entries[place] = order | static_cast<uint32_t>(slot * kTaps + tap);
    }
  }
  __syncthreads();
  return is_near;
}

// Batcher's network, from where runs of kRun are sorted and those before kGap are merged. Templates, since loops would
// leave the keys in memory.
template <int kRun, int kGap, int kCount>
__device__ __forceinline__ void sort_in_registers(uint32_t (&keys)[kCount]) {
#pragma unroll
  for (int i = kGap % kRun; i + kGap < kCount; ++i) {
    if ((i - kGap % kRun) / kGap % 2 != 0 || i / (2 * kRun) != (i + kGap) / (2 * kRun)) continue;
    const uint32_t less = min(keys[i], keys[i + kGap]);
    keys[i + kGap] = max(keys[i], keys[i + kGap]);
    keys[i] = less;
  }
  if constexpr (kGap > 1) {
    sort_in_registers<kRun, kGap / 2>(keys);
  } else if constexpr (2 * kRun < kCount) {
    sort_in_registers<2 * kRun, 2 * kRun>(keys);
  }
}

template <typename C>
__device__ __forceinline__ void add_entry(const SingleShared<C>& shared, uint32_t entry, VoxelSums<C, 1>& sums) {
  const uint32_t at = entry & kEntryMask;
  const C gradient[1] = {shared.gradients[at / kTaps]};
  sums.add(shared.weights[at / kTaps][at % kTaps], gradient);
}

// Adds a voxel's contributions, of which there are at most kMost and which tell their order.
template <int kMost, typename C>
__device__ __forceinline__ void add_few(const SingleShared<C>& shared, int begin, int count, VoxelSums<C, 1>& sums) {
  uint32_t entries[kMost];
#pragma unroll
  for (int k = 0; k < kMost; ++k) entries[k] = k < count ? shared.entries[begin + k] : UINT32_MAX;
  sort_in_registers<1, 1>(entries);
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    if (k < count) add_entry(shared, entries[k], sums);
  }
}

// Adds the segment's contributions to the calling thread's voxel, in the order of their samples. Every lane of the warp
// calls.
template <typename C>
__device__ __forceinline__ void add_single(SingleShared<C>& shared, bool is_near, VoxelSums<C, 1>& sums) {
  const int begin = shared.starts[threadIdx.x], end = shared.starts[threadIdx.x + 1], count = end - begin;
  if (__all_sync(kFullWarp, is_near && count <= 8)) {
    add_few<8>(shared, begin, count, sums);
  } else if (__all_sync(kFullWarp, is_near && count <= 16)) {
    add_few<16>(shared, begin, count, sums);
  } else {
    const auto order_of = [&](uint32_t entry) {
      return is_near ? entry : shared.samples[(entry & kEntryMask) / kTaps];
    };
    for (int i = begin + 1; i < end; ++i) {
      const uint32_t entry = shared.entries[i], order = order_of(entry);
      int to = i;
      for (; to > begin && order_of(shared.entries[to - 1]) > order; --to) shared.entries[to] = shared.entries[to - 1];
      shared.entries[to] = entry;
    }
    for (int i = begin; i < end; ++i) add_entry(shared, shared.entries[i], sums);
  }
}

// A block takes a tile at a time.
template <typename T>
__global__ void __launch_bounds__(kTileThreads, sizeof(Compute<T>) == 4 ? 4 : 3)
    sum_single(Problem p, TileGrid tiles, BackwardBuffers<T> b, Storage<Compute<T>, uint32_t> s) {
  using C = Compute<T>;
  wait_for_kernel_before();
  let_kernel_after_start();
  SingleShared<C>& shared = *dynamic_shared<SingleShared<C>>();
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t job = blockIdx.x; job < tiles.total; job += gridDim.x) {
    const TileRecord<uint32_t>& record = s.records[job];
    const OwnedTile tile(p, tiles, job, record.count);
    const int64_t volume = tile.place.volume;
    VoxelSums<C, 1> sums;
    for (int64_t first = 0; first < tile.count; first += kSingleSegment<C>) {
      const int64_t left = tile.count - first;
      const int count = left < kSingleSegment<C> ? static_cast<int>(left) : kSingleSegment<C>;
      const int64_t samples = volume * p.samples;
      const bool is_near = stage_single(p, tile, b.grid + kAxes * samples, b.grad_output + samples,
                                        s.listed + record.list + first, count, shared);
      add_single(shared, is_near, sums);
      __syncthreads();  // the next segment overwrites this one
    }
    sums.close_chunk();
    const int x = thread % kTileWidth, y = thread / kTileWidth % kTileHeight, z = thread / (kTileWidth * kTileHeight);
    if (x < tile.width && y < tile.height && z < tile.depth) {
      const int64_t row = static_cast<int64_t>(tile.place.plane + z) * p.input_h + tile.place.row + y;
      b.grad_input[volume * p.voxels + row * p.input_w + tile.place.column + x] = narrow<T>(sums.totals[0]);
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
