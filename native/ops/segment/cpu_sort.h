// SPDX-License-Identifier: Apache-2.0
// Orders rows by segment on the CPU, stably: a radix sort, least significant digit first, whose blocks are fixed by the
// number of rows, so that neither the result nor the workspace knows how many threads there are.
#pragma once

#include "core/cpu_parallel.h"
#include "ops/segment/chunks.h"
#include "ops/segment/math.h"

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

class Sorter {
 public:
  Sorter(const Problem& p, WorkspaceLayout& layout, void* workspace) : n_(p.n), num_segments_(p.num_segments) {
    int32_t key_bits = 0;
    while (key_bits < 31 && num_segments_ >> key_bits != 0) ++key_bits;
    passes_ = key_bits > 0 ? (key_bits + kMaxDigitBits - 1) / kMaxDigitBits : 1;
    digit_bits_ = (key_bits + passes_ - 1) / passes_;
    const int64_t wanted = (n_ + kSortBlock - 1) / kSortBlock;
    const int64_t blocks = wanted < kMaxSortBlocks ? wanted : kMaxSortBlocks;
    block_ = blocks > 0 ? (n_ + blocks - 1) / blocks : 1;
    blocks_ = (n_ + block_ - 1) / block_;
    for (Record*& list : lists_) list = workspace_array<Record>(workspace, layout.reserve<Record>(n_));
    counters_ = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(blocks_ << digit_bits_));
  }

  // The rows in the order of their segments; those without one come last.
  template <typename I>
  const Record* sort(const I* ids) const {
    const int32_t num_segments = num_segments_;
    const auto record = [=](int64_t i) {
      return Record{key_of(unsigned_id(ids[i]), num_segments), static_cast<int32_t>(i)};
    };
    sort_digit({0, digit_bits_}, record, lists_[0]);
    for (int32_t pass = 1; pass < passes_; ++pass) {
      const Record* sorted = lists_[(pass - 1) % 2];
      sort_digit({pass * digit_bits_, digit_bits_}, [=](int64_t i) { return sorted[i]; }, lists_[pass % 2]);
    }
    return lists_[(passes_ - 1) % 2];
  }

 private:
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
  int32_t passes_, digit_bits_;
  int64_t block_, blocks_;
  Record* lists_[2];
  int32_t* counters_;
};

}  // namespace
}  // namespace baracuda::segment
