// SPDX-License-Identifier: Apache-2.0
// The backward for sm_90: tiles of pixels whose sums live in registers, fed through a ring of bulk copies.
//
// A CTA owns a tile of pixels for a block of channels, and within it a warp owns two rows: a lane is a channel, so that
// weights and control flow are the same for the whole warp. One producer warp walks the boxes that touch the tile in
// ascending order, a box a lane; each lane sends its box's gradient bins and the tile's weights on their way to the
// next stage by a few bulk copies. A consumer adds, for every unit of its columns and every bin that the unit meets,
// ascending, the bin's sum over its two rows (ascending) to the unit's pixels: the canonical order.
//
// A pixel of a unit whose weight is 0 still takes fma(0, t, sum). For finite t that changes no sum but a zero's sign,
// which the total's +0 start absorbs. Where t is not finite the sum becomes infinite or NaN and stays so: the warp then
// throws its tile away and sums it again with every zero weight skipped (store_exact). The common case pays one test a
// tile. A box whose weights are not tabulated sends its tiles the same way.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "ops/roi_align/cuda/backward/tile_tables.cuh"
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
  // A warp whose rows meet at most so many ph adds a bin's ph up wherever it needs the bin; others do it once, for all
  // the bins, and keep the sums in shared memory.
  static constexpr int kSummedInPlace = kMaxBins > 8 ? 0 : 2;
  // The bins whose sums are kept at a time.
  static constexpr int kKeptBins = sizeof(C) == 8 && kMaxBins > 8 ? 8 : kMaxBins;
  static constexpr int kMaxStages = 6;  // measured elsewhere: 6 beat 4 by 3 %, a seventh no longer fits twice
};

// Where an item of work lies.
struct TileItem {
  int32_t image, row, column, channel, channels;
};

// What travels with a stage; all but the flags only where an item ends. From kLastOfItem on the flags end an item.
enum StageFlags : int32_t { kHasBox = 1, kUntabulatedBox = 2, kLastOfItem = 4, kExit = 8 };
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
  static constexpr uint32_t kXRecordBytes = RecordPlaces::pitch_of(P::kColumnUnits) * sizeof(UnitRecord);
  static constexpr uint32_t kYRecordBytes = RecordPlaces::pitch_of(P::kConsumers) * sizeof(UnitRecord);
  // Where copies begin and end with others' entries.
  static constexpr uint32_t kOtherEntries = 2 * (kBulkEntries<UnitWeights<C, kUnitRows>> - 1);

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
    stage_bytes = y_at + (static_cast<uint32_t>(pooled_h) * P::kConsumers + kOtherEntries) *
                             sizeof(UnitWeights<C, kUnitRows>);
    stage_bytes = (stage_bytes + 15) & ~15u;
  }
};

// A bin's sums over a warp's two rows, in a lane's channels.
template <class P>
struct alignas(P::kChannelsPerLane * kUnitRows * sizeof(typename P::C)) BinSums {
  typename P::C value[P::kChannelsPerLane][kUnitRows];
};

// A warp's strip holds each lane's sums of bins while boxes are added, and in the end transposes: 32 channels of a part
// of a tile's row, each 4 words longer than it needs so that 16-byte accesses meet no conflict. The part is 16 or 8
// columns, whole runs of 16 bytes in every type.
template <class P>
constexpr int kStripColumns = P::kColumns % 16 == 0 ? 16 : 8;
template <class P>
constexpr int kStripPitch = kStripColumns<P> + 4;
template <class P>
constexpr uint32_t kTransposedBytes = 32 * kStripPitch<P> * sizeof(typename P::C);
template <class P>
constexpr uint32_t kKeptBytes = 32 * P::kKeptBins * sizeof(BinSums<P>);
template <class P>
constexpr uint32_t kStripBytes = kTransposedBytes<P> > kKeptBytes<P> ? kTransposedBytes<P> : kKeptBytes<P>;

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
  uint32_t count;
  uint32_t place = 0;  // the stage's number, above the phase: one register, of which the sums leave few

  __device__ __forceinline__ uint32_t index() const { return place >> 1; }
  __device__ __forceinline__ uint32_t phase() const { return place & 1; }
  __device__ __forceinline__ char* stage() const { return stages + index() * stage_bytes; }
  __device__ __forceinline__ uint32_t full_here() const { return full + index() * 8; }
  __device__ __forceinline__ uint32_t empty_here() const { return empty + index() * 8; }
  __device__ __forceinline__ void advance() {
    place += 2;
    if (index() == count) place = phase() ^ 1;
  }
};

