// SPDX-License-Identifier: Apache-2.0
// RoIAlign on CUDA: one launch tabulates every box's weights, then warps own what they write, the forward the bins of a
// box, the backward a thread a pixel. The fast paths stand in forward/windows.cuh and backward/tiles.cuh.
#include "ops/roi_align/cuda/forward/columns.cuh"
#include "ops/roi_align/cuda/tables.cuh"
#include "ops/roi_align/cuda/backward/tiles.cuh"
#include "ops/roi_align/cuda/forward/windows.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  DeviceTraits device;
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  const BoxTables<Compute<T>> tables(p, workspace);
  const WindowPlan plan = plan_windows(p, b.input, device);
  if (plan.piece != 0) return run_windows(p, b, plan, tables, workspace, stream);
  if (p.input_numel > 0) BARACUDA_RETURN_IF_FAILED(tabulate(p, b.rois, tables, stream));
  const int64_t jobs = p.output_numel > 0 ? ceil_div(p.c, kForwardChannels<T>) * p.num_rois : 0;
  return launch_kernel("roi_align kernel", pool_boxes<T>, blocks_for(jobs, kForwardWarps), kForwardWarps * 32, 0,
                       stream, p, b, tables);
}

// --- backward --------------------------------------------------------------------------------------------------------

// The general backward, for machines before sm_90 and shapes that the tile kernel does not take: a block owns a tile of
// some channels, a warp a row of it, a lane a pixel. The block looks at every box once for all its pixels and channels.
constexpr int kPixelRows = 8;
constexpr int kPixelColumns = 32;
constexpr int kPixelThreads = kPixelRows * kPixelColumns;
// Channels of a lane: they share the search for bins and weights. More cost registers, and blocks on small maps.
template <typename T>
constexpr int kPixelChannels = sizeof(T) == 8 ? 4 : 8;
// A row's sums over ph are made for this many pw at a time, some channels a lane, so that their loads are under way
// together; then every lane takes them from there.
constexpr int kRowSums = 8;
constexpr int kSumLanes = 32 / kRowSums;
template <typename T>
constexpr int kLaneSums = kPixelChannels<T> / kSumLanes;

// Bins [base, base + 32) of an axis, a lane each.
template <typename C>
__device__ __forceinline__ BinEntry entry_of_lane(const TabulatedAxis<C>& axis, int32_t base, int32_t bins) {
  const int32_t bin = base + static_cast<int32_t>(threadIdx.x % 32);
  return bin < bins ? axis.bins[bin] : BinEntry{{0, -1}, 0};
}
__device__ __forceinline__ BinEntry entry_from(const BinEntry& own, int lane) {
  constexpr unsigned kAll = 0xffffffffu;
  return {{__shfl_sync(kAll, own.pixels.first, lane), __shfl_sync(kAll, own.pixels.last, lane)},
          __shfl_sync(kAll, own.weights, lane)};
}

