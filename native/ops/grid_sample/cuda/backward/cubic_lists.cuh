// SPDX-License-Identifier: Apache-2.0
// What the gradients of bicubic samples begin with on CUDA: tiles of 8 x 8 pixels, the list of the samples that reach
// each of them, ascending, and grad_output with channels side by side.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/workspace.h"
#include "ops/grid_sample/cubic.h"
#include "ops/grid_sample/cuda/backward/list_sort.cuh"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

constexpr int kCubicThreads = 256, kCubicWarps = kCubicThreads / 32;

// A row of a tile is a sector of f32, and its columns' taps are the nibbles of a word, as its rows' are.
constexpr int kCubicTileSide = 8, kCubicTilePixels = kCubicTileSide * kCubicTileSide;

// The tiles of all images, numbered image by image.
struct CubicTiles {
  int64_t columns, per_image, total;

  explicit CubicTiles(const Problem& p)
      : columns(groups_of<int64_t>(p.input_w, kCubicTileSide)),
        per_image(columns * groups_of<int64_t>(p.input_h, kCubicTileSide)),
        total(per_image * p.n) {}
};

// Where a tile lies.
struct CubicPlace {
  int64_t image;
  int32_t row, column;

  __device__ CubicPlace(const CubicTiles& tiles, int64_t tile) {
    const Division among(tile, tiles.per_image), within(among.remainder, tiles.columns);
    image = among.quotient;
    row = static_cast<int32_t>(within.quotient) * kCubicTileSide;
    column = static_cast<int32_t>(within.remainder) * kCubicTileSide;
  }
};

// The first and the last pixel of an axis of a sample; none where `last` is -1. They are 4 apart at most, since floats
// without halves are 2 apart where they can tell neighbours apart at all: a sample reaches two tiles of an axis.
struct CubicReach {
  int32_t first, last;

  template <typename C>
  __device__ explicit CubicReach(const CubicAxis<C>& axis) : first(INT32_MAX), last(-1) {
#pragma unroll
    for (int k = 0; k < kCubicSide; ++k) {
      if (axis.pixels[k] < 0) continue;
      first = min(first, axis.pixels[k]);
      last = max(last, axis.pixels[k]);
    }
  }
  __device__ bool is_empty() const { return last < 0; }
  // Further apart than four neighbours.
  __device__ bool is_far() const { return !is_empty() && last - first >= kCubicSide; }
};

// What grad_output's channels lie side by side in: vectors of 16 bytes.
template <typename C>
constexpr int kCubicVector = 16 / static_cast<int>(sizeof(C));
template <typename C>
struct alignas(16) CubicVector {
  C values[kCubicVector<C>];
};
// A sample's vectors at hand in a step: 128 bytes, which eight lanes read from shared memory without two of them
// meeting in a bank; less where there are few channels.
constexpr int kMostVectors = 8;
inline int cubic_vectors(const Problem& p, size_t compute_bytes) {
  const int64_t bytes = int64_t{p.c} * static_cast<int64_t>(compute_bytes);
  return bytes <= 16 ? 1 : bytes <= 32 ? 2 : kMostVectors;
}
template <typename C, int kVectors>
constexpr int kCubicLanes = kCubicVector<C> * kVectors;

// Lists of at most so many samples are sorted by a warp, which compares each with all.
constexpr int kWarpList = 512;
// Samples for which one chunk of channels is at hand at a time, where there are more channels.
constexpr int64_t kFewestPlaced = 65536;
// A sample is listed by the tiles of two rows and two columns.
constexpr int64_t kMostListed = 4;

// One tile's state, padded to a sector of its own: neighbours' counters in one sector would wait for each other.
template <typename Index>
struct alignas(32) CubicRecord {
  Counter list;  // where its samples are listed
  Index count;   // samples that have a pixel in the tile
  Index taken;   // samples listed so far
};

// Samples of a tile's list that one block sums the gradients to the grid of.
constexpr int64_t kCubicSegment = 176;
struct CubicSegment {
  Counter tile, first;
};

struct CubicTotals {
  Counter listed, long_lists, segments;
};

// Index counts an image's samples.
template <typename Index>
struct CubicStorage {
  int vectors;            // of a sample in a step
  int64_t channels;       // at hand at a time
  int64_t steps;          // for these
  int64_t segment_limit;  // segments at most; 0 where nobody asks for the gradient to the grid
  CubicTotals* totals;
  CubicRecord<Index>* records;  // [tile]; cleared with the totals
  Counter* long_lists;          // [tile]: those whose lists are long
  CubicSegment* segments;
  Index* listed;     // [tile's list]: samples
  Index* other;      // the same while a long list is sorted
  uint4* gradients;  // [step][image, sample][vector]
  size_t cleared_bytes, bytes;

