// SPDX-License-Identifier: Apache-2.0
// The gradient of bicubic samples to their images on CUDA: a block owns a tile and a chunk of channels. It stages the
// tile's samples, lists each pixel's contributions in order and then adds them, a step of channels after the other.
#pragma once

#include "core/cuda_copies.cuh"
#include "core/cuda_shared.cuh"
#include "ops/grid_sample/cuda/backward/cubic_lists.cuh"

namespace baracuda::grid_sample {
namespace {

// Samples that are staged at a time: random ones leave 121 to a tile at one a pixel, a smooth map up to twice that. A
// tile with more is summed a batch after the other.
constexpr int kCubicSlots = 192, kCubicWords = kCubicSlots / 32;
// Contributions of a batch. Where they are more, the batch is cut to as many samples as always fit.
template <typename C>
constexpr int kCubicEntries = sizeof(C) == 4 ? 2560 : 1536;
template <typename C>
constexpr int kFittingSlots = kCubicEntries<C> / kCubicTaps;
// Threads that list a pixel's contributions together.
constexpr int kListers = kCubicThreads / kCubicTilePixels;
static_assert(kListers == 4 && kCubicWords <= 2 * kListers && kCubicSlots <= kCubicThreads);

// A contribution: its weight, and where its sample's gradients are staged.
template <typename C>
struct alignas(2 * sizeof(C)) CubicEntry {
  C weight;
  uint32_t place;
};

template <typename C, typename Index, int kVectors>
struct CubicTileShared {
  static constexpr int kLanes = kCubicLanes<C, kVectors>;
  union {
    uint4 rows[kCubicSlots * kVectors];             // [slot][vector]
    C sums[kLanes][kCubicTilePixels + 1];           // of a step, on their way to rows of planes
  };
  CubicEntry<C> entries[kCubicEntries<C>];          // by pixel, in order
  C x_weights[kCubicSlots][kCubicSide], y_weights[kCubicSlots][kCubicSide];
  uint2 taps[kCubicSlots];                          // a nibble for each column and row: the taps that lie there
  uint32_t columns[kCubicWords][kCubicTileSide], lines[kCubicWords][kCubicTileSide];  // slots with taps there
  uint32_t starts[kCubicTilePixels + 1];            // where a pixel's entries start
  // Four of them are read at once. Unaligned, they would be read with what stands before, which another thread writes.
  alignas(16) uint32_t warp_totals[kCubicWarps];
  Index samples[kCubicSlots];
};

// A pixel's sums of a vector of channels, cut every kChunk contributions.
template <typename C>
struct CubicSums {
  C totals[kCubicVector<C>] = {}, partials[kCubicVector<C>] = {};
  uint32_t taken = 0;  // contributions of the partial sums

  __device__ void close_chunk() {
#pragma unroll
    for (int k = 0; k < kCubicVector<C>; ++k) {
      totals[k] = totals[k] + partials[k];
      partials[k] = C(0);
    }
    taken = 0;
  }
};

// The bits of an axis: pixels of the tile in the sample's order, of those that weigh something.
template <typename C>
__device__ uint32_t taps_of_axis(const CubicAxis<C>& axis, const C* weights, int32_t origin) {
  uint32_t taps = 0;
#pragma unroll
  for (int k = 0; k < kCubicSide; ++k) {
    const int32_t at = axis.pixels[k] - origin;  // of no pixel: -1 or less
    if (at >= 0 && at < kCubicTileSide && weights[k] != C(0)) taps |= 1u << (4 * at + k);
  }
  return taps;
}

// The least magnitude among the weights of these taps.
template <typename C>
__device__ C least_weight(uint32_t taps, const C* weights) {
  C least = C(2);  // weights are at most 1
#pragma unroll
  for (int k = 0; k < kCubicSide; ++k) {
    const C magnitude = weights[k] < C(0) ? -weights[k] : weights[k];
    if ((taps & 0x11111111u << k) != 0 && magnitude < least) least = magnitude;
  }
  return least;
}

// No pixel has two of the taps.
__device__ __forceinline__ bool are_apart(uint32_t taps) {
  return __popc((taps | taps >> 1 | taps >> 2 | taps >> 3) & 0x11111111u) == __popc(taps);
}

// Slots' bits in a word, of those below `count`.
__device__ __forceinline__ uint32_t slots_below(int count, int word) {
  const int left = count - 32 * word;
  return left >= 32 ? kFullWarp : left <= 0 ? 0 : (1u << left) - 1;
}

template <typename T, typename Index, int kVectors>
struct CubicTile {
  using C = Compute<T>;
  using Shared = CubicTileShared<C, Index, kVectors>;

