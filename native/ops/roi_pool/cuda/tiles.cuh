// SPDX-License-Identifier: Apache-2.0
// The backward's sums on CUDA by tiles: a block owns a rectangle of pixels of some channels and has their sums in
// shared memory, a warp some of its pixels, a lane one channel of them, so that no two lanes ever share a sum. The bins
// of the boxes that meet the tile are brought in while those before them are added.
#pragma once

#include "core/cuda_copies.cuh"
#include "core/cuda_shared.cuh"
#include "ops/roi_pool/cuda/blocks.cuh"
#include "ops/roi_pool/cuda/tile_shape.cuh"

namespace baracuda::roi_pool {
namespace {

// Bins of a row whose sums are read together.
constexpr int kBinsTogether = 4;

// The pixels of a tile whose sums a lane adds.
template <typename C>
struct TilePart {
  int32_t row, column;     // of the plane
  uint32_t rows, columns;  // none where the tile ends before
  uint32_t first;          // the number of its first pixel
  uint32_t multiplier, minus_width;
  // Where the sums are in shared memory, in bytes: those of neighbouring pixels, and of rows, lie so far apart.
  static constexpr uint32_t kPixelBytes = 32 * sizeof(C);
  uint32_t base, row_bytes;
  uint32_t nowhere;  // for what is sent elsewhere

  __device__ TilePart(const Problem& p, const Tiling& tiling, const TilePlace& tile, int warp, int lane) {
    const int32_t down = warp / (kPartColumns / kParts) * tiling.part_rows;
    const int32_t part = warp % (kPartColumns / kParts) * kParts + lane / kTileChannels;
    const int32_t across = part * tiling.part_columns;
    row = tile.row + down;
    column = tile.column + across;
    rows = static_cast<uint32_t>(max(0, min(tile.rows - down, tiling.part_rows)));
    columns = static_cast<uint32_t>(max(0, min(tile.columns - across, tiling.part_columns)));
    first = static_cast<uint32_t>(row) * static_cast<uint32_t>(p.w) + static_cast<uint32_t>(column);
    multiplier = tiling.multiplier;
    minus_width = 0u - static_cast<uint32_t>(p.w);
    const uint32_t pixels = static_cast<uint32_t>(tiling.part_rows * tiling.part_columns);
    base = static_cast<uint32_t>(warp) * (pixels + 1) * kPixelBytes + static_cast<uint32_t>(lane * sizeof(C));
    row_bytes = static_cast<uint32_t>(tiling.part_columns) * kPixelBytes;
    nowhere = base + pixels * kPixelBytes;
  }