  CubicStorage(const RuledProblem& p, size_t compute_bytes, void* workspace)
      : vectors(sizeof(Index) == 8 ? kMostVectors : cubic_vectors(p, compute_bytes)) {
    const CubicTiles tiles(p);
    const int64_t samples = p.n * p.samples, chunks = ceil_div(p.c, kChannelChunk), listed = kMostListed * samples;
    const int64_t together = samples < kFewestPlaced ? kFewestPlaced / (samples > 0 ? samples : 1) : 1;
    channels = at_most(p.c, at_most(chunks, together) * kChannelChunk);
    steps = ceil_div(channels, vectors * 16 / static_cast<int64_t>(compute_bytes));
    const bool has_lists = p.has_grad_input();
    segment_limit = p.has_grad_grid() ? at_most(tiles.total, listed) + listed / kCubicSegment : 0;
    WorkspaceLayout layout;
    const size_t totals_at = layout.reserve<CubicTotals>(1);
    const size_t records_at = layout.reserve<CubicRecord<Index>>(tiles.total);
    cleared_bytes = layout.bytes();
    const size_t long_at = layout.reserve<Counter>(has_lists ? at_most(tiles.total, listed / kWarpList) : 0);
    const size_t segments_at = layout.reserve<CubicSegment>(segment_limit);
    const size_t listed_at = layout.reserve<Index>(listed), other_at = layout.reserve<Index>(has_lists ? listed : 0);
    const size_t gradients_at = layout.reserve<uint4>(steps * samples * vectors);
    bytes = layout.bytes();
    totals = workspace_array<CubicTotals>(workspace, totals_at);
    records = workspace_array<CubicRecord<Index>>(workspace, records_at);
    long_lists = workspace_array<Counter>(workspace, long_at);
    segments = workspace_array<CubicSegment>(workspace, segments_at);
    this->listed = workspace_array<Index>(workspace, listed_at);
    other = workspace_array<Index>(workspace, other_at);
    gradients = workspace_array<uint4>(workspace, gradients_at);
  }
};

// Adds the calling lane to the counter of its tile, -1 for none, and answers what the counter held before it. Lanes
// with one tile make one atomic. Every lane of the warp calls.
template <typename Index>
__device__ Index append_sample(int64_t tile, CubicRecord<Index>* records, Index CubicRecord<Index>::*counter) {
  const unsigned lane = threadIdx.x % 32, same = __match_any_sync(kFullWarp, tile);
  const unsigned head = static_cast<unsigned>(__ffs(static_cast<int>(same))) - 1;
  Index base = 0;
  if (lane == head && tile >= 0) base = atomicAdd(&(records[tile].*counter), static_cast<Index>(__popc(same)));
  return __shfl_sync(kFullWarp, base, static_cast<int>(head)) + static_cast<Index>(__popc(same & ((1u << lane) - 1)));
}

// Counts each tile's samples, or with kFills lists them. The first also writes the gradients to the grid of samples
// that reach no pixel; grad_grid is NULL where nobody asks for it.
template <typename C, typename Index, bool kFills>
__global__ void __launch_bounds__(kCubicThreads)
    list_cubic(RuledProblem p, CubicTiles tiles, const C* grid, C* grad_grid, CubicStorage<Index> s) {
  let_kernel_after_start();
  wait_for_kernel_before();
  const int64_t total = p.n * p.samples;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kCubicThreads; base < total; base += grid_threads()) {
    const int64_t i = base + threadIdx.x;
    int64_t touched[kMostListed] = {-1, -1, -1, -1};
    Index own = 0;
    if (i < total) {
      const Division at(i, p.samples);
      own = static_cast<Index>(at.remainder);
      const CubicSample<C> sample(grid[2 * i], grid[2 * i + 1], p);
      const CubicReach x(sample.x), y(sample.y);
      if (x.is_empty() || y.is_empty()) {
        if (!kFills && grad_grid != nullptr) grad_grid[2 * i] = grad_grid[2 * i + 1] = C(0);
      } else {
        const int32_t left = x.first / kCubicTileSide, right = x.last / kCubicTileSide;
        const int32_t top = y.first / kCubicTileSide, bottom = y.last / kCubicTileSide;
        touched[0] = at.quotient * tiles.per_image + top * tiles.columns + left;
        if (right != left) touched[1] = touched[0] + 1;
        if (bottom != top) touched[2] = touched[0] + tiles.columns;
        if (right != left && bottom != top) touched[3] = touched[2] + 1;
      }
    }
#pragma unroll
    for (int k = 0; k < kMostListed; ++k) {
      if (!__any_sync(kFullWarp, touched[k] >= 0)) continue;
      if constexpr (kFills) {
        const Index place = append_sample(touched[k], s.records, &CubicRecord<Index>::taken);
        if (touched[k] >= 0) s.listed[s.records[touched[k]].list + place] = own;
      } else {
        append_sample(touched[k], s.records, &CubicRecord<Index>::count);
      }
    }
  }
}

