// SPDX-License-Identifier: Apache-2.0
// The backward for sm_90: tiles of pixels whose sums live in registers, fed through a ring of bulk copies.
//
// A CTA owns a tile of kRows x kColumns pixels for a block of channels, and within it a warp owns two rows: a lane is a
// channel, so weights and control flow are the same for the whole warp. One producer warp walks the boxes that touch the
// tile in ascending order; for each it brings the box's gradient bins (one bulk copy) and expands the tile's weights from
// the tables into the next stage. Per stage a consumer computes, for every pw that its columns see, the sums over ph of
// its two rows (ascending), then adds them to its pixels: the canonical order.
//
// A pixel of a group whose weight is 0 still takes fma(0, t, sum). For finite t that changes no sum but a zero's sign,
// which the total's +0 start absorbs. Where t is not finite the sum becomes infinite or NaN and stays so: the warp then
// throws its tile away and sums it again with every zero weight skipped (exact_sum). The common case pays one test a tile.
#pragma once

#include "ops/roi_align/cuda_tables.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

template <typename T>
struct TilePolicy {
  static constexpr int kConsumers = 7;  // with the producer 8 warps: a ninth would cost 128 -> 96 registers
  static constexpr int kRowsPerWarp = 2;
  static constexpr int kRows = kConsumers * kRowsPerWarp;
  static constexpr int kGroups = 4;  // 4-pixel weight groups across a tile
  static constexpr int kColumns = kGroups * kWeightGroup;
  static constexpr int kChannelsPerLane = sizeof(T) == 8 ? 1 : 2;  // 64 sums of 4 bytes a lane, 32 of 8
  static constexpr int kChannels = 32 * kChannelsPerLane;
  static constexpr int kThreads = 32 * (kConsumers + 1);
  static constexpr int kCtasPerMultiprocessor = 2;
  static constexpr int kMaxStages = 6;  // measured elsewhere: 6 beat 4 by 3 %, a seventh no longer fits twice
};

// The producer keeps a box's entries and weights in registers while they travel: how many a lane holds depends on the
// bins an axis may have. Heads pool to 7 or 14.
template <typename T, int kMaxBins>
struct ProducerSlots {
  static constexpr int kColumnGroups = kMaxBins * TilePolicy<T>::kGroups / 32;
  static constexpr int kRowPairs = (kMaxBins * TilePolicy<T>::kConsumers + 31) / 32;
};
constexpr int kFewBins = 8;
constexpr int kMostBins = 16;

// What travels with a stage.
enum StageFlags : int32_t { kHasBox = 1, kLastOfItem = 2, kExit = 4 };
struct alignas(16) StageHeader {
  int32_t flags;
  int32_t tile;
  int32_t channel_block;
  int32_t block;  // of boxes
};

// A stage says in 4 bits a bin which of the tile's pixel groups the bin has.
constexpr int kBinsPerMask = 8;

// Byte offsets within one stage and within the CTA's shared memory.
template <typename T>
struct StageLayout {
  using C = Compute<T>;
  using P = TilePolicy<T>;
  int32_t bins, pooled_h, pooled_w;
  uint32_t x_at, y_at, masks_at, header_at, stage_bytes;

  BARACUDA_HD StageLayout(int32_t h, int32_t w) : bins(h * w), pooled_h(h), pooled_w(w) {
    const uint32_t grad_bytes = (P::kChannels * static_cast<uint32_t>(bins) * sizeof(T) + 15) & ~15u;
    x_at = grad_bytes;
    y_at = x_at + static_cast<uint32_t>(pooled_w) * P::kColumns * sizeof(C);
    masks_at = y_at + static_cast<uint32_t>(pooled_h) * P::kRows * sizeof(C);
    header_at = (masks_at + static_cast<uint32_t>(pooled_w + kBinsPerMask - 1) / kBinsPerMask * 4 + 15) & ~15u;
    stage_bytes = header_at + sizeof(StageHeader);
  }
};

// A warp's transposition strip: 32 channels of 16 pixels, rows of 20 words so that 16-byte accesses meet no conflict.
template <typename T>
constexpr uint32_t kStripBytes = 32 * (TilePolicy<T>::kColumns + 4) * sizeof(Compute<T>);

// The work of a launch: which boxes touch which tile, the tiles in descending order of their box counts, and the counter
// that hands them out. Bits, not lists: ascending order for free, and num_rois / 8 bytes a tile.
struct TileWork {
  int32_t row_tiles, column_tiles, channel_blocks;
  int32_t tiles;        // images x row tiles x column tiles
  int32_t mask_words;   // per tile
  int32_t box_blocks;   // S of the canonical order
  uint32_t* masks;      // [tiles][mask_words]
  int32_t* counts;      // [tiles]
  int32_t* order;       // [tiles]
  int32_t* next;        // [2]: the work counter, and the ticket of the ordering
  size_t bytes;
};

