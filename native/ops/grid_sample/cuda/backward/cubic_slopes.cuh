// SPDX-License-Identifier: Apache-2.0
// The gradient of bicubic samples to the grid on CUDA: a block has the samples at home in a tile, and stages the pixels
// that they reach, a step of channels after the other. As many lanes as a step has vectors share a sample.
#pragma once

#include "ops/grid_sample/cuda/backward/cubic_lists.cuh"

namespace baracuda::grid_sample {
namespace {

// A tile's pixels, and those that its samples reach to the right and below.
constexpr int kPatchSide = kCubicTileSide + kCubicSide - 1, kPatchPixels = kPatchSide * kPatchSide;

// A sample's weights and their derivatives; 0 for pixels outside of the image.
template <typename C>
struct alignas(16) CubicFactors {
  C x_weights[kCubicSide], x_slopes[kCubicSide], y_weights[kCubicSide], y_slopes[kCubicSide];
};

template <typename C, typename Index, int kVectors>
struct CubicSlopesShared {
  uint4 patch[kPatchPixels * kVectors];
  CubicFactors<C> factors[kCubicSegment];
  C partials[2][kCubicSegment], totals[2][kCubicSegment];
  uint32_t pixels[kCubicSegment];  // in the patch: a nibble for each column, then for each row
  Index samples[kCubicSegment];
  int homes;  // samples at home here
};

// Where a vector of a pixel of the patch lies: turned by the column, so that neighbours' words lie in different banks.
template <int kVectors>
__device__ __forceinline__ int patch_place(int row, int column, int vector) {
  return (row * kPatchSide + column) * kVectors + (vector ^ (column & (kVectors - 1)));
}

// Puts the axis' factors down, and its pixels as nibbles.
template <typename C>
__device__ uint32_t place_axis(const CubicAxis<C>& axis, int32_t origin, C* weights, C* slopes) {
  cubic_weights(axis.fraction, weights);
  cubic_slopes(axis.fraction, slopes);
  uint32_t places = 0;
#pragma unroll
  for (int k = 0; k < kCubicSide; ++k) {
    if (axis.pixels[k] < 0) {
      weights[k] = slopes[k] = C(0);
    } else {
      places |= static_cast<uint32_t>(axis.pixels[k] - origin) << (4 * k);
    }
  }
  return places;
}

// Stages the step's channels of a patch; `input` is the first one's plane.
template <typename T, int kVectors>
__device__ void stage_patch(const T* input, const CubicPlace& place, const RuledProblem& p, int64_t channels,
                            uint4* patch) {
  using C = Compute<T>;
  constexpr int kLanes = kCubicLanes<C, kVectors>, kVector = kCubicVector<C>;
  // A warp reads four channels of eight pixels of a row; then of the pixels at the end of two rows, four lanes each.
  constexpr int kQuads = groups_of(kLanes, 4), kWarpsOfQuad = kCubicWarps / kQuads;
  constexpr int kRows = groups_of(kPatchSide, kWarpsOfQuad), kEnds = groups_of(groups_of(kPatchSide, 2), kWarpsOfQuad);
  static_assert(kPatchSide - kCubicTileSide <= 4);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int channel = warp % kQuads * 4 + lane / 8, first_row = warp / kQuads, column = lane % 8;
  const int end_row = 2 * first_row + column / 4, end_column = kCubicTileSide + column % 4;
  // Rows and columns of the patch that lie in the image; no rows of channels that do not exist.
  const int rows = channel < channels ? min(kPatchSide, p.input_h - place.row) : 0;
  const int columns = min(kPatchSide, p.input_w - place.column);
  const T* const plane = input + channel * p.pixels + static_cast<int64_t>(place.row) * p.input_w + place.column;
  const T* from = plane + static_cast<int64_t>(first_row) * p.input_w + column;
  const T* end_from = plane + static_cast<int64_t>(end_row) * p.input_w + end_column;
  C values[kRows] = {}, ends[kEnds] = {};
#pragma unroll
  for (int k = 0; k < kRows; ++k, from += kWarpsOfQuad * static_cast<int64_t>(p.input_w)) {
    if (first_row + k * kWarpsOfQuad < rows && column < columns) values[k] = widen(*from);
  }
#pragma unroll
  for (int k = 0; k < kEnds; ++k, end_from += 2 * kWarpsOfQuad * static_cast<int64_t>(p.input_w)) {
    if (end_row + 2 * k * kWarpsOfQuad < rows && end_column < columns) ends[k] = widen(*end_from);
  }
  if (channel >= kLanes) return;
  C* const words = reinterpret_cast<C*>(patch) + channel % kVector;
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const int row = first_row + k * kWarpsOfQuad;
    if (row < kPatchSide) words[patch_place<kVectors>(row, column, channel / kVector) * kVector] = values[k];
  }
#pragma unroll
  for (int k = 0; k < kEnds; ++k) {
    const int row = end_row + 2 * k * kWarpsOfQuad;
    if (row < kPatchSide && end_column < kPatchSide) {
      words[patch_place<kVectors>(row, end_column, channel / kVector) * kVector] = ends[k];
    }
  }
}

// A channel's derivatives as their definition has them: taps of weight 0 are left out.
template <typename C>
struct CubicDerivatives {
  C x, y;
};
template <typename C, int kVectors>
__device__ __noinline__ CubicDerivatives<C> derive_exactly(const CubicFactors<C>& factors, uint32_t pixels,
                                                           const uint4* patch, int channel) {
  constexpr int kVector = kCubicVector<C>;
  CubicDerivatives<C> by{C(0), C(0)};
#pragma unroll 1
  for (int tap = 0; tap < kCubicTaps; ++tap) {
    const int i = tap % kCubicSide, j = tap / kCubicSide;
    const C x_weight = factors.y_weights[j] * factors.x_slopes[i];
    const C y_weight = factors.y_slopes[j] * factors.x_weights[i];
    const int row = static_cast<int>(pixels >> (16 + 4 * j) & 15u);
    const int column = static_cast<int>(pixels >> (4 * i) & 15u);
    const int at = patch_place<kVectors>(row, column, channel / kVector) * kVector + channel % kVector;
    const C value = reinterpret_cast<const C*>(patch)[at];
    if (x_weight != C(0)) by.x = fma(x_weight, value, by.x);
    if (y_weight != C(0)) by.y = fma(y_weight, value, by.y);
  }
  return by;
}

// Adds a step to the partial sums of the samples at home. Every lane of a warp calls.
template <typename C, typename Index, int kVectors>
__device__ void add_step(const uint4* gradients, bool closes, CubicSlopesShared<C, Index, kVectors>& shared) {
  constexpr int kVector = kCubicVector<C>, kAtOnce = 32 / kVectors;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int vector = lane % kVectors, first_lane = lane - vector, homes = shared.homes;
  for (int base = warp * kAtOnce; base < homes; base += kCubicWarps * kAtOnce) {
    const bool exists = base + lane / kVectors < homes;
    const int home = exists ? base + lane / kVectors : base;
    const int64_t sample = static_cast<int64_t>(shared.samples[home]);
    const CubicVector<C> gradient = bits_as<CubicVector<C>>(gradients[sample * kVectors + vector]);
    const CubicFactors<C> factors = shared.factors[home];
    const uint32_t pixels = shared.pixels[home];
    int columns[kCubicSide];
#pragma unroll
    for (int i = 0; i < kCubicSide; ++i) {
      columns[i] = patch_place<kVectors>(0, static_cast<int>(pixels >> (4 * i) & 15u), vector);
    }
    // Every tap is added: one of weight 0 changes nothing, or makes a NaN, and then the sum is made anew. The sign of a
    // sum of 0 is lost in what it is added to.
    C by_x[kVector] = {}, by_y[kVector] = {};
#pragma unroll
    for (int j = 0; j < kCubicSide; ++j) {
      const uint4* const row = shared.patch + (pixels >> (16 + 4 * j) & 15u) * (kPatchSide * kVectors);
#pragma unroll
      for (int i = 0; i < kCubicSide; ++i) {
        const CubicVector<C> values = bits_as<CubicVector<C>>(row[columns[i]]);
        const C x_weight = factors.y_weights[j] * factors.x_slopes[i];
        const C y_weight = factors.y_slopes[j] * factors.x_weights[i];
#pragma unroll
        for (int k = 0; k < kVector; ++k) {
          by_x[k] = fma(x_weight, values.values[k], by_x[k]);
          by_y[k] = fma(y_weight, values.values[k], by_y[k]);
        }
      }
    }
    C test = C(0);  // NaN if one of them is infinite or NaN
#pragma unroll
    for (int k = 0; k < kVector; ++k) test = fma(by_x[k], C(0), fma(by_y[k], C(0), test));
    if (!is_finite(test)) {
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        const CubicDerivatives<C> by =
            derive_exactly<C, kVectors>(shared.factors[home], pixels, shared.patch, vector * kVector + k);
        by_x[k] = by.x;
        by_y[k] = by.y;
      }
    }
    // Channels ascend from lane to lane: each adds to what it has, and the one whose turn it is tells the others. The
    // first one alone reads and writes what is shared.
    const bool keeps = exists && vector == 0;
    C partial_x = keeps ? shared.partials[0][home] : C(0), partial_y = keeps ? shared.partials[1][home] : C(0);
#pragma unroll
    for (int turn = 0; turn < kVectors; ++turn) {
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        partial_x = fma(gradient.values[k], by_x[k], partial_x);
        partial_y = fma(gradient.values[k], by_y[k], partial_y);
      }
      partial_x = __shfl_sync(kFullWarp, partial_x, first_lane + turn);
      partial_y = __shfl_sync(kFullWarp, partial_y, first_lane + turn);
    }
    if (keeps) {
      if (closes) {
        shared.totals[0][home] = shared.totals[0][home] + partial_x;
        shared.totals[1][home] = shared.totals[1][home] + partial_y;
      }
      shared.partials[0][home] = closes ? C(0) : partial_x;
      shared.partials[1][home] = closes ? C(0) : partial_y;
    }
  }
}

