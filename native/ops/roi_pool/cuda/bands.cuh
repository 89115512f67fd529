// SPDX-License-Identifier: Apache-2.0
// The backward's sums on CUDA by bands: a warp owns a band of one plane's pixels, has their sums in shared memory, and
// walks the bins that may send it something, in order.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/cuda_warp.cuh"
#include "ops/roi_pool/cuda/blocks.cuh"
#include "ops/roi_pool/cuda/bounds.cuh"

namespace baracuda::roi_pool {
namespace {

constexpr int kBandWarps = 4;
// Three CTAs of four full bands fit a multiprocessor of sm_90. Smaller bands read a box more often.
constexpr int kMostBandBytes = 16384;
constexpr int kLeastBandPixels = 256;
// Bands that keep any machine busy.
constexpr int64_t kEnoughBands = 4096;
// Boxes that a warp looks at together, and the most that wait to be added.
constexpr int kScan = 4 * 32;
constexpr int kMostListed = 32 + kScan;
// Steps of 32 bins whose loads are under way together.
constexpr int kBinSteps = 4;
constexpr int kStampBits = 9;

// The bands of a call. A job is a block of boxes, an image, a channel and a band of the plane.
struct BandJobs {
  int32_t pixels;  // of a band
  int64_t bands, all;
  // What 32 bins further means: so many boxes and so many bins.
  int32_t step_boxes, step_bins;

  template <typename C>
  static BandJobs of(const Problem& p) {
    const int64_t planes = p.blocks() * p.n * p.c, plane = p.plane();
    int64_t pixels = kMostBandBytes / static_cast<int64_t>(sizeof(C));
    while (pixels > kLeastBandPixels && (pixels / 2 >= plane || ceil_div(plane, pixels) * planes < kEnoughBands)) {
      pixels /= 2;
    }
    BandJobs jobs{};
    jobs.pixels = static_cast<int32_t>(pixels);
    jobs.bands = ceil_div(plane, pixels);
    jobs.all = jobs.bands * planes;
    jobs.step_boxes = p.bins() < 32 ? static_cast<int32_t>(32 / p.bins()) : 0;
    jobs.step_bins = p.bins() < 32 ? static_cast<int32_t>(32 % p.bins()) : 32;
    return jobs;
  }
};

// Some steps of 32 bins, a lane each, and what they send.
template <typename T>
struct BinSteps {
  int32_t pixel[kBinSteps];
  T grad[kBinSteps];
};

// Walks the bins of the listed boxes, ascending, a lane each. `Index` counts bins, as in the forward.
template <typename Index>
struct BinWalk {
  int32_t box;  // its place in the list
  Index bin;

  template <typename T>
  __device__ __forceinline__ void load(const BackwardBuffers<T>& b, const BandJobs& jobs, Index bins,
                                       const Index* listed, int count, BinSteps<T>& steps) {
#pragma unroll
    for (int i = 0; i < kBinSteps; ++i) {
      steps.pixel[i] = kNoPixel;
      if (box < count) {
        const Index at = listed[box] + bin;
        steps.pixel[i] = b.argmax[at];
        steps.grad[i] = b.grad_output[at];
      }
      box += jobs.step_boxes;
      bin += static_cast<Index>(jobs.step_bins);
      if (bin >= bins) bin -= bins, ++box;
    }
  }
};

// Adds 32 bins, one a lane, of which a lane's comes after the lower lanes': those that name one pixel take turns. Each
// leaves its stamp in the pixel's slot, where the least stays, the lowest lane's, whose turn it is. Stamps descend from
// turn to turn, so that those of earlier ones are in nobody's way. Two pixels that share a slot take turns for nothing.
// Asking the warp which lanes are alike takes three times as long as all the rest of a step.
struct Stamps {
  uint32_t* slots;  // [2^kStampBits], of the warp
  uint32_t turn;    // the turns that are left before the slots must be cleared

  __device__ __forceinline__ void clear(int lane) {
    for (int i = lane; i < 1 << kStampBits; i += 32) slots[i] = UINT32_MAX;
    turn = UINT32_MAX / 32;
    __syncwarp();
  }

