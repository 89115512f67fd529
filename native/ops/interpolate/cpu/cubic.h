// SPDX-License-Identifier: Apache-2.0
// The cubic mode on the CPU, both directions: an output row from four input rows that are brought to its width and
// kept, and an input row from the output rows that have it, summed as they lie and then along the width.
#pragma once

#include "core/integer_math.h"
#include "ops/interpolate/cpu/backward.h"
#include "ops/interpolate/cpu/parts.h"
#include "ops/interpolate/cubic.h"
#include "ops/interpolate/launch.h"

namespace baracuda::interpolate {
namespace {

template <typename T>
struct CubicForwardArrays {
  using C = Compute<T>;
  int32_t first[kBlock];
  C weights[kCubicTaps][kBlock];
  C rows[kCubicTaps][kBlock];  // input rows at the output's width, each at its number modulo 4
  C result[kBlock];
};

// What one thread keeps between output rows.
template <typename T>
class CubicRows {
 public:
  using C = Compute<T>;

  CubicRows(const Problem& p, const ForwardBuffers<T>& b, CubicForwardArrays<T>& arrays) : p_(p), b_(b), a_(arrays) {}

  // The output row of a plane, in the columns of a block.
  void write(int64_t plane, int64_t block, int32_t row) {
    if (block != block_) enter(block);
    if (plane != plane_) forget();
    plane_ = plane;
    const CubicTap<C> tap = cubic_tap<C>(p_.height(), row);
    for (int32_t j = 0; j < count_; ++j) a_.result[j] = C(0);
    for (int k = 0; k < kCubicTaps; ++k) {
      const C weight = tap.weights[k];
      if (weight == C(0)) continue;
      const C* __restrict__ const from = row_of(tap.first + k);
      for (int32_t j = 0; j < count_; ++j) a_.result[j] = baracuda::fma(weight, from[j], a_.result[j]);
    }
    T* const out = b_.output + (plane * p_.output_rows() + row) * p_.width().output + begin_;
    narrow_row<T>(a_.result, out, count_);
  }

 private:
  void forget() {
    for (int64_t& held : held_) held = -1;
  }

  void enter(int64_t block) {
    forget();
    block_ = block;
    begin_ = static_cast<int32_t>(block * kBlock);
    count_ = static_cast<int32_t>(at_most(p_.width().output - begin_, kBlock));
    taps_ = static_cast<int32_t>(at_most(p_.width().input, kCubicTaps));
    for (int32_t j = 0; j < count_; ++j) {
      const CubicTap<C> tap = cubic_tap<C>(p_.width(), begin_ + j);
      a_.first[j] = tap.first;
      for (int k = 0; k < kCubicTaps; ++k) a_.weights[k][j] = tap.weights[k];
    }
  }

  const C* row_of(int32_t y) {
    C* __restrict__ const room = a_.rows[y % kCubicTaps];
    if (held_[y % kCubicTaps] == y) return room;
    held_[y % kCubicTaps] = y;
    const T* const from = b_.input + (plane_ * p_.input_rows() + y) * p_.width().input;
    for (int32_t j = 0; j < count_; ++j) {
      C sum = C(0);
      for (int32_t k = 0; k < taps_; ++k) {
        const C weight = a_.weights[k][j];
        const C more = baracuda::fma(weight, widen(from[a_.first[j] + k]), sum);
        sum = weight != C(0) ? more : sum;
      }
      room[j] = sum;
    }
    return room;
  }

