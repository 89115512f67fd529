// SPDX-License-Identifier: Apache-2.0
// The backward on CUDA: a block owns a tile of the maps of one bin and some channels, whose sums are in shared memory.
// Its threads find, a box each, which boxes meet the tile and with which weights; then each warp adds what they give
// its part of the tile, box after box, some pixels of all channels at a time.
#pragma once

#include <type_traits>

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "ops/ps_roi/cuda_boxes.cuh"
#include "ops/ps_roi/launch.h"

namespace baracuda::ps_roi {
namespace {

// Channels of a tile at most: so many gradients a thread has on their way.
constexpr int32_t kMostChannels = 12;
constexpr int32_t kMostColumns = 384;
// A thread looks at a box, so that a block lists at most as many at a time.
template <typename C>
constexpr int kListThreads = sizeof(C) == 4 ? 256 : 128;
// Rows of a bin that are read together.
constexpr int kRowsTogether = 4;

// A box whose bin meets a tile: the rectangle of their pixels, from the tile's corner on, both ends included.
struct alignas(16) ListedBox {
  uint16_t first_row, last_row, first_column, last_column;
  int32_t number;
  int32_t is_wide;  // whether its weights are not listed
};

// Boxes that meet a tile, ascending, with what they give it. Their gradients, by averages their shares, stand last:
// [channels][kStride].
template <typename C, bool kWeighted>
struct BoxList {
  static constexpr int kBoxes = kListThreads<C>;
  static constexpr int kStride = kBoxes + 1;  // what belongs to one box lies in different banks
  ListedBox boxes[kBoxes];
  C row_weights[kWeighted ? kListedWeights : 1][kWeighted ? kStride : 1];  // by row of the rectangle
  C column_weights[kWeighted ? kListedWeights : 1][kWeighted ? kStride : 1];
  int warp_totals[kBoxes / 32];
  C grads[1];
};

// How maps are cut into tiles, evenly.
struct Tiling {
  int32_t channels, groups;        // of a tile, and how many tiles the channels make
  int32_t columns, column_tiles;
  int32_t rows, row_tiles;
  int32_t own_rows, own_columns;   // of a warp
  int32_t pitch;                   // between a pixel's sums and the next one's: odd, so that a map's lie in all banks
  int64_t tiles;                   // of all maps
  size_t list, bytes;              // where the list begins in shared memory, and all of it
  Divider by_column_tiles, by_row_tiles, by_groups, by_bins, by_pooled_w;  // where there are few tiles

  // Fewer than 2^31, so that their numbers and all divisors have Dividers.
  BARACUDA_HD bool are_few() const { return tiles <= INT32_MAX; }

  // A third of a multiprocessor of sm_90, where a device has as much, and at most what every device has; and so many
  // tiles that every multiprocessor has one, where rows suffice.
  template <typename C, bool kWeighted>
  static Tiling of(const Problem& p, const DeviceTraits& device) {
    using List = BoxList<C, kWeighted>;
    constexpr int64_t kEveryDevice = 65536, kReserved = 1024, kFewRows = 4;
    const int64_t third = (device.shared_bytes + kReserved) / 3 - kReserved;
    const int64_t most = third > kEveryDevice ? third : kEveryDevice;
    Tiling t{};
    cut(p.c, kMostChannels, &t.channels, &t.groups);
    t.pitch = t.channels | 1;
    const int64_t list_bytes = sizeof(List) + sizeof(C) * static_cast<int64_t>(t.channels) * List::kStride;
    const int64_t pixels = (most - list_bytes) / (t.pitch * static_cast<int64_t>(sizeof(C)));
    cut(p.w, at_most(pixels, kMostColumns), &t.columns, &t.column_tiles);
    const int64_t planes = int64_t{p.n} * p.bins() * t.groups * t.column_tiles;
    int64_t row_tiles = ceil_div(p.h, pixels / t.columns);
    const int64_t wanted = at_most(ceil_div(device.multiprocessors, planes), ceil_div(p.h, kFewRows));
    row_tiles = at_least(row_tiles, wanted);
    cut(p.h, ceil_div(p.h, row_tiles), &t.rows, &t.row_tiles);
    t.tiles = planes * t.row_tiles;
    t.own<C>();
    if (t.are_few()) {
      t.by_column_tiles = Divider(t.column_tiles), t.by_row_tiles = Divider(t.row_tiles);
      t.by_groups = Divider(t.groups), t.by_bins = Divider(p.bins()), t.by_pooled_w = Divider(p.pooled_w);
    }
    t.list = (sizeof(C) * t.pitch * t.rows * static_cast<size_t>(t.columns) + 15) & ~size_t{15};
    t.bytes = t.list + static_cast<size_t>(list_bytes);
    return t;
  }

