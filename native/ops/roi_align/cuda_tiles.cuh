// SPDX-License-Identifier: Apache-2.0
// The backward for sm_90: tiles of pixels whose sums live in registers, fed through a ring of bulk copies.
//
// A CTA owns a tile of pixels for a block of channels, and within it a warp owns two rows: a lane is a channel, so that
// weights and control flow are the same for the whole warp. One producer warp walks the boxes that touch the tile in
// ascending order; for each it sends the box's gradient bins (one bulk copy) and the tile's weights on their way to the
// next stage. A consumer adds, for every unit of its columns and every bin that the unit meets, ascending, the bin's sum over
// its two rows (ascending) to the unit's pixels: the canonical order.
//
// A pixel of a unit whose weight is 0 still takes fma(0, t, sum). For finite t that changes no sum but a zero's sign,
// which the total's +0 start absorbs. Where t is not finite the sum becomes infinite or NaN and stays so: the warp then
// throws its tile away and sums it again with every zero weight skipped (store_exact). The common case pays one test a
// tile. A box whose weights are not tabulated sends its tiles the same way.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "ops/roi_align/cuda_tile_tables.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

// The shape of a tile and of the CTA that owns it.
template <typename ElementType, int kConsumerWarps, int kUnits, int kLaneChannels, int kCtas, int kBinsOnAxis,
          int kPooledSize>
struct TileShape {
  using T = ElementType;
  using C = Compute<T>;
  static constexpr int kConsumers = kConsumerWarps;
  static constexpr int kRows = kConsumers * kUnitRows;
  static constexpr int kColumnUnits = kUnits;
  static constexpr int kColumns = kUnits * kUnitColumns;
  static constexpr int kChannelsPerLane = kLaneChannels;
  static constexpr int kChannels = 32 * kLaneChannels;
  static constexpr int kThreads = 32 * (kConsumers + 1);
  static constexpr int kCtasPerMultiprocessor = kCtas;
  static constexpr int kMaxBins = kBinsOnAxis;  // that an axis may have
  static constexpr int kPooled = kPooledSize;   // bins of both axes, if they are known here; else 0
  // Entries of a stage that a lane of the producer copies.
  static constexpr int kXSlots = (kMaxBins * kColumnUnits + 31) / 32;
  static constexpr int kYSlots = (kMaxBins * kConsumers + 31) / 32;
  static constexpr int kMaxStages = 6;  // measured elsewhere: 6 beat 4 by 3 %, a seventh no longer fits twice
};

// Where an item of work lies.
struct TileItem {
  int32_t image, row, column, channel, channels;
};

// What travels with a stage.
enum StageFlags : int32_t { kHasBox, kUntabulatedBox, kLastOfItem, kExit };
struct alignas(16) StageHeader {
  int32_t flags;
  int32_t tile;
  int32_t block;  // of boxes
  TileItem item;
};

// Byte offsets within one stage.
template <class P>
struct StageLayout {
  using C = typename P::C;
  static constexpr uint32_t kXRecordBytes = (P::kColumnUnits * 4 + 15) & ~15;
  static constexpr uint32_t kYRecordBytes = (P::kConsumers * 4 + 15) & ~15;

  int32_t bins, pooled_h, pooled_w;
  uint32_t header_at, x_records_at, y_records_at, x_at, y_at, stage_bytes;

  BARACUDA_HD explicit StageLayout(const Problem& p)
      : bins(P::kPooled > 0 ? P::kPooled * P::kPooled : p.pooled_h * p.pooled_w),
        pooled_h(P::kPooled > 0 ? P::kPooled : p.pooled_h),
        pooled_w(P::kPooled > 0 ? P::kPooled : p.pooled_w) {
    header_at = (P::kChannels * static_cast<uint32_t>(bins) * sizeof(typename P::T) + 15) & ~15u;
    x_records_at = header_at + sizeof(StageHeader);
    y_records_at = x_records_at + kXRecordBytes;
    x_at = y_records_at + kYRecordBytes;
    y_at = x_at + static_cast<uint32_t>(pooled_w) * P::kColumnUnits * sizeof(UnitWeights<C, kUnitColumns>);
    stage_bytes = y_at + static_cast<uint32_t>(pooled_h) * P::kConsumers * sizeof(UnitWeights<C, kUnitRows>);
    stage_bytes = (stage_bytes + 15) & ~15u;
  }
};

