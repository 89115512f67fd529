// SPDX-License-Identifier: Apache-2.0
// grid_sample on CUDA: the forward, one thread a sample for some channels, and the backward's launches.
#include "ops/grid_sample/cuda/backward/bins.cuh"
#include "ops/grid_sample/cuda/forward/packets.cuh"
#include "ops/grid_sample/cuda/backward/crowded.cuh"
#include "ops/grid_sample/cuda/backward/lists.cuh"
#include "ops/grid_sample/cuda/backward/narrow.cuh"
#include "ops/grid_sample/cuda/forward/planes.cuh"
#include "ops/grid_sample/cuda/backward/sparse.cuh"
#include "ops/grid_sample/cuda/forward/taps.cuh"
#include "ops/grid_sample/cuda/backward/tiles.cuh"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

constexpr int kForwardThreads = 256;
// Channels of a thread: enough to pay for the coordinates, few enough to fill the machine with one image.
constexpr int kForwardChannels = 16;
// Blocks that share a multiprocessor.
template <typename T>
constexpr int kForwardBlocks = sizeof(T) == 8 ? 4 : 5;

template <typename T>
__global__ void __launch_bounds__(kForwardThreads, kForwardBlocks<T>) sample_images(Problem p, ForwardBuffers<T> b) {
  using C = Compute<T>;
  const int64_t samples = p.n * p.samples;
  const int64_t sample_blocks = (samples + kForwardThreads - 1) / kForwardThreads;
  const int64_t jobs = sample_blocks * ((static_cast<uint32_t>(p.c) + kForwardChannels - 1) / kForwardChannels);
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const Division cut(job, sample_blocks);
    const int64_t i = cut.remainder * kForwardThreads + threadIdx.x;
    const unsigned lanes = __ballot_sync(kFullWarp, i < samples);
    if (i >= samples) continue;
    const Division at(i, p.samples);
    const int32_t channel = static_cast<int32_t>(cut.quotient) * kForwardChannels;
    const int32_t channels = p.c - channel < kForwardChannels ? p.c - channel : kForwardChannels;
    const C grid_x = b.grid[2 * i], grid_y = b.grid[2 * i + 1];
    const Position<C> position = locate_sample(grid_x, grid_y, p);
    const Taps<C> taps = value_taps(position, p);
    const C start = is_missing(grid_x, grid_y) ? canonical_nan<C>() : C(0);
    const int64_t plane = at.quotient * p.c + channel;
    const T* pixel = b.input + plane * p.pixels + static_cast<int64_t>(position.y.low) * p.input_w + position.x.low;
    T* output = b.output + plane * p.samples + at.remainder;
    if constexpr (sizeof(T) <= 4) {
      if (is_chunked(p, b.input) && are_scattered(lanes, pixel)) {
        const T* const first_plane = b.input + plane * p.pixels;
        TapRow<T> upper(first_plane, pixel, taps.weight[0], taps.weight[1]);
        TapRow<T> lower(first_plane, pixel + p.input_w, taps.weight[2], taps.weight[3]);
#pragma unroll 1
        for (int32_t k = 1;; ++k) {
          const TapPair<T> above = upper.taps(), below = lower.taps();
          const T values[4] = {above.first, above.second, below.first, below.second};
          *output = sum_taps(values, taps, start);
          if (k >= channels) break;
          output += p.samples;
          upper.load_next(p.pixels), lower.load_next(p.pixels);
        }
        continue;
      }
    }
    const int64_t offsets[4] = {0, 1, p.input_w, int64_t{p.input_w} + 1};
    int32_t k = 0;
    // The loads of two channels are under way together.
#pragma unroll 1
    for (; k + 2 <= channels; k += 2) {
      T values[2][4];
      load_taps(pixel, offsets, taps, values[0]);
      load_taps(pixel + p.pixels, offsets, taps, values[1]);
      output[0] = sum_taps(values[0], taps, start);
      output[p.samples] = sum_taps(values[1], taps, start);
      pixel += 2 * p.pixels;
      output += 2 * p.samples;
    }
    if (k < channels) {
      T values[4];
      load_taps(pixel, offsets, taps, values);
      *output = sum_taps(values, taps, start);
    }
  }
}

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void*, Stream stream) {
  if constexpr (sizeof(T) <= 4) {
    DeviceTraits device;
    BARACUDA_RETURN_IF_FAILED(device_traits(&device));
    const PlaneGroups groups = plane_groups<T>(p, device);
    if (groups.per_image > 0) {
      const size_t bytes = size_t{kPlaneBuffers} * groups.buffer_bytes;
      const int64_t blocks = int64_t{kPlaneBlocks} * device.multiprocessors, count = int64_t{p.n} * groups.per_image;
      BARACUDA_RETURN_IF_FAILED(allow_shared_bytes("grid_sample plane kernel", sample_planes<T>, bytes));
      return launch_kernel("grid_sample plane kernel", sample_planes<T>, blocks_for(blocks < count ? blocks : count, 1),
                           kPlaneThreads, bytes, stream, p, groups, b);
    }
  }
  const int64_t sample_blocks = (p.n * p.samples + kForwardThreads - 1) / kForwardThreads;
  const int64_t channel_groups = (int64_t{p.c} + kForwardChannels - 1) / kForwardChannels;
  return launch_kernel("grid_sample kernel", sample_images<T>, blocks_for(sample_blocks * channel_groups, 1),
                       kForwardThreads, 0, stream, p, b);
}