// What a tile's sums become: the result, rounded once, or with several blocks of boxes a partial plane.
template <typename T>
struct TileOutput {
  T* grad_input;
  Compute<T>* partials;  // [box_blocks][n c h w]; nullptr when there is one block
  int64_t plane;         // h w
  int64_t numel;
};

// --- the exact path -------------------------------------------------------------------------------------------------

// One pixel of one channel over boxes [first, last), every zero weight skipped: the definition.
template <typename T>
__device__ Compute<T> exact_sum(const Problem& p, const T* grad_output, const BoxTables<Compute<T>>& tables,
                                int32_t image, int32_t channel, int32_t row, int32_t column, int64_t first,
                                int64_t last) {
  using C = Compute<T>;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  C sum = C(0);
  for (int64_t r = first; r < last; ++r) {
    if (!tables.touches(r, image, row, 1, column, 1)) continue;
    const TabulatedAxis<C> y = tables.y(r), x = tables.x(r);
    const T* grad = grad_output + (r * p.c + channel) * bins;
    for (int32_t pw = 0; pw < p.pooled_w; ++pw) {
      if (!x.pixels(pw).has(column)) continue;
      const C column_weight = x.weight(pw, column);
      if (column_weight == C(0)) continue;
      C row_sum = C(0);
      for (int32_t ph = 0; ph < p.pooled_h; ++ph) {
        if (!y.pixels(ph).has(row)) continue;
        const C weight = y.weight(ph, row);
        if (weight == C(0)) continue;
        row_sum = fma(weight, widen(grad[static_cast<int64_t>(ph) * p.pooled_w + pw]), row_sum);
      }
      sum = fma(column_weight, row_sum, sum);
    }
  }
  return sum;
}

// --- preparation ----------------------------------------------------------------------------------------------------

constexpr int kMaskThreads = 256;
// Tiles are ordered by box count in this many classes; only the heavy ones must start early.
constexpr int kOrderClasses = 256;

// Marks the boxes of every tile, 32 boxes a warp step, and in the block that finishes last orders the tiles. Integer
// counters only; the order changes speed, never bits.
template <typename T>
__global__ void __launch_bounds__(kMaskThreads) mark_tiles(Problem p, BoxTables<Compute<T>> tables, TileWork work) {
  using P = TilePolicy<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  __shared__ int32_t boxes_on_tile;
  for (int64_t tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
    if (threadIdx.x == 0) boxes_on_tile = 0;
    __syncthreads();
    const int32_t column = static_cast<int32_t>(tile % work.column_tiles) * P::kColumns;
    const int32_t row = static_cast<int32_t>(tile / work.column_tiles % work.row_tiles) * P::kRows;
    const int32_t image = static_cast<int32_t>(tile / work.column_tiles / work.row_tiles);
    int32_t count = 0;
#pragma unroll 4
    for (int32_t word = warp; word < work.mask_words; word += kMaskThreads / 32) {
      const int64_t r = static_cast<int64_t>(word) * 32 + lane;
      const bool touched = r < p.num_rois && tables.touches(r, image, row, P::kRows, column, P::kColumns);
      const uint32_t mask = __ballot_sync(0xffffffffu, touched);
      if (lane == 0) work.masks[tile * work.mask_words + word] = mask;
      count += __popc(mask);
    }
    if (lane == 0) atomicAdd(&boxes_on_tile, count);
    __syncthreads();
    if (threadIdx.x == 0) work.counts[tile] = boxes_on_tile;
  }

  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&work.next[1], 1) == static_cast<int32_t>(gridDim.x) - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  __shared__ int32_t classes[kOrderClasses];  // first the tiles of each class, then where the class starts
  for (int i = static_cast<int>(threadIdx.x); i < kOrderClasses; i += kMaskThreads) classes[i] = 0;
  __syncthreads();
  const auto class_of = [&](int32_t tile) {
    const int32_t count = __ldcg(&work.counts[tile]);
    return kOrderClasses - 1 - (count < kOrderClasses ? count : kOrderClasses - 1);
  };
  for (int32_t tile = static_cast<int32_t>(threadIdx.x); tile < work.tiles; tile += kMaskThreads) {
    atomicAdd(&classes[class_of(tile)], 1);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    int32_t base = 0;
    for (int part = 0; part < kOrderClasses / 32; ++part) {
      const int32_t own = classes[part * 32 + lane];
      int32_t end = own;
      for (int step = 1; step < 32; step *= 2) {
        const int32_t before = __shfl_up_sync(0xffffffffu, end, step);
        if (lane >= step) end += before;
      }
      classes[part * 32 + lane] = base + end - own;
      base += __shfl_sync(0xffffffffu, end, 31);
    }
  }
  __syncthreads();
  for (int32_t tile = static_cast<int32_t>(threadIdx.x); tile < work.tiles; tile += kMaskThreads) {
    work.order[atomicAdd(&classes[class_of(tile)], 1)] = tile;
  }
}