// A warp's transposition strip: 32 channels of a part of a tile's row, each 4 words longer than it needs so that 16-byte
// accesses meet no conflict. The part is 16 or 8 columns, whole runs of 16 bytes in every type.
template <class P>
constexpr int kStripColumns = P::kColumns % 16 == 0 ? 16 : 8;
template <class P>
constexpr int kStripPitch = kStripColumns<P> + 4;
template <class P>
constexpr uint32_t kStripBytes = 32 * kStripPitch<P> * sizeof(typename P::C);

// What a tile's sums become: the result, rounded once, or with several blocks of boxes a partial plane.
template <typename T>
struct TileOutput {
  T* grad_input;
  Compute<T>* partials;  // [box_blocks][n c h w]; nullptr when there is one block
  int64_t plane;         // h w
  int64_t numel;
};

// --- barriers and bulk copies ----------------------------------------------------------------------------------------

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}
__device__ __forceinline__ void bulk_copy(void* to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Copies kBytes (4, 8 or 16) from memory to shared memory while the thread goes on.
template <int kBytes>
__device__ __forceinline__ void async_copy(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(kBytes)
               : "memory");
}
// The same for 4 bytes, or zeros without reading.
__device__ __forceinline__ void async_copy_or_zero(void* to, const void* from, bool reads) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(reads ? 4 : 0)
               : "memory");
}
// An arrival at `barrier` once all the thread's copies have arrived. It is one of those that the barrier counts.
__device__ __forceinline__ void async_copies_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

template <class P>
__device__ __forceinline__ TileItem place_of(const Problem& p, const TileWork& work, int32_t tile,
                                             int32_t channel_block) {
  TileItem item;
  const TileAt at = tile_at(work, tile);
  item.column = at.column * P::kColumns;
  item.row = at.row * P::kRows;
  item.image = at.image;
  item.channel = channel_block * P::kChannels;
  item.channels = p.c - item.channel < P::kChannels ? p.c - item.channel : P::kChannels;
  return item;
}

// --- the producer ----------------------------------------------------------------------------------------------------

// The stages of a CTA and where its reader or writer stands.
struct Ring {
  char* stages;
  uint32_t full, empty;  // shared addresses of the first stage's barriers; 8 bytes a stage
  uint32_t stage_bytes;
  int32_t count;
  int32_t index = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ char* stage() const { return stages + index * stage_bytes; }
  __device__ __forceinline__ uint32_t full_here() const { return full + static_cast<uint32_t>(index) * 8; }
  __device__ __forceinline__ uint32_t empty_here() const { return empty + static_cast<uint32_t>(index) * 8; }
  __device__ __forceinline__ void advance() {
    if (++index == count) {
      index = 0;
      phase ^= 1;
    }
  }
};

// Up to 32 boxes of a tile, one a lane, and where their weights lie. All of them are looked up at once and one batch
// ahead, because every lookup is a trip to memory.
template <class P>
struct Batch {
  int32_t tile, block, count;
  bool ends_item, exits;
  TileItem item;
  // The lane's box, and the records of the first and the last unit of the tile.
  int32_t box;
  UnitRecord x_first, x_last, y_first, y_last;

  __device__ void look_up(const TileTables<typename P::C>& tables, int lane) {
    if (lane >= count) return;
    const int32_t x_unit = item.column / kUnitColumns, y_unit = item.row / kUnitRows;
    const int32_t x_end = x_unit + P::kColumnUnits, y_end = y_unit + P::kConsumers;
    x_first = tables.x_record(box, x_unit);
    x_last = tables.x_record(box, (x_end < tables.x_units ? x_end : tables.x_units) - 1);
    y_first = tables.y_record(box, y_unit);
    y_last = tables.y_record(box, (y_end < tables.y_units ? y_end : tables.y_units) - 1);
  }
};

// The place of the set bit of `word` that has `rank` set bits below it.
__device__ __forceinline__ int bit_of_rank(uint32_t word, int rank) {
  int place = 0;
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const int below = __popc(word >> place & ((1u << width) - 1));
    if (rank >= below) {
      rank -= below;
      place += width;
    }
  }
  return place;
}

// Hands out batches in order. What the next items need is fetched ahead, one step of the chain ticket -> tile -> mask an
// item.
template <class P>
class BatchQueue {
 public:
  __device__ BatchQueue(const Problem& p, const TileTables<typename P::C>& tables, const TileWork& work, int lane)
      : p_(p), tables_(tables), work_(work), lane_(lane), items_(work.tiles * work.channel_blocks * work.box_blocks) {
    tickets_[0] = take();
    tickets_[1] = take();
    tickets_[2] = take();
    tiles_[0] = tile_of(tickets_[0]);
    tiles_[1] = tile_of(tickets_[1]);
    mask_ = first_mask(tickets_[0], tiles_[0]);
    begin_item();
  }