  const RuledProblem& p;
  const CubicPlace& place;
  const C* grid;  // the image's
  Shared& shared;

  // Stages where samples lie; answers whether each of them has at most one tap on a pixel, and no product of weights
  // underflows, so that contributions need not be counted one by one. All threads call.
  __device__ bool place_samples(const Index* list, int count) const {
    const int slot = static_cast<int>(threadIdx.x), lane = slot % 32, word = slot / 32;
    bool is_simple = true;
    if (word < kCubicWords) {
      uint2 taps{0, 0};
      if (slot < count) {
        const Index own = list[slot];
        const C* const coordinates = grid + 2 * static_cast<int64_t>(own);
        const CubicSample<C> sample(coordinates[0], coordinates[1], p);
        taps.x = taps_of_axis(sample.x, sample.x_weights, place.column);
        taps.y = taps_of_axis(sample.y, sample.y_weights, place.row);
        if (taps.x == 0 || taps.y == 0) taps = {0, 0};
        is_simple = are_apart(taps.x) && are_apart(taps.y) &&
                    least_weight(taps.x, sample.x_weights) * least_weight(taps.y, sample.y_weights) != C(0);
        shared.samples[slot] = own;
        shared.taps[slot] = taps;
#pragma unroll
        for (int k = 0; k < kCubicSide; ++k) {
          shared.x_weights[slot][k] = sample.x_weights[k];
          shared.y_weights[slot][k] = sample.y_weights[k];
        }
      }
#pragma unroll
      for (int k = 0; k < kCubicTileSide; ++k) {
        const uint32_t nibble = 15u << (4 * k);
        const uint32_t column = __ballot_sync(kFullWarp, (taps.x & nibble) != 0);
        const uint32_t line = __ballot_sync(kFullWarp, (taps.y & nibble) != 0);
        if (lane == k) {
          shared.columns[word][k] = column;
          shared.lines[word][k] = line;
        }
      }
    }
    return __syncthreads_and(is_simple) != 0;
  }

  // Calls visit(slot, weight) for each contribution of these slots of a word to a pixel, in order.
  template <class Visit>
  __device__ void for_each(uint32_t slots, int word, int pixel, Visit visit) const {
    for (; slots != 0; slots &= slots - 1) {
      const int slot = 32 * word + __ffs(static_cast<int>(slots)) - 1;
      const uint2 taps = shared.taps[slot];
      const uint32_t columns = taps.x >> (4 * (pixel % kCubicTileSide)) & 15u;
      for (uint32_t ys = taps.y >> (4 * (pixel / kCubicTileSide)) & 15u; ys != 0; ys &= ys - 1) {
        const C y_weight = shared.y_weights[slot][__ffs(static_cast<int>(ys)) - 1];
        for (uint32_t xs = columns; xs != 0; xs &= xs - 1) {
          const C weight = y_weight * shared.x_weights[slot][__ffs(static_cast<int>(xs)) - 1];
          if (weight != C(0)) visit(slot, weight);
        }
      }
    }
  }

