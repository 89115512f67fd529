// SPDX-License-Identifier: Apache-2.0
// Which samples threads have on CUDA, and where they lie.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "ops/deform_im2col/launch.h"
#include "ops/deform_im2col/math.h"

namespace baracuda::deform_im2col {
namespace {

// A sample among those of all groups.
struct SamplePlace {
  int64_t group, sample;
  SampleNumber number;

  SamplePlace() = default;
  __device__ SamplePlace(int64_t i, const Problem& p) {
    const Division by_group(i, p.samples), by_tap(by_group.remainder, p.positions);
    const Division by_row(by_tap.remainder, p.output_w);
    *this = SamplePlace(by_group.quotient, by_tap.quotient, by_row.quotient, by_row.remainder, p);
  }
  __device__ SamplePlace(int64_t of_group, int64_t tap, int64_t y, int64_t x, const Problem& p) : group(of_group) {
    const int64_t position = y * p.output_w + x;
    sample = tap * p.positions + position;
    number = number_of(tap, position, Division(tap, p.x.taps).quotient, y, p);
  }

  template <typename C>
  __device__ Position<C> locate(const C* offset, const Problem& p) const {
    return locate_sample(number, offset + 2 * group * p.samples, p);
  }
  template <typename C>
  __device__ Taps<C> taps(const Position<C>& at, const C* mask, const Problem& p) const {
    return column_taps(at, p.has_mask ? mask + group * p.samples : nullptr, sample, p);
  }
};

// How a launch deals out samples to warps: one has a tap at a rectangle of positions, and the next one the next tap of
// the same positions, since their corners are mostly the same pixels.
struct SampleWarps {
  int32_t width_bits;
  int64_t columns, rectangles;  // rectangles in a row and of all positions
  int64_t taps, count;          // of the kernel; warps of all groups

  explicit SampleWarps(const Problem& p) : width_bits(0) {
    // Rows of half a warp: what lies along positions is read and written in whole sectors.
    const int32_t most = p.output_h > 1 ? 4 : 5;
    while (width_bits < most && p.output_w > 1 << width_bits) ++width_bits;
    columns = ceil_div(p.output_w, int64_t{1} << width_bits);
    rectangles = columns * ceil_div(p.output_h, int64_t{32} >> width_bits);
    taps = p.positions > 0 ? p.samples / p.positions : 0;
    count = p.groups * rectangles * taps;
  }

  // Whether the calling lane of this warp has a sample; `place` is set, to a sample even where it has none.
  __device__ bool find(int64_t warp, SamplePlace* place, const Problem& p) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Division by_rectangle(warp, taps), by_group(by_rectangle.quotient, rectangles);
    const Division by_row(by_group.remainder, columns);
    const int64_t x = (by_row.remainder << width_bits) + (lane & ((1 << width_bits) - 1));
    const int64_t y = by_row.quotient * (32 >> width_bits) + (lane >> width_bits);
    const bool exists = warp < count && x < p.output_w && y < p.output_h;
    *place = exists ? SamplePlace(by_group.quotient, by_rectangle.remainder, y, x, p) : SamplePlace(0, 0, 0, 0, p);
    return exists;
  }
};

}  // namespace
}  // namespace baracuda::deform_im2col