// --- barriers and bulk copies ----------------------------------------------------------------------------------------

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}
__device__ __forceinline__ void bulk_copy(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Four consecutive weights of one pixel group.
template <typename C>
struct WeightGroup {
  C weight[kWeightGroup];
};
__device__ __forceinline__ WeightGroup<float> load_group(const float* at) {
  const float4 v = *reinterpret_cast<const float4*>(at);
  return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ WeightGroup<double> load_group(const double* at) {
  const double2 a = reinterpret_cast<const double2*>(at)[0], b = reinterpret_cast<const double2*>(at)[1];
  return {{a.x, a.y, b.x, b.y}};
}
__device__ __forceinline__ void store_group(float* at, const WeightGroup<float>& g) {
  *reinterpret_cast<float4*>(at) = make_float4(g.weight[0], g.weight[1], g.weight[2], g.weight[3]);
}
__device__ __forceinline__ void store_group(double* at, const WeightGroup<double>& g) {
  reinterpret_cast<double2*>(at)[0] = make_double2(g.weight[0], g.weight[1]);
  reinterpret_cast<double2*>(at)[1] = make_double2(g.weight[2], g.weight[3]);
}

// Where an item of work lies.
struct TileItem {
  int32_t image, row, column, channel, channels;
};

template <typename T>
__device__ __forceinline__ TileItem place_of(const Problem& p, const TileWork& work, int32_t tile,
                                             int32_t channel_block) {
  using P = TilePolicy<T>;
  TileItem item;
  item.column = tile % work.column_tiles * P::kColumns;
  item.row = tile / work.column_tiles % work.row_tiles * P::kRows;
  item.image = tile / work.column_tiles / work.row_tiles;
  item.channel = channel_block * P::kChannels;
  item.channels = p.c - item.channel < P::kChannels ? p.c - item.channel : P::kChannels;
  return item;
}

// --- the producer ----------------------------------------------------------------------------------------------------

template <typename T>
struct Ring {
  char* stages;
  uint64_t* full;
  uint64_t* empty;
  int32_t count;
  int32_t index = 0;
  uint32_t phase = 0;

  __device__ void advance() {
    if (++index == count) {
      index = 0;
      phase ^= 1;
    }
  }
};

// One step of the producer: a box of a tile, the end of a tile, or the end of all.
struct Job {
  StageHeader header;
  int32_t box;
  TileItem item;
};

// Hands out jobs in order. What the next items need is fetched ahead, one step of the chain ticket -> tile -> mask an
// item, because each step is a trip to memory.
template <typename T>
class JobQueue {
 public:
  __device__ JobQueue(const Problem& p, const TileWork& work, int lane)
      : p_(p), work_(work), lane_(lane),
        items_(work.tiles * work.channel_blocks * work.box_blocks) {
    tickets_[0] = take();
    tickets_[1] = take();
    tickets_[2] = take();
    tiles_[0] = tile_of(tickets_[0]);
    tiles_[1] = tile_of(tickets_[1]);
    mask_ = first_mask(tickets_[0], tiles_[0]);
    begin_item();
  }

  __device__ Job next() {
    if (tickets_[0] >= items_) return {{kExit, 0, 0, 0}, 0, {}};
    for (;;) {
      while (word_ < 32 && word_mask_ == 0) {
        ++word_;
        word_mask_ = word_ < 32 ? __shfl_sync(0xffffffffu, current_mask_, word_) : 0;
      }
      if (word_mask_ != 0) {
        const int32_t box = (chunk_ + word_) * 32 + __ffs(static_cast<int>(word_mask_)) - 1;
        word_mask_ &= word_mask_ - 1;
        return {{kHasBox, tile_, channel_block_, block_}, box, item_};
      }
      chunk_ += 32;
      if (chunk_ * 32 >= last_) break;
      current_mask_ = load_mask(tile_, chunk_, first_, last_);
      word_ = 0;
      word_mask_ = __shfl_sync(0xffffffffu, current_mask_, 0);
    }
    const Job end{{kLastOfItem, tile_, channel_block_, block_}, 0, item_};
    tickets_[0] = tickets_[1];
    tickets_[1] = tickets_[2];
    tickets_[2] = take();
    tiles_[0] = tiles_[1];
    tiles_[1] = tile_of(tickets_[1]);
    begin_item();
    return end;
  }

 private:
  __device__ int32_t take() {
    int32_t ticket = 0;
    if (lane_ == 0) ticket = atomicAdd(&work_.next[0], 1);
    return __shfl_sync(0xffffffffu, ticket, 0);
  }
  __device__ int32_t tile_of(int32_t ticket) const { return ticket < items_ ? work_.order[ticket % work_.tiles] : 0; }
  __device__ int32_t block_of(int32_t ticket) const { return ticket / work_.tiles % work_.box_blocks; }

  // Word `chunk + lane` of a tile's mask, cut to the boxes [first, last).
  __device__ uint32_t load_mask(int32_t tile, int32_t chunk, int32_t first, int32_t last) const {
    const int32_t word = chunk + lane_;
    if (word >= work_.mask_words || word * 32LL >= last) return 0;
    uint32_t mask = work_.masks[static_cast<int64_t>(tile) * work_.mask_words + word];
    if (word * 32 < first) mask &= 0xffffffffu << (first - word * 32);
    if (last - word * 32 < 32) mask &= (1u << (last - word * 32)) - 1;
    return mask;
  }
  __device__ int32_t first_box(int32_t block) const { return static_cast<int32_t>(block * p_.rois_per_block); }
  __device__ int32_t last_box(int32_t block) const {
    const int64_t end = (block + 1) * p_.rois_per_block;
    return static_cast<int32_t>(end < p_.num_rois ? end : p_.num_rois);
  }
  __device__ uint32_t first_mask(int32_t ticket, int32_t tile) const {
    if (ticket >= items_) return 0;
    const int32_t block = block_of(ticket);
    return load_mask(tile, first_box(block) / 32, first_box(block), last_box(block));
  }

  // Makes tickets_[0] the current item and asks for the mask of the one after it.
  __device__ void begin_item() {
    tile_ = tiles_[0];
    block_ = block_of(tickets_[0]);
    // Channel block outermost, so that the tiles in flight share gradient bins; then blocks of boxes; then heavy tiles.
    channel_block_ = tickets_[0] / work_.tiles / work_.box_blocks;
    item_ = place_of<T>(p_, work_, tile_, channel_block_);
    first_ = first_box(block_);
    last_ = last_box(block_);
    chunk_ = first_ / 32;
    current_mask_ = mask_;
    word_ = 0;
    word_mask_ = __shfl_sync(0xffffffffu, current_mask_, 0);
    mask_ = first_mask(tickets_[1], tiles_[1]);
  }

  const Problem& p_;
  const TileWork& work_;
  const int lane_;
  const int32_t items_;
  int32_t tickets_[3];
  int32_t tiles_[2];
  uint32_t mask_;  // of the item after the current one
  int32_t tile_, block_, channel_block_, first_, last_;
  TileItem item_;
  int32_t chunk_, word_;
  uint32_t current_mask_, word_mask_;
};

// The bins' entries that a lane needs of a box; then, one step later, their weights.
template <typename T, int kMaxBins>
struct BoxEntries {
  using Slots = ProducerSlots<T, kMaxBins>;
  BinEntry x[Slots::kColumnGroups];
  BinEntry y[Slots::kRowPairs];
};
template <typename T, int kMaxBins>
struct BoxWeights {
  using Slots = ProducerSlots<T, kMaxBins>;
  WeightGroup<Compute<T>> x[Slots::kColumnGroups];
  Compute<T> y[Slots::kRowPairs][2];
  uint32_t masks[Slots::kColumnGroups];
};

// Lane and slot to bin and place: X slots are (bin, group), Y slots are (row pair, bin).
template <typename T>
struct SlotPlace {
  int32_t bin;
  int32_t pixel;  // the first of the group or pair
  bool inside;
};
template <typename T>
__device__ __forceinline__ SlotPlace<T> column_slot(const StageLayout<T>& layout, const TileItem& item, int slot,
                                                    int lane) {
  using P = TilePolicy<T>;
  const int32_t bin = (slot * 32 + lane) / P::kGroups;
  return {bin, item.column + lane % P::kGroups * kWeightGroup, bin < layout.pooled_w};
}
template <typename T>
__device__ __forceinline__ SlotPlace<T> row_slot(const StageLayout<T>& layout, const TileItem& item, int slot,
                                                 int lane) {
  using P = TilePolicy<T>;
  const int32_t at = slot * 32 + lane;
  const int32_t pair = at / layout.pooled_h;
  return {at % layout.pooled_h, item.row + pair * P::kRowsPerWarp, pair < P::kConsumers};
}

template <typename T, int kMaxBins>
__device__ __forceinline__ BoxEntries<T, kMaxBins> load_entries(const BoxTables<Compute<T>>& tables,
                                                                const StageLayout<T>& layout, const Job& job,
                                                                int lane) {
  using Slots = ProducerSlots<T, kMaxBins>;
  BoxEntries<T, kMaxBins> entries;
  const bool box = job.header.flags == kHasBox;
  const BinEntry* x_bins = tables.x_bins + static_cast<int64_t>(job.box) * layout.pooled_w;
  const BinEntry* y_bins = tables.y_bins + static_cast<int64_t>(job.box) * layout.pooled_h;
#pragma unroll
  for (int slot = 0; slot < Slots::kColumnGroups; ++slot) {
    const SlotPlace<T> place = column_slot(layout, job.item, slot, lane);
    entries.x[slot] = box && place.inside ? x_bins[place.bin] : BinEntry{{0, -1}, 0};
  }
#pragma unroll
  for (int slot = 0; slot < Slots::kRowPairs; ++slot) {
    const SlotPlace<T> place = row_slot(layout, job.item, slot, lane);
    entries.y[slot] = box && place.inside ? y_bins[place.bin] : BinEntry{{0, -1}, 0};
  }
  return entries;
}

template <typename T, int kMaxBins>
__device__ __forceinline__ BoxWeights<T, kMaxBins> load_weights(const BoxTables<Compute<T>>& tables,
                                                                const StageLayout<T>& layout, const Job& job,
                                                                const BoxEntries<T, kMaxBins>& entries, int lane) {
  using C = Compute<T>;
  using Slots = ProducerSlots<T, kMaxBins>;
  BoxWeights<T, kMaxBins> weights;
  const TabulatedAxis<C> x = tables.x(job.box), y = tables.y(job.box);
#pragma unroll
  for (int slot = 0; slot < Slots::kColumnGroups; ++slot) {
    const SlotPlace<T> place = column_slot(layout, job.item, slot, lane);
    const BinEntry entry = entries.x[slot];
    const bool touches = place.pixel + kWeightGroup > entry.pixels.first && place.pixel <= entry.pixels.last;
    weights.masks[slot] = __ballot_sync(0xffffffffu, touches);
    weights.x[slot] = {};
    if (touches && entry.weights >= 0) {
      weights.x[slot] = load_group(x.weights + entry.weights + (place.pixel - first_in_group(entry.pixels.first)));
    } else if (touches) {
      for (int k = 0; k < kWeightGroup; ++k) {
        const bool has = entry.pixels.has(place.pixel + k);
        weights.x[slot].weight[k] = has ? pixel_weight(*x.axis, place.bin, place.pixel + k) : C(0);
      }
    }
  }
#pragma unroll
  for (int slot = 0; slot < Slots::kRowPairs; ++slot) {
    const SlotPlace<T> place = row_slot(layout, job.item, slot, lane);
    const BinEntry entry = entries.y[slot];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t row = place.pixel + i;
      weights.y[slot][i] = C(0);
      if (entry.pixels.has(row)) {
        weights.y[slot][i] = entry.weights >= 0
                                 ? y.weights[entry.weights + (row - first_in_group(entry.pixels.first))]
                                 : pixel_weight(*y.axis, place.bin, row);
      }
    }
  }
  return weights;
}

template <typename T, int kMaxBins>
__device__ __forceinline__ void store_weights(const StageLayout<T>& layout, const BoxWeights<T, kMaxBins>& weights,
                                              char* stage, int lane) {
  using C = Compute<T>;
  using P = TilePolicy<T>;
  using Slots = ProducerSlots<T, kMaxBins>;
  C* x_weights = reinterpret_cast<C*>(stage + layout.x_at);
  C* y_weights = reinterpret_cast<C*>(stage + layout.y_at);
  uint32_t* masks = reinterpret_cast<uint32_t*>(stage + layout.masks_at);
#pragma unroll
  for (int slot = 0; slot < Slots::kColumnGroups; ++slot) {
    if (slot * 32 + lane < layout.pooled_w * P::kGroups) {
      store_group(x_weights + (slot * 32 + lane) * kWeightGroup, weights.x[slot]);
    }
    if (lane == 0 && slot * kBinsPerMask < layout.pooled_w) masks[slot] = weights.masks[slot];
  }
#pragma unroll
  for (int slot = 0; slot < Slots::kRowPairs; ++slot) {
    const int at = slot * 32 + lane;  // [row pair][ph], two rows each
    if (at < layout.pooled_h * P::kConsumers) {
      y_weights[2 * at] = weights.y[slot][0];
      y_weights[2 * at + 1] = weights.y[slot][1];
    }
  }
}

// Three jobs are in flight: the entries of one, the weights of the one before, the stage of the one before that.
template <typename T, int kMaxBins>
__device__ void produce(const Problem& p, const BackwardBuffers<T>& b, const BoxTables<Compute<T>>& tables,
                        const TileWork& work, const StageLayout<T>& layout, Ring<T> ring, int lane) {
  static_assert(TilePolicy<T>::kGroups * kBinsPerMask == 32, "one ballot fills one mask word");
  JobQueue<T> queue(p, work, lane);
  Job staged = queue.next();
  BoxEntries<T, kMaxBins> entries = load_entries<T, kMaxBins>(tables, layout, staged, lane);
  BoxWeights<T, kMaxBins> weights = load_weights<T, kMaxBins>(tables, layout, staged, entries, lane);
  Job following = queue.next();
  entries = load_entries<T, kMaxBins>(tables, layout, following, lane);
  for (;;) {
    barrier_wait(&ring.empty[ring.index], ring.phase ^ 1);
    char* stage = ring.stages + ring.index * layout.stage_bytes;
    uint32_t bytes = 0;
    if (staged.header.flags == kHasBox) {
      bytes = static_cast<uint32_t>(staged.item.channels * layout.bins * static_cast<int32_t>(sizeof(T)));
      if (lane == 0) {
        bulk_copy(stage, b.grad_output + (static_cast<int64_t>(staged.box) * p.c + staged.item.channel) * layout.bins,
                  bytes, &ring.full[ring.index]);
      }
    }
    const Job later = queue.next();
    const BoxWeights<T, kMaxBins> next_weights = load_weights<T, kMaxBins>(tables, layout, following, entries, lane);
    entries = load_entries<T, kMaxBins>(tables, layout, later, lane);
    store_weights<T, kMaxBins>(layout, weights, stage, lane);
    if (lane == 0) *reinterpret_cast<StageHeader*>(stage + layout.header_at) = staged.header;
    __syncwarp();
    if (lane == 0) barrier_arrive_expect(&ring.full[ring.index], bytes);
    ring.advance();
    if (staged.header.flags == kExit) return;
    staged = following;
    weights = next_weights;
    following = later;
  }
}

// --- the consumers ---------------------------------------------------------------------------------------------------

template <typename T>
struct Sums {
  using P = TilePolicy<T>;
  // [channel of the lane][row of the pair][pixel]
  Compute<T> value[P::kChannelsPerLane][P::kRowsPerWarp][P::kColumns];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int k = 0; k < P::kChannelsPerLane; ++k) {
#pragma unroll
      for (int i = 0; i < P::kRowsPerWarp; ++i) {
#pragma unroll
        for (int j = 0; j < P::kColumns; ++j) value[k][i][j] = Compute<T>(0);
      }
    }
  }
};