  __device__ Batch<P> next() {
    Batch<P> batch{};
    batch.exits = tickets_[0] >= items_;
    if (batch.exits) return batch;
    while (taken_ == total_ && (chunk_ + 32) * 32 < last_) begin_chunk(chunk_ + 32, load_mask(tile_, chunk_ + 32));
    batch.tile = tile_;
    batch.block = block_;
    batch.item = item_;
    batch.count = total_ - taken_ < 32 ? total_ - taken_ : 32;
    const int rank = taken_ + lane_;
    int word = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      if (rank >= __shfl_sync(kAllLanes, ends_, word + step - 1)) word += step;
    }
    const uint32_t bits = __shfl_sync(kAllLanes, mask_bits_, word);
    const int before = __shfl_sync(kAllLanes, ends_, word) - __popc(bits);
    batch.box = (chunk_ + word) * 32 + bit_of_rank(bits, rank - before);
    batch.look_up(tables_, lane_);
    taken_ += batch.count;
    batch.ends_item = taken_ == total_ && (chunk_ + 32) * 32 >= last_;
    if (batch.ends_item) {
      tickets_[0] = tickets_[1];
      tickets_[1] = tickets_[2];
      tickets_[2] = take();
      tiles_[0] = tiles_[1];
      tiles_[1] = tile_of(tickets_[1]);
      begin_item();
    }
    return batch;
  }

 private:
  __device__ int32_t take() {
    int32_t ticket = 0;
    if (lane_ == 0) ticket = atomicAdd(&work_.next[0], 1);
    return __shfl_sync(kAllLanes, ticket, 0);
  }
  __device__ int32_t tile_of(int32_t ticket) const { return ticket < items_ ? work_.order[ticket % work_.tiles] : 0; }
  __device__ int32_t block_of(int32_t ticket) const { return ticket / work_.tiles % work_.box_blocks; }

  // Word `chunk + lane` of a tile's mask, cut to the boxes [first_, last_).
  __device__ uint32_t load_mask(int32_t tile, int32_t chunk) const {
    const int32_t word = chunk + lane_;
    return word < work_.mask_words && word * 32LL < last_
               ? cut(work_.masks[static_cast<int64_t>(tile) * work_.mask_words + word], word, first_, last_)
               : 0;
  }
  static __device__ uint32_t cut(uint32_t mask, int32_t word, int32_t first, int32_t last) {
    if (word * 32 < first) mask &= first - word * 32 < 32 ? kAllLanes << (first - word * 32) : 0u;
    if (last - word * 32 < 32) mask &= (1u << (last - word * 32)) - 1;
    return mask;
  }
  __device__ int32_t first_box(int32_t block) const { return static_cast<int32_t>(block * p_.rois_per_block); }
  __device__ int32_t last_box(int32_t block) const {
    const int64_t end = (block + 1) * p_.rois_per_block;
    return static_cast<int32_t>(end < p_.num_rois ? end : p_.num_rois);
  }
  // The lane's word of an item's first chunk, not yet cut.
  __device__ uint32_t first_mask(int32_t ticket, int32_t tile) const {
    if (ticket >= items_) return 0;
    const int32_t word = first_box(block_of(ticket)) / 32 + lane_;
    return word < work_.mask_words ? work_.masks[static_cast<int64_t>(tile) * work_.mask_words + word] : 0;
  }

  __device__ void begin_chunk(int32_t chunk, uint32_t mask) {
    chunk_ = chunk;
    mask_bits_ = mask;
    ends_ = __popc(mask);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int32_t before = __shfl_up_sync(kAllLanes, ends_, step);
      if (lane_ >= step) ends_ += before;
    }
    total_ = __shfl_sync(kAllLanes, ends_, 31);
    taken_ = 0;
  }

  // Makes tickets_[0] the current item and asks for the mask of the one after it.
  __device__ void begin_item() {
    if (tickets_[0] >= items_) return;
    tile_ = tiles_[0];
    block_ = block_of(tickets_[0]);
    // Channel block outermost, so that the tiles in flight share gradient bins; then blocks of boxes; then heavy tiles.
    item_ = place_of<P>(p_, work_, tile_, tickets_[0] / work_.tiles / work_.box_blocks);
    first_ = first_box(block_);
    last_ = last_box(block_);
    const int32_t word = first_ / 32 + lane_;
    begin_chunk(first_ / 32, word * 32LL < last_ ? cut(mask_, word, first_, last_) : 0);
    mask_ = first_mask(tickets_[1], tiles_[1]);
  }

  const Problem& p_;
  const TileTables<typename P::C>& tables_;
  const TileWork& work_;
  const int lane_;
  const int32_t items_;
  int32_t tickets_[3];
  int32_t tiles_[2];
  uint32_t mask_;  // of the item after the current one
  int32_t tile_, block_, first_, last_;
  TileItem item_;
  int32_t chunk_;       // the first of the 32 mask words at hand, one a lane
  uint32_t mask_bits_;  // the lane's
  int32_t ends_;        // boxes up to the lane's word
  int32_t total_, taken_;
};