  // `place` is the pixel's place in `sums`, if the bin sends something there.
  template <typename C>
  __device__ __forceinline__ void add(uint32_t place, bool is_met, C grad, int lane, C* sums) {
    // The upper bits of the product differ for pixels of one column, too.
    uint32_t* const slot = &slots[place * 2654435769u >> (32 - kStampBits)];
    do {
      if (turn == 0) clear(lane);
      --turn;
      const uint32_t stamp = turn * 32 + lane;
      if (is_met) atomicMin(slot, stamp);
      __syncwarp();
      const bool has_turn = is_met && *slot == stamp;
      if (has_turn) sums[place] = sums[place] + grad;
      is_met = is_met && !has_turn;
      __syncwarp();  // what was read may change
    } while (__any_sync(kFullWarp, is_met));
  }
};

// Adds the listed boxes, ascending, to the sums of `pixels` pixels from the `first_pixel` on.
template <typename T, typename Index>
__device__ __forceinline__ void add_listed(const BackwardBuffers<T>& b, const BandJobs& jobs, Index bins,
                                           const Index* listed, int count, uint32_t first_pixel, uint32_t pixels,
                                           Stamps& stamps, Compute<T>* sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int few_bins = static_cast<int>(bins < 32 ? bins : 32);
  const Index all = static_cast<Index>(count) * bins;
  BinWalk<Index> walk{lane / few_bins, static_cast<Index>(lane % few_bins)};
  BinSteps<T> steps, next;
  walk.load(b, jobs, bins, listed, count, next);
  for (Index base = 0; base < all; base += 32 * kBinSteps) {
    steps = next;
    // Under way while these are added.
    walk.load(b, jobs, bins, listed, count, next);
#pragma unroll
    for (int i = 0; i < kBinSteps; ++i) {
      // Pixels before the band, and kNoPixel, wrap around to places beyond it.
      const uint32_t place = static_cast<uint32_t>(steps.pixel[i]) - first_pixel;
      stamps.add(place, place < pixels, widen(steps.grad[i]), lane, sums);
    }
  }
}

template <typename T, typename Index>
__global__ void __launch_bounds__(32 * kBandWarps)
    sum_bands(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b, const int32_t* images,
              const Bounds* bounds, Compute<T>* partials, const __grid_constant__ BandJobs jobs) {
  using C = Compute<T>;
  // Where the bins of boxes that wait to be added begin in grad_output.
  __shared__ Index all_listed[kBandWarps][kMostListed];
  __shared__ uint32_t all_slots[kBandWarps][1 << kStampBits];
  unsigned char* const all_sums = dynamic_shared<unsigned char>();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  Index* const listed = all_listed[warp];
  C* const sums = reinterpret_cast<C*>(all_sums) + static_cast<int64_t>(warp) * jobs.pixels;
  Stamps stamps{all_slots[warp], 0};
  const Index bins = static_cast<Index>(p.bins());
  const int64_t plane = p.plane();
  for (int64_t job = grid_thread() / 32; job < jobs.all; job += grid_threads() / 32) {
    // Bands innermost: those of a plane read the same bins.
    const Division of_plane(job, jobs.bands), of_image(of_plane.quotient, p.c), of_block(of_image.quotient, p.n);
    const int64_t first_pixel = of_plane.remainder * jobs.pixels;
    const int32_t pixels = static_cast<int32_t>(min(static_cast<int64_t>(jobs.pixels), plane - first_pixel));
    const int64_t channel = of_image.remainder;
    const int32_t image = static_cast<int32_t>(of_block.remainder);
    const int64_t block = of_block.quotient;
    for (int32_t i = lane; i < pixels; i += 32) sums[i] = C(0);
    __syncwarp();
    const Bounds band{static_cast<int32_t>(first_pixel), static_cast<int32_t>(first_pixel + pixels - 1)};
    const Bounds* const of_boxes = bounds + channel * p.num_rois;
    const int64_t begin = block * p.rois_per_block;
    const int64_t end = min(begin + p.rois_per_block, static_cast<int64_t>(p.num_rois));
    int count = 0;
    for (int64_t base = begin; base < end; base += kScan) {
      uint32_t met[kScan / 32];
#pragma unroll
      for (int i = 0; i < kScan / 32; ++i) {
        const int64_t r = base + 32 * i + lane;
        // Both loads at once: neither waits for the other.
        const int32_t of_box = r < end ? images[r] : -1;
        const Bounds reached = r < end ? of_boxes[r] : Bounds{INT32_MAX, -1};
        met[i] = __ballot_sync(kFullWarp, of_box == image && reached.meets(band));
      }
#pragma unroll
      for (int i = 0; i < kScan / 32; ++i) {
        if (met[i] >> lane & 1u) {
          const int64_t r = base + 32 * i + lane;
          listed[count + __popc(met[i] & ((1u << lane) - 1u))] = static_cast<Index>(r * p.c + channel) * bins;
        }
        count += __popc(met[i]);
      }
      // Few boxes would leave lanes idle in their last step.
      if (count <= 32 && base + kScan < end) continue;
      __syncwarp();
      add_listed(b, jobs, bins, listed, count, static_cast<uint32_t>(band.least), static_cast<uint32_t>(pixels),
                 stamps, sums);
      count = 0;
      __syncwarp();  // the list is read
    }
    const int64_t first = (static_cast<int64_t>(image) * p.c + channel) * plane + first_pixel;
    if (partials != nullptr) {
      for (int32_t i = lane; i < pixels; i += 32) partials[block * p.input_numel + first + i] = sums[i];
    } else {
      for (int32_t i = lane; i < pixels; i += 32) b.grad_input[first + i] = narrow<T>(sums[i]);
    }
    __syncwarp();  // the sums are read
  }
}

template <typename T, typename Index>
Status launch_bands(const Problem& p, const BackwardBuffers<T>& b, const BackwardScratch<Compute<T>>& scratch,
                    Compute<T>* partials, Stream stream) {
  const char* const name = "roi_pool_backward band kernel";
  const BandJobs jobs = BandJobs::of<Compute<T>>(p);
  const size_t sums_bytes = kBandWarps * static_cast<size_t>(jobs.pixels) * sizeof(Compute<T>);
  constexpr auto kKernel = sum_bands<T, Index>;
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>(name));
  return launch_kernel(name, kKernel, blocks_for(jobs.all, kBandWarps), 32 * kBandWarps, sums_bytes, stream, p, b,
                       scratch.images, scratch.bounds, partials, jobs);
}

template <typename T, typename Index>
Status enqueue_bands(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  using C = Compute<T>;
  const BackwardScratch<C> scratch(p, workspace);
  BARACUDA_RETURN_IF_FAILED(launch_kernel("roi_pool_backward bound kernel", bound_boxes<C>,
                                          blocks_for(bound_jobs(p), kBoundThreads / 32), kBoundThreads, 0, stream, p,
                                          b.rois, b.argmax, scratch.images, scratch.bounds));
  const bool is_cut = p.blocks() > 1;
  BARACUDA_RETURN_IF_FAILED((launch_bands<T, Index>(p, b, scratch, is_cut ? scratch.partials : nullptr, stream)));
  if (!is_cut) return Status::kOk;
  return enqueue_blocks(p, scratch.partials, b.grad_input, stream);
}

}  // namespace
}  // namespace baracuda::roi_pool