 private:
  // Parts of at most `most`, none of them empty.
  static void cut(int64_t extent, int64_t most, int32_t* size, int32_t* count) {
    *size = static_cast<int32_t>(ceil_div(extent, ceil_div(extent, most)));
    *count = static_cast<int32_t>(ceil_div(extent, *size));
  }
  // The warps' parts that the fewest boxes meet, of bins of some four pixels on an axis.
  template <typename C>
  void own() {
    constexpr int64_t kWarps = kListThreads<C> / 32, kBinPixels = 4;
    int64_t least = INT64_MAX;
    for (int64_t down = 1; down <= kWarps; down *= 2) {
      const int64_t tall = ceil_div(rows, down), wide = ceil_div(columns, kWarps / down);
      const int64_t met = (tall + kBinPixels) * (wide + kBinPixels);
      if (met >= least) continue;
      least = met;
      own_rows = static_cast<int32_t>(tall), own_columns = static_cast<int32_t>(wide);
    }
  }
};

// Where a tile lies.
struct TilePlace {
  int32_t image, ph, pw, channel, channels, row, rows, column, columns;
  int64_t map;  // of the first channel, in the image

  __device__ TilePlace(const Problem& p, const Tiling& tiling, int64_t tile) {
    const bool few = tiling.are_few();
    // Divides what is left of the tile's number, and answers the remainder.
    const auto take = [&](int64_t divisor, const Divider& by) {
      const int64_t before = tile;
      tile = few ? by.divide(static_cast<uint32_t>(tile)) : tile / divisor;
      return before - tile * divisor;
    };
    column = static_cast<int32_t>(take(tiling.column_tiles, tiling.by_column_tiles)) * tiling.columns;
    row = static_cast<int32_t>(take(tiling.row_tiles, tiling.by_row_tiles)) * tiling.rows;
    channel = static_cast<int32_t>(take(tiling.groups, tiling.by_groups)) * tiling.channels;
    const int64_t bin = take(p.bins(), tiling.by_bins);
    image = static_cast<int32_t>(tile);
    tile = bin;
    pw = static_cast<int32_t>(take(p.pooled_w, tiling.by_pooled_w));
    ph = static_cast<int32_t>(tile);
    channels = min(p.c - channel, tiling.channels);
    rows = min(p.h - row, tiling.rows);
    columns = min(p.w - column, tiling.columns);
    map = channel * p.bins() + bin;
  }
};

// A row of the boxes, loaded before it is needed.
template <typename C>
struct LoadedBox {
  C row[5];