// Sends `count` entries of one axis of a box on their way to a stage.
template <int kSlots, typename C, int kPixels>
__device__ __forceinline__ void copy_entries(UnitWeights<C, kPixels>* to, const UnitWeights<C, kPixels>* from,
                                             int count, int lane) {
  using Entry = UnitWeights<C, kPixels>;
  constexpr int kBytes = sizeof(Entry) < 16 ? sizeof(Entry) : 16;
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const int at = slot * 32 + lane;
    if (at >= count) break;
#pragma unroll
    for (int part = 0; part < static_cast<int>(sizeof(Entry)); part += kBytes) {
      async_copy<kBytes>(reinterpret_cast<char*>(to + at) + part, reinterpret_cast<const char*>(from + at) + part);
    }
  }
}

// Everything of a box arrives at its stage by itself; the producer is by then some stages ahead.
template <class P>
__device__ void produce(const Problem& p, const BackwardBuffers<typename P::T>& b,
                        const TileTables<typename P::C>& tables, const TileWork& work, const StageLayout<P>& layout,
                        Ring ring, int lane) {
  using XEntry = typename TileTables<typename P::C>::XEntry;
  using YEntry = typename TileTables<typename P::C>::YEntry;
  constexpr int32_t kElementBytes = static_cast<int32_t>(sizeof(typename P::T));
  static_assert(P::kColumnUnits + P::kConsumers <= 32, "a record a lane");
  BatchQueue<P> queue(p, tables, work, lane);
  Batch<P> batch = queue.next();
  Batch<P> following = queue.next();
  // Hands a stage to the consumers once `bytes` of bulk copies and every lane's copies have arrived.
  const auto publish = [&](uint32_t bytes) {
    async_copies_arrive(ring.full_here());
    __syncwarp();
    if (lane == 0) barrier_arrive_expect(ring.full_here(), bytes);
    ring.advance();
  };
  const auto stage_of = [&] {
    barrier_wait(ring.empty_here(), ring.phase ^ 1);
    return ring.stage();
  };
  while (!batch.exits) {
    const int x_start = batch.x_first.start(), x_count = batch.x_last.end() - x_start;
    const int y_start = batch.y_first.start(), y_count = batch.y_last.end() - y_start;
    const bool untabulated = batch.x_first.bits == kUntabulated || batch.y_first.bits == kUntabulated;
    const uint32_t left_out = __ballot_sync(kAllLanes, lane < batch.count && untabulated);
    const uint32_t packed = static_cast<uint32_t>(x_start) | static_cast<uint32_t>(y_start) << 16;
    const uint32_t counts = static_cast<uint32_t>(x_count) | static_cast<uint32_t>(y_count) << 16;
    // The lane's record: column units first, then row units; none beyond the image.
    const bool is_x = lane < P::kColumnUnits;
    const int32_t unit =
        is_x ? batch.item.column / kUnitColumns + lane : batch.item.row / kUnitRows + lane - P::kColumnUnits;
    const int32_t units = is_x ? tables.x_units : tables.y_units;
    const UnitRecord* records = (is_x ? tables.x_records : tables.y_records) + (unit < units ? unit : 0);
    const uint32_t record_at =
        is_x ? layout.x_records_at + lane * 4 : layout.y_records_at + (lane - P::kColumnUnits) * 4;
    const uint32_t bytes = static_cast<uint32_t>(batch.item.channels * layout.bins * kElementBytes);
    const typename P::T* grad = b.grad_output + static_cast<int64_t>(batch.item.channel) * layout.bins;
    const int64_t box_stride = static_cast<int64_t>(p.c) * layout.bins;
    for (int i = 0; i < batch.count; ++i) {
      const int64_t box = __shfl_sync(kAllLanes, batch.box, i);
      const uint32_t starts = __shfl_sync(kAllLanes, packed, i), lengths = __shfl_sync(kAllLanes, counts, i);
      const bool has_weights = (left_out >> i & 1u) == 0;
      char* stage = stage_of();
      if (lane == 0) {
        bulk_copy(stage, grad + box * box_stride, bytes, ring.full_here());
        reinterpret_cast<StageHeader*>(stage + layout.header_at)->flags = has_weights ? kHasBox : kUntabulatedBox;
      }
      if (has_weights) {
        if (lane < P::kColumnUnits + P::kConsumers) {
          async_copy_or_zero(stage + record_at, records + box * units, unit < units);
        }
        copy_entries<P::kXSlots>(reinterpret_cast<XEntry*>(stage + layout.x_at),
                                 tables.x_entries + box * tables.x_capacity + (starts & 0xffffu),
                                 static_cast<int>(lengths & 0xffffu), lane);
        copy_entries<P::kYSlots>(reinterpret_cast<YEntry*>(stage + layout.y_at),
                                 tables.y_entries + box * tables.y_capacity + (starts >> 16),
                                 static_cast<int>(lengths >> 16), lane);
      }
      publish(bytes);
    }
    if (batch.ends_item) {
      char* stage = stage_of();
      if (lane == 0) {
        *reinterpret_cast<StageHeader*>(stage + layout.header_at) = {kLastOfItem, batch.tile, batch.block, batch.item};
      }
      publish(0);
    }
    batch = following;
    following = queue.next();
  }
  char* stage = stage_of();
  if (lane == 0) reinterpret_cast<StageHeader*>(stage + layout.header_at)->flags = kExit;
  publish(0);
}

