// SPDX-License-Identifier: Apache-2.0
// Bags forward on the CPU, and the products of rows: threads own bags or positions, lanes are columns.
#pragma once

#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "ops/segment/bags/launch.h"
#include "ops/segment/cpu/folds.h"
#include "ops/segment/math.h"
#include "ops/segment/pieces.h"

namespace baracuda::embedding_bag {
namespace {

using segment::Rule;
using segment::stored;
using segment::wide;

// Columns that are folded at once: four 512-bit vectors of f32.
constexpr int32_t kColumns = 64;
// Positions whose rows are fetched ahead: they lie anywhere.
constexpr int32_t kAhead = 12;
constexpr int32_t kPieceRows = 1 << segment::kLongPieceBits;
// Positions a task looks at one by one.
constexpr int64_t kPositions = 16384;

// The rows that positions name.
template <typename I>
struct Positions {
  const I* indices;
  int32_t num_embeddings;
  int32_t padding;

  Positions(const Problem& p, const void* data)
      : indices(static_cast<const I*>(data)), num_embeddings(p.num_embeddings),
        padding(segment::padding_key(p.padding_idx, p.num_embeddings)) {}

  // -1 of a position that takes no part.
  int32_t row(int64_t position) const {
    const int32_t key = segment::key_of(segment::unsigned_id(indices[position]), num_embeddings);
    return key == num_embeddings || key == padding ? -1 : key;
  }
};

struct Range {
  int32_t begin, end;
};

// Where bags lie; every one is empty if offsets descend.
template <typename I>
class Bags {
 public:
  Bags(const Problem& p, const void* offsets) : offsets_(static_cast<const I*>(offsets)), n_(p.n), count_(p.num_bags) {
    const I* data = offsets_;
    int32_t descends = 0;
    int32_t* const found = &descends;
    parallel_for(count_, kPositions, [=](int64_t bag) {
      if (bag > 0 && data[bag] < data[bag - 1]) __atomic_store_n(found, 1, __ATOMIC_RELAXED);
    });
    descends_ = descends != 0;
  }
  Range operator[](int64_t bag) const {
    if (descends_) return {0, 0};
    return {segment::rank_of_offset(offsets_[bag], n_),
            bag + 1 < count_ ? segment::rank_of_offset(offsets_[bag + 1], n_) : n_};
  }

  // Writes the bag of each position and how many of each bag take part.
  void describe(const Positions<I>& positions, void* bag_ids, void* bag_sizes) const {
    I* const ids = static_cast<I*>(bag_ids);
    I* const sizes = static_cast<I*>(bag_sizes);
    const int32_t before = count_ > 0 && !descends_ ? (*this)[0].begin : n_;
    parallel_for(before, kPositions, [=](int64_t position) { ids[position] = -1; });
    const Bags& self = *this;
    parallel_for(count_, grain_for(ceil_div(n_, count_ > 0 ? count_ : 1)), [=, &self](int64_t bag) {
      const Range range = self[bag];
      I size = 0;
      for (int32_t i = range.begin; i < range.end; ++i) {
        ids[i] = static_cast<I>(bag);
        if (positions.row(i) >= 0) ++size;
      }
      sizes[bag] = size;
    });
  }

  // Runs body(bag, first column, columns) over all bags and blocks of columns.
  template <class Body>
  void for_each(int64_t d, Body body) const {
    const int64_t blocks = ceil_div(d, kColumns), rows = ceil_div(n_, count_ > 0 ? count_ : 1) + 1;
    parallel_for(count_ * blocks, grain_for(rows * kColumns), [=](int64_t task) {
      const int64_t first = task % blocks * kColumns;
      body(task / blocks, first, d - first < kColumns ? static_cast<int32_t>(d - first) : kColumns);
    });
  }

