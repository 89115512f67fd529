// SPDX-License-Identifier: Apache-2.0
// Negative log-likelihood on the CPU: a task is a chunk of elements, whose log-probabilities it looks up.
#pragma once

#include <cstdint>

#include "core/checked.h"
#include "core/cpu_parallel.h"
#include "ops/nll_loss/cpu/sums.h"

namespace baracuda::nll_loss {
namespace {

// Elements of an image that are looked at together: 16 KiB of the logits of one piece in f32.
constexpr int kTile = 128;

// Elements of one image that stand beside each other: where, and how many.
struct Run {
  int64_t image, place;
  int count;
};

// Calls use(run, number of its first element) for the elements from `begin` to `end`, in runs of at most kTile.
template <typename Use>
void for_tiles(const Problem& p, int64_t begin, int64_t end, const Use& use) {
  while (begin < end) {
    Run run{begin / p.d, begin % p.d, 0};
    run.count = static_cast<int>(at_most(at_most(end - begin, p.d - run.place), kTile));
    use(run, begin);
    begin += run.count;
  }
}

template <typename T>
Status of_elements(const Problem& p, const ForwardBuffers<T, false>& b, void* workspace) {
  using C = Compute<T>;
  const Items<C> items(p, false, workspace);
  parallel_for(items.count, grain_for(4 * kChunk), [&](int64_t number) {
    const int64_t first = number * kChunk, end = at_most(first + kChunk, p.elements);
    Chunk<C> chunk;
    for_tiles(p, first, end, [&](const Run& run, int64_t begin) {
      const T* const input = b.input + run.image * p.c * p.d + run.place;
      for (int i = 0; i < run.count; ++i) {
        const int64_t target = index_at(b.target, begin + i), place = begin - first + i;
        const bool has_loss = counts(p, target);
        const C weight = has_loss ? weight_of(b.weight, target) : C(0);
        const C loss = has_loss ? -(weight * widen(input[target * p.d + i])) : C(0);
        chunk.dropped += is_dropped(p, target);
        chunk.losses[place] = as_term(loss), chunk.weights[place] = as_term(weight);
        if (!p.reduces()) b.output[begin + i] = narrow<T>(loss);
      }
    });
    chunk.finish(p, items, number, static_cast<int>(end - first));
  });
  return items.finish(p, b);
}

}  // namespace
}  // namespace baracuda::nll_loss