// A tile's records of one axis of a box, as they lie in a stage.
template <int kUnits>
struct TileRecords {
  static constexpr int kPitch = RecordPlaces::pitch_of(kUnits);
  static constexpr int kVectors = kPitch * static_cast<int>(sizeof(UnitRecord)) / kBulkBytes;
  uint4 vectors[kVectors];

  __device__ __forceinline__ void load(const UnitRecord* records) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) vectors[i] = reinterpret_cast<const uint4*>(records)[i];
  }
  __device__ __forceinline__ void store(char* to) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) reinterpret_cast<uint4*>(to)[i] = vectors[i];
  }
  __device__ __forceinline__ UnitRecord first() const { return {vectors[0].x}; }
  __device__ __forceinline__ UnitRecord last() const {
    constexpr int kAt = (kUnits - 1) % 4;
    const uint4& four = vectors[(kUnits - 1) / 4];
    return {kAt == 0 ? four.x : kAt == 1 ? four.y : kAt == 2 ? four.z : four.w};
  }
};

// Up to 32 boxes of a tile, one a lane, and their records. All of them are looked up at once and one batch ahead,
// because every lookup is a trip to memory.
template <class P>
struct Batch {
  int32_t tile, block, count;
  bool ends_item, exits;
  TileItem item;
  // The lane's box.
  int32_t box;
  TileRecords<P::kColumnUnits> x;
  TileRecords<P::kConsumers> y;

