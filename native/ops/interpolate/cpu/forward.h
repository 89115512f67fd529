// SPDX-License-Identifier: Apache-2.0
// The forward on the CPU: an output row at a time, from input rows that are brought to the output's width first and
// kept while the next output rows need them.
#pragma once

#include "core/integer_math.h"
#include "ops/interpolate/cpu/parts.h"
#include "ops/interpolate/launch.h"
#include "ops/interpolate/math.h"

namespace baracuda::interpolate {
namespace {

// Pixels of an input row that are widened at a time; where a block of the output spans more, each is widened alone.
constexpr int32_t kStaged = 2 * kBlock;

template <typename T>
struct ForwardArrays {
  using C = Compute<T>;
  // The taps of a block of the output's columns: pixels counted from the first one's.
  int32_t index[kBlock], next[kBlock];
  C low[kBlock], high[kBlock];
  // Input rows at the output's width: up to two of two slices.
  C rows[2][2][kBlock];
  C combined[2][kBlock];
  C staged[kStaged];
};

// What one thread keeps between output rows.
template <typename T>
class LinearRows {
 public:
  using C = Compute<T>;

  LinearRows(const Problem& p, const ForwardBuffers<T>& b, ForwardArrays<T>& arrays) : p_(p), b_(b), a_(arrays) {}

  // The output row of a plane, in the columns of a block.
  void write(int64_t plane, int64_t block, int64_t row) {
    if (block != block_) enter(block);
    if (plane != plane_) forget();
    plane_ = plane;
    const Tap<C> depth = linear_tap<C>(p_.depth(), static_cast<int32_t>(row / p_.height().output));
    const Tap<C> height = linear_tap<C>(p_.height(), static_cast<int32_t>(row % p_.height().output));
    const C* values = slice(depth.index, height, a_.combined[0]);
    if (depth.high != C(0)) {
      const C* const next = slice(depth.index + 1, height, a_.combined[1]);
      values = combine(values, next, depth, a_.combined[0]);
    }
    T* const out = b_.output + (plane * p_.output_rows() + row) * p_.width().output + first_;
    narrow_row<T>(values, out, count_);
  }

 private:
  void forget() {
    for (int i = 0; i < 4; ++i) held_[i / 2][i % 2] = -1;
  }

  void enter(int64_t block) {
    forget();
    block_ = block;
    const Axis& axis = p_.width();
    first_ = static_cast<int32_t>(block * kBlock);
    count_ = static_cast<int32_t>(at_most(axis.output - first_, kBlock));
    base_ = linear_tap<C>(axis, first_).index;
    const int32_t last = axis.input - 1 - base_;
    for (int32_t j = 0; j < count_; ++j) {
      const Tap<C> tap = linear_tap<C>(axis, first_ + j);
      a_.index[j] = tap.index - base_;
      a_.next[j] = static_cast<int32_t>(at_most(a_.index[j] + 1, last));
      a_.low[j] = tap.low, a_.high[j] = tap.high;
    }
    span_ = a_.next[count_ - 1] + 1;
  }

  // One slice's rows combined, for all columns of the block.
  const C* slice(int32_t z, const Tap<C>& height, C* room) {
    const C* const upper = row_of(z, height.index);
    if (height.high == C(0)) return upper;
    return combine(upper, row_of(z, height.index + 1), height, room);
  }

  // A weight `high` of 0 goes with a weight `low` of 1.
  const C* combine(const C* first, const C* second, const Tap<C>& tap, C* room) const {
    for (int32_t j = 0; j < count_; ++j) room[j] = baracuda::fma(tap.high, second[j], tap.low * first[j]);
    return room;
  }

  // An input row at the output's width. Two neighbouring rows of two neighbouring slices never share a place.
  const C* row_of(int32_t z, int32_t y) {
    const int64_t row = static_cast<int64_t>(z) * p_.height().input + y;
    C* const room = a_.rows[z & 1][y & 1];
    if (held_[z & 1][y & 1] == row) return room;
    held_[z & 1][y & 1] = row;
    const T* const from = b_.input + (plane_ * p_.input_rows() + row) * p_.width().input + base_;
    if (p_.width().rule == Rule::kSame) {
      widen_row(from, room, count_);
    } else if (std::is_same_v<T, C> || span_ <= kStaged) {
      stretch(widened(from, a_.staged, span_), room);
    } else {
      stretch(from, room);
    }
    return room;
  }

  template <typename From>
  void stretch(const From* from, C* room) const {
    if (!is_doubled(p_.width())) return stretch_some(from, room, 0, count_);
    // Output pixels 2 m + 1 and 2 m + 2 lie between pixels m and m + 1, with the same weights everywhere.
    const int32_t head = static_cast<int32_t>(at_most(first_ % 2 == 0 ? 1 : 0, count_));
    const int32_t end = first_ + count_ == p_.width().output ? count_ - 1 : count_;
    const int32_t pairs = end > head ? (end - head) / 2 : 0;
    stretch_some(from, room, 0, head);
    if (pairs > 0) stretch_pairs(from + a_.index[head], room + head, pairs);
    stretch_some(from, room, head + 2 * pairs, count_);
  }

