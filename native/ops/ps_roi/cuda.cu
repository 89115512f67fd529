// SPDX-License-Identifier: Apache-2.0
// Position-sensitive pooling on CUDA. By samples all begins with a launch that tabulates every box's weights, which is
// roi_align's.
//
//   forward path   calls          a thread owns
//   bins           all            a bin; neighbours have neighbouring bins of a row
//
//   backward path  calls          a block owns
//   zeros          empty ones     -
//   tiles          all            a tile of the maps of a bin and some channels, whose sums are in shared memory. Its
//                                 threads list the boxes that meet it, then each warp adds, to its rows, the pixels of
//                                 a box side by side, box after box
#include <type_traits>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/cuda_warp.cuh"
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/ps_roi/launch.h"
#include "ops/ps_roi/math.h"
#include "ops/roi_align/cuda/tables.cuh"

namespace baracuda::ps_roi {
namespace {

// The bin of a box that falls on a map.
struct FallingBin {
  Pixels pixels;
  int32_t y_weights, x_weights;  // where they are in the box's tables, -1 where they are computed; by samples

  __device__ bool is_tabulated() const { return y_weights >= 0 && x_weights >= 0; }
};

// The boxes by samples.
template <typename C>
struct SampledBoxes {
  static constexpr bool kTabulated = true;
  roi_align::BoxTables<C> tables;

  __device__ int32_t image(const Problem&, int64_t r) const { return tables.boxes[r].image; }

  template <typename T>
  __device__ C pooled(const Problem& p, int64_t r, int32_t ph, int32_t pw, const T* plane) const {
    return samples_of(plane, p.w, tables.y(r), ph, tables.x(r), pw);
  }
  __device__ FallingBin bin(const Problem&, int64_t r, int32_t ph, int32_t pw) const {
    const roi_align::BinEntry rows = tables.y(r).bins[ph], columns = tables.x(r).bins[pw];
    return {{rows.pixels, columns.pixels}, rows.weights, columns.weights};
  }
  __device__ C share(C grad, const Pixels&) const { return grad; }
  // A bin's weights from one of its pixels on, where they are tabulated.
  __device__ const C* row_weights(const FallingBin& bin, int64_t r, int32_t row) const {
    return tables.y_weights + r * tables.y_capacity + bin.y_weights +
           (row - roi_align::first_in_group(bin.pixels.rows.first));
  }
  __device__ const C* column_weights(const FallingBin& bin, int64_t r, int32_t column) const {
    return tables.x_weights + r * tables.x_capacity + bin.x_weights +
           (column - roi_align::first_in_group(bin.pixels.columns.first));
  }
};

// The boxes by averages.
template <typename C>
struct AveragedBoxes {
  static constexpr bool kTabulated = false;
  const C* rois;

  __device__ int32_t image(const Problem& p, int64_t r) const { return AverageBox<C>(rois + 5 * r, p).image; }

