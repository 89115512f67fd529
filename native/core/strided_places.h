// SPDX-License-Identifier: Apache-2.0
// Whether elements of strided tensors stand in one place, answered exactly. Host code only; no memory is read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>

#include "core/integer_math.h"

namespace baracuda {

enum class Answer {
  kNo,
  kYes,
  kUnknown,  // the search was given up
};

// Asks whether numbers x_i with 0 <= x_i <= last_i exist whose sum of step_i * x_i is a target: both questions below
// come down to this.
//
// The steps are tried from the largest down. What the smaller steps can still add bounds each x_i from both sides, and
// their greatest common divisor fixes its remainder, so the last two numbers need no search at all. Layouts that are
// slices, transposes or flips of dense memory collapse into few steps and take a handful of trials. Only three or more
// incommensurable steps of comparable size take many; kMostTrials ends that after a few milliseconds, and nobody has
// memory in which a layout that takes so many trials holds its elements apart by design.
class BoundedSum {
 public:
  // Two tensors of eight axes, and the bytes of an element.
  static constexpr int kMostTerms = 17;
  static constexpr int kMostTrials = 1 << 16;
  // Sums of two spans of 2^63 bytes.
  using Wide = __int128;

  // Adds a number; `step` is not negative.
  void add(Wide step, Wide last) {
    if (step != 0 && last != 0) terms_[count_++] = {step, last};
  }

  Answer reaches(Wide target) {
    arrange();
    if (target < 0 || target > reach_[0]) return Answer::kNo;
    if (count_ == 0) return Answer::kYes;
    if (target % divisor_[0] != 0) return Answer::kNo;
    trials_ = 0;
    return search(0, target);
  }

 private:
  struct Term {
    Wide step, last;
  };

  static Wide greatest_common_divisor(Wide a, Wide b) {
    while (b != 0) a = std::exchange(b, a % b);
    return a;
  }

  // The inverse of `value` modulo `modulus`, which have no common divisor.
  static Wide inverse(Wide value, Wide modulus) {
    Wide r = modulus, next_r = value % modulus, t = 0, next_t = 1;
    while (next_r != 0) {
      const Wide quotient = r / next_r;
      r = std::exchange(next_r, r - quotient * next_r);
      t = std::exchange(next_t, t - quotient * next_t);
    }
    return t < 0 ? t + modulus : t % modulus;
  }

  // Puts the largest step first. A step that continues where a smaller one ends makes one longer number with it.
  void arrange() {
    for (int i = 1; i < count_; ++i) {
      for (int j = i; j > 0 && terms_[j].step < terms_[j - 1].step; --j) std::swap(terms_[j], terms_[j - 1]);
    }
    int kept = 0;
    for (int i = 0; i < count_; ++i) {
      const Term& term = terms_[i];
      int into = 0;
      while (into < kept && !(term.step % terms_[into].step == 0 &&
                              term.step / terms_[into].step <= terms_[into].last + 1)) {
        ++into;
      }
      if (into < kept) {
        terms_[into].last += term.step / terms_[into].step * term.last;
      } else {
        terms_[kept++] = term;
      }
    }
    count_ = kept;
    for (int i = 0; i < count_ / 2; ++i) std::swap(terms_[i], terms_[count_ - 1 - i]);
    reach_[count_] = divisor_[count_] = 0;
    for (int i = count_ - 1; i >= 0; --i) {
      reach_[i] = reach_[i + 1] + terms_[i].step * terms_[i].last;
      divisor_[i] = greatest_common_divisor(terms_[i].step, divisor_[i + 1]);
      if (i == count_ - 1) continue;
      period_[i] = divisor_[i + 1] / divisor_[i];
      inverse_[i] = period_[i] == 1 ? 0 : inverse(terms_[i].step / divisor_[i], period_[i]);
    }
  }

  // The numbers from `at` on; the target is a multiple of their divisor and within their reach.
  Answer search(int at, Wide target) {
    if (at == count_ - 1) return Answer::kYes;
    const Wide step = terms_[at].step, rest = reach_[at + 1];
    const Wide low = target > rest ? groups_of<Wide>(target - rest, step) : 0;
    const Wide most = target / step, high = most < terms_[at].last ? most : terms_[at].last;
    // Every period-th number leaves a multiple of what the smaller steps can make.
    const Wide period = period_[at], remainder = target / divisor_[at] % period * inverse_[at] % period;
    for (Wide x = low + ((remainder - low) % period + period) % period; x <= high; x += period) {
      if (++trials_ > kMostTrials) return Answer::kUnknown;
      const Answer answer = search(at + 1, target - step * x);
      if (answer != Answer::kNo) return answer;
    }
    return Answer::kNo;
  }

