// SPDX-License-Identifier: Apache-2.0
// The gradient of bicubic samples to their images on CUDA. Each pixel's contributions are listed by integer atomics, in
// an order that changes from run to run; the list is sorted, then its weights are found, and a warp adds them for 32
// channels, which lie side by side in scratch.
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
// Channels that lie side by side: a lane each.
constexpr int kCubicLanes = 32;
// Lists of at most so many contributions are sorted by a warp, which compares each with all.
constexpr int kWarpList = 256;
constexpr int kWarpEach = kWarpList / 32;
// Samples for which one block of channels is at hand at a time, where there are more channels.
constexpr int64_t kFewestPlaced = 65536;

struct CubicTotals {
  Counter listed, long_lists;
};

// Index counts an image's taps: a contribution is 16 times its sample plus its tap.
template <typename C, typename Index>
struct CubicStorage {
  int64_t pixels, taps, channel_blocks;  // of all images; blocks of channels that are at hand at a time
  CubicTotals* totals;
  Counter* counts;      // [pixel]; cleared with the totals
  Counter* ends;        // [pixel]: where its list ends; while it is filled, where the next contribution goes
  Counter* long_lists;  // [pixel]: those whose lists are long
  Index* listed;        // [tap]: contributions
  Index* other;         // [tap]: the same while a long list is sorted
  C* weights;           // [tap]
  C* gradients;         // [block of channels][image, sample][lane]
  size_t cleared_bytes, bytes;

  CubicStorage(const Problem& p, void* workspace)
      : pixels(p.n * p.pixels), taps(p.n * p.samples * kCubicTaps) {
    const int64_t samples = p.n * p.samples, all = ceil_div(p.c, kCubicLanes);
    const int64_t together = samples < kFewestPlaced ? kFewestPlaced / (samples > 0 ? samples : 1) : 1;
    channel_blocks = all < together ? all : together;
    WorkspaceLayout layout;
    const size_t totals_at = layout.reserve<CubicTotals>(1), counts_at = layout.reserve<Counter>(pixels);
    cleared_bytes = layout.bytes();
    const size_t ends_at = layout.reserve<Counter>(pixels), long_at = layout.reserve<Counter>(pixels);
    const size_t listed_at = layout.reserve<Index>(taps), other_at = layout.reserve<Index>(taps);
    const size_t weights_at = layout.reserve<C>(taps);
    const size_t gradients_at = layout.reserve<C>(channel_blocks * samples * kCubicLanes);
    bytes = layout.bytes();
    totals = workspace_array<CubicTotals>(workspace, totals_at);
    counts = workspace_array<Counter>(workspace, counts_at);
    ends = workspace_array<Counter>(workspace, ends_at);
    long_lists = workspace_array<Counter>(workspace, long_at);
    listed = workspace_array<Index>(workspace, listed_at);
    other = workspace_array<Index>(workspace, other_at);
    weights = workspace_array<C>(workspace, weights_at);
    gradients = workspace_array<C>(workspace, gradients_at);
  }
};

// Counts each pixel's contributions, or with kFills lists them.
template <typename C, typename Index, bool kFills>
__global__ void __launch_bounds__(kCubicThreads) list_cubic(RuledProblem p, const C* grid, CubicStorage<C, Index> s) {
  for (int64_t i = grid_thread(); i < p.n * p.samples; i += grid_threads()) {
    const Division at(i, p.samples);
    const CubicSample<C> sample(grid[2 * i], grid[2 * i + 1], p);
    for (int tap = 0; tap < kCubicTaps; ++tap) {
      if (!sample.exists(tap) || sample.weight(tap) == C(0)) continue;
      const int64_t pixel = at.quotient * p.pixels + sample.pixel(tap, p);
      if constexpr (kFills) {
        const Counter place = atomicAdd(&s.ends[pixel], Counter{1});
        s.listed[place] = static_cast<Index>(at.remainder) * kCubicTaps + static_cast<Index>(tap);
      } else {
        atomicAdd(&s.counts[pixel], Counter{1});
      }
    }
  }
}