// Adds what a box gives a warp's pixels of `count` channels, from `grad` on. `columns` are those of the warp; a lane
// that is not `inside` has none.
template <typename T>
__device__ __forceinline__ void add_box(const Problem& p, const T* grad, const TabulatedAxis<Compute<T>>& y,
                                        const TabulatedAxis<Compute<T>>& x, int32_t row, PixelRange columns,
                                        int32_t column, bool inside, int32_t count,
                                        Compute<T> (&sums)[kPixelChannels<T>]) {
  using C = Compute<T>;
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
#pragma unroll 1
  for (int32_t base = 0; base < p.pooled_w; base += 32) {
    const BinEntry own_x = entry_of_lane(x, base, p.pooled_w);
    const uint32_t met = __ballot_sync(kAll, own_x.pixels.first <= own_x.pixels.last &&
                                                 own_x.pixels.first <= columns.last &&
                                                 own_x.pixels.last >= columns.first);
#pragma unroll 1
    for (int part = 0; part < 32; part += kRowSums) {
      const uint32_t met_here = met >> part & ((1u << kRowSums) - 1);
      if (met_here == 0) continue;
      const bool sums_here = (met_here >> (lane % kRowSums) & 1u) != 0;
      const T* of_lane = grad + base + part + lane % kRowSums + lane / kRowSums * bins;
      C row_sums[kLaneSums<T>] = {};
#pragma unroll 1
      for (int32_t y_base = 0; y_base < p.pooled_h; y_base += 32) {
        const BinEntry own_y = entry_of_lane(y, y_base, p.pooled_h);
        for (uint32_t left = __ballot_sync(kAll, own_y.pixels.has(row)); left != 0; left &= left - 1) {
          const int from = __ffs(static_cast<int>(left)) - 1;
          const C weight = y.weight(y_base + from, entry_from(own_y, from), row);
          if (weight == C(0)) continue;
          const T* at = of_lane + static_cast<int64_t>(y_base + from) * p.pooled_w;
#pragma unroll
          for (int i = 0; i < kLaneSums<T>; ++i) {
            if (sums_here && lane / kRowSums + i * kSumLanes < count) {
              row_sums[i] = fma(weight, widen(at[i * kSumLanes * bins]), row_sums[i]);
            }
          }
        }
      }
      for (uint32_t left = met_here; left != 0; left &= left - 1) {
        const int bin = __ffs(static_cast<int>(left)) - 1;
        const BinEntry entry = entry_from(own_x, part + bin);
        C weight = C(0);
        if (inside && entry.pixels.has(column)) weight = x.weight(base + part + bin, entry, column);
#pragma unroll
        for (int k = 0; k < kPixelChannels<T>; ++k) {
          const C row_sum = __shfl_sync(kAll, row_sums[k / kSumLanes], bin + k % kSumLanes * kRowSums);
          if (weight != C(0)) sums[k] = fma(weight, row_sum, sums[k]);
        }
      }
    }
  }
}

// Tiles of a map, and blocks of channels.
struct PixelTiles {
  int64_t across, down, channels;
  template <typename T>
  static PixelTiles of(const Problem& p) {
    return {ceil_div(p.w, kPixelColumns), ceil_div(p.h, kPixelRows), ceil_div(p.c, kPixelChannels<T>)};
  }
};

