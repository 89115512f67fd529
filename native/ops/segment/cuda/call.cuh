// SPDX-License-Identifier: Apache-2.0
// The tensors of one call, and how a rule's state becomes a result in them.
#pragma once

#include "ops/segment/cuda/state.cuh"
#include "ops/segment/launch.h"

namespace baracuda::segment {
namespace {

// What sums of bags and their gradients have besides: a divisor of each sum, and of gradients a factor and the columns
// of each rank of the sorted list.
enum class Divisor : int32_t { kOne, kSize, kCount };
template <typename T>
struct BagTerms {
  Divisor divisor = Divisor::kOne;
  const int32_t* sizes = nullptr;  // [num_segments], of 32 or 64 bits, below 2^31
  int32_t wide_sizes = 0;
  const Compute<T>* factors = nullptr;  // [n]; NULL: 1
  const uint32_t* columns = nullptr;    // [n][column_words], a bit a column: those that take part; NULL: all
  int32_t column_words = 0;

  __device__ __forceinline__ int32_t divisor_of(int32_t key, int32_t count) const {
    if (divisor == Divisor::kOne) return 1;
    return divisor == Divisor::kCount ? count : sizes[static_cast<int64_t>(key) << wide_sizes];
  }
};
struct NoTerms {};
template <class Tag>
struct TermsOf {
  using type = NoTerms;
  static constexpr bool kSome = false;
};
template <typename T>
struct TermsOf<rule::BagSum<T>> {
  using type = BagTerms<T>;
  static constexpr bool kSome = true;
};

// What a segment becomes, by its rule.
template <class Tag>
struct Call : TermsOf<Tag>::type {
  using Fold = Rule<Tag>;
  using T = typename Tag::Element;
  static constexpr bool kReduces = Fold::kKind == Kind::kReduce;
  int32_t d;
  int32_t num_segments;
  const T* x;
  const T* y;
  const T* s;
  T* result;
  void* result_arg;
  T of_no_rows;
  bool wide;

  Call(const Problem& p, const Buffers<Tag>& b)
      : d(p.d), num_segments(p.num_segments), x(b.rows[0]), y(b.rows[1]), s(b.segments[0]), result(b.result),
        result_arg(b.result_arg), of_no_rows(b.of_no_rows), wide(b.wide_index) {}

  // Where a row's or a segment's columns are: one multiplication, for no number is negative.
  __device__ __forceinline__ int64_t place(int32_t row, int32_t column) const {
    return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(row)} * static_cast<uint32_t>(d)) + column;
  }

  // A segment's result.
  template <int V>
  __device__ __forceinline__ void finish_segment(int32_t key, int32_t column, const State<Fold, V>& state,
                                                 int32_t count) const {
    const int64_t at = static_cast<int64_t>(key) * d + column;
    Columns<T, V> values;
    if constexpr (TermsOf<Tag>::kSome) count = this->divisor_of(key, count);
#pragma unroll
    for (int k = 0; k < V; ++k) values.at[k] = Fold::output(state.first.at[k], state.second.at[k], count);
    store<V>(result + at, values);
    if constexpr (std::is_same_v<typename Fold::Second, int32_t>) {
      if (result_arg == nullptr) return;
#pragma unroll
      for (int k = 0; k < V; ++k) store_row_index(result_arg, wide, at + k, state.second.at[k]);
    }
  }

  // What a segment's rows need of its own tensor.
  template <int V>
  __device__ __forceinline__ Columns<T, V> of_segment(int32_t key, int32_t column) const {
    if (kReduces || Fold::kSegments == 0 || key == num_segments) return {};
    return load<V>(s + static_cast<int64_t>(key) * d + column);
  }
  template <int V>
  __device__ __forceinline__ void finish_row(int32_t row, int32_t column, const State<Fold, V>& state,
                                             const Columns<T, V>& segment) const {
    static_assert(Fold::kRows == 1);
    const int64_t at = place(row, column);
    Columns<T, V> values, mine{};
    if constexpr (Fold::kReadsRowsAgain) mine = load<V>(x + at);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      values.at[k] = Fold::value(state.first.at[k], state.second.at[k], segment.at[k], mine.at[k], T{}, row);
    }
    store<V>(result + at, values);
  }
  template <int V>
  __device__ __forceinline__ void drop_row(int32_t row, int32_t column) const {
    store<V>(result + place(row, column), Columns<T, V>{});
  }
  // What a segment of several pieces becomes, of rules whose rows have zeros by then but for the one that holds the
  // column's value.
  __device__ __forceinline__ void finish_holder(int32_t key, int32_t column, const State<Fold, 1>& state) const {
    result[place(state.second.at[0], column)] = s[place(key, column)];
  }
};

// Folds the rows of the ranks [begin, end), or reads none of them, and gives them zeros.
template <int V, int kCount, class Tag, class Ranks>
__device__ __forceinline__ State<Rule<Tag>, V> zero_rows(const Call<Tag>& call, const Ranks& list, int32_t begin,
                                                          int32_t end, int32_t column, bool reads) {
  using T = typename Tag::Element;
  State<Rule<Tag>, V> state{};
  // Beyond the end the last row again: all loads are issued together.
  int32_t rows[kCount];
#pragma unroll
  for (int u = 0; u < kCount; ++u) rows[u] = list.row(begin + u < end ? begin + u : end - 1);
#pragma unroll 1
  for (int32_t batch = begin; batch < end; batch += kCount) {
    Words<T, V> values[kCount];
    int32_t following[kCount];
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      values[u] = Words<T, V>{};
      if (reads) values[u] = load_words_once<V>(call.x + call.place(rows[u], column));
    }
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      const int32_t rank = batch + kCount + u;
      following[u] = list.row(rank < end ? rank : end - 1);
    }
#pragma unroll
    for (int u = 0; u < kCount; ++u) call.template drop_row<V>(rows[u], column);
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      if (batch + u >= end) break;
      const Columns<T, V> row = bits_as<Columns<T, V>>(values[u]);
      state.add(row, row, rows[u], batch + u == begin);
    }
#pragma unroll
    for (int u = 0; u < kCount; ++u) rows[u] = following[u];
  }
  return state;
}

}  // namespace
}  // namespace baracuda::segment