  // Lists the contributions of `count` staged samples; answers whether there was room. All threads call.
  __device__ bool list_contributions(int count, bool is_simple) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int pixel = static_cast<int>(threadIdx.x) / kListers, lister = lane % kListers;
    // Words number `lister` and kListers + `lister`; the pixel's threads are neighbours.
    uint32_t slots[2], before[2], sums[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int word = half * kListers + lister;
      slots[half] = 0;
      if (word < kCubicWords) {
        slots[half] = shared.columns[word][pixel % kCubicTileSide] & shared.lines[word][pixel / kCubicTileSide] &
                      slots_below(count, word);
      }
      uint32_t found = static_cast<uint32_t>(__popc(slots[half]));
      if (!is_simple) {
        found = 0;
        for_each(slots[half], word, pixel, [&](int, C) { ++found; });
      }
      uint32_t up_to_here = found;
#pragma unroll
      for (int distance = 1; distance < kListers; distance *= 2) {
        const uint32_t other = __shfl_up_sync(kFullWarp, up_to_here, static_cast<unsigned>(distance));
        if (lister >= distance) up_to_here += other;
      }
      before[half] = up_to_here - found;
      sums[half] = __shfl_sync(kFullWarp, up_to_here, lane | (kListers - 1));
    }
    const uint32_t own = sums[0] + sums[1];
    uint32_t up_to_here = own;
#pragma unroll
    for (int distance = kListers; distance < 32; distance *= 2) {
      const uint32_t other = __shfl_up_sync(kFullWarp, up_to_here, static_cast<unsigned>(distance));
      if (lane >= distance) up_to_here += other;
    }
    if (lane == 31) shared.warp_totals[warp] = up_to_here;
    __syncthreads();
    uint32_t start = up_to_here - own, total = 0;
#pragma unroll
    for (int k = 0; k < kCubicWarps; ++k) {
      const uint32_t of_warp = shared.warp_totals[k];
      if (k < warp) start += of_warp;
      total += of_warp;
    }
    if (total > kCubicEntries<C>) {
      __syncthreads();  // the totals have been read
      return false;
    }
    if (lister == 0) shared.starts[pixel] = start;
    if (threadIdx.x == 0) shared.starts[kCubicTilePixels] = total;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t at = start + before[half] + (half == 0 ? 0 : sums[0]);
      for_each(slots[half], half * kListers + lister, pixel, [&](int slot, C weight) {
        shared.entries[at++] = {weight, static_cast<uint32_t>(slot * kVectors)};
      });
    }
    return true;
  }

  // Copies a step's gradients of `count` staged samples, of an image's.
  __device__ void stage(const uint4* gradients, int count) const {
    for (int k = static_cast<int>(threadIdx.x); k < count * kVectors; k += kCubicThreads) {
      const int64_t sample = static_cast<int64_t>(shared.samples[k / kVectors]);
      copy_async<16>(&shared.rows[k], gradients + sample * kVectors + k % kVectors);
    }
  }

  // Adds a pixel's contributions to a vector of channels.
  __device__ void add(int pixel, int vector, CubicSums<C>& sums) const {
    uint32_t i = shared.starts[pixel];
    const uint32_t end = shared.starts[pixel + 1];
    const uint4* const rows = shared.rows + vector;
    while (i < end) {
      const uint32_t stop = min(end, i + (static_cast<uint32_t>(kChunk) - sums.taken));
      sums.taken += stop - i;
#pragma unroll 4
      for (; i < stop; ++i) {
        const CubicEntry<C> entry = shared.entries[i];
        const CubicVector<C> row = bits_as<CubicVector<C>>(rows[entry.place]);
#pragma unroll
        for (int k = 0; k < kCubicVector<C>; ++k) sums.partials[k] = fma(entry.weight, row.values[k], sums.partials[k]);
      }
      if (sums.taken == kChunk) sums.close_chunk();
    }
  }