  template <typename T>
  __device__ C pooled(const Problem& p, int64_t r, int32_t ph, int32_t pw, const T* plane) const {
    return mean_of(plane, p.w, AverageBox<C>(rois + 5 * r, p).pixels(ph, pw));
  }
  __device__ FallingBin bin(const Problem& p, int64_t r, int32_t ph, int32_t pw) const {
    return {AverageBox<C>(rois + 5 * r, p).pixels(ph, pw), 0, 0};
  }
  __device__ C share(C grad, const Pixels& pixels) const { return grad / pixels.template area<C>(); }
};

template <typename C, Kind kKind>
using Boxes = std::conditional_t<kKind == Kind::kSamples, SampledBoxes<C>, AveragedBoxes<C>>;

template <Kind kKind, typename C>
Boxes<C, kKind> boxes_of(const Problem& p, const C* rois, void* workspace) {
  if constexpr (kKind == Kind::kSamples) {
    return {roi_align::BoxTables<C>(p.boxes, workspace)};
  } else {
    return {rois};
  }
}

// Tabulates the boxes where that is done.
template <typename C>
Status prepare(const Problem& p, const C* rois, const SampledBoxes<C>& boxes, Stream stream) {
  if (p.boxes.input_numel == 0 || p.boxes.output_numel == 0) return Status::kOk;
  return roi_align::tabulate(p.boxes, rois, boxes.tables, stream);
}
template <typename C>
Status prepare(const Problem&, const C*, const AveragedBoxes<C>&, Stream) {
  return Status::kOk;
}

template <Kind kKind, typename C>
size_t bytes_of_boxes(const Problem& p) {
  return kKind == Kind::kSamples ? roi_align::BoxTables<C>(p.boxes, nullptr).bytes : 0;
}

constexpr int kPoolThreads = 128;

template <typename T, class Found>
__global__ void __launch_bounds__(kPoolThreads)
    pool_bins(const __grid_constant__ Problem p, const T* input, T* output, const __grid_constant__ Found boxes) {
  using C = Compute<T>;
  for (int64_t at = grid_thread(); at < p.output_numel; at += grid_threads()) {
    const Division by_column(at, p.pooled_w), by_row(by_column.quotient, p.pooled_h), by_channel(by_row.quotient, p.c);
    const int64_t r = by_channel.quotient;
    const int32_t ph = static_cast<int32_t>(by_row.remainder), pw = static_cast<int32_t>(by_column.remainder);
    const int32_t image = p.input_numel > 0 ? boxes.image(p, r) : -1;
    C value = C(0);
    if (image >= 0) {
      const int64_t map = ((image * int64_t{p.c} + by_channel.remainder) * p.pooled_h + ph) * p.pooled_w + pw;
      value = boxes.pooled(p, r, ph, pw, input + map * p.plane());
    }
    output[at] = narrow<T>(value);
  }
}

// A block's tile: its pixels of as many channels stand in shared memory, 38 KiB of f32 and 30 of f64. With the list of
// boxes that is at most 64 KiB, so that every device has it and three blocks share a multiprocessor.
constexpr int32_t kChannels = 5;
template <typename C>
constexpr int32_t kTilePixels = sizeof(C) == 4 ? 1920 : 768;
constexpr int32_t kMostColumns = 384;
// A thread looks at a box, so that a block lists at most as many at a time.
template <typename C>
constexpr int kListThreads = sizeof(C) == 4 ? 256 : 128;
// Weights of an axis that are listed with a box. A detection head's bins have some five pixels on an axis.
constexpr int32_t kListedWeights = 8;
// A warp adds so many pixels of a bin at a time, one a lane.
constexpr int32_t kPatchRows = 4, kPatchColumns = 8;

// How maps are cut into tiles, evenly.
struct Tiling {
  int32_t channels, groups;        // of a tile, and how many tiles the channels make
  int32_t columns, column_tiles;
  int32_t rows, row_tiles;
  int64_t tiles;  // of all maps

  Tiling(const Problem& p, int32_t most_pixels) {
    cut(p.c, kChannels, &channels, &groups);
    cut(p.w, kMostColumns, &columns, &column_tiles);
    cut(p.h, most_pixels / columns, &rows, &row_tiles);
    tiles = int64_t{p.n} * p.bins() * groups * row_tiles * column_tiles;
  }
  size_t pixels() const { return static_cast<size_t>(rows) * static_cast<size_t>(columns); }

 private:
  // Parts of at most `most`, none of them empty.
  static void cut(int64_t extent, int64_t most, int32_t* size, int32_t* count) {
    *size = static_cast<int32_t>(ceil_div(extent, ceil_div(extent, most)));
    *count = static_cast<int32_t>(ceil_div(extent, *size));
  }
};

// A box whose bin meets a tile: the rectangle of their pixels, from the tile's corner on, both ends included.
struct alignas(16) ListedBox {
  uint16_t first_row, last_row, first_column, last_column;
  int32_t number;
  int32_t has_weights;  // whether all its weights are listed
};

// Boxes that meet a tile, ascending, with what they give it.
template <typename C, bool kTabulated>
struct BoxList {
  static constexpr int kBoxes = kListThreads<C>;
  static constexpr int kStride = kTabulated ? kBoxes + 1 : 1;  // weights of one box lie in different banks
  ListedBox boxes[kBoxes];
  C grads[kChannels][kBoxes];  // by averages their shares
  C row_weights[kListedWeights][kStride];  // by row of the rectangle
  C column_weights[kListedWeights][kStride];
  int warp_totals[kBoxes / 32];
};

// Where a tile lies.
struct TilePlace {
  int32_t image, ph, pw, channel, channels, row, rows, column, columns;
  int64_t map;  // of the first channel, in the image

