// SPDX-License-Identifier: Apache-2.0
// The gradient on the CPU: an input row at a time. The output rows that have it are summed as they lie, along the depth
// and then along the height; what is left is one row, which is summed along the width.
#pragma once

#include "core/integer_math.h"
#include "ops/interpolate/cpu/parts.h"
#include "ops/interpolate/launch.h"
#include "ops/interpolate/math.h"

namespace baracuda::interpolate {
namespace {

// Input pixels of a block of columns, and the most terms of one that are added for many pixels at a time.
constexpr int32_t kPixels = 512;
constexpr int32_t kTerms = 8;
// Output rows that are added in one pass.
constexpr int kRows = 4;
static_assert(kBlock >= 4 * kCut && kBlock >= 2 * kPixels + 2);

template <typename T>
struct BackwardArrays {
  using C = Compute<T>;
  // Of a block of columns: every output pixel's weights, and the terms of every input pixel, the first ones first.
  C low[kBlock], high[kBlock];
  int32_t start[kPixels + 2];
  int32_t place[kTerms][kPixels];
  C weight[kTerms][kPixels];
  // Sums along the depth for the rows of one pass, and what they are summed up in; sums along the height and the width.
  C slices[kRows][kBlock];
  C depth_total[kBlock];
  C height_sum[kBlock], height_total[kBlock];
  C wide[kRows][std::is_same_v<T, C> ? 1 : kBlock];
  C sums[kPixels];
};

// Rows with their weights, added up element by element in the order in which they come, in partial sums.
template <typename C>
class RowSum {
 public:
  // The sum stands in `sum`; `total` is used where there are several partial sums.
  RowSum(C* sum, C* total, int32_t count) : sum_(sum), total_(total), count_(count) {}

  // Whether there is room for a row more before the ones that wait must be added.
  bool is_full() const { return waiting_ == kRows; }
  int waiting() const { return waiting_; }

  // A row of the list, whatever its weight, comes next.
  void step() {
    if (rank_ > 0 && rank_ % kCut == 0) cut();
    ++rank_;
  }
  void add(C weight, const C* row) {
    weights_[waiting_] = weight;
    rows_[waiting_++] = row;
  }

  void flush() {
    switch (waiting_) {
      case 1: add_rows<1>(); break;
      case 2: add_rows<2>(); break;
      case 3: add_rows<3>(); break;
      case 4: add_rows<4>(); break;
      default: return;
    }
    waiting_ = 0;
    is_begun_ = true;
  }

  // The sum of all; valid until the next one.
  const C* finish() {
    flush();
    if (!is_begun_) clear(sum_);
    if (!is_cut_) return sum_;
    for (int32_t j = 0; j < count_; ++j) total_[j] += sum_[j];
    return total_;
  }

 private:
  void clear(C* row) const {
    for (int32_t j = 0; j < count_; ++j) row[j] = C(0);
  }

  void cut() {
    flush();
    if (!is_begun_) clear(sum_);
    if (!is_cut_) clear(total_);
    is_cut_ = true;
    for (int32_t j = 0; j < count_; ++j) total_[j] += sum_[j];
    is_begun_ = false;
  }

  template <int kCount>
  void add_rows() {
    C w[kCount];
    const C* r[kCount];
    for (int k = 0; k < kCount; ++k) w[k] = weights_[k], r[k] = rows_[k];
    C* __restrict__ const sum = sum_;
    if (is_begun_) {
      for (int32_t j = 0; j < count_; ++j) {
        C s = sum[j];
        for (int k = 0; k < kCount; ++k) s = baracuda::fma(w[k], r[k][j], s);
        sum[j] = s;
      }
    } else {
      for (int32_t j = 0; j < count_; ++j) {
        C s = C(0);
        for (int k = 0; k < kCount; ++k) s = baracuda::fma(w[k], r[k][j], s);
        sum[j] = s;
      }
    }
  }

  C* sum_;
  C* total_;
  int32_t count_;
  int32_t rank_ = 0;
  int waiting_ = 0;
  bool is_begun_ = false, is_cut_ = false;
  C weights_[kRows];
  const C* rows_[kRows];
};

// What one thread keeps between input rows.
template <typename T, bool kLinear>
class GradientRows {
  // Whether a pixel also has columns of the one before.
  static constexpr int32_t kNext = kLinear ? 1 : 0;

 public:
  using C = Compute<T>;