  __device__ void look_up(const TileTables<typename P::C>& tables, int lane) {
    if (lane >= count) return;
    const int64_t x_tile = static_cast<int64_t>(box) * tables.x_places.tiles + item.column / P::kColumns;
    const int64_t y_tile = static_cast<int64_t>(box) * tables.y_places.tiles + item.row / P::kRows;
    x.load(tables.x_records + x_tile * x.kPitch);
    y.load(tables.y_records + y_tile * y.kPitch);
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

// Hands out batches in order. What the item after the current one needs is fetched ahead, a step at a time: ticket,
// then tile, then mask. Tickets are drawn no earlier than that takes, so that nobody holds an item that others could
// begin.
template <class P>
class BatchQueue {
 public:
  __device__ BatchQueue(const Problem& p, const TileTables<typename P::C>& tables, const TileWork& work, int lane)
      : p_(p),
        tables_(tables),
        work_(work),
        lane_(lane),
        items_(work.tiles * work.channel_blocks * work.box_blocks),
        paired_(items_ > work.tiles ? items_ - 2 * work.tiles : items_) {
    // The first two rounds are dealt out, heavy items with light ones: where items are few, whoever came first would
    // draw several and leave others none.
    ticket_ = static_cast<int32_t>(blockIdx.x);
    tile_ = tile_of(ticket_);
    const uint32_t mask = first_mask(ticket_, tile_);
    next_ticket_ = static_cast<int32_t>(2 * gridDim.x - 1 - blockIdx.x);
    next_tile_ = tile_of(next_ticket_);
    next_mask_ = first_mask(next_ticket_, next_tile_);
    steps_ = kSteps;
    begin_item(mask);
  }

  // Steps towards the next item.
  static constexpr int kSteps = 3;

  // A step; to be called where its loads may take their time.
  __device__ void advance() {
    if (steps_ == kSteps) return;
    if (steps_ == 0) {
      if (lane_ == 0) drawn_ = atomicAdd(&work_.next[0], 1);  // the answer is the first lane's
    } else if (steps_ == 1) {
      next_ticket_ = __shfl_sync(kAllLanes, drawn_, 0) + static_cast<int32_t>(2 * gridDim.x);
      next_tile_ = tile_of(next_ticket_);
    } else {
      next_mask_ = first_mask(next_ticket_, next_tile_);
    }
    ++steps_;
  }

  __device__ Batch<P> next() {
    if (ended_) begin_next_item();
    Batch<P> batch{};
    batch.exits = ticket_ >= items_;
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
    batch.ends_item = ended_ = taken_ == total_ && (chunk_ + 32) * 32 >= last_;
    return batch;
  }

 private:
  // Channel block outermost, so that the tiles in flight share gradient bins; then blocks of boxes; then heavy tiles.
  // The last two blocks go together, tile by tile: a heavy tile that was drawn late would be waited for.
  __device__ int32_t place_in_order(int32_t ticket) const {
    return ticket >= paired_ ? (ticket - paired_) / 2 : ticket % work_.tiles;
  }
  // Of channels and, within one of those, of boxes.
  __device__ int32_t either_block_of(int32_t ticket) const {
    return ticket >= paired_ ? work_.channel_blocks * work_.box_blocks - 2 + (ticket - paired_) % 2
                             : ticket / work_.tiles;
  }
  __device__ int32_t tile_of(int32_t ticket) const {
    return ticket < items_ ? work_.order[place_in_order(ticket)] : 0;
  }
  __device__ int32_t block_of(int32_t ticket) const { return either_block_of(ticket) % work_.box_blocks; }

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

  __device__ void begin_next_item() {
    while (steps_ < kSteps) advance();
    ended_ = false;
    ticket_ = next_ticket_;
    tile_ = next_tile_;
    if (ticket_ >= items_) return;
    begin_item(next_mask_);
    steps_ = 0;
  }

  // `mask` is the lane's word of the item's first chunk.
  __device__ void begin_item(uint32_t mask) {
    if (ticket_ >= items_) return;
    block_ = block_of(ticket_);
    item_ = place_of<P>(p_, work_, tile_, either_block_of(ticket_) / work_.box_blocks);
    first_ = first_box(block_);
    last_ = last_box(block_);
    const int32_t word = first_ / 32 + lane_;
    begin_chunk(first_ / 32, word * 32LL < last_ ? cut(mask, word, first_, last_) : 0);
  }

  const Problem& p_;
  const TileTables<typename P::C>& tables_;
  const TileWork& work_;
  const int lane_;
  const int32_t items_;
  const int32_t paired_;  // the first ticket of the last two blocks
  // The current item.
  int32_t ticket_, tile_, block_, first_, last_;
  TileItem item_;
  // The one after it, as far as the steps have been taken.
  int32_t steps_, drawn_, next_ticket_, next_tile_;
  uint32_t next_mask_;
  int32_t chunk_;       // the first of the 32 mask words at hand, one a lane
  uint32_t mask_bits_;  // the lane's
  int32_t ends_;        // boxes up to the lane's word
  int32_t total_, taken_;
  bool ended_ = false;  // the current item's boxes are all handed out
};

// Everything of a box arrives at its stage by itself; the producer is by then some stages ahead.
template <class P>
__device__ void produce(const Problem& p, const BackwardBuffers<typename P::T>& b,
                        const TileTables<typename P::C>& tables, const TileWork& work, const StageLayout<P>& layout,
                        Ring ring, int lane) {
  using XEntry = typename TileTables<typename P::C>::XEntry;
  using YEntry = typename TileTables<typename P::C>::YEntry;
  static_assert(kBulkEntries<XEntry> == 1, "a tile's first column entry is the stage's first");
  constexpr int kYStep = kBulkEntries<YEntry>;
  BatchQueue<P> queue(p, tables, work, lane);
  Batch<P> batch = queue.next();
  const auto wait_for_stage = [&] { barrier_wait(ring.empty_here(), ring.phase() ^ 1); };
  const auto header_here = [&] { return reinterpret_cast<StageHeader*>(ring.stage() + layout.header_at); };
  while (!batch.exits) {
    const Batch<P> following = queue.next();
    // What the lane's box sends.
    const bool tabulated = batch.x.first().bits != kUntabulated && batch.y.first().bits != kUntabulated;
    const int x_start = batch.x.first().start(), x_count = batch.x.last().end() - x_start;
    const int y_start = batch.y.first().start() & -kYStep;
    const int y_count = ((batch.y.last().end() + kYStep - 1) & -kYStep) - y_start;
    const uint32_t grad_bytes =
        static_cast<uint32_t>(batch.item.channels * layout.bins) * static_cast<uint32_t>(sizeof(typename P::T));
    const uint32_t x_bytes = static_cast<uint32_t>(x_count) * static_cast<uint32_t>(sizeof(XEntry));
    const uint32_t y_bytes = static_cast<uint32_t>(y_count) * static_cast<uint32_t>(sizeof(YEntry));
    for (int i = 0; i < batch.count; ++i) {
      wait_for_stage();
      if (lane == i) {
        char* const stage = ring.stage();
        const uint32_t full = ring.full_here();
        const int32_t last = batch.ends_item && i + 1 == batch.count ? kLastOfItem : 0;
        if (last != 0) *header_here() = {0, batch.tile, batch.block, batch.item};
        header_here()->flags = (tabulated ? kHasBox : kUntabulatedBox) | last;
        if (tabulated) {
          const int64_t box = batch.box;
          batch.x.store(stage + layout.x_records_at);
          batch.y.store(stage + layout.y_records_at);
          barrier_arrive_expect(full, grad_bytes + x_bytes + y_bytes);
          bulk_copy(stage, b.grad_output + (box * p.c + batch.item.channel) * layout.bins, grad_bytes, full);
          if (x_bytes != 0) {
            bulk_copy(stage + layout.x_at, tables.x_entries + box * tables.x_capacity + x_start, x_bytes, full);
          }
          if (y_bytes != 0) {
            bulk_copy(stage + layout.y_at, tables.y_entries + box * tables.y_capacity + y_start, y_bytes, full);
          }
        } else {
          barrier_arrive(full);
        }
      }
      ring.advance();
      if (batch.count - i <= queue.kSteps) queue.advance();
    }
    if (batch.ends_item && batch.count == 0) {
      wait_for_stage();
      if (lane == 0) {
        *header_here() = {kLastOfItem, batch.tile, batch.block, batch.item};
        barrier_arrive(ring.full_here());
      }
      ring.advance();
    }
    batch = following;
  }
  wait_for_stage();
  if (lane == 0) {
    header_here()->flags = kExit;
    barrier_arrive(ring.full_here());
  }
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

// A stage's box as a warp's two rows see it.
template <class P>
struct StagedBox {
  using T = typename P::T;
  using C = typename P::C;
  using XEntry = UnitWeights<C, kUnitColumns>;
  using YEntry = UnitWeights<C, kUnitRows>;

  const T* grad;  // the first ph that the rows meet, of the lane's first channel
  const YEntry* y_entries;
  const char* stage;
  int first_ph, phs;

  __device__ __forceinline__ StagedBox(const StageLayout<P>& layout, const char* at, UnitRecord rows, int lane)
      : stage(at) {
    const int y_run = reinterpret_cast<const UnitRecord*>(stage + layout.y_records_at)->start() & -kBulkEntries<YEntry>;
    y_entries = reinterpret_cast<const YEntry*>(stage + layout.y_at) + (rows.start() - y_run);
    first_ph = rows.first_bin();
    phs = rows.count();
    grad = reinterpret_cast<const T*>(stage) + lane * layout.bins + first_ph * layout.pooled_w;
  }

  // Calls visit(unit, its record, its first entry) for the tile's units. Their records are read as late as possible:
  // registers are few.
  template <class Visit>
  __device__ __forceinline__ void for_each_unit(const StageLayout<P>& layout, const Visit& visit) const {
    const uint4* records = reinterpret_cast<const uint4*>(stage + layout.x_records_at);
    const XEntry* entries = nullptr;
#pragma unroll
    for (int unit = 0; unit < P::kColumnUnits; unit += 4) {
      const uint4 four = records[unit / 4];
      const UnitRecord columns[4] = {{four.x}, {four.y}, {four.z}, {four.w}};
      if (unit == 0) entries = reinterpret_cast<const XEntry*>(stage + layout.x_at) - columns[0].start();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (unit + i < P::kColumnUnits) visit(unit + i, columns[i], entries + columns[i].start());
      }
    }
  }
};

// Adds one bin to the pixels of a unit.
template <class P>
__device__ __forceinline__ void add_bin(const UnitWeights<typename P::C, kUnitColumns>& weights, const BinSums<P>& bin,
                                        int unit, Sums<P>& sums) {
#pragma unroll
  for (int j = 0; j < kUnitColumns; ++j) {
#pragma unroll
    for (int k = 0; k < P::kChannelsPerLane; ++k) {
#pragma unroll
      for (int i = 0; i < kUnitRows; ++i) {
        typename P::C& sum = sums.value[k][i][unit * kUnitColumns + j];
        sum = fma(weights.weight[j], bin.value[k][i], sum);
      }
    }
  }
}

// Adds one stage's box to a warp's two rows, which meet kPh ph: their weights stay in registers.
template <class P, int kPh>
__device__ __forceinline__ void add_box_of_few(const StageLayout<P>& layout, const StagedBox<P>& box, Sums<P>& sums) {
  using C = typename P::C;
  using Box = StagedBox<P>;
  typename Box::YEntry held[kPh];
#pragma unroll
  for (int i = 0; i < kPh; ++i) held[i] = box.y_entries[i];
  box.for_each_unit(layout, [&](int unit, UnitRecord record, const typename Box::XEntry* entry) {
    const typename P::T* values = box.grad + record.first_bin();
#pragma unroll 1
    for (int left = record.count(); left > 0; --left, ++entry, ++values) {
      const typename Box::XEntry weights = *entry;
      BinSums<P> bin;
#pragma unroll
      for (int k = 0; k < P::kChannelsPerLane; ++k) {
        const typename P::T* column = values + k * 32 * layout.bins;
        bin.value[k][0] = C(0), bin.value[k][1] = C(0);
#pragma unroll
        for (int i = 0; i < kPh; ++i) {
          const C value = widen(column[i * layout.pooled_w]);
          bin.value[k][0] = fma(held[i].weight[0], value, bin.value[k][0]);
          bin.value[k][1] = fma(held[i].weight[1], value, bin.value[k][1]);
        }
      }
      add_bin<P>(weights, bin, unit, sums);
    }
  });
}

// Bins of one ph that a lane reads at once.
template <class P>
constexpr int kReadBins = P::kPooled == 0 || (P::kPooled > 8 && sizeof(typename P::C) == 8) ? 4
                          : P::kPooled < 8                                                ? P::kPooled
                                                                                           : 8;

// kWidth values that are read at once.
template <typename T, int kWidth>
struct alignas(kWidth * sizeof(T)) Run {
  T value[kWidth];
};
template <int kWidth, typename T>
__device__ __forceinline__ void read_run(const T* from, Compute<T>* values) {
  const Run<T, kWidth> run = *reinterpret_cast<const Run<T, kWidth>*>(from);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] = widen(run.value[i]);
}

// Reads kCount neighbouring bins of one ph, as wide as their alignment allows; `left` of them exist.
template <class P, int kCount, bool kOddPh>
__device__ __forceinline__ void read_bins(const typename P::T* from, int left, typename P::C (&values)[kCount]) {
  if constexpr (P::kPooled % 2 != 0 || P::kPooled == 0) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] = j < left ? widen(from[j]) : typename P::C(0);
  } else if constexpr (sizeof(typename P::T) == 4) {
    // Rows of 14 words: an even one begins at 16 bytes, an odd one 8 bytes past. Lanes are 4 words apart, modulo 32, so
    // that 16-byte reads meet no conflict.
    static_assert(P::kPooled % 4 == 2 && kCount % 2 == 0);
    constexpr int kHead = kOddPh ? 2 : 0, kTail = (kCount - kHead) % 4;
    if constexpr (kHead != 0) read_run<kHead>(from, values);
#pragma unroll
    for (int at = kHead; at + 4 <= kCount; at += 4) read_run<4>(from + at, values + at);
    if constexpr (kTail != 0) read_run<kTail>(from + kCount - kTail, values + kCount - kTail);
  } else {
    static_assert(kCount % 2 == 0);
#pragma unroll
    for (int at = 0; at < kCount; at += 2) read_run<2>(from + at, values + at);
  }
}

