// SPDX-License-Identifier: Apache-2.0
// The backward's sums on CUDA: a warp owns a tile of pixels for some channels and walks the bins that may send it
// something, in order; then the sums of the blocks of boxes are added, where there are several.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/roi_pool/cuda/bounds.cuh"

namespace baracuda::roi_pool {
namespace {

constexpr int kTileRows = 4;
constexpr int kTileColumns = 32;
constexpr int kTilePixels = kTileRows * kTileColumns;
// A lane is a channel while bins are added, so that no two lanes share a sum, and a column while the tile is written;
// the odd word spreads a pixel's channels and a channel's pixels over the banks.
constexpr int kTileChannels = 32;
constexpr int kTilePitch = kTileChannels + 1;
// 33.8 KB of sums a block in both types, six of which fit a multiprocessor of sm_90.
template <typename C>
constexpr int kTileWarps = sizeof(C) == 8 ? 1 : 2;
constexpr int kTileBlocks = 6;
// Bins whose loads are under way together. Lanes read places far apart, and neighbouring bins the same 32 bytes.
constexpr int kBinGroup = 8;

template <typename C>
using TileSums = C[kTilePixels][kTilePitch];

// Tiles of a map and what a warp works on: a job is a block of boxes, an image, some channels and a tile.
struct TileJobs {
  int64_t across, down, channels, n, all;