// Gives each tile a place for its list, which it cuts into segments where the grid's gradient is asked for.
template <typename Index>
__global__ void __launch_bounds__(kCubicThreads) reserve_cubic(CubicTiles tiles, CubicStorage<Index> s) {
  let_kernel_after_start();
  wait_for_kernel_before();
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kCubicThreads; base < tiles.total; base += grid_threads()) {
    const int64_t tile = base + threadIdx.x;
    const Counter count = tile < tiles.total ? s.records[tile].count : 0;
    const Counter cuts = s.segment_limit > 0 ? groups_of<Counter>(count, kCubicSegment) : 0;
    const Counter up_to_here = sum_up_to_lane(count), cuts_up_to_here = sum_up_to_lane(cuts);
    Counter first = 0, segment = 0;
    if (threadIdx.x % 32 == 31) {
      first = atomicAdd(&s.totals->listed, up_to_here);
      segment = atomicAdd(&s.totals->segments, cuts_up_to_here);
    }
    first = __shfl_sync(kFullWarp, first, 31) + up_to_here - count;
    segment = __shfl_sync(kFullWarp, segment, 31) + cuts_up_to_here - cuts;
    if (tile < tiles.total) s.records[tile].list = first;
    for (Counter k = 0; k < cuts; ++k) {
      s.segments[segment + k] = {static_cast<Counter>(tile), k * static_cast<Counter>(kCubicSegment)};
    }
  }
}

// Sorts the short lists, a warp each; learns which ones are long.
template <typename Index>
__global__ void __launch_bounds__(kCubicThreads) sort_cubic(CubicTiles tiles, CubicStorage<Index> s) {
  __shared__ Index shared[kCubicWarps][kWarpList];
  let_kernel_after_start();
  wait_for_kernel_before();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  Index* const keys = shared[warp];
  for (int64_t tile = grid_thread() / 32; tile < tiles.total; tile += grid_threads() / 32) {
    const CubicRecord<Index>& record = s.records[tile];
    if (record.count > kWarpList) {
      if (lane == 0) s.long_lists[atomicAdd(&s.totals->long_lists, Counter{1})] = static_cast<Counter>(tile);
      continue;
    }
    const int length = static_cast<int>(record.count);
    Index* const list = s.listed + record.list;
    __syncwarp();  // the list before has been read
    for (int i = lane; i < length; i += 32) keys[i] = list[i];
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < length; i += 32) {
      const Index own = keys[i];
      int place = 0;
      for (int k = 0; k < length; ++k) place += keys[k] < own;
      list[place] = own;
    }
  }
}

// The same of the long lists, a block each, in linear time.
template <typename Index>
__global__ void __launch_bounds__(kSortThreads<Index>) sort_long_cubic(int64_t samples, CubicStorage<Index> s) {
  __shared__ SortShared<Index> shared;
  let_kernel_after_start();
  wait_for_kernel_before();
  for (Counter number = blockIdx.x; number < s.totals->long_lists; number += gridDim.x) {
    const CubicRecord<Index>& record = s.records[s.long_lists[number]];
    sort_by_digits(s.listed + record.list, s.other + record.list, static_cast<int64_t>(record.count), samples, shared);
    __syncthreads();
  }
}

// Samples of a block: a thread's eight loads are under way together.
constexpr int kLaidSamples = 64;

// Lays the channels from `channel` on side by side.
template <typename T, typename Index, int kVectors>
__global__ void __launch_bounds__(kCubicThreads)
    lay_gradients(RuledProblem p, const T* grad_output, int32_t channel, CubicStorage<Index> s) {
  using C = Compute<T>;
  constexpr int kLanes = kCubicLanes<C, kVectors>;
  constexpr int kAtOnce = kCubicThreads / kLaidSamples;  // channels that the block reads at once
  __shared__ C square[kLanes][kLaidSamples + 1];
  let_kernel_after_start();
  wait_for_kernel_before();
  const int64_t samples = p.n * p.samples, groups = groups_of<int64_t>(samples, kLaidSamples);
  for (int64_t task = blockIdx.x; task < groups * s.steps; task += gridDim.x) {
    const Division cut(task, groups);
    const int64_t first = cut.remainder * kLaidSamples;
    __syncthreads();  // the square before has been read
    const int column = static_cast<int>(threadIdx.x) % kLaidSamples;
    const int64_t own = first + column, from = channel + cut.quotient * kLanes;
    const Division at(own < samples ? own : 0, p.samples);
    const T* const upstream = grad_output + at.quotient * p.c * p.samples + at.remainder;
#pragma unroll
    for (int k = static_cast<int>(threadIdx.x) / kLaidSamples; k < kLanes; k += kAtOnce) {
      const bool exists = own < samples && from + k < p.c;
      square[k][column] = exists ? widen(upstream[(from + k) * p.samples]) : C(0);
    }
    __syncthreads();
#pragma unroll
    for (int k = static_cast<int>(threadIdx.x); k < kLaidSamples * kVectors; k += kCubicThreads) {
      const int sample = k / kVectors, vector = k % kVectors;
      if (first + sample >= samples) continue;
      CubicVector<C> lanes;
#pragma unroll
      for (int j = 0; j < kCubicVector<C>; ++j) lanes.values[j] = square[vector * kCubicVector<C> + j][sample];
      s.gradients[(cut.quotient * samples + first) * kVectors + k] = bits_as<uint4>(lanes);
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