// kCount neighbouring bins of one channel, summed over the ph that a warp's rows meet.
template <class P, int kCount>
struct BinRun {
  using C = typename P::C;
  C sum[kCount][kUnitRows];

  template <bool kOddPh>
  __device__ __forceinline__ void add(const typename P::T* from, int left,
                                      const UnitWeights<C, kUnitRows>* weights) {
    C values[kCount];
    read_bins<P, kCount, kOddPh>(from, left, values);
    const UnitWeights<C, kUnitRows> weight = *weights;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
#pragma unroll
      for (int i = 0; i < kUnitRows; ++i) sum[j][i] = fma(weight.weight[i], values[j], sum[j][i]);
    }
  }
};

// Sums kCount bins from `bin` on, for the lane's k-th channel, and keeps them.
template <class P, int kCount>
__device__ __forceinline__ void keep_bins(const StageLayout<P>& layout, const StagedBox<P>& box, int k, int bin,
                                          BinSums<P>* kept) {
  using C = typename P::C;
  BinRun<P, kCount> run{};
  const int left = layout.pooled_w - bin;
  const auto from = [&](int ph) { return box.grad + ph * layout.pooled_w + (k * 32 * layout.bins + bin); };
  if constexpr (P::kPooled % 2 == 0 && P::kPooled != 0 && sizeof(typename P::T) == 4) {
    // Even and odd ph are read differently.
    int ph = box.first_ph % 2;
    if (ph != 0) run.template add<true>(from(0), left, box.y_entries);
#pragma unroll 1
    for (; ph + 2 <= box.phs; ph += 2) {
      run.template add<false>(from(ph), left, box.y_entries + ph);
      run.template add<true>(from(ph + 1), left, box.y_entries + ph + 1);
    }
    if (ph < box.phs) run.template add<false>(from(ph), left, box.y_entries + ph);
  } else {
    const typename P::T* bins = from(0);
    const auto* weights = box.y_entries;
#pragma unroll 1
    for (int phs = box.phs; phs > 0; --phs, bins += layout.pooled_w, ++weights) {
      run.template add<false>(bins, left, weights);
    }
  }
  struct alignas(kUnitRows * sizeof(C)) Rows {
    C value[kUnitRows];
  };
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    *reinterpret_cast<Rows*>(&kept[j * 32].value[k][0]) = {run.sum[j][0], run.sum[j][1]};
  }
}