  static TileJobs of(const Problem& p) {
    TileJobs jobs{ceil_div(p.w, kTileColumns), ceil_div(p.h, kTileRows), ceil_div(p.c, kTileChannels), p.n, 0};
    jobs.all = jobs.across * jobs.down * jobs.channels * jobs.n * p.blocks();
    return jobs;
  }
};

// Where a tile lies.
struct TilePlace {
  Bounds pixels;
  int32_t image;
  int32_t channel;
  int64_t block;
};

__device__ __forceinline__ TilePlace place_of(const Problem& p, const TileJobs& jobs, int64_t job) {
  // Tiles innermost: those of the same channels read the same bins.
  const int32_t left = static_cast<int32_t>(job % jobs.across) * kTileColumns;
  const int32_t top = static_cast<int32_t>(job / jobs.across % jobs.down) * kTileRows;
  const int64_t above = job / jobs.across / jobs.down;
  TilePlace place;
  // Compared as differences, since the end of the last tile may pass 2^31.
  place.pixels = {top, p.h - top > kTileRows ? top + (kTileRows - 1) : p.h - 1, left,
                  p.w - left > kTileColumns ? left + (kTileColumns - 1) : p.w - 1};
  place.channel = static_cast<int32_t>(above % jobs.channels) * kTileChannels;
  place.image = static_cast<int32_t>(above / jobs.channels % jobs.n);
  place.block = above / jobs.channels / jobs.n;
  return place;
}

// The next set bit of `left`, which it leaves.
__device__ __forceinline__ int take_lowest(uint32_t& left) {
  const int lowest = __ffs(static_cast<int>(left)) - 1;
  left &= left - 1;
  return lowest;
}

// Adds the bins of one box, ascending. `argmax` and `grad` are those of the lane's channel, NULL beyond the last one.
template <typename T>
__device__ __forceinline__ void add_box(const Problem& p, const Bounds* bins, const int32_t* argmax, const T* grad,
                                        const Bounds& tile, Divider by_width, TileSums<Compute<T>>& sums) {
  using C = Compute<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t all_bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  for (int64_t base = 0; base < all_bins; base += 32) {
    const bool met = base + lane < all_bins && bins[base + lane].meets(tile);
    uint32_t left = __ballot_sync(kFullWarp, met);
    while (left != 0) {
      int32_t pixels[kBinGroup];
      T grads[kBinGroup];
#pragma unroll
      for (int i = 0; i < kBinGroup; ++i) {
        pixels[i] = kNoPixel;
        if (left == 0) continue;
        const int64_t bin = base + take_lowest(left);
        if (argmax == nullptr) continue;
        pixels[i] = argmax[bin];
        grads[i] = grad[bin];
      }
#pragma unroll
      for (int i = 0; i < kBinGroup; ++i) {
        if (pixels[i] < 0) continue;
        const int32_t row = static_cast<int32_t>(by_width.divide(static_cast<uint32_t>(pixels[i])));
        const int32_t column = pixels[i] - row * p.w;
        // A row beyond the image's is beyond the tile's too.
        if (row < tile.top || row > tile.bottom || column < tile.left || column > tile.right) continue;
        C& sum = sums[(row - tile.top) * kTileColumns + (column - tile.left)][lane];
        sum = sum + widen(grads[i]);
      }
    }
  }
}

// Writes a tile's sums: to the block's partial sums where there are several blocks, else rounded to grad_input.
template <typename T>
__device__ __forceinline__ void write_tile(const Problem& p, const TilePlace& place, TileSums<Compute<T>>& sums,
                                           T* grad_input, Compute<T>* partials) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int32_t column = place.pixels.left + lane;
  if (column > place.pixels.right) return;
  const int64_t plane = static_cast<int64_t>(p.h) * p.w;
  const int32_t channels = min(kTileChannels, p.c - place.channel);
  const int64_t first = (static_cast<int64_t>(place.image) * p.c + place.channel) * plane + column;
  for (int32_t k = 0; k < channels; ++k) {
#pragma unroll
    for (int32_t i = 0; i < kTileRows; ++i) {
      const int32_t row = place.pixels.top + i;
      if (row > place.pixels.bottom) continue;
      const int64_t at = first + k * plane + static_cast<int64_t>(row) * p.w;
      const Compute<T> sum = sums[i * kTileColumns + lane][k];
      if (partials != nullptr) {
        partials[place.block * p.input_numel + at] = sum;
      } else {
        grad_input[at] = narrow<T>(sum);
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(32 * kTileWarps<Compute<T>>, kTileBlocks)
    sum_tiles(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b, const BoxBounds* boxes,
              const Bounds* bins, Compute<T>* partials, const __grid_constant__ TileJobs jobs, Divider by_width) {
  using C = Compute<T>;
  constexpr int kWarps = kTileWarps<C>;
  __shared__ TileSums<C> all_sums[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  TileSums<C>& sums = all_sums[warp];
  const int64_t all_bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  for (int64_t job = static_cast<int64_t>(blockIdx.x) * kWarps + warp; job < jobs.all;
       job += static_cast<int64_t>(gridDim.x) * kWarps) {
    const TilePlace place = place_of(p, jobs, job);
    const bool has_channel = place.channel + lane < p.c;
    for (int i = 0; i < kTilePixels; ++i) sums[i][lane] = C(0);
    const int64_t begin = place.block * p.rois_per_block;
    const int64_t end = begin + p.rois_per_block < p.num_rois ? begin + p.rois_per_block : p.num_rois;
    for (int64_t base = begin; base < end; base += 32) {
      bool met = false;
      if (base + lane < end) {
        const BoxBounds box = boxes[base + lane];
        met = box.image == place.image && box.all.meets(place.pixels);
      }
      uint32_t left = __ballot_sync(kFullWarp, met);
      while (left != 0) {
        const int64_t r = base + take_lowest(left);
        const int64_t first = (r * p.c + place.channel + lane) * all_bins;
        add_box<T>(p, bins + r * all_bins, has_channel ? b.argmax + first : nullptr, b.grad_output + first,
                   place.pixels, by_width, sums);
      }
    }
    __syncwarp();  // every channel's sums are there
    write_tile<T>(p, place, sums, b.grad_input, partials);
    __syncwarp();  // and read
  }
}

constexpr int kAddThreads = 256;

// Every element's partial sums, ascending.
template <typename T>
__global__ void __launch_bounds__(kAddThreads)
    add_blocks(int64_t numel, int64_t blocks, const Compute<T>* partials, T* grad_input) {
  using C = Compute<T>;
  for (int64_t i = grid_thread(); i < numel; i += grid_threads()) {
    C total = C(0);
#pragma unroll 4
    for (int64_t block = 0; block < blocks; ++block) total = total + partials[block * numel + i];
    grad_input[i] = narrow<T>(total);
  }
}

template <typename T>
Status enqueue_tiles(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  using C = Compute<T>;
  const BackwardScratch<C> scratch(p, workspace);
  const Divider by_width(p.w);
  BARACUDA_RETURN_IF_FAILED(launch_kernel("roi_pool_backward bound kernel", bound_bins<C>, blocks_for(p.num_rois, 1),
                                          kBoundThreads, 0, stream, p, b.rois, b.argmax, scratch.boxes, scratch.bins,
                                          by_width));
  const bool is_cut = p.blocks() > 1;
  const TileJobs jobs = TileJobs::of(p);
  BARACUDA_RETURN_IF_FAILED(launch_kernel(
      "roi_pool_backward tile kernel", sum_tiles<T>, blocks_for(jobs.all, kTileWarps<C>), 32 * kTileWarps<C>, 0, stream,
      p, b, scratch.boxes, scratch.bins, is_cut ? scratch.partials : nullptr, jobs, by_width));
  if (!is_cut) return Status::kOk;
  return launch_kernel("roi_pool_backward block kernel", add_blocks<T>, blocks_for(p.input_numel, kAddThreads),
                       kAddThreads, 0, stream, p.input_numel, p.blocks(), scratch.partials, b.grad_input);
}

}  // namespace
}  // namespace baracuda::roi_pool
