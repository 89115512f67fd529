// SPDX-License-Identifier: Apache-2.0
// The backward's sums on CUDA by tiles: a block owns a rectangle of pixels of some channels and has their sums in shared
// memory, a warp some of its pixels, a lane one channel of them, so that no two lanes ever share a sum. The bins of the
// boxes that meet the tile are brought in while those before them are added.
#pragma once

#include "core/cuda_copies.cuh"
#include "core/cuda_division.cuh"
#include "core/cuda_shared.cuh"
#include "ops/roi_pool/cuda/blocks.cuh"
#include "ops/roi_pool/cuda/ranges.cuh"

namespace baracuda::roi_pool {
namespace {

constexpr int kTileWarps = 8;
constexpr int kTileThreads = 32 * kTileWarps;
// Where a tile has fewer channels than a warp lanes, a warp sees to several parts of it at once.
constexpr int kParts = 32 / kTileChannels;
// The parts of a tile, a warp's beside each other.
constexpr int kPartRows = 4;
constexpr int kPartColumns = kTileWarps / kPartRows * kParts;
// Boxes that are brought in together, so that the warps of a block wait for each other seldom: as many as these bytes
// hold. A batch is added while the two after it are under way.
constexpr int kBatchBytes = 25600;
constexpr int kMostBatch = 8;
constexpr int kRangeBytes = (sizeof(BinRanges) + 15) / 16 * 16;  // of a staged box
constexpr int kBatches = 3;  // wait_for_copies_but_last() fits this number alone
// Boxes that a block looks at before it adds what it has listed: a warp 128 of them.
constexpr int kLooks = 4;
constexpr int kListed = 32 * kLooks * kTileWarps;
// A warp's pixels of all its channels on their way out: 128 bytes of a channel, so many columns of each part. An odd
// pitch, so that neither way has bank conflicts.
template <typename C>
constexpr int kStripColumns = 128 / static_cast<int>(sizeof(C)) / kParts;
template <typename C>
constexpr int kStripPitch = kParts* kStripColumns<C> + 1;
// Bins of a row whose sums are read together.
constexpr int kBinsTogether = 4;
// Parts of more rows are never wanted, and `TilePart` divides by widths up to kMostWidth for at most 64.
constexpr int kMostPartRows = 24;
constexpr int32_t kMostWidth = 8192;

// How planes are cut into tiles, evenly, and what a block's shared memory holds. Any cut gives the same sums.
struct Tiling {
  int32_t part_rows, part_columns;
  int32_t rows, row_tiles, columns, column_tiles;
  int32_t groups;
  int32_t box_bytes, batch;  // of a staged box; boxes of a batch
  uint32_t multiplier;       // see TilePart
  int64_t tiles, jobs;

  // The offsets of what shared memory holds, and its end.
  size_t ring, listed, totals, bytes;

  template <typename T>
  static Tiling of(const Problem& p, const DeviceTraits& device) {
    using C = Compute<T>;
    Tiling t{};
    t.groups = static_cast<int32_t>(channel_groups(p));
    t.multiplier = static_cast<uint32_t>((uint64_t{1} << 32) / static_cast<uint64_t>(p.w) + 1);
    const int64_t bins = kTileChannels * p.bins();
    t.box_bytes = static_cast<int32_t>(bins * (4 + sizeof(T)) + kRangeBytes);
    // A device of little shared memory has a third of it for batches.
    const int64_t bytes_of_batch = at_most(kBatchBytes, device.shared_bytes / 3 / kBatches);
    t.batch = static_cast<int32_t>(at_most(at_least(bytes_of_batch / t.box_bytes, 1), kMostBatch));
    const size_t strips = kTileWarps * kTileChannels * kStripPitch<C> * sizeof(C);
    const size_t batches = kBatches * static_cast<size_t>(t.batch) * t.box_bytes;
    const size_t others = (batches > strips ? batches : strips) + kListed * sizeof(int32_t) + kTileWarps * sizeof(int);
    const size_t row_bytes = kTileWarps * 32 * sizeof(C);
    t.cut(p, device.multiprocessors, static_cast<int32_t>((device.shared_bytes - others) / row_bytes) - 1);
    t.ring = (static_cast<size_t>(t.part_rows) * t.part_columns + 1) * row_bytes;
    t.bytes = t.ring + others;
    t.totals = t.bytes - kTileWarps * sizeof(int);
    t.listed = t.totals - kListed * sizeof(int32_t);
    return t;
  }

