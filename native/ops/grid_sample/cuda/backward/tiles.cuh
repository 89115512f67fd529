// SPDX-License-Identifier: Apache-2.0
// The backward of most tiles on CUDA: a block owns a tile, or a part of one, for one chunk of channels. It orders its
// samples by pixel in shared memory once, then takes a few channels a step through both gradients, while the next
// step's values arrive.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/grid_sample/cuda/backward/items.cuh"
#include "ops/grid_sample/cuda/backward/parts.cuh"
#include "ops/grid_sample/cuda/backward/reserve.cuh"
#include "ops/grid_sample/cuda/backward/tile_lists.cuh"

namespace baracuda::grid_sample {
namespace {

// Blocks that share a multiprocessor: 64 registers each, and more for f64.
template <typename T>
constexpr int kResident = sizeof(T) == 8 ? 3 : 4;

// A sample at home in the tile and its sums. Its fractions stay in shared memory.
template <typename C>
struct HomeSample {
  // 0: not at home. Else kPresent, the taps that the derivative by x has, those by y, and above them its first
  // tap's pixel in the patch.
  uint32_t packed;
  C x_sum, y_sum;

  static constexpr uint32_t kPresent = 1u << 31;
  static constexpr uint32_t kAllTaps = 0xff;
  static constexpr int kTapFlags = 8;
  static constexpr uint32_t kPixelMask = 0xffff;
  // A first tap may lie above and left of the patch.
  static constexpr int kPixelBias = kPatchColumns + 1;

  __device__ bool at_home() const { return packed != 0; }
  __device__ int pixel() const { return static_cast<int>(packed >> kTapFlags & kPixelMask) - kPixelBias; }
  __device__ bool has_all_taps() const { return (packed & kAllTaps) == kAllTaps; }
  __device__ bool has_x_tap(int tap) const { return (packed >> tap & 1) != 0; }
  __device__ bool has_y_tap(int tap) const { return (packed >> (4 + tap) & 1) != 0; }
  __device__ bool has_x_taps() const { return (packed & 0x0f) != 0; }
  __device__ bool has_y_taps() const { return (packed & 0xf0) != 0; }
};

template <typename T, bool kSlopes>
__device__ HomeSample<Compute<T>> home_sample(const Problem& p, const TilePlace& place, const PatchLayout& layout,
                                              int slot, const TileShared<T, kSlopes>& shared) {
  using C = Compute<T>;
  HomeSample<C> sample{};
  if (slot >= layout.count || (shared.samples[slot] & kHome<uint32_t>) == 0) return sample;
  const int x = shared.low_x[slot], y = shared.low_y[slot];
  const Fractions<C> fractions = shared.fractions[slot];
  const Position<C> at{{x + place.column, fractions.x}, {y + place.row, fractions.y}};
  const Taps<C> x_taps = x_slope_taps(at, p), y_taps = y_slope_taps(at, p);
  uint32_t taps = 0;
#pragma unroll
  for (int tap = 0; tap < 4; ++tap) {
    taps |= static_cast<uint32_t>(x_taps.weight[tap] != C(0)) << tap;
    taps |= static_cast<uint32_t>(y_taps.weight[tap] != C(0)) << (4 + tap);
  }
  const int first = HomeSample<C>::kPixelBias + (layout.whole ? y * kPatchColumns + x : 4 * slot);
  sample.packed = HomeSample<C>::kPresent | static_cast<uint32_t>(first) << HomeSample<C>::kTapFlags | taps;
  return sample;
}

// Adds some channels of a step to a sample's sums. tap(i, k) is the value of its i-th tap in the k-th of them.
template <bool kFull, int kCount, typename C, class Tap, class Upstream>
__device__ __forceinline__ void add_slopes(HomeSample<C>& sample, int channels, const Fractions<C>& at, Tap tap,
                                           Upstream upstream) {
  const C x1 = at.x, y1 = at.y, x0 = C(1) - x1, y0 = C(1) - y1;
  if (sample.has_all_taps()) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if (!kFull && k >= channels) break;
      const C a = tap(0, k), b = tap(1, k), c = tap(2, k), d = tap(3, k);
      const C x_slope = fma(y1, d, fma(-y1, c, fma(y0, b, fma(-y0, a, C(0)))));
      const C y_slope = fma(x1, d, fma(x0, c, fma(-x1, b, fma(-x0, a, C(0)))));
      sample.x_sum = fma(upstream(k), x_slope, sample.x_sum);
      sample.y_sum = fma(upstream(k), y_slope, sample.y_sum);
    }
    return;
  }
  const C x_weights[4] = {-y0, y0, -y1, y1}, y_weights[4] = {-x0, -x1, x0, x1};
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    if (!kFull && k >= channels) break;
    C x_slope = C(0), y_slope = C(0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const C value = tap(i, k);
      if (sample.has_x_tap(i)) x_slope = fma(x_weights[i], value, x_slope);
      if (sample.has_y_tap(i)) y_slope = fma(y_weights[i], value, y_slope);
    }
    sample.x_sum = fma(upstream(k), x_slope, sample.x_sum);
    sample.y_sum = fma(upstream(k), y_slope, sample.y_sum);
  }
}