template <typename T>
__global__ void __launch_bounds__(kPixelThreads, 2)
    sum_pixels(Problem p, BackwardBuffers<T> b, BoxTables<Compute<T>> tables, PixelTiles tiles, int64_t jobs) {
  using C = Compute<T>;
  constexpr int kChannels = kPixelChannels<T>;
  constexpr int kWords = kPixelThreads / 32;
  __shared__ uint32_t touched[kWords];  // of some boxes, whether each touches the tile
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    // Blocks of channels come first: they share the boxes.
    const int64_t tile = job / tiles.channels;
    const int32_t channel = static_cast<int32_t>(job % tiles.channels) * kChannels;
    const int32_t first_column = static_cast<int32_t>(tile % tiles.across) * kPixelColumns;
    const int32_t first_row = static_cast<int32_t>(tile / tiles.across % tiles.down) * kPixelRows;
    const int32_t image = static_cast<int32_t>(tile / tiles.across / tiles.down);
    const int32_t columns = p.w - first_column < kPixelColumns ? p.w - first_column : kPixelColumns;
    const int32_t rows = p.h - first_row < kPixelRows ? p.h - first_row : kPixelRows;
    const bool row_inside = thread / kPixelColumns < rows, inside = row_inside && thread % kPixelColumns < columns;
    const int32_t column = first_column + (inside ? thread % kPixelColumns : 0);
    const int32_t row = first_row + (row_inside ? thread / kPixelColumns : 0);
    const int32_t count = p.c - channel < kChannels ? p.c - channel : kChannels;
    C sums[kChannels] = {}, totals[kChannels] = {};
    int64_t block_end = p.rois_per_block;  // of the boxes whose sum is `sums`
    for (int64_t base = 0; base < p.num_rois; base += kPixelThreads) {
      const int64_t mine = base + thread;
      const bool touches =
          mine < p.num_rois && tables.touches(mine, image, first_row, rows, first_column, columns);
      const uint32_t mask = __ballot_sync(0xffffffffu, touches);
      __syncthreads();  // the masks before are read
      if (thread % 32 == 0) touched[thread / 32] = mask;
      __syncthreads();
      for (int word = 0; word < kWords; ++word) {
        for (uint32_t left = touched[word]; left != 0; left &= left - 1) {
          const int64_t r = base + word * 32 + __ffs(static_cast<int>(left)) - 1;
          if (r >= block_end) {
            block_end = (r / p.rois_per_block + 1) * p.rois_per_block;
#pragma unroll
            for (int k = 0; k < kChannels; ++k) {
              totals[k] = totals[k] + sums[k];
              sums[k] = C(0);
            }
          }
          if (!row_inside || !tables.touches(r, image, row, 1, first_column, columns)) continue;
          const T* grad = b.grad_output + (r * p.c + channel) * p.pooled_h * p.pooled_w;
          add_box(p, grad, tables.y(r), tables.x(r), row, {first_column, first_column + columns - 1}, column, inside,
                  count, sums);
        }
      }
    }
    if (!inside) continue;
    // Blocks of boxes without one here would add 0, which changes no bits: no sum is -0.
    const int64_t plane = static_cast<int64_t>(p.h) * p.w;
    const int64_t pixel = static_cast<int64_t>(row) * p.w + column;
    T* at = b.grad_input + (static_cast<int64_t>(image) * p.c + channel) * plane + pixel;
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (k < count) at[k * plane] = narrow<T>(totals[k] + sums[k]);
    }
  }
}

// The most that the tiles' box masks and the boxes' records may take. Batches of many images and tens of thousands of
// boxes pass it and go the general way.
constexpr int64_t kMaxMaskBytes = int64_t{64} << 20;
constexpr int64_t kMaxRecordBytes = int64_t{256} << 20;
// Items are handed out by a 32-bit counter.
constexpr int64_t kMaxItems = int64_t{1} << 30;

// Detection heads pool to 7 x 7 or 14 x 14 bins, whose constants save address arithmetic and allow wider reads. 64 sums
// of 4 bytes a lane, 32 of 8; with the producer 8 warps: a ninth would cost 128 -> 96 registers.
constexpr int kBoxHeadBins = 7;
constexpr int kMaskHeadBins = 14;
template <typename T>
using BoxHeadTile = TileShape<T, 7, 4, sizeof(T) == 8 ? 1 : 2, 2, kBoxHeadBins, kBoxHeadBins>;
// More bins make fat stages: one CTA a multiprocessor, a large tile so that each is copied to few, 32 channels.
template <typename T, int kBinsOnAxis, int kPooledSize>
using WideTile = TileShape<T, 13, sizeof(T) == 8 ? 4 : 10, 1, 1, kBinsOnAxis, kPooledSize>;

// Everything the tile path keeps in the workspace; `applies` is decided by the shapes alone.
template <class P>
struct TilePlan {
  using C = typename P::C;
  bool applies = false;
  TileTables<C> tables;
  TileWork work{};
  C* partials = nullptr;
  size_t bytes = 0;

  static bool can_apply(const Problem& p) {
    if (p.input_numel == 0 || p.output_numel == 0) return false;
    if (p.pooled_h > P::kMaxBins || p.pooled_w > P::kMaxBins) return false;
    const int64_t tiles = p.n * ceil_div(p.h, P::kRows) * ceil_div(p.w, P::kColumns);
    const int64_t blocks = ceil_div(p.c, P::kChannels) * ceil_div(p.num_rois, p.rois_per_block);
    const int64_t records = int64_t{RecordPlaces(p.h, kUnitRows, P::kConsumers).count()} +
                            RecordPlaces(p.w, kUnitColumns, P::kColumnUnits).count();
    if (entry_capacity(p.w, p.pooled_w, kUnitColumns) > kMostEntries) return false;
    if (entry_capacity(p.h, p.pooled_h, kUnitRows) > kMostEntries) return false;
    return tiles <= kMaxItems && tiles * blocks <= kMaxItems &&
           tiles * ceil_div(p.num_rois, 32) <= kMaxMaskBytes / 4 && p.num_rois * records <= kMaxRecordBytes / 4;
  }