  const Problem& p_;
  const ForwardBuffers<T>& b_;
  CubicForwardArrays<T>& a_;
  int64_t block_ = -1, plane_ = -1;
  int32_t begin_ = 0, count_ = 0, taps_ = 0;
  int64_t held_[kCubicTaps] = {-1, -1, -1, -1};
};

template <typename T>
void interpolate_cubic(const Problem& p, const ForwardBuffers<T>& b,
                       const TaskScratch<CubicForwardArrays<T>>& scratch) {
  const int64_t rows = p.output_rows(), all_rows = p.planes() * rows;
  const int64_t blocks = ceil_div(p.width().output, kBlock);
  parallel_parts(blocks * all_rows, grain_for(at_most(p.width().output, kBlock)), [&](int64_t begin, int64_t end) {
    CubicRows<T> worker(p, b, scratch.mine());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % all_rows;
      worker.write(row / rows, i / all_rows, static_cast<int32_t>(row % rows));
    }
  });
}

// The most terms of a pixel that are added for many pixels at a time.
constexpr int32_t kCubicTerms = 12;

template <typename T>
struct CubicBackwardArrays {
  using C = Compute<T>;
  // Of a block of columns: every output pixel's weights, and the terms of every input pixel.
  int32_t first[kBlock];
  C weights[kCubicTaps][kBlock];
  CubicReach reach[kPixels];
  C weight[kCubicTerms][kPixels];
  // Output rows that wait for their sum, in the compute type; the sums along the height.
  C wide[kRows][std::is_same_v<T, C> ? 1 : kBlock];
  C height_sum[kBlock], height_total[kBlock];
  C sums[kPixels];
};

// What one thread keeps between input rows.
template <typename T>
class CubicGradientRows {
 public:
  using C = Compute<T>;

  CubicGradientRows(const Problem& p, const BackwardBuffers<T>& b, CubicBackwardArrays<T>& arrays, int32_t pixels)
      : p_(p), b_(b), a_(arrays), pixels_(pixels) {}

  // The input row of a plane, in the columns of a block.
  void write(int64_t plane, int64_t block, int32_t row) {
    if (block != block_) enter(block);
    const C* const columns = column_sums(plane, row, begin_, end_ - begin_);
    T* const out = b_.grad_input + (plane * p_.input_rows() + row) * p_.width().input + first_;
    if (terms_ <= kCubicTerms) {
      sum_terms(columns);
    } else {
      for (int32_t i = 0; i < count_; ++i) {
        const CubicReach reach = a_.reach[i];
        CutSum<C> sum;
        for (int32_t j = reach.begin; j < reach.end; ++j) {
          sum.add(a_.weights[first_ + i - a_.first[j]][j], columns[j], j - reach.begin);
        }
        a_.sums[i] = sum.sum();
      }
    }
    narrow_row<T>(a_.sums, out, count_);
  }

  // One pixel whose output pixels are more than a block.
  void write_wide(int64_t plane, int32_t x, int32_t row) {
    const CubicReach reach = cubic_reach<C>(p_.width(), x);
    CutSum<C> sum;
    for (int32_t left = reach.end - reach.begin; left > 0; left -= 4 * kCut) {
      const int32_t from = reach.end - left, count = static_cast<int32_t>(at_most(left, 4 * kCut));
      const C* const columns = column_sums(plane, row, from, count);
      for (int32_t j = 0; j < count; ++j) {
        sum.add(cubic_weight(cubic_tap<C>(p_.width(), from + j), x), columns[j], from + j - reach.begin);
      }
    }
    b_.grad_input[(plane * p_.input_rows() + row) * p_.width().input + x] = narrow<T>(sum.sum());
  }

 private:
  void enter(int64_t block) {
    block_ = block;
    const Axis& axis = p_.width();
    first_ = static_cast<int32_t>(block * pixels_);
    count_ = static_cast<int32_t>(at_most(axis.input - first_, pixels_));
    begin_ = cubic_reach<C>(axis, first_).begin;
    end_ = cubic_reach<C>(axis, first_ + count_ - 1).end;
    for (int32_t j = 0; j < end_ - begin_; ++j) {
      const CubicTap<C> tap = cubic_tap<C>(axis, begin_ + j);
      a_.first[j] = tap.first;
      for (int k = 0; k < kCubicTaps; ++k) a_.weights[k][j] = tap.weights[k];
    }
    terms_ = 0;
    for (int32_t i = 0; i < count_; ++i) {
      const CubicReach reach = cubic_reach<C>(axis, first_ + i);
      a_.reach[i] = {reach.begin - begin_, reach.end - begin_};
      terms_ = reach.end - reach.begin > terms_ ? reach.end - reach.begin : terms_;
    }
    for (int32_t i = 0; i < count_; ++i) {
      const CubicReach reach = a_.reach[i];
      for (int32_t k = 0; k < kCubicTerms; ++k) {
        const int32_t j = reach.begin + k;
        a_.weight[k][i] = j < reach.end ? a_.weights[first_ + i - a_.first[j]][j] : C(0);
      }
    }
  }