  GradientRows(const Problem& p, const BackwardBuffers<T>& b, BackwardArrays<T>& arrays, int32_t pixels)
      : p_(p), b_(b), a_(arrays), pixels_(pixels) {}

  // The input row of a plane, in the columns of a block.
  void write(int64_t plane, int64_t block, int64_t row) {
    if (block != block_) enter(block);
    plane_ = plane;
    const int32_t z = static_cast<int32_t>(row / p_.height().input), y = static_cast<int32_t>(row % p_.height().input);
    T* const out = b_.grad_input + (plane * p_.input_rows() + row) * p_.width().input + first_;
    if constexpr (!kLinear) {
      if (is_paired_ && write_pairs(z, y, out)) return;
    }
    sum_width(column_sums(z, y, begin_, end_ - begin_), out);
  }

  // One pixel whose output pixels are more than a block: of a block of one.
  void write_wide(int64_t plane, int32_t x, int64_t row) {
    plane_ = plane;
    const int32_t z = static_cast<int32_t>(row / p_.height().input), y = static_cast<int32_t>(row % p_.height().input);
    const Reach reach = reach_of<C, kLinear>(p_.width(), x);
    CutSum<C> sum;
    for (int32_t left = reach.end - reach.begin; left > 0; left -= 4 * kCut) {
      const int32_t from = reach.end - left, count = static_cast<int32_t>(at_most(left, 4 * kCut));
      const C* const columns = column_sums(z, y, from, count);
      for (int32_t j = 0; j < count; ++j) {
        const Tap<C> tap = tap_of<C, kLinear>(p_.width(), from + j);
        sum.add(from + j < reach.middle ? tap.high : tap.low, columns[j], from + j - reach.begin);
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
    begin_ = reach_of<C, kLinear>(axis, first_).begin;
    end_ = reach_of<C, kLinear>(axis, first_ + count_ - 1).end;
    if (axis.rule == Rule::kSame) return;
    // Where the columns of each pixel begin, from the one whose next pixel is the first on to the one behind the last.
    int32_t known = 0;
    for (int32_t j = 0; j < end_ - begin_; ++j) {
      const Tap<C> tap = tap_of<C, kLinear>(axis, begin_ + j);
      a_.low[j] = tap.low, a_.high[j] = tap.high;
      for (; known <= count_ + kNext && first_ - kNext + known <= tap.index; ++known) a_.start[known] = j;
    }
    for (; known <= count_ + kNext; ++known) a_.start[known] = end_ - begin_;
    terms_ = 0;
    for (int32_t i = 0; i < count_; ++i) {
      const Reach reach = reach_at(i);
      const int32_t terms = reach.end - reach.begin;
      terms_ = terms > terms_ ? terms : terms_;
      for (int32_t k = 0; k < kTerms; ++k) {
        // A term beyond the last has weight 0, and any place.
        const int32_t j = k < terms ? reach.begin + k : 0;
        a_.place[k][i] = j;
        a_.weight[k][i] = k < terms ? (j < reach.middle ? a_.high[j] : a_.low[j]) : C(0);
      }
    }
    find_run();
  }

  // A row whose pixels have two columns each, in one pass over the output's rows if those are one or two; answers
  // whether they are.
  bool write_pairs(int32_t z, int32_t y, T* out) {
    if (p_.depth().rule != Rule::kSame) return false;
    // A row's reach ends where the next one's begins.
    const int32_t begin = y == known_row_ ? known_begin_ : first_at<C, false>(p_.height(), y);
    const int32_t end = first_at<C, false>(p_.height(), y + 1);
    known_row_ = y + 1, known_begin_ = end;
    if (end - begin != 1 && end - begin != 2) return false;
    const C* const one = output_row(z, begin, begin_, 2 * count_, a_.wide[0]);
    const C* const other = end - begin == 2 ? output_row(z, begin + 1, begin_, 2 * count_, a_.wide[1]) : nullptr;
    if constexpr (std::is_same_v<T, C>) {
      sum_pairs(one, other, out);
    } else {
      sum_pairs(one, other, a_.sums);
      narrow_row<T>(a_.sums, out, count_);
    }
    return true;
  }

  // The sums that RowSum and sum_run would make; a sum that underflows is 0, not -0.
  void sum_pairs(const C* one, const C* other, C* to) const {
    C* __restrict__ const sums = to;
    if (other != nullptr) {
      for (int32_t i = 0; i < count_; ++i) {
        const C left = one[2 * i] + other[2 * i], right = one[2 * i + 1] + other[2 * i + 1];
        sums[i] = narrow<C>(C(0) + (left + right));
      }
    } else {
      for (int32_t i = 0; i < count_; ++i) sums[i] = narrow<C>(C(0) + (one[2 * i] + one[2 * i + 1]));
    }
  }

  // The reach of the block's pixel number `i`, in columns of the block.
  Reach reach_at(int32_t i) const { return {a_.start[i], a_.start[i + kNext], a_.start[i + kNext + 1]}; }

  // The pixels whose terms are all there and lie two columns further than the ones' before, as where the width doubles.
  void find_run() {
    run_begin_ = run_end_ = 0;
    is_paired_ = false;
    if (terms_ > kTerms) return;
    const auto has_all = [&](int32_t i) {
      const Reach reach = reach_at(i);
      return reach.end - reach.begin == terms_;
    };
    while (run_begin_ < count_ && !has_all(run_begin_)) ++run_begin_;
    run_end_ = run_begin_;
    while (run_end_ < count_ && has_all(run_end_) &&
           a_.place[0][run_end_] == a_.place[0][run_begin_] + 2 * (run_end_ - run_begin_)) {
      ++run_end_;
    }
    is_paired_ = terms_ == 2 && run_begin_ == 0 && run_end_ == count_ && a_.place[0][0] == 0;
  }

  // The output's columns [from, from + count), summed along the depth and the height for one input row.
  const C* column_sums(int32_t z, int32_t y, int32_t from, int32_t count) {
    // A sum of one row of weight 1 is that row, since no sum is -0 once the width is summed.
    if (p_.height().rule == Rule::kSame) return slice_sums(z, y, from, count, 0);
    const Reach reach = reach_of<C, kLinear>(p_.height(), y);
    RowSum<C> sum(a_.height_sum, a_.height_total, count);
    for (int32_t o = reach.begin; o < reach.end; ++o) {
      const Tap<C> tap = tap_of<C, kLinear>(p_.height(), o);
      const C weight = o < reach.middle ? tap.high : tap.low;
      sum.step();
      if (weight == C(0)) continue;
      if (sum.is_full()) sum.flush();
      sum.add(weight, slice_sums(z, o, from, count, sum.waiting()));
    }
    return sum.finish();
  }

  // An output row's columns summed along the depth, in the room number `room`.
  const C* slice_sums(int32_t z, int32_t y, int32_t from, int32_t count, int room) {
    if (p_.depth().rule == Rule::kSame) return output_row(z, y, from, count, a_.slices[room]);
    const Reach reach = reach_of<C, kLinear>(p_.depth(), z);
    RowSum<C> sum(a_.slices[room], a_.depth_total, count);
    for (int32_t o = reach.begin; o < reach.end; ++o) {
      const Tap<C> tap = tap_of<C, kLinear>(p_.depth(), o);
      const C weight = o < reach.middle ? tap.high : tap.low;
      sum.step();
      if (weight == C(0)) continue;
      if (sum.is_full()) sum.flush();
      sum.add(weight, output_row(o, y, from, count, a_.wide[sum.waiting()]));
    }
    const C* const found = sum.finish();
    if (found == a_.slices[room]) return found;
    memcpy(a_.slices[room], found, static_cast<size_t>(count) * sizeof(C));
    return a_.slices[room];
  }

  const C* output_row(int32_t z, int32_t y, int32_t from, int32_t count, C* room) const {
    const int64_t row = (plane_ * p_.depth().output + z) * p_.height().output + y;
    return widened(b_.grad_output + row * p_.width().output + from, room, count);
  }

  void sum_width(const C* columns, T* out) {
    if (p_.width().rule == Rule::kSame) {
      for (int32_t i = 0; i < count_; ++i) a_.sums[i] = C(0) + columns[i];
    } else if (terms_ <= kTerms) {
      sum_terms(columns);
    } else {
      for (int32_t i = 0; i < count_; ++i) {
        const Reach reach = reach_at(i);
        CutSum<C> sum;
        for (int32_t j = reach.begin; j < reach.end; ++j) {
          sum.add(j < reach.middle ? a_.high[j] : a_.low[j], columns[j], j - reach.begin);
        }
        a_.sums[i] = sum.sum();
      }
    }
    narrow_row<T>(a_.sums, out, count_);
  }

  // Few terms a pixel: the k-th ones of many pixels at a time.
  void sum_terms(const C* columns) {
    sum_gathered(columns, 0, run_begin_);
    switch (terms_) {
      case 2: sum_run<2>(columns); break;
      case 3: sum_run<3>(columns); break;
      case 4: sum_run<4>(columns); break;
      default: sum_gathered(columns, run_begin_, run_end_);
    }
    sum_gathered(columns, run_end_, count_);
    // Plus 0, as where sums are cut: a sum that underflows is 0, not -0.
    for (int32_t i = 0; i < count_; ++i) a_.sums[i] = C(0) + a_.sums[i];
  }

  void sum_gathered(const C* columns, int32_t begin, int32_t end) {
    C* __restrict__ const sums = a_.sums;
    for (int32_t i = begin; i < end; ++i) sums[i] = C(0);
    for (int32_t k = 0; k < terms_; ++k) {
      const C* const weight = a_.weight[k];
      const int32_t* const place = a_.place[k];
      for (int32_t i = begin; i < end; ++i) {
        const C more = baracuda::fma(weight[i], columns[place[i]], sums[i]);
        sums[i] = weight[i] != C(0) ? more : sums[i];
      }
    }
  }

  // The pixels of the run, whose columns are read by wide loads.
  template <int kCount>
  void sum_run(const C* columns) {
    if (run_begin_ == run_end_) return;
    const int32_t count = run_end_ - run_begin_;
    C* __restrict__ const sums = a_.sums + run_begin_;
    const C* const from = columns + a_.place[0][run_begin_];
    const C* weight[kCount];
    for (int k = 0; k < kCount; ++k) weight[k] = a_.weight[k] + run_begin_;
    for (int32_t i = 0; i < count; ++i) {
      C sum = C(0);
      for (int k = 0; k < kCount; ++k) {
        const C column = from[2 * i + k];
        if constexpr (kLinear) {
          const C more = baracuda::fma(weight[k][i], column, sum);
          sum = weight[k][i] != C(0) ? more : sum;
        } else {
          sum += column;
        }
      }
      sums[i] = sum;
    }
  }

  const Problem& p_;
  const BackwardBuffers<T>& b_;
  BackwardArrays<T>& a_;
  int32_t pixels_;
  int64_t block_ = -1, plane_ = -1;
  int32_t first_ = 0, count_ = 0, begin_ = 0, end_ = 0, terms_ = 0, run_begin_ = 0, run_end_ = 0;
  bool is_paired_ = false;                      // whether each pixel has two columns, the ones after the one before's
  int32_t known_row_ = -1, known_begin_ = 0;  // the output row where the reach of an input row begins
};

// Input pixels of a block, so that the output's columns of each fit; 0 where those of one pixel do not.
template <typename C, bool kLinear>
int32_t pixels_of_block(const Axis& axis) {
  for (int32_t pixels = static_cast<int32_t>(at_most(axis.input, kPixels)); pixels > 0; pixels /= 2) {
    bool fits = true;
    for (int64_t first = 0; first < axis.input && fits; first += pixels) {
      const int32_t last = static_cast<int32_t>(at_most(first + pixels, axis.input) - 1);
      const int32_t begin = reach_of<C, kLinear>(axis, static_cast<int32_t>(first)).begin;
      fits = reach_of<C, kLinear>(axis, last).end - begin <= kBlock;
    }
    if (fits) return pixels;
  }
  return 0;
}

template <typename T, bool kLinear>
void sum_all(const Problem& p, const BackwardBuffers<T>& b, const TaskScratch<BackwardArrays<T>>& scratch) {
  const int32_t pixels = pixels_of_block<Compute<T>, kLinear>(p.width());
  const int64_t rows = p.input_rows(), all_rows = p.planes() * rows;
  const int64_t blocks = pixels > 0 ? ceil_div(p.width().input, pixels) : p.width().input;
  const int64_t read = p.output_numel / (blocks * all_rows) + 1;
  const int64_t work = read > pixels ? read : pixels;
  parallel_parts(blocks * all_rows, grain_for(work), [&](int64_t begin, int64_t end) {
    GradientRows<T, kLinear> worker(p, b, scratch.mine(), pixels);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % all_rows;
      if (pixels > 0) {
        worker.write(row / rows, i / all_rows, row % rows);
      } else {
        worker.write_wide(row / rows, static_cast<int32_t>(i / all_rows), row % rows);
      }
    }
  });
}

}  // namespace
}  // namespace baracuda::interpolate