// The same by way of the strip: the rows' sums of every bin once, then the units.
template <class P>
__device__ __forceinline__ void add_box_of_many(const StageLayout<P>& layout, const StagedBox<P>& box, int lane,
                                                typename P::C* strip, Sums<P>& sums) {
  using Box = StagedBox<P>;
  constexpr int kStep = kReadBins<P>;
  BinSums<P>* const kept = reinterpret_cast<BinSums<P>*>(strip) + lane;
#pragma unroll 1
  for (int begin = 0; begin < layout.pooled_w; begin += P::kKeptBins) {
#pragma unroll
    for (int k = 0; k < P::kChannelsPerLane; ++k) {
#pragma unroll
      for (int at = 0; at < P::kKeptBins; at += kStep) {
        if (begin + at >= layout.pooled_w) break;
        if constexpr (P::kPooled % kStep != 0) {
          // The last bins of a row of a known length.
          if (begin + at + kStep > layout.pooled_w) {
            keep_bins<P, P::kPooled % kStep>(layout, box, k, begin + at, kept + at * 32);
            break;
          }
        }
        keep_bins<P, kStep>(layout, box, k, begin + at, kept + at * 32);
      }
    }
    box.for_each_unit(layout, [&](int unit, UnitRecord record, const typename Box::XEntry* entry) {
      const int first = record.first_bin() - begin;
      int at = first, end = first + record.count();
      if constexpr (P::kKeptBins < P::kMaxBins) {
        at = at > 0 ? at : 0;
        end = end < P::kKeptBins ? end : P::kKeptBins;
      }
      entry += at - first;
      const BinSums<P>* bin = kept + at * 32;
      int left = end - at;
#pragma unroll 1
      for (; left >= 2; left -= 2, entry += 2, bin += 2 * 32) {
        const typename Box::XEntry weights[2] = {entry[0], entry[1]};
        const BinSums<P> bins[2] = {bin[0], bin[32]};
        add_bin<P>(weights[0], bins[0], unit, sums);
        add_bin<P>(weights[1], bins[1], unit, sums);
      }
      if (left > 0) add_bin<P>(*entry, *bin, unit, sums);
    });
  }
}

