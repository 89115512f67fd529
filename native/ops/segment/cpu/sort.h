// SPDX-License-Identifier: Apache-2.0
// Brings rows in the order of their segments on the CPU: a stable radix sort of ids in any order, whose blocks are
// fixed by the number of rows, so that neither the result nor the workspace knows how many threads there are; a copy of
// what is in order already.
#pragma once

#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "ops/segment/math.h"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// 2048 counters stay in L1 beside the lines that a scatter has open.
constexpr int32_t kMaxDigitBits = 11;
// A block is counted in some 15 us, well above the cost of waking a thread; at most 64 blocks keep the counters of all
// blocks within 512 KiB.
constexpr int64_t kSortBlock = 16384;
constexpr int64_t kMaxSortBlocks = 64;

struct Digit {
  int32_t shift, bits;
  int32_t of(int32_t key) const { return (key >> shift) & ((1 << bits) - 1); }
};

class RowSorter {
 public:
  RowSorter(const Problem& p, WorkspaceLayout& layout, void* workspace)
      : n_(p.n), num_segments_(p.num_segments), form_(p.form) {
    int32_t key_bits = 0;
    while (key_bits < 31 && num_segments_ >> key_bits != 0) ++key_bits;
    passes_ = key_bits > 0 ? groups_of(key_bits, kMaxDigitBits) : 1;
    digit_bits_ = groups_of(key_bits, passes_);
    const int64_t wanted = ceil_div(n_, kSortBlock);
    const int64_t blocks = wanted < kMaxSortBlocks ? wanted : kMaxSortBlocks;
    block_ = blocks > 0 ? ceil_div(n_, blocks) : 1;
    blocks_ = ceil_div(n_, block_);
    const bool sorts = form_ == Form::kUnsorted;
    lists_[0] = workspace_array<Record>(workspace, layout.reserve<Record>(n_));
    lists_[1] = workspace_array<Record>(workspace, layout.reserve<Record>(sorts && passes_ > 1 ? n_ : 0));
    counters_ = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(sorts ? blocks_ << digit_bits_ : 0));
    begins_ = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(int64_t{num_segments_} + 2));
    descends_ = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(1));
  }

  int64_t rows() const { return n_; }

  // The rows in the order of key_at(row), for ids in any order.
  template <class KeyAt>
  List order_by(KeyAt key_at, int32_t piece_bits) const {
    const Record* records = sort_records([=](int64_t i) { return Record{key_at(i), static_cast<int32_t>(i)}; });
    find_begins(begins_, [=](int64_t rank) { return records[rank].key; });
    return {{static_cast<int32_t>(n_), num_segments_, piece_bits}, records, begins_};
  }

  template <typename I>
  List order(const I* index, int32_t piece_bits) const {
    const int32_t n = static_cast<int32_t>(n_), num_segments = num_segments_;
    *descends_ = 0;
    const Record* records = form_ == Form::kUnsorted ? sort(index) : copy(index);
    int32_t* begins = begins_;
    const Form form = form_;
    if (*descends_ != 0) {
      Record* list = lists_[0];
      parallel_for(n, kSortBlock, [=](int64_t row) { list[row].key = num_segments; });
      parallel_for(int64_t{num_segments} + 2, kSortBlock, [=](int64_t key) {
        begins[key] = key > num_segments ? n : 0;
      });
      return {{n, num_segments, piece_bits}, records, begins};
    }
    if (form == Form::kOffsets) {
      parallel_for(int64_t{num_segments} + 2, kSortBlock, [=](int64_t key) {
        begins[key] = key > num_segments ? n : rank_of_offset(index[key], n);
      });
    } else if (form == Form::kSorted) {
      find_begins(begins, [=](int64_t row) { return place_of(index[row], num_segments); });
    } else {
      find_begins(begins, [=](int64_t rank) { return records[rank].key; });
    }
    return {{n, num_segments, piece_bits}, records, begins};
  }

 private:
  // Where a sorted id's rows lie: negative ones before every segment, those past the end behind it.
  template <typename I>
  static int32_t place_of(I id, int32_t num_segments) {
    return id < 0 ? -1 : id < num_segments ? static_cast<int32_t>(id) : num_segments;
  }

  // Every rank writes the begins of the keys above its predecessor's, up to its own.
  template <class KeyAt>
  void find_begins(int32_t* begins, KeyAt key_at) const {
    const int64_t n = n_;
    parallel_for(n, kSortBlock, [=](int64_t rank) {
      const int32_t key = key_at(rank);
      for (int32_t below = rank > 0 ? key_at(rank - 1) : -1; below < key; ++below) {
        begins[below + 1] = static_cast<int32_t>(rank);
      }
    });
    const int64_t written = n > 0 ? int64_t{key_at(n - 1)} + 1 : 0;
    parallel_for(int64_t{num_segments_} + 2 - written, kSortBlock, [=](int64_t key) {
      begins[written + key] = static_cast<int32_t>(n);
    });
  }

  template <typename I>
  const Record* copy(const I* index) const {
    Record* list = lists_[0];
    const Form form = form_;
    const int32_t num_segments = num_segments_;
    // What is said to be in order and is not: all its rows are dropped.
    int32_t* descends = descends_;
    parallel_for(form == Form::kSorted ? n_ : int64_t{num_segments} + 1, kSortBlock, [=](int64_t i) {
      if (i > 0 && index[i] < index[i - 1]) __atomic_store_n(descends, 1, __ATOMIC_RELAXED);
    });
    parallel_for(n_, kSortBlock, [=](int64_t row) {
      const int32_t key = form == Form::kSorted ? key_of(unsigned_id(index[row]), num_segments)
                                                : key_by_offsets(index, num_segments, row);
      list[row] = {key, static_cast<int32_t>(row)};
    });
    return list;
  }

  // The rows in the order of their segments; those without one come last.
  template <typename I>
  const Record* sort(const I* ids) const {
    const int32_t num_segments = num_segments_;
    return sort_records([=](int64_t i) {
      return Record{key_of(unsigned_id(ids[i]), num_segments), static_cast<int32_t>(i)};
    });
  }
  template <class RecordAt>
  const Record* sort_records(RecordAt record) const {
    sort_digit({0, digit_bits_}, record, lists_[0]);
    for (int32_t pass = 1; pass < passes_; ++pass) {
      const Record* sorted = lists_[(pass - 1) % 2];
      sort_digit({pass * digit_bits_, digit_bits_}, [=](int64_t i) { return sorted[i]; }, lists_[pass % 2]);
    }
    return lists_[(passes_ - 1) % 2];
  }

  template <class Source>
  void sort_digit(Digit digit, Source source, Record* sorted) const {
    const int64_t n = n_, block_length = block_;
    const int64_t digits = int64_t{1} << digit.bits;
    int32_t* counters = counters_;
    parallel_for(blocks_, 1, [=](int64_t block) {
      int32_t* mine = counters + block * digits;
      const int64_t begin = block * block_length, end = begin + block_length < n ? begin + block_length : n;
      for (int64_t i = 0; i < digits; ++i) mine[i] = 0;
      for (int64_t i = begin; i < end; ++i) ++mine[digit.of(source(i).key)];
    });
    int32_t sum = 0;
    for (int64_t i = 0; i < digits; ++i) {
      for (int64_t block = 0; block < blocks_; ++block) {
        int32_t& counter = counters[block * digits + i];
        const int32_t count = counter;
        counter = sum;
        sum += count;
      }
    }
    parallel_for(blocks_, 1, [=](int64_t block) {
      int32_t* places = counters + block * digits;
      const int64_t begin = block * block_length, end = begin + block_length < n ? begin + block_length : n;
      for (int64_t i = begin; i < end; ++i) {
        const Record record = source(i);
        sorted[places[digit.of(record.key)]++] = record;
      }
    });
  }

  int64_t n_;
  int32_t num_segments_;
  Form form_;
  int32_t passes_, digit_bits_;
  int64_t block_, blocks_;
  Record* lists_[2];
  int32_t* counters_;
  int32_t* begins_;
  int32_t* descends_;
};

}  // namespace
}  // namespace baracuda::segment
