// SPDX-License-Identifier: Apache-2.0
// Brings rows in the order of their segments on CUDA. Ids in any order take a stable radix sort, least significant
// digit first: all digits are counted in one pass over the ids; then each digit takes one launch, in which a tile
// learns what the tiles before it hold by looking back at what they have published. Few rows take one launch a digit,
// in which every block counts all ids itself.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/cuda_zeros.cuh"
#include "core/integer_math.h"
#include "ops/segment/cuda/sort/begins.cuh"
#include "ops/segment/cuda/sort/few.cuh"
#include "ops/segment/cuda/sort/tiles.cuh"

namespace baracuda::segment {
namespace {

class RowSorter {
 public:
  // So many words are 0 when rows are in order, for those who use them. No gate for few rows.
  RowSorter(const Problem& p, int64_t zero_count, Gate gate, WorkspaceLayout& layout, void* workspace)
      : gate_(gate), n_(p.n), num_segments_(p.num_segments), zero_count_(zero_count) {
    while (key_bits_ < 31 && num_segments_ >> key_bits_ != 0) ++key_bits_;
    if (key_bits_ == 0) key_bits_ = 1;
    passes_ = groups_of(key_bits_, kDigitBits);
    digit_bits_ = groups_of(key_bits_, passes_);
    // What a tile publishes takes at most two bytes a record: the header's bound of the workspace has no more.
    const int64_t published = sizeof(uint32_t) * (int64_t{passes_} << digit_bits_);
    while (items_ > kLeastItems && n_ < kTilesWanted * kSortThreads * items_ &&
           published <= 2 * kSortThreads * (items_ / 2)) {
      items_ /= 2;
    }
    const int64_t smallest = kSortThreads * (items_ < kItemsAnywhere ? items_ : kItemsAnywhere);
    const int64_t tiles = few() ? 0 : ceil_div(n_, smallest);
    lists_[0] = workspace_array<Record>(workspace, layout.reserve<Record>(n_));
    lists_[1] = workspace_array<Record>(workspace, layout.reserve<Record>(passes_ > 1 ? n_ : 0));
    begins_ = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(int64_t{num_segments_} + 2));
    const int64_t counters = few() ? 0 : passes_ + (int64_t{passes_} << digit_bits_);
    zeros_ = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(zero_count + counters));
    counters_ = zeros_ + zero_count;
    states_ = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(passes_ * (tiles << digit_bits_)));
  }

  // Rows without a segment come last. `source` has the rows and their keys.
  template <class Source>
  Status enqueue(const Source& source, int32_t piece_bits, Stream stream, List* list) const {
    *list = {{n_, num_segments_, piece_bits}, lists_[0], begins_};
    // By a kernel, not by a memset: the next kernel may be launched early.
    if (n_ == 0) {
      return launch_kernel("segment begin kernel", find_begins_of_keys<ListKeys>,
                           blocks_for(int64_t{num_segments_} + 2, kKeyThreads), kKeyThreads, 0, stream,
                           ListKeys{lists_[0]}, n_, num_segments_, begins_, gate_);
    }
    return few() ? enqueue_few(source, stream, &list->records) : enqueue_many(source, stream, &list->records);
  }

  uint32_t* zeros() const { return zeros_; }

 private:
  bool few() const { return n_ <= kFewRows; }

  template <class Source>
  Status enqueue_many(const Source& rows, Stream stream, const Record** records) const {
    DeviceTraits device{};
    BARACUDA_RETURN_IF_FAILED(device_traits(&device));
    const bool fits = SortTables<kMostItems>::kBytes <= static_cast<size_t>(device.shared_bytes);
    switch (fits || items_ <= kItemsAnywhere ? items_ : kItemsAnywhere) {
      case 2: return enqueue_tiles<2>(rows, device, stream, records);
      case 4: return enqueue_tiles<4>(rows, device, stream, records);
      case 8: return enqueue_tiles<8>(rows, device, stream, records);
      default: return enqueue_tiles<16>(rows, device, stream, records);
    }
  }

  template <int kItems, class Source>
  Status enqueue_tiles(const Source& rows, const DeviceTraits& device, Stream stream, const Record** records) const {
    uint32_t* totals = counters_ + passes_;
    BARACUDA_RETURN_IF_FAILED(
        enqueue_zeros(zeros_, (zero_count_ + passes_ + (int64_t{passes_} << digit_bits_)) * sizeof(uint32_t), stream));
    // Each block adds to the totals, so there are no more than work at the same time; all have as many rounds.
    const uint32_t tiles = blocks_for(n_, SortTables<kItems>::kTile);
    const uint32_t rounds = tiles / (static_cast<uint32_t>(device.multiprocessors) * kCountBlocks) + 1;
    const int64_t state_count = int64_t{tiles} << digit_bits_;  // of one pass
    // Reserved arrays are whole quads.
    BARACUDA_RETURN_IF_FAILED(launch_kernel("segment sort count kernel", (count_digits<kItems, Source>),
                                            blocks_for(tiles, rounds), kSortThreads, 0, stream, rows, n_,
                                            digit_bits_, passes_, totals, reinterpret_cast<uint4*>(states_),
                                            groups_of<int64_t>(passes_ * state_count, 4), gate_));
    for (int32_t pass = 0; pass < passes_; ++pass) {
      const uint32_t* mine = totals + (static_cast<size_t>(pass) << digit_bits_);
      const LookBack published{counters_ + pass, states_ + pass * state_count};
      BARACUDA_RETURN_IF_FAILED(
          pass == 0 ? enqueue_pass<kItems>(pass, rows, mine, published, stream)
                    : enqueue_pass<kItems>(pass, FromList{lists_[(pass - 1) % 2]}, mine, published, stream));
    }
    *records = lists_[(passes_ - 1) % 2];
    return enqueue_begins(*records, stream);
  }

  template <int kItems, class Source>
  Status enqueue_pass(int32_t pass, Source source, const uint32_t* totals, const LookBack& published,
                      Stream stream) const {
    constexpr size_t kBytes = SortTables<kItems>::kBytes;
    constexpr auto kKernel = move_records<kItems, Source>;
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>("segment sort move kernel"));
    return launch_early("segment sort move kernel", kKernel, blocks_for(n_, SortTables<kItems>::kTile), kSortThreads,
                        kBytes, stream, source, n_, Digit{pass * digit_bits_, digit_bits_}, totals, published,
                        lists_[pass % 2], gate_);
  }

  template <class Source>
  Status enqueue_few(const Source& rows, Stream stream, const Record** records) const {
    const int32_t passes = groups_of(key_bits_, kFewDigitBits), bits = groups_of(key_bits_, passes);
    int32_t* begins = passes == 1 ? begins_ : nullptr;
    for (int32_t pass = 0; pass < passes; ++pass) {
      const Digit digit{pass * bits, bits};
      BARACUDA_RETURN_IF_FAILED(pass == 0 ? enqueue_few_pass(pass, digit, rows, begins, stream)
                                          : enqueue_few_pass(pass, digit, FromList{lists_[(pass - 1) % 2]}, begins,
                                                             stream));
    }
    *records = lists_[(passes - 1) % 2];
    return passes == 1 ? Status::kOk : enqueue_begins(*records, stream);
  }

  template <class Source>
  Status enqueue_few_pass(int32_t pass, Digit digit, Source source, int32_t* begins, Stream stream) const {
    const size_t bytes = few_bytes(digit.bits);
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<move_few_records<Source>>("segment sort kernel"));
    const uint32_t blocks = blocks_for(n_, kSortThreads);
    // The first launch of a call must not overlap what the caller enqueued before.
    if (pass == 0) {
      return launch_kernel("segment sort kernel", move_few_records<Source>, blocks, kSortThreads, bytes, stream, source,
                           n_, digit, num_segments_, lists_[0], begins, zeros_, zero_count_);
    }
    return launch_early("segment sort kernel", move_few_records<Source>, blocks, kSortThreads, bytes, stream, source,
                        n_, digit, num_segments_, lists_[pass % 2], begins, zeros_, zero_count_);
  }

  Status enqueue_begins(const Record* records, Stream stream) const {
    if (many_keys(n_, num_segments_)) {
      return enqueue_begins_of_keys(ListKeys{records}, n_, num_segments_, begins_, stream, gate_);
    }
    return launch_early("segment begin kernel", find_begins_of_rows, gate_.blocks(blocks_for(n_, kBeginTile)),
                        kBeginThreads, 0, stream, records, n_, num_segments_, begins_, gate_);
  }

  static size_t few_bytes(int32_t bits) { return (size_t{8} + kSortWarps) << bits; }

  Gate gate_;
  int32_t n_;
  int32_t num_segments_;
  int32_t key_bits_ = 0;
  int32_t passes_, digit_bits_;
  int32_t items_ = kMostItems;  // a thread's records in tiles
  Record* lists_[2];
  int32_t* begins_;
  int64_t zero_count_;
  uint32_t* zeros_;     // [zero_count], before the counters
  uint32_t* counters_;  // [passes] tickets, then [passes][digits] totals
  uint32_t* states_;    // [passes][tiles][digits], of the smallest tiles that a device makes necessary
};

}  // namespace
}  // namespace baracuda::segment
