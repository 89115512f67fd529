// SPDX-License-Identifier: Apache-2.0
// Sums in pairs on the CPU: of a chunk's losses and weights, and of the items that chunks or rows leave.
#pragma once

#include <cstdint>

#include "core/cpu_convert.h"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/nll_loss/launch.h"
#include "ops/nll_loss/math.h"

namespace baracuda::nll_loss {
namespace {

// Elements whose sum is one item of the workspace, where a row is not one by itself.
constexpr int kChunk = 256;

// Adds neighbours until one is left, in place; 0 for none.
template <typename C>
C sum_in_pairs(C* values, int64_t count) {
  if (count == 0) return C(0);
  for (; count > 1; count = ceil_div(count, 2)) {
    const int64_t pairs = count / 2;
    for (int64_t i = 0; i < pairs; ++i) values[i] = values[2 * i] + values[2 * i + 1];
    if (count % 2 != 0) values[pairs] = values[count - 1];
  }
  return values[0];
}

// What is added up: an item for each chunk of elements, or for each row.
template <typename C>
struct Items {
  WorkspaceLayout layout;
  const int64_t count;
  C* losses;
  C* weights;
  int64_t* dropped;

  Items(const Problem& p, bool by_row, void* workspace) : count(by_row ? p.elements : ceil_div(p.elements, kChunk)) {
    losses = workspace_array<C>(workspace, layout.reserve<C>(count));
    weights = workspace_array<C>(workspace, layout.reserve<C>(count));
    dropped = workspace_array<int64_t>(workspace, layout.reserve<int64_t>(count));
  }

  template <typename T, bool kByLogits>
  Status finish(const Problem& p, const ForwardBuffers<T, kByLogits>& b) const {
    int64_t all_dropped = 0;
    for (int64_t i = 0; i < count; ++i) all_dropped += dropped[i];
    store_count(b.num_dropped, all_dropped);
    *b.total_weight = C(0);
    if (!p.reduces()) return Status::kOk;
    const C sum = sum_in_pairs(losses, count), weight = sum_in_pairs(weights, count);
    *b.total_weight = narrow<C>(weight);
    *b.output = reduced<T>(p, sum, weight);
    return Status::kOk;
  }
};

// The losses of one chunk on their way to its item.
template <typename C>
struct Chunk {
  C losses[kChunk], weights[kChunk];
  int64_t dropped = 0;

  void finish(const Problem& p, const Items<C>& items, int64_t number, int count) {
    items.dropped[number] = dropped;
    if (!p.reduces()) return;
    items.losses[number] = sum_in_pairs(losses, count);
    items.weights[number] = sum_in_pairs(weights, count);
  }
};

}  // namespace
}  // namespace baracuda::nll_loss
