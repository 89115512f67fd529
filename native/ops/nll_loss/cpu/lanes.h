// SPDX-License-Identifier: Apache-2.0
// What is known of the classes of several elements, or strands of a row, side by side in vectors.
#pragma once

#include <cstdint>

#include "core/cpu_convert.h"
#include "ops/nll_loss/math.h"

namespace baracuda::nll_loss {
namespace {

// Classes of several elements, or strands, side by side.
template <typename C, int kLanes>
struct Lanes {
  C largest[kLanes], sum[kLanes], weight[kLanes], gap[kLanes];

  Classes<C> at(int i) const { return {largest[i], sum[i], weight[i], gap[i]}; }
  void put(int i, const Classes<C>& classes) {
    largest[i] = classes.largest, sum[i] = classes.sum, weight[i] = classes.weight, gap[i] = classes.gap;
  }
  void clear(int count) {
    for (int i = 0; i < count; ++i) put(i, Classes<C>::none());
  }
  template <typename T>
  void enlarge(const T* x, int count) {
    for (int i = 0; i < count; ++i) largest[i] = larger_of(largest[i], widen_lane(x[i]));
  }
  // Adds a class of each; lane i has the weight number `first` + i `step`.
  template <bool kSmooths, typename T>
  void add(const T* x, const T* weights, int64_t first, int64_t step, int count) {
    for (int i = 0; i < count; ++i) sum[i] += term_of(widen_lane(x[i]), largest[i]);
    if (!kSmooths) return;
    for (int i = 0; i < count; ++i) {
      const C of_class = weight_of(weights, first + i * step);
      weight[i] += of_class;
      gap[i] = widened(gap[i], of_class, largest[i], widen_lane(x[i]));
    }
  }
};

}  // namespace
}  // namespace baracuda::nll_loss