  __device__ LoadedBox(const Problem& p, const C* rois, int64_t r) {
#pragma unroll
    for (int i = 0; i < 5; ++i) row[i] = r < p.num_rois ? rois[5 * r + i] : C(-1);
  }
};

// Lists the box of every thread, number `r`, if it meets the tile, and answers how many do. Every thread calls.
template <class Box, typename T, typename C>
__device__ __forceinline__ int list_boxes(const Problem& p, const TilePlace& tile, const T* grad_output, int64_t r,
                                          const LoadedBox<C>& loaded, BoxList<C, Box::kWeighted>& list) {
  using List = BoxList<C, Box::kWeighted>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const Box box(loaded.row, p);
  Pixels pixels{{0, -1}, {0, -1}};
  if (r < p.num_rois && box.image() == tile.image) pixels = box.pixels(tile.ph, tile.pw);
  const auto clipped = [](const PixelRange& range, int32_t begin, int32_t count) {
    const int32_t last = range.last - begin, end = count - 1;
    return PixelRange{range.first < begin ? 0 : range.first - begin, last < end ? last : end};
  };
  const PixelRange rows = clipped(pixels.rows, tile.row, tile.rows);
  const PixelRange columns = clipped(pixels.columns, tile.column, tile.columns);
  const bool meets = !pixels.none() && rows.first <= rows.last && columns.first <= columns.last;
  C grads[kMostChannels];
  if (meets) {
    // On their way while the others are counted.
    const int64_t bins = p.bins();
    const T* from = grad_output + r * p.c * bins + tile.map;
#pragma unroll
    for (int k = 0; k < kMostChannels; ++k, from += bins) grads[k] = k < tile.channels ? widen(*from) : C(0);
  }
  const uint32_t meeting = __ballot_sync(kFullWarp, meets);
  if (lane == 0) list.warp_totals[warp] = __popc(meeting);
  __syncthreads();  // the list before this one is read, too
  int before = 0, all = 0;
#pragma unroll
  for (int w = 0; w < kListThreads<C> / 32; ++w) {
    const int total = list.warp_totals[w];
    before += w < warp ? total : 0;
    all += total;
  }
  if (meets) {
    const int slot = before + __popc(meeting & ((1u << lane) - 1));
    bool is_wide = false;
    if constexpr (Box::kWeighted) {
      is_wide = rows.count() > kListedWeights || columns.count() > kListedWeights ||
                box.box.y.count > kMostSamples || box.box.x.count > kMostSamples;
      if (!is_wide) {
        list_weights(box.box.y, box.by_rows, tile.ph, tile.row + rows.first, rows.count(), &list.row_weights[0][slot],
                     List::kStride);
        list_weights(box.box.x, box.by_columns, tile.pw, tile.column + columns.first, columns.count(),
                     &list.column_weights[0][slot], List::kStride);
      }
    }
    list.boxes[slot] = {static_cast<uint16_t>(rows.first),    static_cast<uint16_t>(rows.last),
                        static_cast<uint16_t>(columns.first), static_cast<uint16_t>(columns.last),
                        static_cast<int32_t>(r),              is_wide};
#pragma unroll
    for (int k = 0; k < kMostChannels; ++k) {
      if (k < tile.channels) list.grads[k * List::kStride + slot] = box.share(grads[k], pixels);
    }
  }
  __syncthreads();
  return all;
}

// A warp's part of a tile, the sums, and the lane's place among some pixels of all channels.
template <typename C>
struct WarpPart {
  int32_t begin_row, end_row, begin_column, end_column;
  int32_t columns, pitch;  // of the tile
  int32_t pixels;          // side by side, that a warp adds at a time
  int32_t pixel, channel;  // the lane's; `pixel` is never reached where the lane has none
  C* sums;                 // of the tile's first pixel

  __device__ WarpPart(const Tiling& tiling, const TilePlace& tile, C* tile_sums)
      : columns(tile.columns), pitch(tiling.pitch), pixels(32 / tile.channels), sums(tile_sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int across = groups_of(tiling.columns, tiling.own_columns);
    begin_row = warp / across * tiling.own_rows;
    begin_column = warp % across * tiling.own_columns;
    end_row = min(begin_row + tiling.own_rows, tile.rows);
    end_column = min(begin_column + tiling.own_columns, tile.columns);
    pixel = lane / tile.channels;
    channel = lane - pixel * tile.channels;
    if (pixel >= pixels) pixel = kMostColumns;
  }
  __device__ bool is_met(const ListedBox& box) const {
    return box.first_row < end_row && box.last_row >= begin_row && box.first_column < end_column &&
           box.last_column >= begin_column;
  }
  __device__ C* at(int32_t row, int32_t column) const { return sums + (row * columns + column) * pitch; }
};

// The pixels of a box's rectangle that are a warp's.
struct Shared {
  int32_t first_row, last_row, first_column, last_column;

