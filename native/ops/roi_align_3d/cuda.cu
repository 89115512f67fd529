// SPDX-License-Identifier: Apache-2.0
// roi_align_3d on CUDA. All begins with a launch that tabulates every box's weights, axis by axis as roi_align's are.
//
//   forward path   calls                a warp owns
//   zeros          empty volumes        -
//   lines          all                  the bins of a box's pd for some channels. Its lanes are columns, so that rows
//                                       are read whole, of as many lines side by side as fit; and then bins
//
//   backward path  calls                a block owns
//   zeros          no boxes or bins     -
//   voxels         all                  a tile of voxels for some channels, a voxel a thread. It looks at every box
//                                       once; what a box's bins give a row and a plane is shared by their voxels
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/cuda_zeros.cuh"
#include "core/integer_math.h"
#include "core/paths.h"
#include "ops/roi_align/cuda/tables.cuh"
#include "ops/roi_align_3d/launch.h"
#include "ops/roi_align_3d/tables.h"

namespace baracuda::roi_align_3d {
namespace {

using roi_align::kTableThreads;

template <typename C>
__global__ void __launch_bounds__(kTableThreads)
    tabulate_boxes(const __grid_constant__ Problem p, const C* rois, const __grid_constant__ BoxTables<C> tables) {
  const int64_t jobs = int64_t{kAxes} * p.num_rois;
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const int64_t r = job / kAxes;
    const int a = static_cast<int>(job % kAxes);
    const Box<C> box = make_box(rois + kRowNumbers * r, p);
    if (a == 0 && threadIdx.x == 0) tables.boxes[r] = box;
    if (box.image < 0) continue;
    const Axis<C> axis = a == 0 ? box.axes[0] : a == 1 ? box.axes[1] : box.axes[2];
    roi_align::tabulate_axis(axis, p.pooled[a], tables.bins_of(r, a), tables.weights_of(r, a), tables.capacity[a],
                             &tables.touched[job]);
  }
}

template <typename C>
Status tabulate(const Problem& p, const C* rois, const BoxTables<C>& tables, Stream stream) {
  return launch_kernel("roi_align_3d table kernel", tabulate_boxes<C>, blocks_for(int64_t{kAxes} * p.num_rois, 1),
                       kTableThreads, 0, stream, p, rois, tables);
}

constexpr int kForwardWarps = 4;
// Channels of a lane: they share the search for weights, and their loads are under way together.
constexpr int kForwardChannels = 4;
// Bins of a line that a warp holds at one time, one a lane.
constexpr int kLineBins = 32;
// No line has fewer lanes: a sector has as many columns.
constexpr int kFewestLanes = 8;

// How the lanes of a warp are shared out: `lines` lines side by side, each of `lanes` columns; then `bins` bins of
// each.
struct WarpShape {
  int lanes, lines, bins;

  __device__ WarpShape(int32_t columns, int32_t pooled_w)
      : lanes(32), bins(pooled_w < kLineBins ? pooled_w : kLineBins) {
    while (lanes > kFewestLanes && lanes / 2 >= columns) lanes /= 2;
    lines = 32 / lanes;
    while (lines * bins > 32) lines /= 2;
  }
};

// One axis of a box, all of whose weights are in its table.
template <typename C>
struct WeightTable {
  const BinEntry* bins;
  const C* weights;