 private:
  // Of the cuts whose parts have at most so many pixels, the one that takes least: as many rounds as give every
  // multiprocessor its tiles, and in each as many boxes as boxes of some 20 pixels make meet a tile.
  void cut(const Problem& p, int64_t multiprocessors, int32_t most_pixels) {
    constexpr int32_t kBoxPixels = 20;
    const int64_t planes = static_cast<int64_t>(groups) * p.n * p.blocks();
    int64_t least = INT64_MAX;
    for (int32_t wanted = 1; wanted <= (most_pixels < kMostPartRows ? most_pixels : kMostPartRows); ++wanted) {
      for (int32_t more = 0; more < 2; ++more) {
        Tiling t{};
        split(p.h, kPartRows * wanted, 0, &t.rows, &t.row_tiles);
        t.part_rows = static_cast<int32_t>(ceil_div(t.rows, kPartRows));
        split(p.w, kPartColumns * (most_pixels / t.part_rows), more, &t.columns, &t.column_tiles);
        t.part_columns = static_cast<int32_t>(ceil_div(t.columns, kPartColumns));
        t.tiles = static_cast<int64_t>(t.row_tiles) * t.column_tiles;
        const int64_t rounds = ceil_div(t.tiles * planes, multiprocessors);
        const int64_t took = rounds * (t.rows + kBoxPixels) * (t.columns + kBoxPixels);
        if (took >= least) continue;
        least = took;
        part_rows = t.part_rows, part_columns = t.part_columns;
        rows = t.rows, row_tiles = t.row_tiles, columns = t.columns, column_tiles = t.column_tiles;
        tiles = t.tiles;
      }
    }
    jobs = tiles * planes;
  }

  // Into pieces of at most `most`, or as many `more`, none of them empty.
  static void split(int32_t extent, int32_t most, int32_t more, int32_t* size, int32_t* count) {
    *size = static_cast<int32_t>(ceil_div(extent, ceil_div(extent, most) + more));
    *count = static_cast<int32_t>(ceil_div(extent, *size));
  }
};

// Where a tile lies.
struct TilePlace {
  int64_t block;
  int32_t image, group, channel, channels, row, rows, column, columns;

  // Tiles innermost: those of a plane read the same bins.
  __device__ TilePlace(const Problem& p, const Tiling& tiling, int64_t job) {
    const Division of_plane(job, tiling.tiles), of_group(of_plane.quotient, tiling.groups);
    const Division of_image(of_group.quotient, p.n), down(of_plane.remainder, tiling.column_tiles);
    block = of_image.quotient;
    image = static_cast<int32_t>(of_image.remainder);
    group = static_cast<int32_t>(of_group.remainder);
    channel = group * kTileChannels;
    channels = min(p.c - channel, kTileChannels);
    row = static_cast<int32_t>(down.quotient) * tiling.rows;
    rows = min(p.h - row, tiling.rows);
    column = static_cast<int32_t>(down.remainder) * tiling.columns;
    columns = min(p.w - column, tiling.columns);
  }
};

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

// Adds a box's bins to a warp's sums: `meeting` says which lanes' ranges meet the lane's part. Both parts of a warp walk
// over equally many bins, so that lanes stay together; what it has too many of names no pixel of the part.
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
  const int across = min(lane % kLanesAcross, kMostAcross - 1), number_of_range = is_row ? across : kMostAcross + across;
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
