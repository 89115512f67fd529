// SPDX-License-Identifier: Apache-2.0
// Cross entropy of rows on the CPU: a task is some rows, along whose classes vectors lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "core/cpu_parallel.h"
#include "ops/nll_loss/cpu/lanes.h"
#include "ops/nll_loss/cpu/sums.h"

namespace baracuda::nll_loss {
namespace {

// A row's pieces that are joined at once.
template <typename C>
struct Pieces {
  Lanes<C, kRowPieces> lanes;
};

// The sums of strands, whose largest logits are one.
template <bool kSmooths, typename C>
Classes<C> of_strands(Lanes<C, kStrands>* strands, C largest) {
  Classes<C> all{largest, sum_in_pairs(strands->sum, kStrands), C(0), C(0)};
  if (kSmooths) {
    all.weight = sum_in_pairs(strands->weight, kStrands);
    all.gap = sum_in_pairs(strands->gap, kStrands);
  }
  return all;
}

template <typename C>
C largest_of(const C* values, int count) {
  C largest = lowest<C>();
  for (int i = 0; i < count; ++i) largest = larger_of(largest, values[i]);
  return largest;
}

template <bool kSmooths, typename T>
Classes<Compute<T>> of_piece(const T* x, const T* weight, int64_t first, int count) {
  Lanes<Compute<T>, kStrands> strands;
  strands.clear(kStrands);
  const int whole = count / kStrands * kStrands;
  for (int i = 0; i < whole; i += kStrands) strands.enlarge(x + i, kStrands);
  strands.enlarge(x + whole, count - whole);
  const Compute<T> largest = largest_of(strands.largest, kStrands);
  for (int i = 0; i < kStrands; ++i) strands.largest[i] = largest;
  for (int i = 0; i < whole; i += kStrands) strands.template add<kSmooths>(x + i, weight, first + i, 1, kStrands);
  strands.template add<kSmooths>(x + whole, weight, first + whole, 1, count - whole);
  return of_strands<kSmooths>(&strands, largest);
}

template <bool kSmooths, typename C>
Classes<C> of_pieces(const Pieces<C>& pieces, int count) {
  const C largest = largest_of(pieces.lanes.largest, count);
  Lanes<C, kStrands> strands;
  for (int i = 0; i < kStrands; ++i) {
    Classes<C> strand{largest, C(0), C(0), C(0)};
    for (int k = i; k < count; k += kStrands) add_piece<kSmooths>(pieces.lanes.at(k), largest, &strand);
    strands.put(i, strand);
  }
  return of_strands<kSmooths>(&strands, largest);
}

template <bool kSmooths, typename T>
Classes<Compute<T>> of_row(const Problem& p, const T* x, const T* weight, Pieces<Compute<T>>* pieces) {
  using C = Compute<T>;
  if (p.c <= kRowPiece) return of_piece<kSmooths>(x, weight, 0, p.c);
  Classes<C> all = Classes<C>::none();
  constexpr int64_t kAtOnce = int64_t{kRowPieces} * kRowPiece;
  for (int64_t first = 0; first < p.c; first += kAtOnce) {
    const int64_t end = at_most(first + kAtOnce, p.c);
    int count = 0;
    for (int64_t k = first; k < end; k += kRowPiece, ++count) {
      pieces->lanes.put(count, of_piece<kSmooths>(x + k, weight, k, static_cast<int>(at_most(kRowPiece, end - k))));
    }
    const Classes<C> found = of_pieces<kSmooths>(*pieces, count);
    all = first == 0 ? found : joined<kSmooths>(all, found);
  }
  return all;
}

// The rows' workspace behind the items: room for pieces, where a row has several.
template <typename C>
struct RowScratch {
  Items<C> items;
  TaskScratch<Pieces<C>> pieces;

  RowScratch(const Problem& p, void* workspace)
      : items(p, true, workspace), pieces(items.layout, p.c > kRowPiece ? workspace : nullptr) {}
  static size_t bytes(const Problem& p) {
    const RowScratch whole(p, nullptr);
    return p.c > kRowPiece ? whole.items.layout.bytes() : Items<C>(p, true, nullptr).layout.bytes();
  }
};

template <bool kSmooths, typename T>
Status of_rows(const Problem& p, const ForwardBuffers<T, true>& b, void* workspace) {
  using C = Compute<T>;
  const RowScratch<C> scratch(p, workspace);
  const Items<C>& items = scratch.items;
  parallel_for(p.elements, grain_for(8 * int64_t{p.c}), [&](int64_t row) {
    const int64_t target = index_at(b.target, row);
    const T* const x = b.input + row * p.c;
    C weight = C(0), loss = C(0), log_sum_exp = C(0);
    if (counts(p, target)) {
      const Classes<C> all = of_row<kSmooths>(p, x, b.weight, p.c > kRowPiece ? &scratch.pieces.mine() : nullptr);
      const C log_sum = log_sum_of(all);
      weight = weight_of(b.weight, target);
      loss = loss_of<kSmooths>(p, all, log_sum, widen(x[target]), weight);
      log_sum_exp = all.largest + log_sum;
    }
    items.losses[row] = as_term(loss), items.weights[row] = as_term(weight);
    items.dropped[row] = is_dropped(p, target);
    b.log_sum_exp[row] = narrow<C>(log_sum_exp);
    if (!p.reduces()) b.output[row] = narrow<T>(loss);
  });
  return items.finish(p, b);
}

}  // namespace
}  // namespace baracuda::nll_loss
