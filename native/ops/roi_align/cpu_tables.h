// SPDX-License-Identifier: Apache-2.0
// Fills the box tables on the CPU, an axis at a time.
#pragma once

#include "ops/roi_align/tables.h"

namespace baracuda::roi_align {
namespace {

// Writes one axis of one box; answers the pixels that all its bins together touch.
template <typename T>
PixelRange tabulate_axis(const Axis<T>& axis, int32_t bins, BinEntry* entries, T* weights, int64_t capacity) {
  int64_t used = 0;
  PixelRange touched = no_pixels();
  for (int32_t bin = 0; bin < bins; ++bin) {
    const PixelRange pixels = bin_pixels(axis, bin);
    BinEntry entry{pixels, -1};
    if (weights_of(pixels) <= capacity - used) {
      entry.weights = static_cast<int32_t>(used);
      const int32_t base = first_in_group(pixels.first);
      for (int32_t k = 0; k < weights_of(pixels); ++k) {
        weights[used++] = pixels.has(base + k) ? pixel_weight(axis, bin, base + k) : T(0);
      }
    }
    entries[bin] = entry;
    touched = join(touched, pixels);
  }
  return touched;
}

}  // namespace
}  // namespace baracuda::roi_align