// --- the consumers ---------------------------------------------------------------------------------------------------

template <class P>
struct Sums {
  // [channel of the lane][row of the pair][pixel]
  typename P::C value[P::kChannelsPerLane][kUnitRows][P::kColumns];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int k = 0; k < P::kChannelsPerLane; ++k) {
#pragma unroll
      for (int i = 0; i < kUnitRows; ++i) {
#pragma unroll
        for (int j = 0; j < P::kColumns; ++j) value[k][i][j] = typename P::C(0);
      }
    }
  }
};

// Adds one stage's box to a warp's two rows. kPh is how many ph the rows meet, 0 for more than two: two cover every bin
// of two rows or more, and their weights then stay in registers.
template <class P, int kPh>
__device__ __forceinline__ void add_box(const StageLayout<P>& layout, const char* stage, UnitRecord rows, int lane,
                                        Sums<P>& sums) {
  using T = typename P::T;
  using C = typename P::C;
  using XEntry = UnitWeights<C, kUnitColumns>;
  using YEntry = UnitWeights<C, kUnitRows>;
  const int y_run = reinterpret_cast<const UnitRecord*>(stage + layout.y_records_at)->start();
  const YEntry* y_entries = reinterpret_cast<const YEntry*>(stage + layout.y_at) + (rows.start() - y_run);
  YEntry held[kPh > 0 ? kPh : 1];
  if constexpr (kPh > 0) {
#pragma unroll
    for (int i = 0; i < kPh; ++i) held[i] = y_entries[i];
  }
  const T* grad = reinterpret_cast<const T*>(stage) + lane * layout.bins + rows.first_bin() * layout.pooled_w;
  const XEntry* x_entries = reinterpret_cast<const XEntry*>(stage + layout.x_at);
  UnitRecord columns[P::kColumnUnits];
  const uint4* records = reinterpret_cast<const uint4*>(stage + layout.x_records_at);
#pragma unroll
  for (int unit = 0; unit < P::kColumnUnits; unit += 4) {
    const uint4 four = records[unit / 4];
    const uint32_t bits[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4 && unit + i < P::kColumnUnits; ++i) columns[unit + i].bits = bits[i];
  }
#pragma unroll
  for (int unit = 0; unit < P::kColumnUnits; ++unit) {
    const XEntry* entry = x_entries + (columns[unit].start() - columns[0].start());
    const T* values = grad + columns[unit].first_bin();
#pragma unroll 1
    for (int left = columns[unit].count(); left > 0; --left, ++entry, ++values) {
      const XEntry w = *entry;
      C row_sums[P::kChannelsPerLane][kUnitRows];
#pragma unroll
      for (int k = 0; k < P::kChannelsPerLane; ++k) {
        const T* column = values + k * 32 * layout.bins;
        row_sums[k][0] = C(0), row_sums[k][1] = C(0);
        if constexpr (kPh > 0) {
#pragma unroll
          for (int i = 0; i < kPh; ++i) {
            const C value = widen(column[i * layout.pooled_w]);
            row_sums[k][0] = fma(held[i].weight[0], value, row_sums[k][0]);
            row_sums[k][1] = fma(held[i].weight[1], value, row_sums[k][1]);
          }
        } else {
#pragma unroll 1
          for (int i = 0; i < rows.count(); ++i) {
            const YEntry weights = y_entries[i];
            const C value = widen(column[i * layout.pooled_w]);
            row_sums[k][0] = fma(weights.weight[0], value, row_sums[k][0]);
            row_sums[k][1] = fma(weights.weight[1], value, row_sums[k][1]);
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kUnitColumns; ++j) {
#pragma unroll
        for (int k = 0; k < P::kChannelsPerLane; ++k) {
#pragma unroll
          for (int i = 0; i < kUnitRows; ++i) {
            C& sum = sums.value[k][i][unit * kUnitColumns + j];
            sum = fma(w.weight[j], row_sums[k][i], sum);
          }
        }
      }
    }
  }
}

// Whether any sum that will be stored is infinite or NaN.
template <class P>
__device__ __forceinline__ bool any_not_finite(const Sums<P>& sums, int channels, int lane) {
  using C = typename P::C;
  bool bad = false;
#pragma unroll
  for (int k = 0; k < P::kChannelsPerLane; ++k) {
    C probe = C(0);  // 0 times infinity or NaN is NaN, and NaN stays
#pragma unroll
    for (int i = 0; i < kUnitRows; ++i) {
#pragma unroll
      for (int j = 0; j < P::kColumns; ++j) probe = fma(sums.value[k][i][j], C(0), probe);
    }
    bad = bad || (!(probe == C(0)) && k * 32 + lane < channels);
  }
  return __any_sync(kAllLanes, bad);
}

// The weight of a unit's i-th bin on one of its pixels.
template <typename C, int kPixels>
__device__ __forceinline__ C weight_at(const Axis<C>& axis, const UnitWeights<C, kPixels>* entries, UnitRecord record,
                                       bool tabulated, int i, int32_t pixel) {
  if (!tabulated) return pixel_weight(axis, i, pixel);
  return entries[record.start() + i].weight[pixel % kPixels];
}

// One pixel of one channel over the boxes [first, last) of a tile's mask, every zero weight skipped: the definition.
template <class P>
__device__ typename P::C exact_sum(const Problem& p, const typename P::T* grad_output,
                                   const TileTables<typename P::C>& tables, const uint32_t* mask, int32_t channel,
                                   int32_t row, int32_t column, int64_t first, int64_t last) {
  using C = typename P::C;
  C sum = C(0);
  for (int64_t r = first; r < last; ++r) {
    if ((mask[r / 32] >> (r % 32) & 1u) == 0) continue;
    UnitRecord y = tables.y_record(r, row / kUnitRows), x = tables.x_record(r, column / kUnitColumns);
    const bool y_tabulated = y.bits != kUntabulated, x_tabulated = x.bits != kUntabulated;
    if (!y_tabulated) y = UnitRecord::make(0, 0, p.pooled_h);
    if (!x_tabulated) x = UnitRecord::make(0, 0, p.pooled_w);
    const Box<C>& box = tables.boxes[r];
    const auto* y_entries = tables.y_entries + r * tables.y_capacity;
    const auto* x_entries = tables.x_entries + r * tables.x_capacity;
    const typename P::T* grad = grad_output + (r * p.c + channel) * p.pooled_h * p.pooled_w;
    for (int i = 0; i < x.count(); ++i) {
      const C column_weight = weight_at(box.x, x_entries, x, x_tabulated, i, column);
      if (column_weight == C(0)) continue;
      C row_sum = C(0);
      for (int j = 0; j < y.count(); ++j) {
        const C weight = weight_at(box.y, y_entries, y, y_tabulated, j, row);
        if (weight == C(0)) continue;
        const int bin = (y.first_bin() + j) * p.pooled_w + x.first_bin() + i;
        row_sum = fma(weight, widen(grad[bin]), row_sum);
      }
      sum = fma(column_weight, row_sum, sum);
    }
  }
  return sum;
}

// Sums a warp's two rows again with every zero weight skipped, straight to memory.
template <class P>
__device__ __noinline__ void store_exact(const Problem& p, const typename P::T* grad_output,
                                         const TileTables<typename P::C>& tables, const TileWork& work,
                                         const TileOutput<typename P::T>& out, const TileItem& item, int32_t tile,
                                         int32_t block, int pair, int lane) {
  using C = typename P::C;
  const int64_t first = block * p.rois_per_block;
  const int64_t last = first + p.rois_per_block < p.num_rois ? first + p.rois_per_block : p.num_rois;
  const uint32_t* mask = work.masks + static_cast<int64_t>(tile) * work.mask_words;
  for (int channel = lane; channel < item.channels; channel += 32) {
    for (int at = 0; at < kUnitRows * P::kColumns; ++at) {
      const int32_t row = item.row + pair * kUnitRows + at / P::kColumns;
      const int32_t column = item.column + at % P::kColumns;
      if (row >= p.h || column >= p.w) continue;
      const C sum = exact_sum<P>(p, grad_output, tables, mask, item.channel + channel, row, column, first, last);
      const int64_t index = (static_cast<int64_t>(item.image) * p.c + item.channel + channel) * out.plane +
                            static_cast<int64_t>(row) * p.w + column;
      if (out.partials != nullptr) {
        out.partials[block * out.numel + index] = sum;
      } else {
        out.grad_input[index] = narrow<typename P::T>(C(0) + sum);
      }
    }
  }
}

// Rounds a finite number to T: narrow without its test for NaN.
template <typename T>
__device__ __forceinline__ T narrow_finite(Compute<T> x) {
  if constexpr (sizeof(T) == sizeof(Compute<T>)) {
    return x;
  } else if constexpr (std::is_same<T, Half>::value) {
    return Half{__half_as_ushort(__float2half_rn(x))};
  } else {
    const uint32_t bits = __float_as_uint(x);
    return Bfloat16{static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
  }
}

// Stores a warp's two rows, all finite, through its strip, so that a store covers runs of pixels instead of one lane's
// channel.
template <class P, typename Out>
__device__ __forceinline__ void store_rows(const Problem& p, Out* output, const TileItem& item, int pair, int lane,
                                           typename P::C* strip, const Sums<P>& sums) {
  using C = typename P::C;
  // Opaque, so that the compiler does not keep what follows from them in registers while boxes are summed.
  int32_t width = p.w, height = p.h;
  asm volatile("" : "+r"(width), "+r"(height), "+r"(lane));
  const int64_t plane = static_cast<int64_t>(width) * height;
  struct alignas(16) OutVector {
    Out value[16 / sizeof(Out)];
  };
  using Four = UnitWeights<C, kUnitColumns>;
  constexpr int kPitch = kStripPitch<P>;
  constexpr int kPart = kStripColumns<P>;
  constexpr int kVector = 16 / sizeof(Out);
  constexpr int kRuns = kPart / kVector;  // 16-byte runs across the part
  constexpr int kStep = 32 / kRuns;       // channels a round
  const bool vectors = (width * sizeof(Out)) % 16 == 0 && (plane * sizeof(Out)) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(output) % 16 == 0;
  const int64_t corner = (static_cast<int64_t>(item.image) * p.c + item.channel) * plane +
                         (static_cast<int64_t>(item.row) + pair * kUnitRows) * width + item.column;
#pragma unroll
  for (int i = 0; i < kUnitRows; ++i) {
    if (item.row + pair * kUnitRows + i >= height) break;
#pragma unroll
    for (int k = 0; k < P::kChannelsPerLane; ++k) {
      const int channels = item.channels - k * 32 < 32 ? item.channels - k * 32 : 32;
      Out* base = output + corner + i * static_cast<int64_t>(width) + k * 32 * plane;
#pragma unroll
      for (int part = 0; part < P::kColumns; part += kPart, base += kPart) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < kPart; j += kUnitColumns) {
          Four four;
#pragma unroll
          for (int m = 0; m < kUnitColumns; ++m) four.weight[m] = C(0) + sums.value[k][i][part + j + m];
          *reinterpret_cast<Four*>(strip + lane * kPitch + j) = four;
        }
        __syncwarp();
        const int columns = width - item.column - part < kPart ? width - item.column - part : kPart;
        if (vectors && columns == kPart) {
          const C* from = strip + lane / kRuns * kPitch + lane % kRuns * kVector;
          Out* to = base + lane / kRuns * plane + lane % kRuns * kVector;
#pragma unroll 1
          for (int channel = lane / kRuns; channel < channels; channel += kStep) {
            OutVector v;
#pragma unroll
            for (int m = 0; m < kVector; ++m) v.value[m] = narrow_finite<Out>(from[m]);
            *reinterpret_cast<OutVector*>(to) = v;
            from += kStep * kPitch;
            to += kStep * plane;
          }
        } else {
#pragma unroll 1
          for (int at = lane; at < 32 * kPart; at += 32) {
            const int channel = at / kPart, column = at % kPart;
            if (channel < channels && column < columns) {
              base[channel * plane + column] = narrow_finite<Out>(strip[channel * kPitch + column]);
            }
          }
        }
      }
    }
  }
}

template <class P>
__device__ void consume(const Problem& p, const BackwardBuffers<typename P::T>& b,
                        const TileTables<typename P::C>& tables, const TileWork& work, const StageLayout<P>& layout,
                        const TileOutput<typename P::T>& out, Ring ring, int pair, int lane, typename P::C* strip) {
  const auto header_here = [&] { return reinterpret_cast<const StageHeader*>(ring.stage() + layout.header_at); };
  const auto release = [&] {
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.empty_here());
    ring.advance();
  };
  for (;;) {
    Sums<P> sums;
    sums.clear();
    bool exact = false;
    for (;;) {
      barrier_wait(ring.full_here(), ring.phase);
      // Both at once: the record is there, or is not used.
      const UnitRecord rows = reinterpret_cast<const UnitRecord*>(ring.stage() + layout.y_records_at)[pair];
      const int32_t flags = header_here()->flags;
      if (flags >= kLastOfItem) break;
      if (flags == kUntabulatedBox) {
        exact = true;
      } else if (rows.count() == 1) {
        add_box<P, 1>(layout, ring.stage(), rows, lane, sums);
      } else if (rows.count() == 2) {
        add_box<P, 2>(layout, ring.stage(), rows, lane, sums);
      } else if (rows.count() != 0) {
        add_box<P, 0>(layout, ring.stage(), rows, lane, sums);
      }
      release();
    }
    const StageHeader header = *header_here();
    release();
    if (header.flags == kExit) return;
    const TileItem& item = header.item;
    if (exact || any_not_finite<P>(sums, item.channels, lane)) {
      store_exact<P>(p, b.grad_output, tables, work, out, item, header.tile, header.block, pair, lane);
    } else if (out.partials != nullptr) {
      store_rows<P>(p, out.partials + header.block * out.numel, item, pair, lane, strip, sums);
    } else {
      store_rows<P>(p, out.grad_input, item, pair, lane, strip, sums);
    }
  }
}