// Adds one stage's box to a warp's two rows.
template <class P>
__device__ __forceinline__ void add_box(const StageLayout<P>& layout, const char* stage, UnitRecord rows, int lane,
                                        typename P::C* strip, Sums<P>& sums) {
  if (rows.count() == 0) return;
  const StagedBox<P> box(layout, stage, rows, lane);
  if constexpr (P::kSummedInPlace >= 2) {
    // Two ph cover every bin of two rows or more.
    if (box.phs == 1) return add_box_of_few<P, 1>(layout, box, sums);
    if (box.phs == 2) return add_box_of_few<P, 2>(layout, box, sums);
  }
  add_box_of_many<P>(layout, box, lane, strip, sums);
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
  __syncwarp();  // before a lane keeps sums of the next box where others still read
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
    for (;;) {
      barrier_wait(ring.full_here(), ring.phase());
      // Both at once: the record is there, or is not used.
      const UnitRecord rows = reinterpret_cast<const UnitRecord*>(ring.stage() + layout.y_records_at)[pair];
      const int32_t flags = header_here()->flags;
      if ((flags & kHasBox) != 0) {
        add_box<P>(layout, ring.stage(), rows, lane, strip, sums);
      } else if ((flags & kUntabulatedBox) != 0) {
        sums.value[0][0][0] = canonical_nan<typename P::C>();  // the tile is summed again, see below
      }
      if (flags >= kLastOfItem) break;
      release();
    }
    const StageHeader header = *header_here();
    release();
    if (header.flags == kExit) return;
    const TileItem& item = header.item;
    if (any_not_finite<P>(sums, item.channels, lane)) {
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
      barrier_init(shared_address(&full[s]), 1);
      barrier_init(shared_address(&empty[s]), P::kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  wait_for_kernel_before();
  const Ring ring{shared, shared_address(full), shared_address(empty), layout.stage_bytes,
                  static_cast<uint32_t>(stages)};
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