  // The product's upper half is never less than the quotient, since the multiplier exceeds 2^32 / width; and by less
  // than 1 / width for numbers below 2^32 / width, as those of all pixels of the part's rows are. So whatever lies
  // beyond those rows, or before them, or is no pixel, has a row beyond; and what lies beside has a column beyond.
  __device__ __forceinline__ uint32_t place_of(int32_t pixel) const {
    const uint32_t number = static_cast<uint32_t>(pixel) - first;
    const uint32_t in_row = __umulhi(number, multiplier), in_column = number + in_row * minus_width;
    const uint32_t place = in_row * row_bytes + (in_column * kPixelBytes + base);
    return in_row < rows && in_column < columns ? place : nowhere;
  }
};

// Adds consecutive bins of a lane's channel, ascending. All sums are read before any is stored; a bin that names the
// pixel of one before it takes up that one's sum.
template <int kBins, typename T>
__device__ __forceinline__ void add_bins(const int32_t* pixels, const T* grads, const TilePart<Compute<T>>& part,
                                         unsigned char* memory) {
  using C = Compute<T>;
  uint32_t place[kBins];
  C sum[kBins];
#pragma unroll
  for (int i = 0; i < kBins; ++i) place[i] = part.place_of(pixels[i]);
#pragma unroll
  for (int i = 0; i < kBins; ++i) sum[i] = *reinterpret_cast<const C*>(memory + place[i]);
#pragma unroll
  for (int i = 0; i < kBins; ++i) {
    C before = sum[i];
#pragma unroll
    for (int j = 0; j < i; ++j) before = place[j] == place[i] ? sum[j] : before;
    sum[i] = before + widen(grads[i]);
  }
#pragma unroll
  for (int i = 0; i < kBins; ++i) *reinterpret_cast<C*>(memory + place[i]) = sum[i];
}

// The least run of bits that holds all of a mask's.
struct Run {
  int first, count;
};

__device__ __forceinline__ Run run_of(uint32_t mask) {
  if (mask == 0) return {0, 0};
  const int first = __ffs(static_cast<int>(mask)) - 1;
  return {first, 32 - __clz(static_cast<int>(mask)) - first};
}

// Adds a box's bins to a warp's sums: `meeting` says which lanes' ranges meet the lane's part. Both parts of a warp
// walk over equally many bins, so that lanes stay together; what one has too many of names no pixel of it.
template <typename T>
__device__ __forceinline__ void add_box(const Problem& p, const int32_t* pixels, const T* grads, uint32_t meeting,
                                        const TilePart<Compute<T>>& part, int of_part, unsigned char* memory) {
  constexpr uint32_t kMask = (1u << kMostAcross) - 1;
  const Run rows = run_of(meeting & kMask), low = run_of(meeting >> kLanesAcross & kMask);
  Run columns = low;
  if constexpr (kParts == 2) {
    const Run high = run_of(meeting >> (3 * kLanesAcross) & kMask);
    columns.count = max(low.count, high.count);
    columns.first = min(of_part == 0 ? low.first : high.first, p.pooled_w - columns.count);
  }
  if (rows.count == 0 || columns.count == 0) return;
  const int begin = rows.first * p.pooled_w + columns.first;
  pixels += begin;
  grads += begin;
  for (int row = 0; row < rows.count; ++row, pixels += p.pooled_w, grads += p.pooled_w) {
    int k = 0;
    for (; k + kBinsTogether <= columns.count; k += kBinsTogether) {
      add_bins<kBinsTogether>(pixels + k, grads + k, part, memory);
    }
    const int left = columns.count - k;
    if (left == 3) add_bins<3>(pixels + k, grads + k, part, memory);
    if (left == 2) add_bins<2>(pixels + k, grads + k, part, memory);
    if (left == 1) add_bins<1>(pixels + k, grads + k, part, memory);
  }
}

// Lists the boxes from `first` to `end`, at most kListed, that meet a tile, ascending, and answers how many. Every
// thread calls.
__device__ __forceinline__ int list_boxes(const TilePlace& tile, const int32_t* images, const BoxExtent* extents,
                                          int64_t first, int64_t end, int32_t* listed, int* totals) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t base = first + warp * (32 * kLooks) + lane;
  uint32_t met[kLooks];
  int total = 0;
#pragma unroll
  for (int i = 0; i < kLooks; ++i) {
    const int64_t r = base + 32 * i;
    // Both loads at once: neither waits for the other.
    const int32_t image = r < end ? images[r] : -1;
    const BoxExtent extent = r < end ? extents[r] : BoxExtent{{UINT16_MAX, 0}, {UINT16_MAX, 0}};
    met[i] = __ballot_sync(kFullWarp, image == tile.image && extent.rows.meets(tile.row, tile.row + tile.rows) &&
                                          extent.columns.meets(tile.column, tile.column + tile.columns));
    total += __popc(met[i]);
  }
  if (lane == 0) totals[warp] = total;
  __syncthreads();  // the list before this one is read, too
  int before = 0, all = 0;
#pragma unroll
  for (int w = 0; w < kTileWarps; ++w) {
    before += w < warp ? totals[w] : 0;
    all += totals[w];
  }
#pragma unroll
  for (int i = 0; i < kLooks; ++i) {
    if (met[i] >> lane & 1u) {
      listed[before + __popc(met[i] & ((1u << lane) - 1u))] = static_cast<int32_t>(base + 32 * i);
    }
    before += __popc(met[i]);
  }
  __syncthreads();
  return all;
}

// Copies consecutive elements, in the background where they and the hardware allow it. A warp calls.
template <int kBytes>
__device__ __forceinline__ void copy_elements(unsigned char* to, const void* elements, int count, bool by_vectors) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned char* const from = static_cast<const unsigned char*>(elements);
  if (by_vectors) {
#pragma unroll 4
    for (int i = 16 * lane; i < count * kBytes; i += 16 * 32) copy_async<16>(to + i, from + i);
  } else if constexpr (kBytes >= 4) {
#pragma unroll 1
    for (int i = kBytes * lane; i < count * kBytes; i += kBytes * 32) copy_async<kBytes>(to + i, from + i);
  } else {
#pragma unroll 1
    for (int i = kBytes * lane; i < count * kBytes; i += kBytes * 32) memcpy(to + i, from + i, kBytes);
  }
}

// What a tile's block keeps of its call.
template <typename T>
struct TileSource {
  const BackwardBuffers<T>& b;
  const BinRanges* ranges;  // of the tile's channels
  int64_t channels;         // of all
  int32_t channel, count;   // the tile's
  int32_t bins;
  bool pixels_by_vectors, grads_by_vectors;