  Term terms_[kMostTerms];
  int count_ = 0;
  int trials_ = 0;
  // Of the terms from each on: the largest sum, and what divides every sum.
  Wide reach_[kMostTerms + 1], divisor_[kMostTerms + 1];
  Wide period_[kMostTerms], inverse_[kMostTerms];
};

// A tensor of up to 8 axes. Its strides count elements and span less than 2^63 bytes.
struct StridedTensor {
  const void* first;  // the element whose indices are all 0
  int rank;
  int64_t extents[8];
  int64_t strides[8];
};

// An axis of more than one element, its direction left out.
struct SteppedAxis {
  int64_t step, last;
};

// Whether two index tuples name one place that differ in axis `k`, by 1 to its last index, and in the axes before it,
// by anything. Differences are counted from the other end, so that they are not negative; `reach` is that of all k + 1.
[[gnu::noinline]] inline Answer meet_along(const SteppedAxis* axes, int k, int64_t reach) {
  BoundedSum sum;
  for (int j = 0; j < k; ++j) sum.add(axes[j].step, BoundedSum::Wide{2} * axes[j].last);
  sum.add(axes[k].step, axes[k].last - 1);
  return sum.reaches(reach);
}

// Whether two index tuples of a tensor name one place. An axis whose stride passes the reach of all smaller ones keeps
// its elements apart, so a usual layout is answered by sorting its strides.
inline Answer holds_two_in_one_place(const StridedTensor& tensor) {
  SteppedAxis axes[8];
  int count = 0;
  // First of all: the strides of an empty tensor may be any, also one that has no negative.
  for (int a = 0; a < tensor.rank; ++a) {
    if (tensor.extents[a] == 0) return Answer::kNo;
  }
  for (int a = 0; a < tensor.rank; ++a) {
    if (tensor.extents[a] == 1) continue;
    const int64_t stride = tensor.strides[a];
    const SteppedAxis axis{stride < 0 ? -stride : stride, tensor.extents[a] - 1};
    int at = count++;
    for (; at > 0 && axes[at - 1].step > axis.step; --at) axes[at] = axes[at - 1];
    axes[at] = axis;
  }
  int64_t reach = 0;
  for (int k = 0; k < count; ++k) {
    const int64_t whole = reach + axes[k].step * axes[k].last;
    if (axes[k].step <= reach) {
      const Answer answer = axes[k].step == 0 ? Answer::kYes : meet_along(axes, k, whole);
      if (answer != Answer::kNo) return answer;
    }
    reach = whole;
  }
  return Answer::kNo;
}

// The bytes that a tensor's elements span, gaps included; none of an empty one.
struct Span {
  uintptr_t start;
  uint64_t bytes;
};

inline Span span_of(const StridedTensor& tensor, int64_t element_bytes) {
  Span span{reinterpret_cast<uintptr_t>(tensor.first), static_cast<uint64_t>(element_bytes)};
  for (int a = 0; a < tensor.rank; ++a) {
    if (tensor.extents[a] == 0) return {span.start, 0};
    const uint64_t reach = static_cast<uint64_t>(tensor.strides[a]) * static_cast<uint64_t>(tensor.extents[a] - 1) *
                           static_cast<uint64_t>(element_bytes);
    if (tensor.strides[a] < 0) span.start += reach;  // modulo 2^64
    span.bytes += tensor.strides[a] < 0 ? 0 - reach : reach;
  }
  return span;
}

// Whether elements whose spans meet have a byte in common. An address of one is less an address of the other 0, in
// the largest unit that divides all: the elements of b are counted from the far end, and both elements have several
// such units where they are not aligned to each other.
[[gnu::noinline]] inline Answer meet_in_a_byte(const StridedTensor& a, const StridedTensor& b, int64_t element_bytes,
                                               BoundedSum::Wide apart, uint64_t reach_of_b) {
  using Wide = BoundedSum::Wide;
  Wide unit = element_bytes;
  while (apart % unit != 0) unit /= 2;
  const Wide units = element_bytes / unit;
  BoundedSum sum;
  for (const StridedTensor* tensor : {&a, &b}) {
    for (int i = 0; i < tensor->rank; ++i) {
      const Wide stride = tensor->strides[i];
      sum.add((stride < 0 ? -stride : stride) * units, tensor->extents[i] - 1);
    }
  }
  sum.add(1, 2 * (units - 1));
  return sum.reaches((apart + reach_of_b) / unit + units - 1);
}

// Whether two tensors of elements of one size have a byte in common.
inline Answer share_a_byte(const StridedTensor& a, const StridedTensor& b, int64_t element_bytes) {
  const Span of_a = span_of(a, element_bytes), of_b = span_of(b, element_bytes);
  if (of_a.bytes == 0 || of_b.bytes == 0) return Answer::kNo;
  // A difference of the wrong sign wraps to more than any span.
  const bool b_starts_in_a = of_b.start - of_a.start < of_a.bytes, a_starts_in_b = of_a.start - of_b.start < of_b.bytes;
  if (!b_starts_in_a && !a_starts_in_b) return Answer::kNo;
  const BoundedSum::Wide apart = b_starts_in_a ? static_cast<BoundedSum::Wide>(of_b.start - of_a.start)
                                               : -static_cast<BoundedSum::Wide>(of_a.start - of_b.start);
  return meet_in_a_byte(a, b, element_bytes, apart, of_b.bytes - static_cast<uint64_t>(element_bytes));
}

}  // namespace baracuda