// Gives each pixel a place for its list.
template <typename C, typename Index>
__global__ void __launch_bounds__(kCubicThreads) reserve_cubic(CubicStorage<C, Index> s) {
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kCubicThreads; base < s.pixels; base += grid_threads()) {
    const int64_t pixel = base + threadIdx.x;
    const Counter count = pixel < s.pixels ? s.counts[pixel] : 0;
    const Counter up_to_here = sum_up_to_lane(count);
    Counter first = 0;
    if (threadIdx.x % 32 == 31) first = atomicAdd(&s.totals->listed, up_to_here);
    first = __shfl_sync(kFullWarp, first, 31);
    if (pixel < s.pixels) s.ends[pixel] = first + up_to_here - count;
  }
}

// The weight of a contribution to a pixel of an image, whose grid is given.
template <typename C, typename Index>
__device__ C cubic_weight(Index contribution, const C* grid, const RuledProblem& p) {
  const int64_t sample = static_cast<int64_t>(contribution / kCubicTaps);
  const int tap = static_cast<int>(contribution % kCubicTaps);
  C x_weights[kCubicSide], y_weights[kCubicSide];
  cubic_weights(locate_cubic(grid[2 * sample], p.input_w, p.rule).fraction, x_weights);
  cubic_weights(locate_cubic(grid[2 * sample + 1], p.input_h, p.rule).fraction, y_weights);
  C x_weight = C(0), y_weight = C(0);
#pragma unroll
  for (int k = 0; k < kCubicSide; ++k) {
    if (k == tap % kCubicSide) x_weight = x_weights[k];
    if (k == tap / kCubicSide) y_weight = y_weights[k];
  }
  return y_weight * x_weight;
}

// Sorts the short lists, a warp each, and finds their weights; learns which ones are long.
template <typename C, typename Index>
__global__ void __launch_bounds__(kCubicThreads) sort_cubic(RuledProblem p, const C* grid, CubicStorage<C, Index> s) {
  __shared__ Index shared[kCubicWarps][kWarpList];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  Index* const keys = shared[warp];
  for (int64_t pixel = grid_thread() / 32; pixel < s.pixels; pixel += grid_threads() / 32) {
    const Counter count = s.counts[pixel];
    if (count > kWarpList) {
      if (lane == 0) s.long_lists[atomicAdd(&s.totals->long_lists, Counter{1})] = static_cast<Counter>(pixel);
      continue;
    }
    const Counter first = s.ends[pixel] - count;
    const int length = static_cast<int>(count);
    const C* const of_image = grid + 2 * Division(pixel, p.pixels).quotient * p.samples;
    __syncwarp();  // the list before has been read
    for (int i = lane; i < length; i += 32) keys[i] = s.listed[first + i];
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < length; i += 32) {
      const Index own = keys[i];
      int place = 0;
      for (int k = 0; k < length; ++k) place += keys[k] < own;
      s.listed[first + place] = own;
      s.weights[first + place] = cubic_weight(own, of_image, p);
    }
  }
}

// The same of the long lists, a block each, in linear time.
template <typename C, typename Index>
__global__ void __launch_bounds__(kSortThreads<Index>)
    sort_long_cubic(RuledProblem p, const C* grid, CubicStorage<C, Index> s) {
  __shared__ SortShared<Index> shared;
  for (Counter number = blockIdx.x; number < s.totals->long_lists; number += gridDim.x) {
    const int64_t pixel = static_cast<int64_t>(s.long_lists[number]), count = static_cast<int64_t>(s.counts[pixel]);
    const int64_t first = static_cast<int64_t>(s.ends[pixel]) - count;
    sort_by_digits(s.listed + first, s.other + first, count, p.samples * kCubicTaps, shared);
    __syncthreads();
    const C* const of_image = grid + 2 * Division(pixel, p.pixels).quotient * p.samples;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      s.weights[first + i] = cubic_weight(s.listed[first + i], of_image, p);
    }
    __syncthreads();
  }
}