// Adds one bin's row sums to the pixels of a warp's two rows; `groups` says which of the 4-pixel groups the bin has.
template <typename T>
__device__ __forceinline__ void add_bin(const Compute<T>* x_weights, uint32_t groups,
                                        const Compute<T> (&row_sums)[TilePolicy<T>::kChannelsPerLane][2],
                                        Sums<T>& sums) {
  using C = Compute<T>;
  using P = TilePolicy<T>;
#pragma unroll
  for (int group = 0; group < P::kGroups; ++group) {
    if ((groups >> group & 1u) == 0) continue;
    const WeightGroup<C> w = load_group(x_weights + group * kWeightGroup);
#pragma unroll
    for (int j = 0; j < kWeightGroup; ++j) {
#pragma unroll
      for (int k = 0; k < P::kChannelsPerLane; ++k) {
#pragma unroll
        for (int i = 0; i < P::kRowsPerWarp; ++i) {
          C& sum = sums.value[k][i][group * kWeightGroup + j];
          sum = fma(w.weight[j], row_sums[k][i], sum);
        }
      }
    }
  }
}

// Adds one stage's box to a warp's two rows. kPh is how many ph the rows see, 0 for more than two: two cover every bin of
// two rows or more, and their weights then stay in registers for all pw.
template <typename T, int kPh>
__device__ __forceinline__ void add_bins(const StageLayout<T>& layout, const char* stage, const Compute<T>* y_weights,
                                         int first_ph, int last_ph, int lane, Sums<T>& sums) {
  using C = Compute<T>;
  using P = TilePolicy<T>;
  constexpr int kHeld = kPh > 0 ? kPh : 1;
  C upper[kHeld], lower[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    upper[i] = y_weights[2 * (first_ph + i)];
    lower[i] = y_weights[2 * (first_ph + i) + 1];
  }
  const T* grad = reinterpret_cast<const T*>(stage) + lane * layout.bins + first_ph * layout.pooled_w;
  const C* x_weights = reinterpret_cast<const C*>(stage + layout.x_at);
  const uint32_t* masks = reinterpret_cast<const uint32_t*>(stage + layout.masks_at);
  for (int base = 0; base < layout.pooled_w; base += kBinsPerMask) {
    for (uint32_t mask = masks[base / kBinsPerMask]; mask != 0;) {
      const int bin = (__ffs(static_cast<int>(mask)) - 1) / P::kGroups;
      const uint32_t groups = mask >> (bin * P::kGroups) & 0xfu;
      mask &= ~(0xfu << (bin * P::kGroups));
      const int pw = base + bin;
      C row_sums[P::kChannelsPerLane][2];
#pragma unroll
      for (int k = 0; k < P::kChannelsPerLane; ++k) {
        const T* values = grad + k * 32 * layout.bins + pw;
        row_sums[k][0] = C(0), row_sums[k][1] = C(0);
        if constexpr (kPh > 0) {
#pragma unroll
          for (int i = 0; i < kPh; ++i) {
            const C value = widen(values[i * layout.pooled_w]);
            row_sums[k][0] = fma(upper[i], value, row_sums[k][0]);
            row_sums[k][1] = fma(lower[i], value, row_sums[k][1]);
          }
        } else {
          for (int i = 0; i <= last_ph - first_ph; ++i) {
            const C value = widen(values[i * layout.pooled_w]);
            row_sums[k][0] = fma(y_weights[2 * (first_ph + i)], value, row_sums[k][0]);
            row_sums[k][1] = fma(y_weights[2 * (first_ph + i) + 1], value, row_sums[k][1]);
          }
        }
      }
      add_bin<T>(x_weights + pw * P::kColumns, groups, row_sums, sums);
    }
  }
}