// A step of a sample.
template <bool kFull, typename T>
__device__ __forceinline__ void add_step(HomeSample<Compute<T>>& sample, int channels,
                                         const Fractions<Compute<T>>& at, int row_step, const PatchValues<T>& patch,
                                         const StepValues<T>* gradient) {
  const int first = sample.pixel();
  const StepValues<T> upstream = StepValues<T>::load(gradient);
  if constexpr (PatchValues<T>::kPlanes) {
    const T* upper = &patch.planes[0][0] + first;
    const T* lower = upper + row_step;
    add_slopes<kFull, kStep<T>>(
        sample, channels, at,
        [&](int i, int k) { return (i / 2 == 0 ? upper : lower)[k * kPatchPixels + i % 2]; },
        [&](int k) { return upstream.get(k); });
  } else {
    constexpr int kHalf = kStep<T> / 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint2* upper = reinterpret_cast<const uint2*>(&patch.halves[half][0]) + first;
      const uint2* lower = upper + row_step;
      const uint2 words[4] = {upper[0], upper[1], lower[0], lower[1]};
      add_slopes<kFull, kHalf>(
          sample, channels - half * kHalf, at,
          [&](int i, int k) { return PlaceValues<T, 2>{{words[i].x, words[i].y}}.get(k); },
          [&](int k) { return upstream.get(half * kHalf + k); });
      asm volatile("" ::: "memory");  // the second half's loads stay behind the first half: registers
    }
  }
}

// Contributions beyond those kept, a pixel's, whose weights are worked out together; a step of 16-bit channels leaves
// fewer registers.
template <typename T>
constexpr int kAskedFor = sizeof(T) == 2 ? 2 : 4;

// One step of both gradients from `buffer`. `tile_output` is the tile's first pixel in the step's first plane and
// `pixel` the thread's, from there, or kNoPixel. Planes beyond `channels`, which counts only in a step that is not
// kFull, are computed from what lies there and dropped.
template <bool kFull, typename T, bool kSlopes>
__device__ __forceinline__ void sum_step(const Problem& p, int channels, int buffer, int row_step,
                                         const PixelList<Compute<T>>& list,
                                         HomeSample<Compute<T>> (&samples)[kRounds], T* tile_output,
                                         uint32_t pixel, const TileShared<T, kSlopes>& shared) {
  using C = Compute<T>;
  const StepValues<T>* const gradients = shared.gradients[buffer];
  if constexpr (kSlopes) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (!samples[round].at_home()) continue;
      const int slot = round * kTileThreads + static_cast<int>(threadIdx.x);
      add_step<kFull>(samples[round], channels, shared.fractions[slot], row_step, shared.patches[buffer],
                      &gradients[slot]);
    }
  }
  // With at most kMostContributions there is one chunk.
  C sums[kStep<T>] = {};
  const auto add = [&](C weight, uint32_t offset) {
    const StepValues<T> gradient =
        StepValues<T>::load(reinterpret_cast<const StepValues<T>*>(reinterpret_cast<const char*>(gradients) + offset));
#pragma unroll
    for (int k = 0; k < kStep<T>; ++k) sums[k] = fma(weight, gradient.get(k), sums[k]);
  };