constexpr int kZeroThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kZeroThreads) write_zeros(int64_t count, T* output) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) output[i] = narrow<T>(Compute<T>(0));
}

// Blocks per multiprocessor of the crowded tiles' kernels, which stride over work that only the device knows, mostly
// none.
constexpr int kCrowdedBlocks = 4;

// The tiles that are staged in shared memory. Learns which ones are crowded.
template <int kCapacity, typename T>
Status sum_staged(const Problem& p, const TileGrid& tiles, const BackwardBuffers<T>& b,
                  const Storage<Compute<T>, uint32_t>& s, Stream stream) {
  if (is_narrow(p)) {
    return launch_early("grid_sample_backward narrow kernel", sum_narrow<T, kCapacity>,
                         static_cast<uint32_t>(tiles.total), kNarrowThreads, 0, stream, p, tiles, b, s);
  }
  const bool sparse = kCapacity == kUsualCapacity && is_sparse(p);
  const auto sum = sparse ? sum_sparse<T, kUsualCapacity> : sum_tiles<T, kCapacity>;
  return launch_early("grid_sample_backward kernel", sum, static_cast<uint32_t>(staged_blocks(p, tiles)), kTileThreads,
                      0, stream, p, tiles, b, s);
}

// The tiles that are not. Where no tile is crowded these launches end at once.
template <typename T, typename Index>
Status sum_rest(const Problem& p, const TileGrid& tiles, const BackwardBuffers<T>& b,
                const Storage<Compute<T>, Index>& s, Stream stream) {
  using C = Compute<T>;
  DeviceTraits device;
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  const uint32_t blocks = static_cast<uint32_t>(device.multiprocessors * kCrowdedBlocks);
  BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward list kernel", fill_lists<C, Index>, 2 * blocks,
                                          kBinThreads, 0, stream, p, tiles, b.grid, s));
  BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward sort kernel", sort_lists<C, Index>,
                                         static_cast<uint32_t>(device.multiprocessors), kSortThreads<Index>, 0,
                                         stream, p, tiles, b.grid, s));
  return launch_early("grid_sample_backward crowded kernel", sum_crowded<T, Index>, 2 * blocks, kSumThreads, 0, stream,
                       p, tiles, b, s);
}

template <typename T, typename Index>
Status sum_all(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  using C = Compute<T>;
  constexpr bool kStages = sizeof(Index) == 4;
  const Storage<C, Index> s(p, workspace);
  const TileGrid tiles(p);
  const int64_t counters = static_cast<int64_t>(s.cleared_bytes / sizeof(uint4));
  BARACUDA_RETURN_IF_FAILED(launch_kernel("grid_sample_backward counter kernel", clear_counters,
                                          blocks_for(counters, kClearThreads), kClearThreads, 0, stream, counters,
                                          reinterpret_cast<uint4*>(s.totals)));
  const auto bin = is_narrow(p) ? bin_samples<T, Index, kStages, true> : bin_samples<T, Index, kStages, false>;
  BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward bin kernel", bin,
                                         blocks_for(p.n * p.samples, kBinThreads), kBinThreads, 0, stream, p, tiles, b,
                                         s));
  if constexpr (kStages) {
    BARACUDA_RETURN_IF_FAILED(s.capacity == kUsualCapacity
                                  ? sum_staged<kUsualCapacity>(p, tiles, b, s, stream)
                                  : sum_staged<kLargeCapacity<C>>(p, tiles, b, s, stream));
  } else {
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward reserve kernel", reserve_lists<C, Index>,
                                          blocks_for(tiles.total, kReserveThreads), kReserveThreads, 0, stream,
                                            tiles, s));
  }
  return sum_rest(p, tiles, b, s, stream);
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  using C = Compute<T>;
  if (p.input_numel == 0 || p.samples == 0) {
    BARACUDA_RETURN_IF_FAILED(launch_kernel("grid_sample_backward zero kernel", write_zeros<T>,
                                            blocks_for(p.input_numel, kZeroThreads), kZeroThreads, 0, stream,
                                            p.input_numel, b.grad_input));
    return launch_kernel("grid_sample_backward zero kernel", write_zeros<C>, blocks_for(p.grid_numel, kZeroThreads),
                         kZeroThreads, 0, stream, p.grid_numel, b.grad_grid);
  }
  if (fits_staging(p)) return sum_all<T, uint32_t>(p, b, workspace, stream);
  return sum_all<T, unsigned long long>(p, b, workspace, stream);
}

template <typename T>
size_t bytes_of(const Problem&, const ForwardBuffers<T>*) {
  return 0;
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  using C = Compute<T>;
  if (p.input_numel == 0 || p.samples == 0) return 0;
  return fits_staging(p) ? Storage<C, uint32_t>(p, nullptr).bytes
                              : Storage<C, unsigned long long>(p, nullptr).bytes;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::grid_sample
