// SPDX-License-Identifier: Apache-2.0
// Gradients of losses of classification on the CPU: nothing is added but the weights, where labels are smoothed.
#pragma once

#include <cstdint>

#include "core/cpu_zeros.h"
#include "ops/nll_loss/cpu/elements.h"

namespace baracuda::nll_loss {
namespace {

template <typename T>
Compute<T> all_weights_of(const Problem& p, const T* weight) {
  using C = Compute<T>;
  if (weight == nullptr) return static_cast<C>(p.c);
  // Sums that wait for a neighbour: of 2^level weights each, where the bit of `count` is set.
  C waiting[32];
  uint32_t count = 0;
  for (; count < static_cast<uint32_t>(p.c); ++count) {
    C sum = as_term(widen(weight[count]));
    int level = 0;
    for (; (count >> level & 1) != 0; ++level) sum = waiting[level] + sum;
    waiting[level] = sum;
  }
  C total = C(0);
  for (int level = 0; level < 32; ++level) {
    if ((count >> level & 1) != 0) total = waiting[level] + total;
  }
  return total;
}

// What the gradients of one element need beside its logits.
template <typename T, bool kByLogits>
Slopes<Compute<T>> slopes_of(const Problem& p, const BackwardBuffers<T, kByLogits>& b, int64_t element, int64_t target,
                             Compute<T> all_weights) {
  using C = Compute<T>;
  const C gradient = p.reduces() ? shared_gradient(p, widen(*b.grad_output), b.total_weight)
                                 : widen(b.grad_output[element]);
  return Slopes<C>(p, gradient, weight_of(b.weight, target), all_weights);
}

// Of log-probabilities: zeros, and in them each element's class.
template <typename T>
Status gradients_of_classes(const Problem& p, const BackwardBuffers<T, false>& b) {
  BARACUDA_RETURN_IF_FAILED(write_zeros(b.grad_input, p.logits));
  parallel_for(ceil_div(p.elements, kChunk), grain_for(4 * kChunk), [&](int64_t chunk) {
    const int64_t first = chunk * kChunk;
    for_tiles(p, first, at_most(first + kChunk, p.elements), [&](const Run& run, int64_t begin) {
      T* const out = b.grad_input + run.image * p.c * p.d + run.place;
      for (int i = 0; i < run.count; ++i) {
        const int64_t target = index_at(b.target, begin + i);
        if (!counts(p, target)) continue;
        out[target * p.d + i] = narrow<T>(slopes_of(p, b, begin + i, target, Compute<T>(0)).of_target);
      }
    });
  });
  return Status::kOk;
}

template <bool kSmooths, typename T>
Status gradients_of_rows(const Problem& p, const BackwardBuffers<T, true>& b) {
  using C = Compute<T>;
  const C all_weights = kSmooths ? all_weights_of(p, b.weight) : C(0);
  parallel_for(p.elements, grain_for(8 * int64_t{p.c}), [&](int64_t row) {
    const int64_t target = index_at(b.target, row);
    T* const out = b.grad_input + row * p.c;
    if (!counts(p, target)) {
      for (int64_t k = 0; k < p.c; ++k) out[k] = T{};
      return;
    }
    const Slopes<C> slopes = slopes_of(p, b, row, target, all_weights);
    const T* const x = b.input + row * p.c;
    const C log_sum_exp = b.log_sum_exp[row];
    C found[kTile];
    for (int64_t first = 0; first < p.c; first += kTile) {
      const int count = static_cast<int>(at_most(kTile, p.c - first));
      for (int i = 0; i < count; ++i) {
        const C weight = kSmooths ? weight_of(b.weight, first + i) : C(0);
        found[i] = slopes.template at<kSmooths>(widen_lane(x[first + i]), log_sum_exp, false, weight);
      }
      if (target >= first && target < first + count) {
        const C weight = kSmooths ? weight_of(b.weight, target) : C(0);
        found[target - first] = slopes.template at<kSmooths>(widen(x[target]), log_sum_exp, true, weight);
      }
      narrow_row<T>(found, out + first, count);
    }
  });
  return Status::kOk;
}

// Of one class of `count` elements; `targets` are -1 where an element does not count.
template <bool kSmooths, typename T>
void gradients_of_class(const T* x, const Compute<T>* log_sum_exp, const Slopes<Compute<T>>* slopes,
                        const int32_t* targets, int32_t number, Compute<T> weight, int count, T* out) {
  using C = Compute<T>;
  C found[kTile];
  for (int i = 0; i < count; ++i) {
    const C slope = slopes[i].template at<kSmooths>(widen_lane(x[i]), log_sum_exp[i], targets[i] == number, weight);
    found[i] = targets[i] >= 0 ? slope : C(0);
  }
  narrow_row<T>(found, out, count);
}

template <bool kSmooths, typename T>
Status gradients_of_images(const Problem& p, const BackwardBuffers<T, true>& b) {
  using C = Compute<T>;
  const C all_weights = kSmooths ? all_weights_of(p, b.weight) : C(0);
  const int64_t tiles = ceil_div(p.elements, kTile);
  parallel_for(tiles, grain_for(8 * int64_t{kTile} * p.c), [&](int64_t tile) {
    Slopes<C> slopes[kTile];
    int32_t targets[kTile];
    for_tiles(p, tile * kTile, at_most((tile + 1) * kTile, p.elements), [&](const Run& run, int64_t begin) {
      for (int i = 0; i < run.count; ++i) {
        const int64_t target = index_at(b.target, begin + i);
        targets[i] = counts(p, target) ? static_cast<int32_t>(target) : -1;
        slopes[i] = targets[i] < 0 ? Slopes<C>{} : slopes_of(p, b, begin + i, target, all_weights);
      }
      const int64_t corner = run.image * p.c * p.d + run.place;
      for (int32_t k = 0; k < p.c; ++k) {
        const int64_t at = corner + static_cast<int64_t>(k) * p.d;
        const C weight = kSmooths ? weight_of(b.weight, k) : C(0);
        gradients_of_class<kSmooths>(b.input + at, b.log_sum_exp + begin, slopes, targets, k, weight, run.count,
                                     b.grad_input + at);
      }
    });
  });
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::nll_loss