#pragma unroll
  for (int i = 0; i < kKept<C>; ++i) {
    if (i < list.length()) add(list.weights[i], list.offset(i));
  }
  // Some of the others are asked for together.
  for (int i = kKept<C>; i < list.length(); i += kAskedFor<T>) {
    uint32_t entries[kAskedFor<T>];
    C weights[kAskedFor<T>];
#pragma unroll
    for (int k = 0; k < kAskedFor<T>; ++k) {
      entries[k] = i + k < list.length() ? shared.entries[list.start() + i + k] : 0;
      weights[k] = weight_of(shared.fractions, entries[k]);
    }
#pragma unroll
    for (int k = 0; k < kAskedFor<T>; ++k) {
      if (i + k < list.length()) add(weights[k], (entries[k] >> kTapBits) * kPlaceBytes);
    }
  }
  if (pixel == kNoPixel) return;
  T* const output = tile_output + pixel;
#pragma unroll
  for (int k = 0; k < kStep<T>; ++k) {
    if (kFull || k < channels) output[k * p.pixels] = narrow<T>(C(0) + sums[k]);
  }
}
static_assert(kMostContributions <= kChunk);

// Adds a chunk's sums of the samples at home to their totals, which wait in grad_grid. Chunks take turns, of which each
// begins when all of the tile's parts have had the one before: owners drew their tickets in order, so that those that
// have the turn are running. `listed` holds the samples' numbers, with or without kHome; `grid` and `grad_grid` are the
// image's.
template <typename T, int kCount, class P>
__device__ void add_chunk(const P& p, const TileWork& work, HomeSample<Compute<T>> (&samples)[kCount],
                          const Compute<T>* grid, Compute<T>* grad_grid, TileRecord<uint32_t>& record,
                          const uint32_t* listed) {
  using C = Compute<T>;
  const bool last = work.channel + work.channels == p.c;
  if (work.chunk > 0) {
    if (threadIdx.x == 0) {
      const uint32_t turns = static_cast<uint32_t>(work.chunk) * static_cast<uint32_t>(work.parts);
      while (*const_cast<volatile uint32_t*>(&record.turns) < turns) {
      }
      __threadfence();
    }
    __syncthreads();
  }
#pragma unroll
  for (int round = 0; round < kCount; ++round) {
    const HomeSample<C>& sample = samples[round];
    if (!sample.at_home()) continue;
    const int64_t at = 2 * static_cast<int64_t>(listed[round * kTileThreads + threadIdx.x] & ~kHome<uint32_t>);
    // Volatile: another block wrote these since this multiprocessor may have cached them.
    volatile C* gradient = grad_grid + at;
    Gradient<C> total{(work.chunk == 0 ? C(0) : gradient[0]) + sample.x_sum,
                      (work.chunk == 0 ? C(0) : gradient[1]) + sample.y_sum};
    if (last) total = by_coordinates(total.x, total.y, grid + at, p);
    gradient[0] = sample.has_x_taps() ? total.x : C(0);
    gradient[1] = sample.has_y_taps() ? total.y : C(0);
  }
  if (last) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(&record.turns, 1u);
}

// A tile without samples: its pixels' gradients are 0.
template <typename T>
__device__ void clear_tile(const Problem& p, const TileWork& work, T* tile_output, uint32_t pixel) {
  if (pixel == kNoPixel) return;
  T* const output = tile_output + pixel;
  for (int k = 0; k < work.channels; ++k) output[k * p.pixels] = narrow<T>(Compute<T>(0));
}