  // The output's columns [from, from + count), summed along the height for one input row.
  const C* column_sums(int64_t plane, int32_t y, int32_t from, int32_t count) {
    const CubicReach reach = cubic_reach<C>(p_.height(), y);
    RowSum<C> sum(a_.height_sum, a_.height_total, count);
    for (int32_t o = reach.begin; o < reach.end; ++o) {
      const C weight = cubic_weight(cubic_tap<C>(p_.height(), o), y);
      sum.step();
      if (weight == C(0)) continue;
      if (sum.is_full()) sum.flush();
      const T* const row = b_.grad_output + (plane * p_.output_rows() + o) * p_.width().output + from;
      sum.add(weight, widened(row, a_.wide[sum.waiting()], count));
    }
    return sum.finish();
  }

  void sum_terms(const C* columns) {
    const int32_t last = end_ - begin_ - 1;
    C* __restrict__ const sums = a_.sums;
    for (int32_t i = 0; i < count_; ++i) sums[i] = C(0);
    for (int32_t k = 0; k < terms_; ++k) {
      const C* const weight = a_.weight[k];
      for (int32_t i = 0; i < count_; ++i) {
        // A term that is not there has weight 0, and any column.
        const int32_t j = a_.reach[i].begin + k;
        const C more = baracuda::fma(weight[i], columns[j < last ? j : last], sums[i]);
        sums[i] = weight[i] != C(0) ? more : sums[i];
      }
    }
    for (int32_t i = 0; i < count_; ++i) sums[i] = C(0) + sums[i];
  }

  const Problem& p_;
  const BackwardBuffers<T>& b_;
  CubicBackwardArrays<T>& a_;
  int32_t pixels_;
  int64_t block_ = -1;
  int32_t first_ = 0, count_ = 0, begin_ = 0, end_ = 0, terms_ = 0;
};

// Input pixels of a block, so that the output's columns of each fit; 0 where those of one pixel do not.
template <typename C>
int32_t cubic_pixels_of_block(const Axis& axis) {
  for (int32_t pixels = static_cast<int32_t>(at_most(axis.input, kPixels)); pixels > 0; pixels /= 2) {
    bool fits = true;
    for (int64_t first = 0; first < axis.input && fits; first += pixels) {
      const int32_t last = static_cast<int32_t>(at_most(first + pixels, axis.input) - 1);
      fits = cubic_reach<C>(axis, last).end - cubic_reach<C>(axis, static_cast<int32_t>(first)).begin <= kBlock;
    }
    if (fits) return pixels;
  }
  return 0;
}

template <typename T>
void sum_cubic(const Problem& p, const BackwardBuffers<T>& b, const TaskScratch<CubicBackwardArrays<T>>& scratch) {
  const int32_t pixels = cubic_pixels_of_block<Compute<T>>(p.width());
  const int64_t rows = p.input_rows(), all_rows = p.planes() * rows;
  const int64_t blocks = pixels > 0 ? ceil_div(p.width().input, pixels) : p.width().input;
  const int64_t read = 4 * (p.output_numel / (blocks * all_rows)) + 1;
  const int64_t work = read > pixels ? read : pixels;
  parallel_parts(blocks * all_rows, grain_for(work), [&](int64_t begin, int64_t end) {
    CubicGradientRows<T> worker(p, b, scratch.mine(), pixels);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % all_rows;
      if (pixels > 0) {
        worker.write(row / rows, i / all_rows, static_cast<int32_t>(row % rows));
      } else {
        worker.write_wide(row / rows, static_cast<int32_t>(i / all_rows), static_cast<int32_t>(row % rows));
      }
    }
  });
}

}  // namespace
}  // namespace baracuda::interpolate