// Lays blocks of channels from `channel` on side by side: a warp has 32 samples.
template <typename T, typename Index>
__global__ void __launch_bounds__(kCubicThreads)
    lay_gradients(RuledProblem p, const T* grad_output, int32_t channel, int64_t blocks,
                  CubicStorage<Compute<T>, Index> s) {
  using C = Compute<T>;
  __shared__ C square[kCubicLanes][kCubicLanes + 1];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t samples = p.n * p.samples, groups = groups_of<int64_t>(samples, kCubicLanes);
  for (int64_t task = blockIdx.x; task < groups * blocks; task += gridDim.x) {
    const Division cut(task, groups);
    const int64_t first = cut.remainder * kCubicLanes;
    __syncthreads();  // the square before has been read
    const int64_t own = first + lane;
    const Division at(own < samples ? own : 0, p.samples);
    for (int k = warp; k < kCubicLanes; k += kCubicWarps) {
      const int64_t of = channel + cut.quotient * kCubicLanes + k;
      const bool exists = own < samples && of < p.c;
      square[k][lane] = exists ? widen(grad_output[(at.quotient * p.c + of) * p.samples + at.remainder]) : C(0);
    }
    __syncthreads();
    for (int k = warp; k < kCubicLanes && first + k < samples; k += kCubicWarps) {
      s.gradients[(cut.quotient * samples + first + k) * kCubicLanes + lane] = square[lane][k];
    }
  }
}

// The gradients to these channels: a block has 32 pixels of one image, whose sums its warps write as rows of planes.
template <typename T, typename Index>
__global__ void __launch_bounds__(kCubicThreads)
    sum_cubic(RuledProblem p, T* grad_input, int32_t channel, int64_t blocks, CubicStorage<Compute<T>, Index> s) {
  using C = Compute<T>;
  __shared__ C square[kCubicLanes][kCubicLanes + 1];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t groups = groups_of<int64_t>(p.pixels, kCubicLanes);
  for (int64_t task = blockIdx.x; task < groups * p.n * blocks; task += gridDim.x) {
    const Division cut(task, groups), among(cut.quotient, p.n);
    const int64_t image = among.remainder, first = cut.remainder * kCubicLanes;
    const C* const gradients = s.gradients + (among.quotient * p.n + image) * p.samples * kCubicLanes + lane;
    __syncthreads();  // the square before has been read
    for (int k = warp; k < kCubicLanes && first + k < p.pixels; k += kCubicWarps) {
      const int64_t pixel = image * p.pixels + first + k;
      const Counter end = s.ends[pixel];
      C total = C(0);
      for (Counter i = end - s.counts[pixel]; i < end;) {
        const Counter stop = end - i > kChunk ? i + kChunk : end;
        C partial = C(0);
#pragma unroll 4
        for (; i < stop; ++i) {
          const int64_t sample = static_cast<int64_t>(s.listed[i] / kCubicTaps);
          partial = fma(s.weights[i], gradients[sample * kCubicLanes], partial);
        }
        total = total + partial;
      }
      square[k][lane] = total;
    }
    __syncthreads();
    const int64_t from = channel + among.quotient * kCubicLanes;
    for (int k = warp; k < kCubicLanes && from + k < p.c; k += kCubicWarps) {
      if (first + lane >= p.pixels) continue;
      grad_input[(image * p.c + from + k) * p.pixels + first + lane] = narrow<T>(square[lane][k]);
    }
  }
}

// The gradient to the grid: a thread a sample.
template <typename T>
__global__ void __launch_bounds__(kCubicThreads) sum_cubic_slopes(RuledProblem p, BackwardBuffers<T> b) {
  using C = Compute<T>;
  for (int64_t i = grid_thread(); i < p.n * p.samples; i += grid_threads()) {
    const Division at(i, p.samples);
    const CubicSample<C> sample(b.grid[2 * i], b.grid[2 * i + 1], p);
    CubicGradient<C> gradient(sample);
    const T* plane = b.input + at.quotient * p.c * p.pixels;
    const T* upstream = b.grad_output + at.quotient * p.c * p.samples + at.remainder;
    for (int32_t channel = 0; channel < p.c; ++channel, plane += p.pixels, upstream += p.samples) {
      gradient.add(sample, p, plane, widen(*upstream));
      if ((channel + 1) % kChannelChunk == 0 || channel + 1 == p.c) gradient.close_chunk();
    }
    gradient.store(p, b.grad_grid + 2 * i);
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