  // The weights of a bin by pixel.
  __device__ const C* of(const BinEntry& entry) const {
    return weights + entry.weights - roi_align::first_in_group(entry.pixels.first);
  }
};

template <typename C>
__device__ __forceinline__ WeightTable<C> table_of(const BoxTables<C>& tables, int64_t r, int a) {
  return {tables.bins_of(r, a), tables.weights_of(r, a)};
}

// Whether bins [first, first + count) have their weights in the table, for the whole warp.
__device__ __forceinline__ bool tabulated(const BinEntry* bins, int32_t first, int32_t count) {
  bool found = true;
  for (int64_t bin = threadIdx.x % 32; bin < count; bin += 32) {
    found = found && bins[first + bin].weights >= 0;
  }
  return __all_sync(kFullWarp, found);
}

// The bins of pd of a box with bins that did not fit its tables, a bin a lane: rows ascending inside, then planes, then
// columns.
template <typename T>
__device__ __forceinline__ void pool_untabulated(const Problem& p, const BoxTables<Compute<T>>& tables, int64_t r,
                                              int32_t pd, const T* volume, int channels, T* outputs) {
  using C = Compute<T>;
  const TabulatedAxis<C> z = tables.axis(r, 0), y = tables.axis(r, 1), x = tables.axis(r, 2);
  const int64_t plane_bins = int64_t{p.pooled[1]} * p.pooled[2], bins = p.bins();
  const PixelRange planes = z.pixels(pd);
  for (int64_t bin = threadIdx.x % 32; bin < plane_bins; bin += 32) {
    const int32_t ph = static_cast<int32_t>(bin / p.pooled[2]), pw = static_cast<int32_t>(bin % p.pooled[2]);
    const PixelRange rows = y.pixels(ph), columns = x.pixels(pw);
    for (int k = 0; k < channels; ++k) {
      C sum = C(0);
      for (int32_t column = columns.first; column <= columns.last; ++column) {
        const C column_weight = x.weight(pw, column);
        if (column_weight == C(0)) continue;
        C column_sum = C(0);
        for (int32_t plane = planes.first; plane <= planes.last; ++plane) {
          const C plane_weight = z.weight(pd, plane);
          if (plane_weight == C(0)) continue;
          C row_sum = C(0);
          for (int32_t row = rows.first; row <= rows.last; ++row) {
            const C weight = y.weight(ph, row);
            const int64_t line = (int64_t{k} * p.extents[0] + plane) * p.extents[1] + row;
            if (weight != C(0)) row_sum = fma(weight, widen(volume[line * p.extents[2] + column]), row_sum);
          }
          column_sum = fma(plane_weight, row_sum, column_sum);
        }
        sum = fma(column_weight, column_sum, sum);
      }
      outputs[k * bins + bin] = narrow<T>(sum);
    }
  }
}

// The sum of a column over the rows and planes of two bins, for some channels: rows ascending inside, planes ascending
// outside. `voxel` is the column's first in the first channel.
template <typename T>
__device__ __forceinline__ void sum_column(const Problem& p, const T* voxel, PixelRange planes,
                                           const Compute<T>* plane_weights, PixelRange rows,
                                           const Compute<T>* row_weights, int channels,
                                           Compute<T> (&column_sums)[kForwardChannels]) {
  using C = Compute<T>;
  const int64_t voxels = p.voxels();
  for (int32_t plane = planes.first; plane <= planes.last; ++plane) {
    const C plane_weight = plane_weights[plane];
    if (plane_weight == C(0)) continue;
    C row_sums[kForwardChannels] = {};
    const T* at = voxel + (int64_t{plane} * p.extents[1] + rows.first) * p.extents[2];
    for (int32_t row = rows.first; row <= rows.last; ++row, at += p.extents[2]) {
      const C weight = row_weights[row];
      if (weight == C(0)) continue;
#pragma unroll
      for (int k = 0; k < kForwardChannels; ++k) {
        row_sums[k] = fma(weight, widen(at[k < channels ? k * voxels : 0]), row_sums[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kForwardChannels; ++k) column_sums[k] = fma(plane_weight, row_sums[k], column_sums[k]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kForwardWarps * 32, sizeof(T) == 8 ? 3 : 4)
    pool_lines(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T> b,
               const __grid_constant__ BoxTables<Compute<T>> tables, int64_t jobs) {
  using C = Compute<T>;
  __shared__ C strips[kForwardWarps][kForwardChannels][32];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  C(&strip)[kForwardChannels][32] = strips[warp];
  const int32_t pooled_h = p.pooled[1], pooled_w = p.pooled[2];
  const int64_t bins = p.bins(), plane_bins = int64_t{pooled_h} * pooled_w;
  for (int64_t job = int64_t{blockIdx.x} * kForwardWarps + warp; job < jobs;
       job += int64_t{gridDim.x} * kForwardWarps) {
    const int32_t pd = static_cast<int32_t>(job % p.pooled[0]);
    const int64_t r = job / p.pooled[0] % p.num_rois;
    const int32_t channel = static_cast<int32_t>(job / p.pooled[0] / p.num_rois) * kForwardChannels;
    const int channels = p.c - channel < kForwardChannels ? p.c - channel : kForwardChannels;
    T* const outputs = b.output + (r * p.c + channel) * bins + pd * plane_bins;
    const int32_t image = tables.boxes[r].image;
    const PixelRange columns = image < 0 ? PixelRange{0, -1} : tables.touched[kAxes * r + 2];
    if (image < 0) {
      for (int k = 0; k < channels; ++k) {
        for (int64_t i = lane; i < plane_bins; i += 32) outputs[k * bins + i] = narrow<T>(C(0));
      }
      continue;
    }
    const WeightTable<C> z = table_of(tables, r, 0), y = table_of(tables, r, 1), x = table_of(tables, r, 2);
    const T* const volume = b.input + (int64_t{image} * p.c + channel) * p.voxels();
    if (!tabulated(z.bins, pd, 1) || !tabulated(y.bins, 0, pooled_h) || !tabulated(x.bins, 0, pooled_w)) {
      pool_untabulated(p, tables, r, pd, volume, channels, outputs);
      continue;
    }
    const BinEntry planes = z.bins[pd];
    const WarpShape shape(columns.count(), pooled_w);
    const int line = lane / shape.lanes;
    for (int32_t left_w = pooled_w; left_w > 0; left_w -= shape.bins) {
      const int32_t pw = pooled_w - left_w;
      const int own_line = lane / shape.bins;
      const int32_t own_pw = pw + lane % shape.bins;
      const bool has_bin = lane % shape.bins < left_w;
      const BinEntry own = has_bin ? x.bins[own_pw] : BinEntry{{0, -1}, 0};
      const C* const own_weights = x.of(own);
      for (int32_t left_h = pooled_h; left_h > 0; left_h -= shape.lines) {
        const int32_t ph = pooled_h - left_h;
        C sums[kForwardChannels] = {};
        const bool pools = own_line < shape.lines && own_line < left_h && has_bin;
        for (int32_t left = columns.count(); left > 0; left -= shape.lanes) {
          const int32_t first = columns.last - (left - 1);
          C column_sums[kForwardChannels] = {};
          if (line < shape.lines && line < left_h && lane % shape.lanes < left) {
            const BinEntry rows = y.bins[ph + line];
            sum_column(p, volume + first + lane % shape.lanes, planes.pixels, z.of(planes), rows.pixels, y.of(rows),
                       channels, column_sums);
          }
#pragma unroll
          for (int k = 0; k < kForwardChannels; ++k) strip[k][lane] = column_sums[k];
          __syncwarp();
          if (pools) {
            const int32_t begin = own.pixels.first > first ? own.pixels.first : first;
            const int32_t end = left < shape.lanes ? columns.last : first + shape.lanes - 1;
            const int32_t last = own.pixels.last < end ? own.pixels.last : end;
            for (int32_t at = begin; at <= last; ++at) {
              const C weight = own_weights[at];
              if (weight == C(0)) continue;
#pragma unroll
              for (int k = 0; k < kForwardChannels; ++k) {
                sums[k] = fma(weight, strip[k][own_line * shape.lanes + at - first], sums[k]);
              }
            }
          }
          __syncwarp();
        }
        if (!pools) continue;
        T* const output = outputs + int64_t{ph + own_line} * pooled_w + own_pw;
#pragma unroll
        for (int k = 0; k < kForwardChannels; ++k) {
          if (k < channels) output[k * bins] = narrow<T>(sums[k]);
        }
      }
    }
  }
}

// The backward's tile, a voxel a thread.
constexpr int kTilePlanes = 4, kTileRows = 4, kTileColumns = 16;
BARACUDA_HD constexpr int32_t tile_extent(int axis) {
  return axis == 0 ? kTilePlanes : axis == 1 ? kTileRows : kTileColumns;
}
constexpr int kTileThreads = kTilePlanes * kTileRows * kTileColumns;
constexpr int kTileWarps = kTileThreads / 32;
// Channels of a tile: they share the search for boxes and weights.
template <typename T>
constexpr int kTileChannels = sizeof(T) == 8 ? 4 : 8;
// Bins of an axis whose sums are in shared memory at one time; more take several passes.
constexpr int kPassBins = 8;

template <typename T>
struct TileShared {
  // What bins give a row, over ph, and a row of a plane, over pd.
  Compute<T> row_sums[kTileChannels<T>][kPassBins][kTileRows][kPassBins];
  Compute<T> plane_sums[kTileChannels<T>][kTilePlanes][kTileRows][kPassBins];
  uint32_t touched[kTileWarps];  // of some boxes, whether each touches the tile
};

// The first and the last bin of an axis that meet pixels [first, first + count), for the whole warp.
__device__ __forceinline__ PixelRange bins_meeting(const BinEntry* entries, int32_t bins, int32_t first,
                                                   int32_t count) {
  PixelRange met = roi_align::no_pixels();
  for (int32_t left = bins; left > 0; left -= 32) {
    const int32_t base = bins - left, bin = base + static_cast<int32_t>(threadIdx.x % 32);
    const PixelRange own = bin < bins ? entries[bin].pixels : PixelRange{0, -1};
    const uint32_t mask = __ballot_sync(kFullWarp, own.first <= own.last && own.first < first + count &&
                                                       own.last >= first);
    if (mask == 0) continue;
    met = roi_align::join(met, {base + __ffs(static_cast<int>(mask)) - 1, base + 31 - __clz(static_cast<int>(mask))});
  }
  return met;
}

// Where a block's tile lies.
struct TilePlace {
  int32_t image, channel, channels;
  int32_t first[kAxes], count[kAxes];
};

// Adds what a box gives the block's tile. All threads call it; `voxel` is a thread's own within the tile.
template <typename T>
__device__ __forceinline__ void add_box(const Problem& p, const T* grad, const BoxTables<Compute<T>>& tables, int64_t r,
                                        const TilePlace& place, const int32_t (&voxel)[kAxes], TileShared<T>& shared,
                                        Compute<T> (&sums)[kTileChannels<T>]) {
  using C = Compute<T>;
  constexpr int kChannels = kTileChannels<T>;
  const int thread = static_cast<int>(threadIdx.x);
  const TabulatedAxis<C> z = tables.axis(r, 0), y = tables.axis(r, 1), x = tables.axis(r, 2);
  const PixelRange pds = bins_meeting(z.bins, p.pooled[0], place.first[0], place.count[0]);
  const PixelRange phs = bins_meeting(y.bins, p.pooled[1], place.first[1], place.count[1]);
  const PixelRange pws = bins_meeting(x.bins, p.pooled[2], place.first[2], place.count[2]);
  if (pds.first > pds.last || phs.first > phs.last) return;
  const int64_t bins = p.bins();
#pragma unroll 1
  for (int32_t left_w = pws.count(); left_w > 0; left_w -= kPassBins) {
    const int32_t pw = pws.last - (left_w - 1);
    const int passed = left_w < kPassBins ? left_w : kPassBins;
    // The bins of a pass in 2^bits places, so that a place's number needs no division.
    const int bits = 32 - __clz(passed - 1);
    const int mask = (1 << bits) - 1;
#pragma unroll 1
    for (int32_t left_d = pds.count(); left_d > 0; left_d -= kPassBins) {
      const int32_t pd = pds.last - (left_d - 1);
      const int planes_passed = left_d < kPassBins ? left_d : kPassBins;
      const int of_plane = (kTileRows * kChannels) << bits;
      for (int place_number = thread; place_number < planes_passed * of_plane; place_number += kTileThreads) {
        const int own_pw = place_number & mask, row = (place_number >> bits) % kTileRows;
        const int k = (place_number >> bits) / kTileRows % kChannels;
        const int own_pd = (place_number >> bits) / (kTileRows * kChannels);
        C sum = C(0);
        if (own_pw < passed && k < place.channels) {
          const int64_t line = int64_t{pd + own_pd} * p.pooled[1] + phs.first;
          const T* from = grad + k * bins + line * p.pooled[2] + pw + own_pw;
          for (int32_t ph = phs.first; ph <= phs.last; ++ph, from += p.pooled[2]) {
            const BinEntry entry = y.bins[ph];
            if (!entry.pixels.has(place.first[1] + row)) continue;
            const C weight = y.weight(ph, entry, place.first[1] + row);
            if (weight != C(0)) sum = fma(weight, widen(*from), sum);
          }
        }
        shared.row_sums[k][own_pd][row][own_pw] = sum;
      }
      __syncthreads();
      for (int place_number = thread; place_number < kTilePlanes * of_plane; place_number += kTileThreads) {
        const int own_pw = place_number & mask, row = (place_number >> bits) % kTileRows;
        const int k = (place_number >> bits) / kTileRows % kChannels;
        const int plane = (place_number >> bits) / (kTileRows * kChannels);
        C& to = shared.plane_sums[k][plane][row][own_pw];
        C sum = pd == pds.first ? C(0) : to;
        for (int own_pd = 0; own_pd < planes_passed; ++own_pd) {
          const BinEntry entry = z.bins[pd + own_pd];
          if (!entry.pixels.has(place.first[0] + plane)) continue;
          const C weight = z.weight(pd + own_pd, entry, place.first[0] + plane);
          if (weight != C(0)) sum = fma(weight, shared.row_sums[k][own_pd][row][own_pw], sum);
        }
        to = sum;
      }
      __syncthreads();
    }
    // The next sums of planes are written behind the next barrier.
    for (int own_pw = 0; own_pw < passed; ++own_pw) {
      const BinEntry entry = x.bins[pw + own_pw];
      const int32_t column = place.first[2] + voxel[2];
      if (!entry.pixels.has(column)) continue;
      const C weight = x.weight(pw + own_pw, entry, column);
      if (weight == C(0)) continue;
#pragma unroll
      for (int k = 0; k < kChannels; ++k) {
        sums[k] = fma(weight, shared.plane_sums[k][voxel[0]][voxel[1]][own_pw], sums[k]);
      }
    }
  }
}

// Tiles of a volume along each axis, and blocks of channels.
struct Tiles {
  int64_t counts[kAxes], channels;
  Tiles(const Problem& p, int block_channels) : channels(ceil_div(p.c, block_channels)) {
    for (int a = 0; a < kAxes; ++a) counts[a] = ceil_div(p.extents[a], tile_extent(a));
  }
  int64_t jobs(const Problem& p) const { return p.n * channels * counts[0] * counts[1] * counts[2]; }
};

template <typename T>
__global__ void __launch_bounds__(kTileThreads, sizeof(T) == 8 ? 2 : 3)
    sum_voxels(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b,
               const __grid_constant__ BoxTables<Compute<T>> tables, const __grid_constant__ Tiles tiles,
               int64_t jobs) {
  using C = Compute<T>;
  constexpr int kChannels = kTileChannels<T>;
  __shared__ TileShared<T> shared;
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t voxel[kAxes] = {thread / (kTileRows * kTileColumns), thread / kTileColumns % kTileRows,
                                thread % kTileColumns};
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    // Blocks of channels come first: they share the boxes.
    TilePlace place;
    int64_t rest = job / tiles.channels;
    place.channel = static_cast<int32_t>(job % tiles.channels) * kChannels;
    place.channels = p.c - place.channel < kChannels ? p.c - place.channel : kChannels;
#pragma unroll
    for (int a = kAxes - 1; a >= 0; --a) {
      place.first[a] = static_cast<int32_t>(rest % tiles.counts[a]) * tile_extent(a);
      const int32_t left = p.extents[a] - place.first[a];
      place.count[a] = left < tile_extent(a) ? left : tile_extent(a);
      rest /= tiles.counts[a];
    }
    place.image = static_cast<int32_t>(rest);
    C sums[kChannels] = {}, totals[kChannels] = {};
    int64_t block_end = p.rois_per_block;  // of the boxes whose sum is `sums`
    for (int64_t base = 0; base < p.num_rois; base += kTileThreads) {
      const int64_t mine = base + thread;
      const bool touches = mine < p.num_rois && tables.touches(mine, place.image, place.first, place.count);
      const uint32_t mask = __ballot_sync(kFullWarp, touches);
      __syncthreads();  // the masks before are read
      if (thread % 32 == 0) shared.touched[thread / 32] = mask;
      __syncthreads();
      for (int word = 0; word < kTileWarps; ++word) {
        for (uint32_t left = shared.touched[word]; left != 0; left &= left - 1) {
          const int64_t r = base + word * 32 + __ffs(static_cast<int>(left)) - 1;
          if (r >= block_end) {
            block_end = (r / p.rois_per_block + 1) * p.rois_per_block;
#pragma unroll
            for (int k = 0; k < kChannels; ++k) {
              totals[k] = totals[k] + sums[k];
              sums[k] = C(0);
            }
          }
          add_box(p, b.grad_output + (r * p.c + place.channel) * p.bins(), tables, r, place, voxel, shared, sums);
        }
      }
    }
    bool inside = true;
#pragma unroll
    for (int a = 0; a < kAxes; ++a) inside = inside && voxel[a] < place.count[a];
    if (!inside) continue;
    // Blocks of boxes without one here would add 0, which changes no bits of a total, since none is -0.
    const int64_t row = (int64_t{place.first[0]} + voxel[0]) * p.extents[1] + place.first[1] + voxel[1];
    T* const at = b.grad_input + (int64_t{place.image} * p.c + place.channel) * p.voxels() + row * p.extents[2] +
                  place.first[2] + voxel[2];
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (k < place.channels) at[k * p.voxels()] = narrow<T>(totals[k] + sums[k]);
    }
  }
}

template <typename T>
struct ForwardZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  bool can() const { return call.p.input_numel == 0; }
  Status enqueue() const { return enqueue_zeros(call.b.output, call.p.output_numel * sizeof(T), call.stream); }
};

template <typename T>
struct LinesPath {
  static const char* name() { return "lines"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const {
    const Problem& p = call.p;
    if (p.output_numel == 0) return Status::kOk;
    const BoxTables<Compute<T>> tables(p, call.workspace);
    BARACUDA_RETURN_IF_FAILED(tabulate(p, call.b.rois, tables, call.stream));
    const int64_t jobs = ceil_div(p.c, kForwardChannels) * p.num_rois * p.pooled[0];
    return launch_kernel("roi_align_3d kernel", pool_lines<T>, blocks_for(jobs, kForwardWarps), kForwardWarps * 32, 0,
                         call.stream, p, call.b, tables, jobs);
  }
};

template <typename T>
struct BackwardZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  bool can() const { return call.p.input_numel == 0 || call.p.output_numel == 0; }
  Status enqueue() const { return enqueue_zeros(call.b.grad_input, call.p.input_numel * sizeof(T), call.stream); }
};

template <typename T>
struct VoxelsPath {
  static const char* name() { return "voxels"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  Status enqueue() const {
    const Problem& p = call.p;
    const BoxTables<Compute<T>> tables(p, call.workspace);
    BARACUDA_RETURN_IF_FAILED(tabulate(p, call.b.rois, tables, call.stream));
    const Tiles tiles(p, kTileChannels<T>);
    const int64_t jobs = tiles.jobs(p);
    return launch_kernel("roi_align_3d_backward kernel", sum_voxels<T>, blocks_for(jobs, 1), kTileThreads, 0,
                         call.stream, p, call.b, tables, tiles, jobs);
  }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  const Request<Problem, ForwardBuffers<T>> request{p, b, workspace, stream};
  return Paths<ForwardZerosPath<T>, LinesPath<T>>::enqueue(request);
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  const Request<Problem, BackwardBuffers<T>> request{p, b, workspace, stream};
  return Paths<BackwardZerosPath<T>, VoxelsPath<T>>::enqueue(request);
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  return BoxTables<Compute<T>>(p, nullptr).bytes;
}
template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  return BoxTables<Compute<T>>(p, nullptr).bytes;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::roi_align_3d