#endif  // sm_90

// Parameters that are passed on by reference stay in constant memory.
template <class P>
__global__ void __launch_bounds__(P::kThreads, P::kCtasPerMultiprocessor)
    sum_tiles(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<typename P::T> b,
              const __grid_constant__ TileTables<typename P::C> tables, const __grid_constant__ TileWork work,
              const __grid_constant__ TileOutput<typename P::T> out, int32_t stages) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using C = typename P::C;
  extern __shared__ __align__(128) char shared[];
  const StageLayout<P> layout(p);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  C* strips = reinterpret_cast<C*>(shared + static_cast<size_t>(stages) * layout.stage_bytes);
  __shared__ uint64_t full[P::kMaxStages];
  __shared__ uint64_t empty[P::kMaxStages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(shared_address(&full[s]), 1 + 32);  // the producer's announcement of bulk copies, and its lanes' copies
      barrier_init(shared_address(&empty[s]), P::kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  wait_for_kernel_before();
  const Ring ring{shared, shared_address(full), shared_address(empty), layout.stage_bytes, stages};
  if (warp == P::kConsumers) {
    produce<P>(p, b, tables, work, layout, ring, lane);
  } else {
    consume<P>(p, b, tables, work, layout, out, ring, warp, lane, strips + warp * (kStripBytes<P> / sizeof(C)));
  }
#endif
}

constexpr int kTotalThreads = 256;
// Partial planes that a thread reads at once.
constexpr int kPlanesAtOnce = 8;

// Adds the partial planes of the blocks of boxes, ascending.
template <typename T>
__global__ void __launch_bounds__(kTotalThreads) add_partials(const Compute<T>* partials, T* grad_input, int64_t numel,
                                                              int32_t blocks) {
  wait_for_kernel_before();
  for (int64_t i = grid_thread(); i < numel; i += grid_threads()) {
    Compute<T> total = Compute<T>(0);
    for (int32_t first = 0; first < blocks; first += kPlanesAtOnce) {
      Compute<T> planes[kPlanesAtOnce];
#pragma unroll
      for (int k = 0; k < kPlanesAtOnce; ++k) {
        planes[k] = first + k < blocks ? partials[(first + k) * numel + i] : Compute<T>(0);
      }
#pragma unroll
      for (int k = 0; k < kPlanesAtOnce; ++k) {
        if (first + k < blocks) total = total + planes[k];
      }
    }
    grad_input[i] = narrow<T>(total);
  }
}

}  // namespace
}  // namespace baracuda::roi_align
