// SPDX-License-Identifier: Apache-2.0
// What the producer of the tile kernel works on next: items of work in an order that keeps all CTAs busy, and of each
// item the boxes that touch its tile, up to 32 at a time.
#pragma once

#include "core/cuda_warp.cuh"
#include "ops/roi_align/cuda/backward/tile_shape.cuh"

namespace baracuda::roi_align {
namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

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
      next_ticket_ = __shfl_sync(kFullWarp, drawn_, 0) + static_cast<int32_t>(2 * gridDim.x);
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
    while (taken_ == total_ && (words_ + 32) * 32 < last_) begin_words(words_ + 32, load_mask(tile_, words_ + 32));
    batch.tile = tile_;
    batch.block = block_;
    batch.item = item_;
    batch.count = total_ - taken_ < 32 ? total_ - taken_ : 32;
    const int rank = taken_ + lane_;
    int word = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      if (rank >= __shfl_sync(kFullWarp, ends_, word + step - 1)) word += step;
    }
    const uint32_t bits = __shfl_sync(kFullWarp, mask_bits_, word);
    const int before = __shfl_sync(kFullWarp, ends_, word) - __popc(bits);
    batch.box = (words_ + word) * 32 + bit_of_rank(bits, rank - before);
    batch.look_up(tables_, lane_);
    taken_ += batch.count;
    batch.ends_item = ended_ = taken_ == total_ && (words_ + 32) * 32 >= last_;
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

  // Word `first_word + lane` of a tile's mask, cut to the boxes [first_, last_).
  __device__ uint32_t load_mask(int32_t tile, int32_t first_word) const {
    const int32_t word = first_word + lane_;
    return word < work_.mask_words && word * 32LL < last_
               ? cut(work_.masks[static_cast<int64_t>(tile) * work_.mask_words + word], word, first_, last_)
               : 0;
  }
  static __device__ uint32_t cut(uint32_t mask, int32_t word, int32_t first, int32_t last) {
    if (word * 32 < first) mask &= first - word * 32 < 32 ? kFullWarp << (first - word * 32) : 0u;
    if (last - word * 32 < 32) mask &= (1u << (last - word * 32)) - 1;
    return mask;
  }
  __device__ int32_t first_box(int32_t block) const { return static_cast<int32_t>(block * p_.rois_per_block); }
  __device__ int32_t last_box(int32_t block) const {
    const int64_t end = (block + 1) * p_.rois_per_block;
    return static_cast<int32_t>(end < p_.num_rois ? end : p_.num_rois);
  }
  // The lane's one of the first 32 mask words of an item, not yet cut.
  __device__ uint32_t first_mask(int32_t ticket, int32_t tile) const {
    if (ticket >= items_) return 0;
    const int32_t word = first_box(block_of(ticket)) / 32 + lane_;
    return word < work_.mask_words ? work_.masks[static_cast<int64_t>(tile) * work_.mask_words + word] : 0;
  }

  __device__ void begin_words(int32_t first_word, uint32_t mask) {
    words_ = first_word;
    mask_bits_ = mask;
    ends_ = __popc(mask);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int32_t before = __shfl_up_sync(kFullWarp, ends_, step);
      if (lane_ >= step) ends_ += before;
    }
    total_ = __shfl_sync(kFullWarp, ends_, 31);
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

  // `mask` is the lane's one of the item's first 32 mask words.
  __device__ void begin_item(uint32_t mask) {
    if (ticket_ >= items_) return;
    block_ = block_of(ticket_);
    item_ = place_of<P>(p_, work_, tile_, either_block_of(ticket_) / work_.box_blocks);
    first_ = first_box(block_);
    last_ = last_box(block_);
    const int32_t word = first_ / 32 + lane_;
    begin_words(first_ / 32, word * 32LL < last_ ? cut(mask, word, first_, last_) : 0);
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
  int32_t words_;       // the first of the 32 mask words at hand, one a lane
  uint32_t mask_bits_;  // the lane's
  int32_t ends_;        // boxes up to the lane's word
  int32_t total_, taken_;
  bool ended_ = false;  // the current item's boxes are all handed out
};

#endif  // sm_90

}  // namespace
}  // namespace baracuda::roi_align