template <typename T>
__device__ __forceinline__ void add_stage(const StageLayout<T>& layout, const char* stage, int pair, int lane,
                                          Sums<T>& sums) {
  using C = Compute<T>;
  using P = TilePolicy<T>;
  const C* y_weights = reinterpret_cast<const C*>(stage + layout.y_at) + pair * layout.pooled_h * P::kRowsPerWarp;
  bool sees = false;
  if (lane < layout.pooled_h) sees = y_weights[2 * lane] != C(0) || y_weights[2 * lane + 1] != C(0);
  const uint32_t rows = __ballot_sync(0xffffffffu, sees);
  if (rows == 0) return;
  const int first_ph = __ffs(static_cast<int>(rows)) - 1;
  const int last_ph = 31 - __clz(static_cast<int>(rows));
  if (last_ph == first_ph) {
    add_bins<T, 1>(layout, stage, y_weights, first_ph, last_ph, lane, sums);
  } else if (last_ph == first_ph + 1) {
    add_bins<T, 2>(layout, stage, y_weights, first_ph, last_ph, lane, sums);
  } else {
    add_bins<T, 0>(layout, stage, y_weights, first_ph, last_ph, lane, sums);
  }
}

// Whether any sum that will be stored is infinite or NaN.
template <typename T>
__device__ __forceinline__ bool any_not_finite(const Sums<T>& sums, int channels, int lane) {
  using P = TilePolicy<T>;
  bool bad = false;
#pragma unroll
  for (int k = 0; k < P::kChannelsPerLane; ++k) {
    Compute<T> probe = Compute<T>(0);  // 0 times infinity or NaN is NaN, and NaN stays
#pragma unroll
    for (int i = 0; i < P::kRowsPerWarp; ++i) {
#pragma unroll
      for (int j = 0; j < P::kColumns; ++j) probe = fma(sums.value[k][i][j], Compute<T>(0), probe);
    }
    bad = bad || (!(probe == Compute<T>(0)) && k * 32 + lane < channels);
  }
  return __any_sync(0xffffffffu, bad);
}