  template <typename C>
  __device__ Shared(const ListedBox& box, const WarpPart<C>& own)
      : first_row(max(int32_t{box.first_row}, own.begin_row)), last_row(min(int32_t{box.last_row}, own.end_row - 1)),
        first_column(max(int32_t{box.first_column}, own.begin_column)),
        last_column(min(int32_t{box.last_column}, own.end_column - 1)) {}
};

// Boxes of which some have weights that are not listed, `left` of the 32 from `base` on: a lane finds the weights of a
// row and of a column, and adds a column of pixels. Rare, and not to cost the others registers.
template <typename C>
__device__ __noinline__ void add_wide_boxes(const Problem& p, const C* rois, const BoxList<C, true>& list, int base,
                                            uint32_t left, TilePlace tile, WarpPart<C> own) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (; left != 0; left &= left - 1) {
    const int slot = base + __ffs(static_cast<int>(left)) - 1;
    const Shared shared(list.boxes[slot], own);
    const int64_t r = list.boxes[slot].number;
    const roi_align::Box<C> box = roi_align::make_box(rois + 5 * r, p.boxes);
    for (int32_t columns = shared.first_column; columns <= shared.last_column; columns += 32) {
      const int32_t column = columns + lane;
      C column_weight = C(0);
      if (column <= shared.last_column) column_weight = roi_align::pixel_weight(box.x, tile.pw, tile.column + column);
      for (int32_t rows = shared.first_row; rows <= shared.last_row; rows += 32) {
        C weight = C(0);
        if (rows + lane <= shared.last_row) weight = roi_align::pixel_weight(box.y, tile.ph, tile.row + rows + lane);
        for (int32_t i = 0; i < 32 && rows + i <= shared.last_row; ++i) {
          const C row_weight = __shfl_sync(kFullWarp, weight, i);
          if (row_weight == C(0) || column_weight == C(0)) continue;
          C* const sums = own.at(rows + i, column);
          for (int k = 0; k < tile.channels; ++k) {
            sums[k] = fma(column_weight, row_weight * list.grads[k * BoxList<C, true>::kStride + slot], sums[k]);
          }
        }
      }
    }
    __syncwarp();  // the next box may have the same pixels on other lanes
  }
}

// Adds the listed boxes to a warp's part of the tile.
template <class Box, typename C>
__device__ __forceinline__ void add_boxes(const Problem& p, const C* rois, const TilePlace& tile,
                                          const BoxList<C, Box::kWeighted>& list, int count, const WarpPart<C>& own) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const C* const grads = list.grads + own.channel * BoxList<C, Box::kWeighted>::kStride;
  for (int base = 0; base < count; base += 32) {
    bool meets = false, is_wide = false;
    if (base + lane < count) {
      const ListedBox& box = list.boxes[base + lane];
      meets = own.is_met(box);
      is_wide = meets && box.is_wide != 0;
    }
    uint32_t left = __ballot_sync(kFullWarp, meets);
    if constexpr (Box::kWeighted) {
      if (__any_sync(kFullWarp, is_wide)) {
        add_wide_boxes(p, rois, list, base, left, tile, own);
        continue;
      }
    }
    for (; left != 0; left &= left - 1) {
      const int slot = base + __ffs(static_cast<int>(left)) - 1;
      const ListedBox box = list.boxes[slot];
      const Shared shared(box, own);
      const C grad = grads[slot];
      for (int32_t columns = shared.first_column; columns <= shared.last_column; columns += own.pixels) {
        const int32_t column = columns + own.pixel;
        bool adds = column <= shared.last_column;
        C column_weight = C(0);
        if constexpr (Box::kWeighted) {
          if (adds) column_weight = list.column_weights[column - box.first_column][slot];
          adds = column_weight != C(0);
        }
        if (!adds) continue;
        for (int32_t rows = shared.first_row; rows <= shared.last_row; rows += kRowsTogether) {
          C old[kRowsTogether], row_weights[kRowsTogether];
          C* const to = own.at(rows, column) + own.channel;
          const int32_t step = own.columns * own.pitch;
          // All is loaded before anything is stored, so that the rows are under way at once.
#pragma unroll
          for (int k = 0; k < kRowsTogether; ++k) {
            row_weights[k] = rows + k <= shared.last_row ? C(1) : C(0);
            if constexpr (Box::kWeighted) {
              if (rows + k <= shared.last_row) row_weights[k] = list.row_weights[rows + k - box.first_row][slot];
            }
            if (row_weights[k] != C(0)) old[k] = to[k * step];
          }
#pragma unroll
          for (int k = 0; k < kRowsTogether; ++k) {
            if (row_weights[k] == C(0)) continue;
            if constexpr (Box::kWeighted) {
              to[k * step] = fma(column_weight, row_weights[k] * grad, old[k]);
            } else {
              to[k * step] = old[k] + grad;
            }
          }
        }
      }
      __syncwarp();  // the next box may have the same pixels on other lanes
    }
  }
}