// Channels from `channel` on: those at hand. The sums of the chunks so far wait in grad_grid from launch to launch.
template <typename T, typename Index, int kVectors>
__global__ void __launch_bounds__(kCubicThreads, sizeof(Compute<T>) == 4 ? 3 : 2)
    sum_cubic_slopes(RuledProblem p, CubicTiles tiles, BackwardBuffers<T> b, int32_t channel, CubicStorage<Index> s) {
  using C = Compute<T>;
  constexpr int kLanes = kCubicLanes<C, kVectors>;
  __shared__ CubicSlopesShared<C, Index, kVectors> shared;
  let_kernel_after_start();
  wait_for_kernel_before();
  const int own = static_cast<int>(threadIdx.x);
  const int64_t samples = p.n * p.samples, count = static_cast<int64_t>(s.totals->segments);
  for (int64_t task = blockIdx.x; task < count; task += gridDim.x) {
    const CubicSegment segment = s.segments[task];
    const CubicRecord<Index>& record = s.records[segment.tile];
    const CubicPlace place(tiles, static_cast<int64_t>(segment.tile));
    const int64_t length = static_cast<int64_t>(record.count - segment.first);
    const C* const grid = b.grid + 2 * place.image * p.samples;
    C* const grad_grid = b.grad_grid + 2 * place.image * p.samples;
    __syncthreads();  // what was before has been read
    if (own == 0) shared.homes = 0;
    __syncthreads();
    if (own < kCubicSegment && own < length) {
      const Index number = s.listed[record.list + segment.first + own];
      const int64_t at = 2 * static_cast<int64_t>(number);
      const CubicSample<C> sample(grid[at], grid[at + 1], p);
      const CubicReach x(sample.x), y(sample.y);
      const bool is_home = x.first >= place.column && y.first >= place.row && !x.is_far() && !y.is_far();
      if (is_home) {
        const int home = atomicAdd(&shared.homes, 1);
        CubicFactors<C> factors;
        const uint32_t columns = place_axis(sample.x, place.column, factors.x_weights, factors.x_slopes);
        const uint32_t rows = place_axis(sample.y, place.row, factors.y_weights, factors.y_slopes);
        shared.factors[home] = factors;
        shared.pixels[home] = rows << 16 | columns;
        shared.samples[home] = number;
#pragma unroll
        for (int axis = 0; axis < 2; ++axis) {
          shared.partials[axis][home] = C(0);
          shared.totals[axis][home] = channel == 0 ? C(0) : grad_grid[at + axis];
        }
      }
    }
    __syncthreads();
    const int homes = shared.homes;
    if (homes == 0) continue;
    for (int64_t step = 0; step < s.steps; ++step) {
      const int64_t from = channel + step * kLanes;
      if (step > 0) __syncthreads();  // the patch has been read
      const T* const input = b.input + input_offset(p, place.image) + from * p.pixels;
      stage_patch<T, kVectors>(input, place, p, p.c - from, shared.patch);
      __syncthreads();
      const bool closes = (step + 1) * kLanes % kChannelChunk == 0 || step + 1 == s.steps || from + kLanes >= p.c;
      add_step(s.gradients + (step * samples + place.image * p.samples) * kVectors, closes, shared);
    }
    __syncthreads();
    if (own >= homes) continue;
    const CubicFactors<C>& factors = shared.factors[own];
    const bool is_last = channel + s.channels >= p.c;
    bool has_x = false, has_y = false;
    for (int tap = 0; tap < kCubicTaps; ++tap) {
      const int i = tap % kCubicSide, j = tap / kCubicSide;
      has_x = has_x || factors.y_weights[j] * factors.x_slopes[i] != C(0);
      has_y = has_y || factors.y_slopes[j] * factors.x_weights[i] != C(0);
    }
    C x = shared.totals[0][own], y = shared.totals[1][own];
    if (is_last) {
      x = has_x ? by_coordinate(x, cubic_scale<C>(p.input_w, p.rule)) : C(0);
      y = has_y ? by_coordinate(y, cubic_scale<C>(p.input_h, p.rule)) : C(0);
    }
    const int64_t at = 2 * static_cast<int64_t>(shared.samples[own]);
    grad_grid[at] = x;
    grad_grid[at + 1] = y;
  }
}

// Pixels may lie further apart than neighbours where positions have no halves, from 2^23 on in f32: in such images, and
// in reflections of any.
constexpr int32_t kFarExtent = 1 << 22;
inline bool may_reach_far(const RuledProblem& p) {
  return p.rule.padding == Padding::kReflection || p.input_w > kFarExtent || p.input_h > kFarExtent;
}

// The samples that reach further than the patch of a tile: a thread a sample.
template <typename T>
__global__ void __launch_bounds__(kCubicThreads) sum_far_slopes(RuledProblem p, BackwardBuffers<T> b) {
  using C = Compute<T>;
  let_kernel_after_start();
  wait_for_kernel_before();
  for (int64_t i = grid_thread(); i < p.n * p.samples; i += grid_threads()) {
    const Division at(i, p.samples);
    const CubicSample<C> sample(b.grid[2 * i], b.grid[2 * i + 1], p);
    const CubicReach x(sample.x), y(sample.y);
    if (x.is_empty() || y.is_empty() || !(x.is_far() || y.is_far())) continue;
    CubicGradient<C> gradient(sample);
    const T* plane = b.input + input_offset(p, at.quotient);
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