// Sums a warp's two rows again with every zero weight skipped, straight to memory.
template <typename T>
__device__ __noinline__ void store_exact(const Problem& p, const T* grad_output, const BoxTables<Compute<T>>& tables,
                                         const TileOutput<T>& out, const TileItem& item, int32_t block, int pair,
                                         int lane) {
  using C = Compute<T>;
  using P = TilePolicy<T>;
  const int64_t first = block * p.rois_per_block;
  const int64_t last = first + p.rois_per_block < p.num_rois ? first + p.rois_per_block : p.num_rois;
  for (int channel = lane; channel < item.channels; channel += 32) {
    for (int at = 0; at < P::kRowsPerWarp * P::kColumns; ++at) {
      const int32_t row = item.row + pair * P::kRowsPerWarp + at / P::kColumns;
      const int32_t column = item.column + at % P::kColumns;
      if (row >= p.h || column >= p.w) continue;
      const C sum = exact_sum(p, grad_output, tables, item.image, item.channel + channel, row, column, first, last);
      const int64_t index = (static_cast<int64_t>(item.image) * p.c + item.channel + channel) * out.plane +
                            static_cast<int64_t>(row) * p.w + column;
      if (out.partials != nullptr) {
        out.partials[block * out.numel + index] = sum;
      } else {
        out.grad_input[index] = narrow<T>(C(0) + sum);
      }
    }
  }
}