  // Writes a step's sums, which are staged, to the planes from `grad_input` on.
  __device__ void store(T* grad_input, int channels) const {
    const int pixel = static_cast<int>(threadIdx.x) % kCubicTilePixels;
    const int32_t row = place.row + pixel / kCubicTileSide, column = place.column + pixel % kCubicTileSide;
    if (row >= p.input_h || column >= p.input_w) return;
    const int first = static_cast<int>(threadIdx.x) / kCubicTilePixels;
    T* to = grad_input + first * p.pixels + static_cast<int64_t>(row) * p.input_w + column;
#pragma unroll
    for (int k = first; k < Shared::kLanes; k += kListers, to += kListers * p.pixels) {
      if (k < channels) *to = narrow<T>(shared.sums[k][pixel]);
    }
  }
};

// Channels from `channel` on: those at hand.
template <typename T, typename Index, int kVectors>
__global__ void __launch_bounds__(kCubicThreads, sizeof(Compute<T>) == 4 ? 4 : 3)
    sum_cubic(RuledProblem p, CubicTiles tiles, BackwardBuffers<T> b, int32_t channel, CubicStorage<Index> s) {
  using C = Compute<T>;
  using Tile = CubicTile<T, Index, kVectors>;
  constexpr int kLanes = kCubicLanes<C, kVectors>, kSteps = kChannelChunk / kLanes;
  // Pixels that the block adds to at once, and of a thread.
  constexpr int kAtOnce = kCubicThreads / kVectors;
  constexpr int kPixels = kAtOnce < kCubicTilePixels ? kCubicTilePixels / kAtOnce : 1;
  auto& shared = *dynamic_shared<typename Tile::Shared>();
  let_kernel_after_start();
  wait_for_kernel_before();
  const int vector = static_cast<int>(threadIdx.x) % kVectors, first_pixel = static_cast<int>(threadIdx.x) / kVectors;
  const int64_t samples = p.n * p.samples, chunks = groups_of<int64_t>(s.channels, kChannelChunk);
  for (int64_t task = blockIdx.x; task < tiles.total * chunks; task += gridDim.x) {
    const Division cut(task, tiles.total);
    const CubicPlace place(tiles, cut.remainder);
    const CubicRecord<Index>& record = s.records[cut.remainder];
    const int64_t count = static_cast<int64_t>(record.count);
    const Index* const list = s.listed + record.list;
    const Tile tile{p, place, b.grid + 2 * place.image * p.samples, shared};
    bool is_listed = false;  // all of the tile's contributions are
    for (int step = 0; step < kSteps; ++step) {
      const int64_t number = cut.quotient * kSteps + step, from = channel + number * kLanes;
      if (number >= s.steps || from >= p.c) break;
      const uint4* const gradients = s.gradients + (number * samples + place.image * p.samples) * kVectors;
      CubicSums<C> sums[kPixels];
      for (int64_t begin = 0; begin < count;) {
        int batch = static_cast<int>(count - begin < kCubicSlots ? count - begin : kCubicSlots);
        __syncthreads();  // what is staged has been read
        if (!is_listed) {
          const bool is_simple = tile.place_samples(list + begin, batch);
          if (!tile.list_contributions(batch, is_simple)) {
            batch = batch < kFittingSlots<C> ? batch : kFittingSlots<C>;
            tile.list_contributions(batch, is_simple);
          }
          is_listed = batch == count;
        }
        tile.stage(gradients, batch);
        wait_for_copies();
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kPixels; ++k) {
          const int pixel = first_pixel + k * kAtOnce;
          if (pixel < kCubicTilePixels) tile.add(pixel, vector, sums[k]);
        }
        begin += batch;
      }
      __syncthreads();  // the rows, or the sums before, have been read
#pragma unroll
      for (int k = 0; k < kPixels; ++k) {
        const int pixel = first_pixel + k * kAtOnce;
        if (pixel >= kCubicTilePixels) continue;
        if (sums[k].taken > 0) sums[k].close_chunk();
#pragma unroll
        for (int j = 0; j < kCubicVector<C>; ++j) {
          shared.sums[vector * kCubicVector<C> + j][pixel] = sums[k].totals[j];
        }
      }
      __syncthreads();
      tile.store(b.grad_input + (place.image * p.c + from) * p.pixels, static_cast<int>(p.c - from));
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
