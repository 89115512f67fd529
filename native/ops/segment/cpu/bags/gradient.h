// SPDX-License-Identifier: Apache-2.0
// Gradients of bags with respect to the table on the CPU: positions are sorted by the row that they name, and what each
// takes of its bag's gradient is folded as segments are.
#pragma once

#include "core/cpu_parallel.h"
#include "core/workspace.h"
#include "ops/segment/bags/launch.h"
#include "ops/segment/cpu/bags/fold.h"
#include "ops/segment/cpu/folds.h"

namespace baracuda::segment {
namespace {

// Records of these lists say which bag each rank is of, or -1 where it takes nothing.
template <typename T>
struct Terms<rule::BagSum<T>> {
  static constexpr bool kSome = true;
  bool counts = false;                  // whether a sum is divided by its number of positions
  const Compute<T>* factors = nullptr;  // of each rank; NULL: 1
  const void* arg = nullptr;            // [num_bags][d]: which row takes a bag's gradient; NULL: all
  bool wide_arg = false;

  int32_t divisor(int32_t rows) const { return counts ? rows : 1; }

  template <class Folding>
  void fold(const Folding& folding, const RankBlock& part, typename Folding::Kept& kept) const {
    Compute<T>* const sums = kept.first;
    for (int32_t k = 0; k < part.count; ++k) sums[k] = Compute<T>(0);
    const int32_t last = folding.list.n - 1;
    for (int32_t rank = part.begin; rank < part.end; ++rank) {
      const int32_t ahead = folding.list.row(rank + kRowsAhead < last ? rank + static_cast<int32_t>(kRowsAhead) : last);
      if (ahead >= 0) fetch_row(folding.b.rows[0] + ahead * folding.d + part.column, part.count);
      const int32_t bag = folding.list.row(rank);
      if (bag < 0) continue;
      const int64_t at = bag * folding.d + part.column;
      const T* const x = folding.b.rows[0] + at;
      if (arg != nullptr) {
        wide_arg ? add_held(x, static_cast<const int64_t*>(arg) + at, folding.list.key(rank), sums, part.count)
                 : add_held(x, static_cast<const int32_t*>(arg) + at, folding.list.key(rank), sums, part.count);
      } else if (factors != nullptr) {
        part.count == kLanes ? embedding_bag::add_term(x, factors[rank], sums, kLanes)
                             : embedding_bag::add_term(x, factors[rank], sums, part.count);
      } else {
        part.count == kLanes ? embedding_bag::add_row(x, sums, kLanes) : embedding_bag::add_row(x, sums, part.count);
      }
    }
  }
  template <typename I>
  static void add_held(const T* __restrict__ x, const I* __restrict__ arg, int32_t row, Compute<T>* __restrict__ sums,
                       int32_t count) {
    for (int32_t k = 0; k < count; ++k) sums[k] = choose(arg[k] == row, sums[k] + wide(x[k]), sums[k]);
  }
};

}  // namespace
}  // namespace baracuda::segment

namespace baracuda::embedding_bag {
namespace {

using segment::Record;

template <typename T>
struct GradientScratch {
  segment::Folding<segment::rule::BagSum<T>> folding;
  Record* resolved;
  Compute<T>* factors;

  GradientScratch(const Problem& p, void* workspace) : folding(p.by_row(), workspace) {
    WorkspaceLayout& layout = folding.layout;
    resolved = workspace_array<Record>(workspace, layout.reserve<Record>(p.n));
    factors = workspace_array<Compute<T>>(workspace, layout.reserve<Compute<T>>(p.mean || p.has_weights ? p.n : 0));
  }
  size_t bytes() const { return folding.layout.bytes(); }
};

// One call. `arg` is NULL but for maxima.
template <typename T, typename I>
class Gradient {
 public:
  template <class Buffers>
  Gradient(const Problem& p, const Buffers& b, const void* arg, const void* sizes, const T* per_sample_weights,
           void* workspace)
      : p_(p), scratch_(p, workspace), positions_(p, b.indices), bag_ids_(static_cast<const I*>(b.bag_ids)),
        sizes_(static_cast<const I*>(sizes)), weights_(per_sample_weights) {
    auto& folding = scratch_.folding;
    folding.b.rows[0] = b.grad_output, folding.b.result = b.grad_weight;
    folding.terms.counts = p.by_frequency;
    folding.terms.factors = sizes != nullptr || weights_ != nullptr ? scratch_.factors : nullptr;
    folding.terms.arg = arg, folding.terms.wide_arg = b.wide;
  }

  Status run() {
    auto& folding = scratch_.folding;
    const Gradient& self = *this;
    folding.list = folding.sorter.order_by(
        [&self](int64_t position) {
          const int32_t row = self.positions_.row(position);
          return row < 0 || self.bag(position) == self.p_.num_bags ? self.p_.num_embeddings : row;
        },
        folding.parts.piece_bits);
    const Record* const sorted = folding.list.records;
    parallel_for(p_.n, kPositions, [&self, sorted](int64_t rank) { self.resolve(sorted, rank); });
    folding.list.records = scratch_.resolved;
    return folding.fold_list();
  }

 private:
  int32_t bag(int64_t position) const {
    return segment::key_of(segment::unsigned_id(bag_ids_[position]), p_.num_bags);
  }
  void resolve(const Record* sorted, int64_t rank) const {
    const Record record = sorted[rank];
    Record& resolved = scratch_.resolved[rank];
    resolved = {record.key, -1};
    if (record.key == p_.num_embeddings) return;
    resolved.row = bag(record.row);
    const auto& terms = scratch_.folding.terms;
    if (terms.factors != nullptr) {
      Compute<T> factor = weights_ != nullptr ? wide(weights_[record.row]) : Compute<T>(1);
      if (sizes_ != nullptr) factor = factor / static_cast<Compute<T>>(static_cast<int64_t>(sizes_[resolved.row]));
      scratch_.factors[rank] = factor;
    }
    // Of a bag's positions that name one row the first alone counts.
    if (terms.arg != nullptr && rank > 0 && sorted[rank - 1].key == record.key &&
        bag(sorted[rank - 1].row) == resolved.row) {
      resolved.row = -1;
    }
  }

  const Problem& p_;
  GradientScratch<T> scratch_;
  Positions<I> positions_;
  const I* bag_ids_;
  const I* sizes_;
  const T* weights_;
};

}  // namespace
}  // namespace baracuda::embedding_bag