template <typename T, int kCount>
struct alignas(16) StoreVector {
  T value[kCount];
};

// Stores a warp's two rows through its strip, so that a store covers runs of 16 pixels instead of one lane's channel.
template <typename T, typename Out>
__device__ __forceinline__ void store_rows(const Problem& p, Out* output, const TileItem& item, int pair, int lane,
                                           int64_t plane, Compute<T>* strip, const Sums<T>& sums) {
  using C = Compute<T>;
  using P = TilePolicy<T>;
  constexpr int kPitch = P::kColumns + 4;
  constexpr int kVector = 16 / sizeof(Out);
  constexpr int kRuns = P::kColumns / kVector;  // 16-byte runs across a row of the tile
  const bool vectors = item.column + P::kColumns <= p.w && (p.w * sizeof(Out)) % 16 == 0 &&
                       (plane * sizeof(Out)) % 16 == 0 && reinterpret_cast<uintptr_t>(output) % 16 == 0;
#pragma unroll
  for (int i = 0; i < P::kRowsPerWarp; ++i) {
    const int32_t row = item.row + pair * P::kRowsPerWarp + i;
#pragma unroll
    for (int k = 0; k < P::kChannelsPerLane; ++k) {
      __syncwarp();
#pragma unroll
      for (int j = 0; j < P::kColumns; j += kWeightGroup) {
        WeightGroup<C> four;
#pragma unroll
        for (int m = 0; m < kWeightGroup; ++m) four.weight[m] = sums.value[k][i][j + m];
        store_group(strip + lane * kPitch + j, four);
      }
      __syncwarp();
      if (row >= p.h) continue;
      Out* base = output + (static_cast<int64_t>(item.image) * p.c + item.channel + k * 32) * plane +
                  static_cast<int64_t>(row) * p.w + item.column;
      const int channels = item.channels - k * 32;
      if (vectors) {
        for (int at = lane; at < 32 * kRuns; at += 32) {
          const int channel = at / kRuns, run = at % kRuns;
          if (channel >= channels) break;
          StoreVector<Out, kVector> v;
#pragma unroll
          for (int m = 0; m < kVector; ++m) {
            const C sum = strip[channel * kPitch + run * kVector + m];
            v.value[m] = narrow<Out>(C(0) + sum);
          }
          *reinterpret_cast<StoreVector<Out, kVector>*>(base + channel * plane + run * kVector) = v;
        }
      } else {
        for (int at = lane; at < 32 * P::kColumns; at += 32) {
          const int channel = at / P::kColumns, column = at % P::kColumns;
          if (channel < channels && item.column + column < p.w) {
            base[channel * plane + column] = narrow<Out>(C(0) + strip[channel * kPitch + column]);
          }
        }
      }
    }
  }
}