  __device__ TilePlace(const Problem& p, const Tiling& tiling, int64_t tile) {
    const Division across(tile, tiling.column_tiles), down(across.quotient, tiling.row_tiles);
    const Division by_group(down.quotient, tiling.groups), by_image(by_group.quotient, p.bins());
    const Division by_row(by_image.remainder, p.pooled_w);
    image = static_cast<int32_t>(by_image.quotient);
    ph = static_cast<int32_t>(by_row.quotient);
    pw = static_cast<int32_t>(by_row.remainder);
    channel = static_cast<int32_t>(by_group.remainder) * tiling.channels;
    channels = min(p.c - channel, tiling.channels);
    row = static_cast<int32_t>(down.remainder) * tiling.rows;
    rows = min(p.h - row, tiling.rows);
    column = static_cast<int32_t>(across.remainder) * tiling.columns;
    columns = min(p.w - column, tiling.columns);
    map = channel * p.bins() + by_image.remainder;
  }
};

// Lists which of the boxes from `first` on, one a thread, meet the tile, and answers how many. Every thread calls.
template <typename T, class Found>
__device__ int list_boxes(const Problem& p, const Found& found, const TilePlace& tile, const T* grad_output,
                          int64_t first, BoxList<Compute<T>, Found::kTabulated>& list) {
  using C = Compute<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t r = first + threadIdx.x;
  FallingBin bin{{{0, -1}, {0, -1}}, 0, 0};
  if (r < p.num_rois && found.image(p, r) == tile.image) bin = found.bin(p, r, tile.ph, tile.pw);
  const auto clipped = [](const PixelRange& pixels, int32_t begin, int32_t count) {
    const int32_t last = pixels.last - begin, end = count - 1;
    return PixelRange{pixels.first < begin ? 0 : pixels.first - begin, last < end ? last : end};
  };
  const PixelRange rows = clipped(bin.pixels.rows, tile.row, tile.rows);
  const PixelRange columns = clipped(bin.pixels.columns, tile.column, tile.columns);
  const bool meets = !bin.pixels.none() && rows.first <= rows.last && columns.first <= columns.last;
  const uint32_t meeting = __ballot_sync(kFullWarp, meets);
  if (lane == 0) list.warp_totals[warp] = __popc(meeting);
  C grads[kChannels];
  if (meets) {
    const T* const from = grad_output + r * p.c * p.bins() + tile.map;
#pragma unroll
    for (int k = 0; k < kChannels; ++k) grads[k] = k < tile.channels ? widen(from[k * p.bins()]) : C(0);
  }
  __syncthreads();
  int before = 0, all = 0;
#pragma unroll
  for (int w = 0; w < kListThreads<C> / 32; ++w) {
    const int total = list.warp_totals[w];
    before += w < warp ? total : 0;
    all += total;
  }
  if (meets) {
    const int slot = before + __popc(meeting & ((1u << lane) - 1));
    bool has_weights = true;
    if constexpr (Found::kTabulated) {
      const int32_t row_count = rows.count(), column_count = columns.count();
      has_weights = bin.is_tabulated() && row_count <= kListedWeights && column_count <= kListedWeights;
      if (has_weights) {
        const C* const by_row = found.row_weights(bin, r, tile.row + rows.first);
        const C* const by_column = found.column_weights(bin, r, tile.column + columns.first);
#pragma unroll
        for (int k = 0; k < kListedWeights; ++k) {
          list.row_weights[k][slot] = k < row_count ? by_row[k] : C(0);
          list.column_weights[k][slot] = k < column_count ? by_column[k] : C(0);
        }
      }
    }
    list.boxes[slot] = {static_cast<uint16_t>(rows.first),    static_cast<uint16_t>(rows.last),
                        static_cast<uint16_t>(columns.first), static_cast<uint16_t>(columns.last),
                        static_cast<int32_t>(r),              has_weights};
#pragma unroll
    for (int k = 0; k < kChannels; ++k) list.grads[k][slot] = found.share(grads[k], bin.pixels);
  }
  __syncthreads();
  return all;
}

// What a lane adds of a box: a pixel of its rectangle.
template <typename C>
struct Gift {
  ListedBox box;
  int slot;
  int32_t row, column;  // of the tile
  C row_weight, column_weight;
};

// Adds what the box in a slot of the list gives a pixel. All is loaded before anything is stored, so that a pixel's
// sums of all channels are under way at once.
template <bool kTabulated, typename C>
__device__ __forceinline__ void add_to_pixel(const BoxList<C, kTabulated>& list, int slot, C row_weight,
                                             C column_weight, int channels, int32_t pixels, C* sums) {
  if constexpr (kTabulated) {
    if (row_weight == C(0) || column_weight == C(0)) return;
  }
  C grads[kChannels], old[kChannels];
#pragma unroll
  for (int k = 0; k < kChannels; ++k) {
    grads[k] = list.grads[k][slot];
    if (k < channels) old[k] = sums[k * pixels];
  }
#pragma unroll
  for (int k = 0; k < kChannels; ++k) {
    if (k >= channels) continue;
    if constexpr (kTabulated) {
      sums[k * pixels] = fma(column_weight, row_weight * grads[k], old[k]);
    } else {
      sums[k * pixels] = old[k] + grads[k];
    }
  }
}

// Boxes of which some have weights that are not listed, `left` of the 32 from `base` on: all their weights are looked
// up in the tables, or computed. Rare, and not to cost the others registers.
template <class Found, typename C>
__device__ __noinline__ void add_wide_boxes(const Found& found, const BoxList<C, true>& list, int base, uint32_t left,
                                            const TilePlace& tile, int32_t begin_row, int32_t end_row, C* sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (; left != 0; left &= left - 1) {
    const int slot = base + __ffs(static_cast<int>(left)) - 1;
    const ListedBox& box = list.boxes[slot];
    const roi_align::TabulatedAxis<C> y = found.tables.y(box.number), x = found.tables.x(box.number);
    const roi_align::BinEntry rows = y.bins[tile.ph], columns = x.bins[tile.pw];
    const int32_t first_row = box.first_row < begin_row ? begin_row : int32_t{box.first_row};
    for (int32_t row = first_row + lane / kPatchColumns; row <= box.last_row && row < end_row; row += kPatchRows) {
      const C row_weight = y.weight(tile.ph, rows, tile.row + row);
      for (int32_t column = box.first_column + lane % kPatchColumns; column <= box.last_column;
           column += kPatchColumns) {
        add_to_pixel<true>(list, slot, row_weight, x.weight(tile.pw, columns, tile.column + column), tile.channels,
                           tile.rows * tile.columns, sums + row * tile.columns + column);
      }
    }
    __syncwarp();  // the next box may have the same pixels on other lanes
  }
}

// Adds the listed boxes to a warp's rows of the tile.
template <class Found, typename C>
__device__ __forceinline__ void add_boxes(const Found& found, const TilePlace& tile,
                                          const BoxList<C, Found::kTabulated>& list, int count, int32_t begin_row,
                                          int32_t end_row, C* sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int32_t pixels = tile.rows * tile.columns;
  for (int base = 0; base < count; base += 32) {
    bool meets = false, is_wide = false;
    if (base + lane < count) {
      const ListedBox& box = list.boxes[base + lane];
      meets = box.first_row < end_row && box.last_row >= begin_row;
      is_wide = meets && box.has_weights == 0;
    }
    uint32_t left = __ballot_sync(kFullWarp, meets);
    if constexpr (Found::kTabulated) {
      if (__any_sync(kFullWarp, is_wide)) {
        add_wide_boxes(found, list, base, left, tile, begin_row, end_row, sums);
        continue;
      }
    }
    const auto take = [&] {
      const int slot = base + __ffs(static_cast<int>(left)) - 1;
      left &= left - 1;
      Gift<C> gift;
      gift.slot = slot;
      gift.box = list.boxes[slot];
      const int32_t first_row = gift.box.first_row < begin_row ? begin_row : int32_t{gift.box.first_row};
      gift.row = first_row + lane / kPatchColumns;
      gift.column = gift.box.first_column + lane % kPatchColumns;
      gift.row_weight = gift.column_weight = C(0);
      if constexpr (Found::kTabulated) {
        const int32_t row = gift.row - gift.box.first_row, column = gift.column - gift.box.first_column;
        if (row < kListedWeights) gift.row_weight = list.row_weights[row][slot];
        gift.column_weight = list.column_weights[column][slot];
      }
      return gift;
    };
    Gift<C> next{};
    bool has_next = left != 0;
    if (has_next) next = take();
    while (has_next) {
      const Gift<C> gift = next;
      has_next = left != 0;
      if (has_next) next = take();  // on its way while this one is added
      const int32_t last_row = gift.box.last_row < end_row ? int32_t{gift.box.last_row} : end_row - 1;
      for (int32_t row = gift.row; row <= last_row; row += kPatchRows) {
        for (int32_t column = gift.column; column <= gift.box.last_column; column += kPatchColumns) {
          C row_weight = gift.row_weight;
          if constexpr (Found::kTabulated) {
            // With its weights listed, a rectangle has no second patch of columns.
            if (row != gift.row) row_weight = list.row_weights[row - gift.box.first_row][gift.slot];
          }
          add_to_pixel<Found::kTabulated>(list, gift.slot, row_weight, gift.column_weight, tile.channels, pixels,
                                          sums + row * tile.columns + column);
        }
      }
      __syncwarp();  // the next box may have the same pixels on other lanes
    }
  }
}

// A block owns a tile of the maps of one bin, a warp some of its rows.
template <typename T, class Found>
__global__ void __launch_bounds__(kListThreads<Compute<T>>, 3)
    sum_tiles(const __grid_constant__ Problem p, const T* grad_output, T* grad_input,
              const __grid_constant__ Found boxes, const __grid_constant__ Tiling tiling) {
  using C = Compute<T>;
  using List = BoxList<C, Found::kTabulated>;
  constexpr int kThreads = kListThreads<C>, kWarps = kThreads / 32;
  if constexpr (Found::kTabulated) wait_for_kernel_before();  // it tabulates
  unsigned char* const memory = dynamic_shared<unsigned char>();
  List& list = *reinterpret_cast<List*>(memory);
  C* const sums = reinterpret_cast<C*>(memory + sizeof(List));
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  for (int64_t job = blockIdx.x; job < tiling.tiles; job += gridDim.x) {
    const TilePlace tile(p, tiling, job);
    const int32_t pixels = tile.rows * tile.columns;
    for (int32_t i = thread; i < tile.channels * pixels; i += kThreads) sums[i] = C(0);
    const int32_t begin_row = tile.rows * warp / kWarps, end_row = tile.rows * (warp + 1) / kWarps;
    for (int64_t first = 0; first < p.num_rois; first += kThreads) {
      const int count = list_boxes(p, boxes, tile, grad_output, first, list);
      if (begin_row < end_row) add_boxes(boxes, tile, list, count, begin_row, end_row, sums);
      __syncthreads();  // the next list overwrites this one
    }
    T* const out = grad_input + (int64_t{tile.image} * p.c * p.bins() + tile.map) * p.plane();
    for (int32_t row = warp; row < tile.channels * tile.rows; row += kWarps) {
      const int32_t k = row / tile.rows, in_tile = row - k * tile.rows;
      T* const to = out + k * p.bins() * p.plane() + static_cast<int64_t>(tile.row + in_tile) * p.w + tile.column;
      const C* const from = sums + row * tile.columns;
      for (int32_t column = thread % 32; column < tile.columns; column += 32) to[column] = narrow<T>(from[column]);
    }
    __syncthreads();  // the sums are read
  }
}

template <typename T, Kind kKind>
struct BinsPath {
  static const char* name() { return "bins"; }
  const Request<Problem, ForwardBuffers<T, kKind>>& call;
  Status enqueue() const {
    using Found = Boxes<Compute<T>, kKind>;
    const Found boxes = boxes_of<kKind>(call.p, call.b.rois, call.workspace);
    BARACUDA_RETURN_IF_FAILED(prepare(call.p, call.b.rois, boxes, call.stream));
    return launch_kernel("ps_roi kernel", pool_bins<T, Found>, blocks_for(call.p.output_numel, kPoolThreads),
                         kPoolThreads, 0, call.stream, call.p, call.b.input, call.b.output, boxes);
  }
};

template <typename T, Kind kKind>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, BackwardBuffers<T, kKind>>& call;
  bool can() const { return call.p.input_numel == 0 || call.p.output_numel == 0; }
  Status enqueue() const {
    return enqueue_zeros(call.b.grad_input, static_cast<size_t>(call.p.input_numel) * sizeof(T), call.stream);
  }
};

template <typename T, Kind kKind>
struct TilesPath {
  static const char* name() { return "tiles"; }
  const Request<Problem, BackwardBuffers<T, kKind>>& call;
  Status enqueue() const {
    using C = Compute<T>;
    using Found = Boxes<C, kKind>;
    const Problem& p = call.p;
    const Found boxes = boxes_of<kKind>(p, call.b.rois, call.workspace);
    BARACUDA_RETURN_IF_FAILED(prepare(p, call.b.rois, boxes, call.stream));
    const Tiling tiling(p, kTilePixels<C>);
    constexpr auto kKernel = sum_tiles<T, Found>;
    const char* const name = "ps_roi backward kernel";
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>(name));
    const size_t sums = static_cast<size_t>(tiling.channels) * tiling.pixels() * sizeof(C);
    const size_t shared_bytes = sizeof(BoxList<C, Found::kTabulated>) + sums;
    const uint32_t blocks = blocks_for(tiling.tiles, 1);
    if constexpr (Found::kTabulated) {
      return launch_early(name, kKernel, blocks, kListThreads<C>, shared_bytes, call.stream, p, call.b.grad_output,
                          call.b.grad_input, boxes, tiling);
    } else {
      return launch_kernel(name, kKernel, blocks, kListThreads<C>, shared_bytes, call.stream, p, call.b.grad_output,
                           call.b.grad_input, boxes, tiling);
    }
  }
};

template <typename T, Kind kKind>
Status run(const Problem& p, const ForwardBuffers<T, kKind>& b, void* workspace, Stream stream) {
  return Paths<BinsPath<T, kKind>>::enqueue(Request<Problem, ForwardBuffers<T, kKind>>{p, b, workspace, stream});
}

template <typename T, Kind kKind>
Status run(const Problem& p, const BackwardBuffers<T, kKind>& b, void* workspace, Stream stream) {
  const Request<Problem, BackwardBuffers<T, kKind>> request{p, b, workspace, stream};
  return Paths<ZerosPath<T, kKind>, TilesPath<T, kKind>>::enqueue(request);
}

template <typename T, Kind kKind>
size_t bytes_of(const Problem& p, const ForwardBuffers<T, kKind>*) {
  return bytes_of_boxes<kKind, Compute<T>>(p);
}

template <typename T, Kind kKind>
size_t bytes_of(const Problem& p, const BackwardBuffers<T, kKind>*) {
  const bool has_work = p.input_numel > 0 && p.output_numel > 0;
  return has_work ? bytes_of_boxes<kKind, Compute<T>>(p) : 0;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_KINDS)

}  // namespace baracuda::ps_roi