  __device__ TileSource(const Problem& p, const BackwardBuffers<T>& buffers, const BinRanges* all_ranges,
                        const TilePlace& tile)
      : b(buffers), ranges(all_ranges + static_cast<int64_t>(tile.group) * p.num_rois), channels(p.c),
        channel(tile.channel), count(tile.channels), bins(static_cast<int32_t>(p.bins())) {
    // A box's bins of all channels are whole vectors, and so are then those of every group of channels.
    const auto whole = [&](const void* at, int64_t bytes) {
      return reinterpret_cast<uintptr_t>(at) % 16 == 0 && p.c * p.bins() * bytes % 16 == 0;
    };
    pixels_by_vectors = whole(b.argmax, 4);
    grads_by_vectors = whole(b.grad_output, sizeof(T));
  }

  // A staged box: the pixels of its bins, its gradients and its ranges.
  __device__ __forceinline__ int pixel_bytes() const { return kTileChannels * bins * 4; }
  __device__ __forceinline__ int grad_bytes() const { return kTileChannels * bins * static_cast<int>(sizeof(T)); }

  // Begins to copy some boxes, a warp the pixels or the gradients of one.
  __device__ __forceinline__ void bring(const int32_t* boxes, int number, unsigned char* to, int box_bytes) const {
    for (int run = static_cast<int>(threadIdx.x) / 32; run < 2 * number; run += kTileWarps) {
      const int64_t r = boxes[run / 2];
      unsigned char* const box = to + run / 2 * box_bytes;
      const int64_t from = (r * channels + channel) * bins;
      if (run % 2 == 0) {
        copy_elements<4>(box, b.argmax + from, count * bins, pixels_by_vectors);
        copy_elements<8>(box + pixel_bytes() + grad_bytes(), ranges + r, sizeof(BinRanges) / 8, false);
      } else {
        copy_elements<sizeof(T)>(box + pixel_bytes(), b.grad_output + from, count * bins, grads_by_vectors);
      }
    }
  }
};

// Adds a batch of staged boxes to a warp's sums.
template <typename T>
__device__ __forceinline__ void add_batch(const Problem& p, const TileSource<T>& source, const unsigned char* boxes,
                                          int number, int box_bytes, const TilePart<Compute<T>>& part,
                                          unsigned char* memory) {
  const int lane = static_cast<int>(threadIdx.x) % 32, of_part = lane / kTileChannels;
  // Lanes of rows of bins, then lanes of columns; again for the other part where there are two. The last of either is
  // nobody's, and reads another's.
  const bool is_row = lane / kLanesAcross % 2 == 0;
  const int across = min(lane % kLanesAcross, kMostAcross - 1);
  const int number_of_range = is_row ? across : kMostAcross + across;
  const int32_t begin = is_row ? part.row : part.column;
  const int32_t end = begin + static_cast<int32_t>(is_row ? part.rows : part.columns);
  const int first = lane % kTileChannels * source.bins;
  const unsigned char* box = boxes;
  const auto range_of = [&](const unsigned char* at) {
    return reinterpret_cast<const BinRanges*>(at + source.pixel_bytes() + source.grad_bytes())->of[number_of_range];
  };
  Range next = range_of(box);
#pragma unroll 1
  for (int i = 0; i < number; ++i, box += box_bytes) {
    const uint32_t meeting = __ballot_sync(kFullWarp, next.meets(begin, end));
    if (i + 1 < number) next = range_of(box + box_bytes);
    add_box(p, reinterpret_cast<const int32_t*>(box) + first,
            reinterpret_cast<const T*>(box + source.pixel_bytes()) + first, meeting, part, of_part, memory);
  }
}

