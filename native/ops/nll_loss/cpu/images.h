// SPDX-License-Identifier: Apache-2.0
// Cross entropy of images on the CPU: a task is a chunk of elements, along which vectors lie.
#pragma once

#include <cstdint>

#include "ops/nll_loss/cpu/elements.h"
#include "ops/nll_loss/cpu/lanes.h"

namespace baracuda::nll_loss {
namespace {

// The classes of up to kTile elements, the first of which has its first logit at `x`.
template <bool kSmooths, typename T>
void join_classes(const Problem& p, const T* x, const T* weight, int count, Lanes<Compute<T>, kTile>* all) {
  using C = Compute<T>;
  all->clear(count);
  Lanes<C, kTile> piece;
  for (int64_t first = 0; first < p.c; first += kImagePiece) {
    const int64_t end = at_most(first + kImagePiece, p.c);
    Lanes<C, kTile>& lanes = first == 0 ? *all : piece;
    lanes.clear(count);
    for (int64_t k = first; k < end; ++k) lanes.enlarge(x + k * p.d, count);
    for (int64_t k = first; k < end; ++k) lanes.template add<kSmooths>(x + k * p.d, weight, k, 0, count);
    if (first == 0) continue;
    for (int i = 0; i < count; ++i) all->put(i, joined<kSmooths>(all->at(i), piece.at(i)));
  }
}

template <bool kSmooths, typename T>
Status of_images(const Problem& p, const ForwardBuffers<T, true>& b, void* workspace) {
  using C = Compute<T>;
  const Items<C> items(p, false, workspace);
  parallel_for(items.count, grain_for(8 * int64_t{kChunk} * p.c), [&](int64_t number) {
    const int64_t first = number * kChunk, end = at_most(first + kChunk, p.elements);
    Chunk<C> chunk;
    Lanes<C, kTile> all;
    for_tiles(p, first, end, [&](const Run& run, int64_t begin) {
      const T* const input = b.input + run.image * p.c * p.d + run.place;
      join_classes<kSmooths>(p, input, b.weight, run.count, &all);
      // In place of the sums, which nobody reads again.
      for (int i = 0; i < run.count; ++i) all.sum[i] = log_sum_of(all.at(i));
      for (int i = 0; i < run.count; ++i) {
        const int64_t target = index_at(b.target, begin + i), place = begin - first + i;
        C weight = C(0), loss = C(0), log_sum_exp = C(0);
        if (counts(p, target)) {
          weight = weight_of(b.weight, target);
          loss = loss_of<kSmooths>(p, all.at(i), all.sum[i], widen(input[target * p.d + i]), weight);
          log_sum_exp = all.largest[i] + all.sum[i];
        }
        chunk.dropped += is_dropped(p, target);
        chunk.losses[place] = as_term(loss), chunk.weights[place] = as_term(weight);
        b.log_sum_exp[begin + i] = narrow<C>(log_sum_exp);
        if (!p.reduces()) b.output[begin + i] = narrow<T>(loss);
      }
    });
    chunk.finish(p, items, number, static_cast<int>(end - first));
  });
  return items.finish(p, b);
}

}  // namespace
}  // namespace baracuda::nll_loss