template <typename T>
__device__ void consume(const Problem& p, const BackwardBuffers<T>& b, const BoxTables<Compute<T>>& tables,
                        const TileWork& work, const StageLayout<T>& layout, const TileOutput<T>& out, Ring<T> ring,
                        int pair, int lane, Compute<T>* strip) {
  Sums<T> sums;
  sums.clear();
  for (;;) {
    const char* stage = ring.stages + ring.index * layout.stage_bytes;
    barrier_wait(&ring.full[ring.index], ring.phase);
    const StageHeader header = *reinterpret_cast<const StageHeader*>(stage + layout.header_at);
    if (header.flags == kHasBox) add_stage<T>(layout, stage, pair, lane, sums);
    __syncwarp();
    if (lane == 0) barrier_arrive(&ring.empty[ring.index]);
    ring.advance();
    if (header.flags == kHasBox) continue;
    if (header.flags == kExit) return;
    const TileItem item = place_of<T>(p, work, header.tile, header.channel_block);
    if (any_not_finite<T>(sums, item.channels, lane)) {
      store_exact(p, b.grad_output, tables, out, item, header.block, pair, lane);
    } else if (out.partials != nullptr) {
      store_rows<T>(p, out.partials + header.block * out.numel, item, pair, lane, out.plane, strip, sums);
    } else {
      store_rows<T>(p, out.grad_input, item, pair, lane, out.plane, strip, sums);
    }
    sums.clear();
  }
}

#endif  // sm_90

template <typename T, int kMaxBins>
__global__ void __launch_bounds__(TilePolicy<T>::kThreads, TilePolicy<T>::kCtasPerMultiprocessor)
    sum_tiles(Problem p, BackwardBuffers<T> b, BoxTables<Compute<T>> tables, TileWork work, TileOutput<T> out,
              int32_t stages) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using P = TilePolicy<T>;
  extern __shared__ __align__(128) char shared[];
  const StageLayout<T> layout(p.pooled_h, p.pooled_w);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  Compute<T>* strips = reinterpret_cast<Compute<T>*>(shared + static_cast<size_t>(stages) * layout.stage_bytes);
  __shared__ uint64_t full[P::kMaxStages];
  __shared__ uint64_t empty[P::kMaxStages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(&full[s], 1);
      barrier_init(&empty[s], P::kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const Ring<T> ring{shared, full, empty, stages};
  if (warp == P::kConsumers) {
    produce<T, kMaxBins>(p, b, tables, work, layout, ring, lane);
  } else {
    consume<T>(p, b, tables, work, layout, out, ring, warp, lane, strips + warp * (kStripBytes<T> / sizeof(Compute<T>)));
  }
#endif
}

constexpr int kTotalThreads = 256;

// Adds the partial planes of the blocks of boxes, ascending.
template <typename T>
__global__ void __launch_bounds__(kTotalThreads) add_partials(const Compute<T>* partials, T* grad_input, int64_t numel,
                                                              int32_t blocks) {
  for (int64_t i = grid_thread(); i < numel; i += grid_threads()) {
    Compute<T> total = Compute<T>(0);
    for (int32_t block = 0; block < blocks; ++block) total = total + partials[block * numel + i];
    grad_input[i] = narrow<T>(total);
  }
}

}  // namespace
}  // namespace baracuda::roi_align