  TilePlan(const Problem& p, void* workspace) : TilePlan(p, workspace, WorkspaceLayout()) {}

 private:
  TilePlan(const Problem& p, void* workspace, WorkspaceLayout layout)
      : applies(can_apply(p)), tables(p, P::kColumnUnits, P::kConsumers, workspace, &layout) {
    if (!applies) return;
    work.rows = P::kRows;
    work.columns = P::kColumns;
    work.row_tiles = static_cast<int32_t>(ceil_div(p.h, P::kRows));
    work.column_tiles = static_cast<int32_t>(ceil_div(p.w, P::kColumns));
    work.channel_blocks = static_cast<int32_t>(ceil_div(p.c, P::kChannels));
    work.box_blocks = static_cast<int32_t>(ceil_div(p.num_rois, p.rois_per_block));
    work.mask_words = static_cast<int32_t>(ceil_div(p.num_rois, 32));
    work.tiles = p.n * work.row_tiles * work.column_tiles;
    work.across = Divider(work.column_tiles);
    work.down = Divider(work.row_tiles);
    const int64_t tiles = work.tiles;
    work.masks = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(tiles * work.mask_words));
    work.counts = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(tiles));
    work.order = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(tiles));
    work.next = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(kCounters));
    if (work.box_blocks > 1) {
      partials = workspace_array<C>(workspace, layout.reserve<C>(work.box_blocks * p.input_numel));
    }
    bytes = layout.bytes();
  }
};

// Stages that fit beside the strips, for as many CTAs a multiprocessor as the shape wants; fewer than two: none.
template <class P>
int stages_that_fit(const Problem& p, int shared_bytes, size_t* bytes) {
  const StageLayout<P> layout(p);
  constexpr size_t kStrips = P::kConsumers * kStripBytes<P>;
  // Static barriers and the system's 1 KiB a CTA come out of the same memory.
  constexpr size_t kOverhead = 1024 + 256;
  for (int ctas = P::kCtasPerMultiprocessor; ctas >= 1; --ctas) {
    const size_t room = (static_cast<size_t>(shared_bytes) + 1024) / ctas - kOverhead - kStrips;
    int stages = static_cast<int>(room / layout.stage_bytes);
    if (stages > P::kMaxStages) stages = P::kMaxStages;
    if (stages >= (ctas > 1 ? 3 : 2)) {
      *bytes = stages * static_cast<size_t>(layout.stage_bytes) + kStrips;
      return stages;
    }
  }
  return 0;
}

template <class P>
Status run_tiles(const Problem& p, const BackwardBuffers<typename P::T>& b, const TilePlan<P>& plan, int stages,
                 size_t shared_bytes, int multiprocessors, Stream stream) {
  using T = typename P::T;
  const TileWork& work = plan.work;
  BARACUDA_RETURN_IF_FAILED(
      launch_kernel("roi_align_backward counter kernel", clear_counters, 1, 32, 0, stream, work.next));
  const uint32_t table_blocks = blocks_for(2 * static_cast<int64_t>(p.num_rois), kPrepareWarps);
  BARACUDA_RETURN_IF_FAILED(launch_early("roi_align_backward box kernel", prepare_boxes<typename P::C>,
                                         kMarkBlocks + table_blocks, kPrepareThreads, 0, stream, p, b.rois,
                                         plan.tables, work));
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes("roi_align_backward kernel", sum_tiles<P>, shared_bytes));
  const TileOutput<T> out{b.grad_input, plan.partials, static_cast<int64_t>(p.h) * p.w, p.input_numel};
  const int64_t items = static_cast<int64_t>(work.tiles) * work.channel_blocks * work.box_blocks;
  const int64_t resident = static_cast<int64_t>(multiprocessors) * P::kCtasPerMultiprocessor;
  BARACUDA_RETURN_IF_FAILED(launch_early("roi_align_backward kernel", sum_tiles<P>,
                                         static_cast<uint32_t>(at_most(items, resident)), P::kThreads, shared_bytes,
                                         stream, p, b, plan.tables, work, out, stages));
  if (plan.partials == nullptr) return Status::kOk;
  return launch_early("roi_align_backward partial sum kernel", add_partials<T>,
                      blocks_for(p.input_numel, kTotalThreads), kTotalThreads, 0, stream, plan.partials, b.grad_input,
                      p.input_numel, work.box_blocks);
}