 private:
  const I* offsets_;
  int32_t n_, count_;
  bool descends_;
};

// Fetches the row that a position behind this one names.
template <typename T, typename I>
void fetch_ahead(const Positions<I>& positions, const T* weight, int64_t d, int32_t position, int32_t end,
                 int32_t count) {
  if (position + kAhead >= end) return;
  const int32_t row = positions.row(position + kAhead);
  if (row >= 0) segment::fetch_row(weight + row * d, count);
}

template <typename T>
inline __attribute__((always_inline)) void add_row(const T* __restrict__ x, Compute<T>* __restrict__ sums,
                                                   int32_t count) {
  for (int32_t k = 0; k < count; ++k) sums[k] = sums[k] + wide(x[k]);
}
template <typename T>
inline __attribute__((always_inline)) void add_term(const T* __restrict__ x, Compute<T> factor,
                                                    Compute<T>* __restrict__ sums, int32_t count) {
  for (int32_t k = 0; k < count; ++k) sums[k] = fma(factor, wide(x[k]), sums[k]);
}
// A loop of known length vectorises without a remainder.
template <typename T>
void add_row_or_term(const T* x, const T* factor, Compute<T>* sums, int32_t count) {
  if (factor != nullptr) {
    count == kColumns ? add_term(x, wide(*factor), sums, kColumns) : add_term(x, wide(*factor), sums, count);
  } else {
    count == kColumns ? add_row(x, sums, kColumns) : add_row(x, sums, count);
  }
}

template <typename T, typename I>
Status fold_sums(const Problem& p, const SumBuffers<T>& b) {
  using C = Compute<T>;
  using Fold = Rule<segment::rule::BagSum<T>>;
  const Positions<I> positions(p, b.indices);
  const Bags<I> bags(p, b.offsets);
  if (p.wants_bags) bags.describe(positions, b.bag_ids, b.bag_sizes);
  const int64_t d = p.d;
  bags.for_each(d, [&, d](int64_t bag, int64_t column, int32_t count) {
    const T* const weight = b.weight + column;
    const Range range = bags[bag];
    C sums[kColumns] = {}, piece[kColumns];
    int32_t taking = 0;
    for (int64_t begin = range.begin; begin < range.end; begin += kPieceRows) {
      const bool is_first = begin == range.begin;
      C* const mine = is_first ? sums : piece;
      const int32_t end = range.end - begin < kPieceRows ? range.end : static_cast<int32_t>(begin + kPieceRows);
      for (int32_t k = 0; k < count; ++k) mine[k] = C(0);
      for (int32_t i = static_cast<int32_t>(begin); i < end; ++i) {
        fetch_ahead(positions, weight, d, i, range.end, count);
        const int32_t row = positions.row(i);
        if (row < 0) continue;
        ++taking;
        add_row_or_term(weight + row * d, b.per_sample_weights != nullptr ? b.per_sample_weights + i : nullptr, mine,
                        count);
      }
      for (int32_t k = 0; !is_first && k < count; ++k) sums[k] = sums[k] + piece[k];
    }
    T* const output = b.output + bag * d + column;
    const int32_t divisor = p.mean ? taking : 1;
    for (int32_t k = 0; k < count; ++k) output[k] = Fold::output(sums[k], {}, divisor);
  });
  return Status::kOk;
}

template <typename T, typename I>
Status fold_maxima(const Problem& p, const MaxBuffers<T>& b) {
  using Fold = Rule<segment::rule::BagMax<T>>;
  const Positions<I> positions(p, b.indices);
  const Bags<I> bags(p, b.offsets);
  bags.describe(positions, b.bag_ids, b.bag_sizes);
  const int64_t d = p.d;
  bags.for_each(d, [&, d](int64_t bag, int64_t column, int32_t count) {
    const T* const weight = b.weight + column;
    const Range range = bags[bag];
    T best[kColumns] = {};
    int32_t holders[kColumns];
    for (int32_t k = 0; k < kColumns; ++k) holders[k] = -1;
    for (int32_t i = range.begin; i < range.end; ++i) {
      fetch_ahead(positions, weight, d, i, range.end, count);
      const int32_t row = positions.row(i);
      if (row < 0) continue;
      const T* const x = weight + row * d;
      for (int32_t k = 0; k < count; ++k) Fold::add(best[k], holders[k], x[k], {}, row);
    }
    const int64_t at = bag * d + column;
    for (int32_t k = 0; k < count; ++k) b.output[at + k] = best[k];
    for (int32_t k = 0; k < count; ++k) static_cast<I*>(b.arg)[at + k] = holders[k];
  });
  return Status::kOk;
}

// The strands of a product of rows: a power of two.
constexpr int32_t kLeastStrands = 4;
constexpr int32_t kMostStrands = 128;

template <typename T>
Compute<T> product_of(const T* x, const T* y, int64_t d, int32_t strands) {
  using C = Compute<T>;
  C sums[kMostStrands] = {};
  for (int64_t column = 0; column < d; column += strands) {
    const int32_t count = d - column < strands ? static_cast<int32_t>(d - column) : strands;
    if (count == kMostStrands) {
      for (int32_t k = 0; k < kMostStrands; ++k) sums[k] = fma(wide(x[column + k]), wide(y[column + k]), sums[k]);
    } else {
      for (int32_t k = 0; k < count; ++k) sums[k] = fma(wide(x[column + k]), wide(y[column + k]), sums[k]);
    }
  }
  for (int32_t half = strands / 2; half > 0; half /= 2) {
    for (int32_t k = 0; k < half; ++k) sums[k] = sums[k] + sums[k + half];
  }
  return sums[0];
}

template <typename T, typename I>
Status multiply_rows(const Problem& p, const WeightsGradientBuffers<T>& b) {
  const Positions<I> positions(p, b.indices);
  const I* const bag_ids = static_cast<const I*>(b.bag_ids);
  const int64_t d = p.d;
  int32_t strands = kLeastStrands;
  while (strands < kMostStrands && strands < d) strands *= 2;
  parallel_for(p.n, grain_for(d), [&, d, strands](int64_t position) {
    const int32_t row = positions.row(position);
    const int32_t bag = segment::key_of(segment::unsigned_id(bag_ids[position]), p.num_bags);
    b.grad_weights[position] =
        row < 0 || bag == p.num_bags
            ? T{}
            : stored<T>(product_of(b.grad_output + bag * d, b.weight + row * d, d, strands));
  });
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::embedding_bag