  template <typename From>
  void stretch_pairs(const From* from, C* __restrict__ room, int32_t pairs) const {
    const C near = C(0.75), far = C(0.25);
    for (int32_t m = 0; m < pairs; ++m) {
      const C here = widen(from[m]), next = widen(from[m + 1]);
      room[2 * m] = baracuda::fma(far, next, near * here);
      room[2 * m + 1] = baracuda::fma(near, next, far * here);
    }
  }

  template <typename From>
  void stretch_some(const From* from, C* room, int32_t begin, int32_t end) const {
    for (int32_t j = begin; j < end; ++j) {
      const C low = a_.low[j] * widen(from[a_.index[j]]);
      const C both = baracuda::fma(a_.high[j], widen(from[a_.next[j]]), low);
      room[j] = a_.high[j] != C(0) ? both : low;
    }
  }

  const Problem& p_;
  const ForwardBuffers<T>& b_;
  ForwardArrays<T>& a_;
  int64_t block_ = -1, plane_ = -1;
  int32_t first_ = 0, count_ = 0, base_ = 0, span_ = 0;
  int64_t held_[2][2] = {{-1, -1}, {-1, -1}};
};

inline int64_t blocks_of(int32_t width) { return ceil_div(width, kBlock); }

template <typename T>
void interpolate_linear(const Problem& p, const ForwardBuffers<T>& b, const TaskScratch<ForwardArrays<T>>& scratch) {
  const int64_t rows = p.output_rows(), all_rows = p.planes() * rows;
  const int64_t blocks = blocks_of(p.width().output);
  parallel_parts(blocks * all_rows, grain_for(at_most(p.width().output, kBlock)), [&](int64_t begin, int64_t end) {
    LinearRows<T> worker(p, b, scratch.mine());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % all_rows;
      worker.write(row / rows, i / all_rows, row % rows);
    }
  });
}

// The nearest modes: elements are moved; an output row that is the same as the one above is copied from there.
template <typename T>
class NearestRows {
 public:
  NearestRows(const Problem& p, const ForwardBuffers<T>& b, int32_t* index) : p_(p), b_(b), index_(index) {}

  void write(int64_t plane, int64_t block, int64_t row) {
    if (block != block_) enter(block);
    const int64_t y = nearest_index(p_.height(), static_cast<int32_t>(row % p_.height().output));
    const int64_t z = nearest_index(p_.depth(), static_cast<int32_t>(row / p_.height().output));
    const int64_t source = (plane * p_.depth().input + z) * p_.height().input + y;
    T* const out = b_.output + (plane * p_.output_rows() + row) * p_.width().output + first_;
    const size_t bytes = static_cast<size_t>(count_) * sizeof(T);
    if (source == source_) {
      memcpy(out, written_, bytes);
    } else {
      const T* const from = b_.input + source * p_.width().input;
      if (p_.width().rule == Rule::kSame) {
        memcpy(out, from + first_, bytes);
      } else if (is_doubled(p_.width()) && first_ % 2 == 0 && count_ % 2 == 0) {
        const T* const pixels = from + first_ / 2;
        for (int32_t m = 0; m < count_ / 2; ++m) out[2 * m] = out[2 * m + 1] = pixels[m];
      } else {
        for (int32_t j = 0; j < count_; ++j) out[j] = from[index_[j]];
      }
    }
    source_ = source, written_ = out;
  }

 private:
  void enter(int64_t block) {
    block_ = block, source_ = -1;
    first_ = static_cast<int32_t>(block * kBlock);
    count_ = static_cast<int32_t>(at_most(p_.width().output - first_, kBlock));
    for (int32_t j = 0; j < count_; ++j) index_[j] = nearest_index(p_.width(), first_ + j);
  }

  const Problem& p_;
  const ForwardBuffers<T>& b_;
  int32_t* index_;
  int64_t block_ = -1, source_ = -1;
  const T* written_ = nullptr;
  int32_t first_ = 0, count_ = 0;
};

template <typename T>
void interpolate_nearest(const Problem& p, const ForwardBuffers<T>& b, const TaskScratch<ForwardArrays<T>>& scratch) {
  const int64_t rows = p.output_rows(), all_rows = p.planes() * rows;
  const int64_t blocks = blocks_of(p.width().output);
  parallel_parts(blocks * all_rows, grain_for(at_most(p.width().output, kBlock)), [&](int64_t begin, int64_t end) {
    NearestRows<T> worker(p, b, scratch.mine().index);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % all_rows;
      worker.write(row / rows, i / all_rows, row % rows);
    }
  });
}

}  // namespace
}  // namespace baracuda::interpolate