// Stores a tile's sums: where its rows follow each other in memory, as one row.
template <typename T, typename C>
__device__ __forceinline__ void store_tile(const Problem& p, const TilePlace& tile, int32_t pitch, const C* sums,
                                           T* grad_input) {
  const bool is_whole = tile.columns == p.w;
  const int32_t rows = is_whole ? 1 : tile.rows, columns = is_whole ? tile.rows * tile.columns : tile.columns;
  T* const out = grad_input + (int64_t{tile.image} * p.c * p.bins() + tile.map) * p.plane() +
                 static_cast<int64_t>(tile.row) * p.w + tile.column;
  for (int k = 0; k < tile.channels; ++k) {
    for (int32_t row = 0; row < rows; ++row) {
      T* const to = out + k * p.bins() * p.plane() + static_cast<int64_t>(row) * p.w;
      const C* const from = sums + row * columns * pitch + k;
#pragma unroll 4
      for (int32_t i = static_cast<int32_t>(threadIdx.x); i < columns; i += kListThreads<C>) {
        to[i] = narrow<T>(from[i * pitch]);
      }
    }
  }
}

template <class Box, typename T>
__global__ void __launch_bounds__(kListThreads<Compute<T>>, 3)
    sum_tiles(const __grid_constant__ Problem p, const T* grad_output, const Compute<T>* rois, T* grad_input,
              const __grid_constant__ Tiling tiling) {
  using C = Compute<T>;
  using List = BoxList<C, Box::kWeighted>;
  constexpr int kThreads = kListThreads<C>;
  unsigned char* const memory = dynamic_shared<unsigned char>();
  C* const sums = reinterpret_cast<C*>(memory);
  List& list = *reinterpret_cast<List*>(memory + tiling.list);
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t job = blockIdx.x; job < tiling.tiles; job += gridDim.x) {
    LoadedBox<C> next(p, rois, thread);
    const TilePlace tile(p, tiling, job);
    const WarpPart<C> own(tiling, tile, sums);
    const int32_t places = tile.rows * tile.columns * tiling.pitch;
    for (int32_t i = thread; i < places; i += kThreads) sums[i] = C(0);
    for (int64_t first = 0; first < p.num_rois; first += kThreads) {
      const LoadedBox<C> loaded = next;
      next = LoadedBox<C>(p, rois, first + kThreads + thread);
      const int count = list_boxes<Box>(p, tile, grad_output, first + thread, loaded, list);
      add_boxes<Box>(p, rois, tile, list, count, own);
    }
    __syncthreads();  // all is added
    store_tile(p, tile, tiling.pitch, sums, grad_input);
    __syncthreads();  // the sums are read
  }
}

template <typename T, Kind kKind>
Status enqueue_tiles(const Problem& p, const BackwardBuffers<T, kKind>& b, Stream stream) {
  using C = Compute<T>;
  using Box = std::conditional_t<kKind == Kind::kSamples, SampledBox<C>, AveragedBox<C>>;
  DeviceTraits device;
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  const Tiling tiling = Tiling::of<C, Box::kWeighted>(p, device);
  constexpr auto kKernel = sum_tiles<Box, T>;
  const char* const name = "ps_roi backward kernel";
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>(name));
  return launch_kernel(name, kKernel, blocks_for(tiling.tiles, 1), kListThreads<C>, tiling.bytes, stream, p,
                       b.grad_output, b.rois, b.grad_input, tiling);
}

}  // namespace
}  // namespace baracuda::ps_roi