// Stores a warp's sums through its strip, so that a store covers runs of pixels instead of one lane's channel.
template <typename C, typename Out>
__device__ __forceinline__ void store_part(const TilePlace& tile, const TilePart<C>& part, int32_t width, int64_t plane,
                                           const unsigned char* memory, C* strip, Out* to) {
  constexpr int kColumns = kStripColumns<C>, kPitch = kStripPitch<C>;
  constexpr int kOut = kParts * kColumns, kStep = 32 / kOut;  // columns of the strip, and channels that leave together
  const int lane = static_cast<int>(threadIdx.x) % 32, of_part = lane / kTileChannels, channel = lane % kTileChannels;
  // On the way out a lane has a column of the strip, of the part `out_part`.
  const int out_part = lane % kOut / kColumns, out_column = lane % kColumns;
  const int32_t columns = __shfl_sync(kFullWarp, static_cast<int32_t>(part.columns), out_part * kTileChannels);
  const int32_t rows = __shfl_sync(kFullWarp, static_cast<int32_t>(part.rows), 0);
  const uint32_t first = __shfl_sync(kFullWarp, part.first, out_part * kTileChannels);
  const int32_t pitch = static_cast<int32_t>(part.row_bytes / TilePart<C>::kPixelBytes);
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t base = 0; base < pitch; base += kColumns) {
      const C* const from = reinterpret_cast<const C*>(memory + part.base) + (row * pitch + base) * 32;
      __syncwarp();  // what the strip held is stored
#pragma unroll 8
      for (int32_t k = 0; k < kColumns && base + k < pitch; ++k) {
        strip[channel * kPitch + of_part * kColumns + k] = from[k * 32];
      }
      __syncwarp();
      if (base + out_column >= columns) continue;
      const int32_t first_channel = lane / kOut;
      Out* out = to + first_channel * plane + first + static_cast<int64_t>(row) * width + base + out_column;
      const C* in = strip + first_channel * kPitch + lane % kOut;
#pragma unroll 8
      for (int k = first_channel; k < tile.channels; k += kStep, out += kStep * plane, in += kStep * kPitch) {
        *out = narrow<Out>(*in);
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads, 1)
    sum_tiles(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b, const int32_t* images,
              const BoxExtent* extents, const BinRanges* ranges, Compute<T>* partials,
              const __grid_constant__ Tiling tiling) {
  using C = Compute<T>;
  unsigned char* const memory = dynamic_shared<unsigned char>();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  unsigned char* const ring = memory + tiling.ring;
  int32_t* const listed = reinterpret_cast<int32_t*>(memory + tiling.listed);
  int* const totals = reinterpret_cast<int*>(memory + tiling.totals);
  const int32_t batch_bytes = tiling.batch * tiling.box_bytes;
  const int64_t plane = p.plane();
  for (int64_t job = blockIdx.x; job < tiling.jobs; job += gridDim.x) {
    const TilePlace tile(p, tiling, job);
    const TilePart<C> part(p, tiling, tile, warp, lane);
    const TileSource<T> source(p, b, ranges, tile);
    for (uint32_t at = part.base; at < part.nowhere; at += TilePart<C>::kPixelBytes) {
      *reinterpret_cast<C*>(memory + at) = C(0);
    }
    wait_for_kernel_before();  // it finds the ranges
    const int64_t begin = tile.block * p.rois_per_block;
    const int64_t end = min(begin + p.rois_per_block, static_cast<int64_t>(p.num_rois));
    for (int64_t first = begin; first < end; first += kListed) {
      const int count = list_boxes(tile, images, extents + static_cast<int64_t>(tile.group) * p.num_rois, first, end,
                                   listed, totals);
      const auto place_of = [&](int at) { return ring + at / tiling.batch % kBatches * batch_bytes; };
      const int ahead = (kBatches - 1) * tiling.batch;
#pragma unroll 1
      for (int at = -ahead; at < count; at += tiling.batch) {
        if (at >= 0) {
          wait_for_copies_but_last();
          __syncthreads();  // the batch is there, and the one before it added, whose place another takes
        }
        const int next = at + ahead;
        if (next < count) {
          source.bring(listed + next, min(count - next, tiling.batch), place_of(next), tiling.box_bytes);
        }
        close_copies();
        if (at >= 0) {
          add_batch(p, source, place_of(at), min(count - at, tiling.batch), tiling.box_bytes, part, memory);
        }
      }
    }
    __syncthreads();  // all is added: the strips take the batches' place
    const int64_t map = (static_cast<int64_t>(tile.image) * p.c + tile.channel) * plane;
    C* const strip = reinterpret_cast<C*>(ring) + warp * (kTileChannels * kStripPitch<C>);
    if (partials != nullptr) {
      store_part(tile, part, p.w, plane, memory, strip, partials + tile.block * p.input_numel + map);
    } else {
      store_part(tile, part, p.w, plane, memory, strip, b.grad_input + map);
    }
    __syncthreads();  // before the strips give way to other batches
  }
}

template <typename T>
Status enqueue_tiles(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  using C = Compute<T>;
  const TileScratch<C> scratch(p, workspace);
  DeviceTraits device;
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  const int64_t groups = channel_groups(p);
  BARACUDA_RETURN_IF_FAILED(launch_kernel("roi_pool_backward range kernel", find_ranges<C>,
                                          blocks_for(groups * p.num_rois, kRangeWarps), 32 * kRangeWarps, 0, stream, p,
                                          b.rois, b.argmax, scratch.images, scratch.extents, scratch.ranges,
                                          Divider(groups), Divider(p.w)));
  const char* const name = "roi_pool_backward tile kernel";
  const Tiling tiling = Tiling::of<T>(p, device);
  constexpr auto kKernel = sum_tiles<T>;
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>(name));
  const bool is_cut = p.blocks() > 1;
  BARACUDA_RETURN_IF_FAILED(launch_early(name, kKernel, blocks_for(tiling.jobs, 1), kTileThreads, tiling.bytes, stream,
                                         p, b, scratch.images, scratch.extents, scratch.ranges,
                                         is_cut ? scratch.partials : nullptr, tiling));
  if (!is_cut) return Status::kOk;
  return enqueue_blocks(p, scratch.partials, b.grad_input, stream);
}

}  // namespace
}  // namespace baracuda::roi_pool