// Takes the tile path in this shape if the problem and the machine allow it; `done` says whether.
template <class P>
Status try_tiles(const Problem& p, const BackwardBuffers<typename P::T>& b, void* workspace,
                 const DeviceTraits& device, Stream stream, bool* done) {
  const TilePlan<P> plan(p, workspace);
  *done = false;
  // A bulk copy moves whole 16-byte units.
  const int64_t box_bytes =
      static_cast<int64_t>(p.c) * p.pooled_h * p.pooled_w * static_cast<int64_t>(sizeof(typename P::T));
  const bool copyable = box_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(b.grad_output) % 16 == 0;
  if (!plan.applies || !copyable || device.compute_capability < 90) return Status::kOk;
  size_t shared_bytes = 0;
  const int stages = stages_that_fit<P>(p, device.shared_bytes, &shared_bytes);
  if (stages == 0) return Status::kOk;
  *done = true;
  return run_tiles(p, b, plan, stages, shared_bytes, device.multiprocessors, stream);
}

// Calls `use` with the tile shape for this problem.
template <typename T, class Use>
auto with_tile_shape(const Problem& p, Use use) {
  if (p.pooled_h == kBoxHeadBins && p.pooled_w == kBoxHeadBins) return use(BoxHeadTile<T>());
  if (p.pooled_h == kMaskHeadBins && p.pooled_w == kMaskHeadBins) {
    return use(WideTile<T, kMaskHeadBins, kMaskHeadBins>());
  }
  return use(WideTile<T, kMostBins, 0>());
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  DeviceTraits device;
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  bool done = false;
  BARACUDA_RETURN_IF_FAILED(with_tile_shape<T>(p, [&](auto shape) {
    return try_tiles<decltype(shape)>(p, b, workspace, device, stream, &done);
  }));
  if (done) return Status::kOk;
  const BoxTables<Compute<T>> tables(p, workspace);
  Problem sized = p;
  if (p.output_numel == 0) {
    sized.num_rois = 0;  // nothing is tabulated and every pixel's sum is empty
  } else {
    BARACUDA_RETURN_IF_FAILED(tabulate(p, b.rois, tables, stream));
  }
  const PixelTiles tiles = PixelTiles::of<T>(p);
  const int64_t jobs = p.n * tiles.down * tiles.across * tiles.channels;
  return launch_kernel("roi_align_backward pixel kernel", sum_pixels<T>, blocks_for(jobs, 1), kPixelThreads, 0, stream,
                       sized, b, tables, tiles, jobs);
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  return BoxTables<Compute<T>>(p, nullptr).bytes + WindowTables<Compute<T>>(p, nullptr).bytes;
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  // Which way a call goes depends on the machine and on alignment too; the size does not.
  const size_t general = BoxTables<Compute<T>>(p, nullptr).bytes;
  const size_t tiled = with_tile_shape<T>(p, [&](auto shape) { return TilePlan<decltype(shape)>(p, nullptr).bytes; });
  return general > tiled ? general : tiled;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::roi_align