// Sums a tile, or a part of one, whose item is `item` in shared memory.
template <typename T, bool kSlopes, class P>
__device__ void sum_tile(const P& p, const TileGrid& tiles, const TileWork& work, const BackwardBuffers<T>& b,
                         const Storage<Compute<T>, uint32_t>& s, const int64_t& item, TileShared<T, kSlopes>& shared) {
  using C = Compute<T>;
  const TilePlace place(tiles, work.tile);
  const int32_t x = place.column + static_cast<int32_t>(threadIdx.x) % kTileWidth;
  const int32_t y = place.row + static_cast<int32_t>(threadIdx.x) / kTileWidth;
  const int64_t plane = static_cast<int64_t>(place.image) * p.c + work.channel;
  // 32 bits: the sums need the registers.
  const uint32_t row = static_cast<uint32_t>(y - place.row), column = static_cast<uint32_t>(x - place.column);
  uint32_t pixel = x < p.input_w && y < p.input_h ? row * p.input_w + column : kNoPixel;
  const int64_t first_pixel = static_cast<int64_t>(place.row) * p.input_w + place.column;
  T* tile_output = b.grad_input + plane * p.pixels + first_pixel;
  TileRecord<uint32_t>& record = s.records[work.tile];
  int count = listed_samples(record);
  if (count == 0) return clear_tile(p, work, tile_output, pixel);
  TileRange range = TileRange::whole();
  const uint32_t* listed = s.staged + work.tile * kListed;
  const C* const grid = b.grid + 2 * static_cast<int64_t>(place.image) * p.samples;
  if (work.is_part() && count <= kListed) {
    uint32_t* const list = reinterpret_cast<uint32_t*>(shared.entries);
    static_assert(sizeof(shared.entries) >= kTileCapacity * sizeof(uint32_t));
    const TilePart part = list_part<kTileThreads, kTileCapacity>(p, place, work.part, work.parts, count, listed, grid,
                                                                 shared.starts, list);
    range = part.range;
    count = part.count;
    listed = list;
    if (!range.holds(static_cast<int>(row), static_cast<int>(column))) pixel = kNoPixel;
  } else if (count > kTileCapacity && count <= kListed) {
    return;  // its parts are items of their own
  }
  if (count > kTileCapacity || !list_entries<T>(p, place, range, count, listed, grid, shared)) {
    if (threadIdx.x == 0) {
      reserve_list(s, work.tile);
      atomicAdd(&record.turns, 1u);  // other parts may wait for this one
    }
    return;
  }
  const PatchLayout layout(count);
  if constexpr (kSlopes) find_pixels(p, place, layout, shared);
  const PixelList<C> list = sort_entries(shared);
  HomeSample<C> samples[kRounds];
#pragma unroll
  for (int round = 0; kSlopes && round < kRounds; ++round) {
    samples[round] = home_sample(p, place, layout, round * kTileThreads + static_cast<int>(threadIdx.x), shared);
  }
  Stager<T, kSlopes> stager;
  const bool laid = s.totals->laid != 0;
  if (threadIdx.x == 0) shared.laid = laid;
  stager.gradients = b.grad_output + plane * p.samples;
  if (laid) {
    const int64_t steps = place.image * ceil_div(p.c, kStep<T>) + work.channel / kStep<T>;
    stager.gradients = reinterpret_cast<const T*>(static_cast<const StepValues<T>*>(s.laid) + steps * p.samples);
  }
  stager.input = b.input + input_offset(p, place.image) + work.channel * p.pixels + first_pixel;
  __syncthreads();  // the pixels are found
  stager.begin(p, layout, work.channels, 0, shared);
  stager.finish();
  __syncthreads();
  int buffer = 0;
  for (int32_t left = work.channels; left > 0; left -= kStep<T>, buffer ^= 1) {
    // Copies go on in the background; loads through registers would wait, and let other blocks work.
    constexpr bool kCopies = PatchValues<T>::kPlanes;
    if (kCopies) stager.begin(p, layout, left - kStep<T>, buffer ^ 1, shared);
    if (left >= kStep<T>) {
      sum_step<true>(p, left, buffer, layout.row_step, list, samples, tile_output, pixel, shared);
    } else {
      sum_step<false>(p, left, buffer, layout.row_step, list, samples, tile_output, pixel, shared);
    }
    tile_output += kStep<T> * p.pixels;
    if (!kCopies) stager.begin(p, layout, left - kStep<T>, buffer ^ 1, shared);
    stager.finish();
    __syncthreads();
  }
  if constexpr (kSlopes) {
    // Worked out again rather than kept: the sums need the registers.
    const TileWork done(p, tiles, s, *const_cast<const volatile int64_t*>(&item));
    const int64_t image = done.tile / tiles.per_image;
    add_chunk<T>(p, done, samples, b.grid + 2 * image * p.samples, b.grad_grid + 2 * image * p.samples,
                 s.records[done.tile], shared.samples);
  }
}

// Both gradients, without kSlopes that to the input alone, for the tiles that are not crowded; reserves the lists of
// those that are.
template <typename T, bool kSlopes, class P>
__global__ void __launch_bounds__(kTileThreads, kResident<T>)
    sum_tiles(P p, TileGrid tiles, BackwardBuffers<T> b, Storage<Compute<T>, uint32_t> s) {
  __shared__ TileShared<T, kSlopes> shared;
  __shared__ int64_t item;
  let_kernel_after_start();
  wait_for_kernel_before();
  if (take_item<kSlopes>(p, tiles, s, item)) sum_tile(p, tiles, TileWork(p, tiles, s, item), b, s, item, shared);
}

}  // namespace
}  // namespace baracuda::grid_sample
