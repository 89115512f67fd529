// SPDX-License-Identifier: Apache-2.0
// Some rows of one segment in a lane's registers: loaded together, folded, and finished while they are still there.
// Rules with long formulas and those that read a segment's rows twice go through rows in this way.
#pragma once

#include "core/cuda_instructions.cuh"
#include "ops/segment/cuda/call.cuh"

namespace baracuda::segment {
namespace {

// Whether a rule's results take its rows again.
template <class Tag>
constexpr bool reads_rows_again() {
  if constexpr (Rule<Tag>::kKind == Kind::kDistribute) {
    return Rule<Tag>::kReadsRowsAgain;
  } else {
    return false;
  }
}

// Whether a rule's pieces of a list take distribute_list rather than reduce_list or select_in_list.
template <class Tag>
constexpr bool takes_pieces_singly() {
  return reads_rows_again<Tag>() || IsExponentialSum<Rule<Tag>>::value;
}

// A rule's value() in fewer operations, with the same bits wherever holds() is true.
template <class Tag>
struct FastValue {
  static constexpr bool kExists = false;
};
// Softmax where no term is so small that it or its share could be subnormal; never where the largest value is not
// finite.
template <typename T>
struct FastSoftmax {
  static constexpr bool kExists = true;
  static __device__ __forceinline__ bool holds(float largest, T x) { return wide(x) - largest >= -40.0f; }
  // 1 / sum, to all bits but perhaps the last.
  static __device__ __forceinline__ float inverse(float sum) {
    const float seed = inverse_estimate(sum);
    return fma(seed, fma(-sum, seed, 1.0f), seed);
  }
  // The share's error is exact, so that its correction gives the rounded quotient: a division without what it does at
  // the ends of the range.
  static __device__ __forceinline__ T value(float largest, float sum, float inverse, T x) {
    const float term = exp_of_normal(wide(x) - largest), share = term * inverse;
    const float quotient = fma(inverse, fma(-sum, share, term), share);
    if constexpr (std::is_same_v<T, float>) {
      return quotient;
    } else {
      return stored<T>(quotient);
    }
  }
};
template <>
struct FastValue<rule::Softmax<float>> : FastSoftmax<float> {};
template <>
struct FastValue<rule::Softmax<Half>> : FastSoftmax<Half> {};
template <>
struct FastValue<rule::Softmax<Bfloat16>> : FastSoftmax<Bfloat16> {};

// Some consecutive ranks of one segment: where their rows lie and what they hold.
template <class Tag, int V>
struct Batch {
  using Fold = Rule<Tag>;
  using T = typename Tag::Element;
  int32_t rows[kRowsInFlight];
  Words<T, V> x[kRowsInFlight];
  Words<T, V> y[kRowsInFlight];

  // Where a row's columns begin: one multiplication, for neither number is negative.
  __device__ __forceinline__ int64_t place(const Call<Tag>& call, int u, int32_t column) const {
    return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(rows[u])} * static_cast<uint32_t>(call.d)) + column;
  }
  // The ranks from `begin` on, of which `count` are wanted: without a branch, so that all loads are issued together.
  template <class Ranks>
  __device__ __forceinline__ void load_rows(const Ranks& list, int32_t begin, int32_t count) {
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) rows[u] = u < count ? list.row(begin + u) : 0;
  }
  __device__ __forceinline__ void load_values(const Call<Tag>& call, int32_t column, int32_t count) {
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const int64_t at = place(call, u, column);
      x[u] = Words<T, V>{};
      if (u < count) x[u] = reads_rows_again<Tag>() ? load_words<V>(call.x + at) : load_words_once<V>(call.x + at);
      if constexpr (Fold::kRows > 1) {
        y[u] = Words<T, V>{};
        if (u < count) y[u] = load_words<V>(call.y + at);
      } else {
        y[u] = x[u];
      }
    }
  }
  template <class Ranks>
  __device__ __forceinline__ void load(const Call<Tag>& call, const Ranks& list, int32_t begin, int32_t count,
                                       int32_t column) {
    load_rows(list, begin, count);
    load_values(call, column, count);
  }

  __device__ __forceinline__ void add(State<Fold, V>& state, int u, bool begins) const {
    state.add(bits_as<Columns<T, V>>(x[u]), bits_as<Columns<T, V>>(y[u]), rows[u], begins);
  }
  __device__ __forceinline__ void fold(State<Fold, V>& state, int32_t count, bool begins) const {
    if constexpr (IsExponentialSum<Fold>::value) {
      fold_pairs(state, count);
    } else {
      if (begins) {
        add(state, 0, true);
      } else {
        add(state, 0, false);
      }
#pragma unroll
      for (int u = 1; u < kRowsInFlight; ++u) {
        if (u >= count) break;
        add(state, u, false);
      }
    }
  }
  // Two rows at a time: an exponential is a long chain of operations. A row beyond the last one has no term.
  __device__ __forceinline__ void fold_pairs(State<Fold, V>& state, int32_t count) const {
    using C = Compute<T>;
#pragma unroll
    for (int pair = 0; pair < kRowsInFlight; pair += 2) {
      if (pair >= count) break;
      const bool both = pair + 1 < count;
      const Columns<T, V> one = bits_as<Columns<T, V>>(x[pair]), other = bits_as<Columns<T, V>>(x[pair + 1]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        Fold::join(state.first.at[k], state.second.at[k], wide(one.at[k]), C(1));
        Fold::join(state.first.at[k], state.second.at[k], choose(both, wide(other.at[k]), Limits<C>::lowest()),
                   choose(both, C(1), C(0)));
      }
    }
  }
  // `begin` is the first rank.
  template <class Ranks>
  __device__ __forceinline__ void finish(const Call<Tag>& call, const Ranks& list, const State<Fold, V>& state,
                                         const Columns<T, V>& segment, int32_t begin, int32_t count,
                                         int32_t column) const {
    if constexpr (FastValue<Tag>::kExists) {
      if (finish_fast(call, state, count, column)) return;
      // Rare: short code matters more than what it takes to read the rows again.
#pragma unroll 1
      for (int32_t rank = begin; rank < begin + count; ++rank) {
        call.template finish_row<V>(list.row(rank), column, state, segment);
      }
    } else {
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        if (u >= count) break;
        const Columns<T, V> mine = bits_as<Columns<T, V>>(x[u]), other = bits_as<Columns<T, V>>(y[u]);
        Columns<T, V> values;
#pragma unroll
        for (int k = 0; k < V; ++k) {
          values.at[k] =
              Fold::value(state.first.at[k], state.second.at[k], segment.at[k], mine.at[k], other.at[k], rows[u]);
        }
        store<V>(call.result + place(call, u, column), values);
      }
    }
  }

  // Finishes the rows if all of them may take the shorter way. Two at a time: each chain of operations is long.
  __device__ __forceinline__ bool finish_fast(const Call<Tag>& call, const State<Fold, V>& state, int32_t count,
                                              int32_t column) const {
    bool holds = true;
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const Columns<T, V> mine = bits_as<Columns<T, V>>(x[u]);
#pragma unroll
      for (int k = 0; k < V; ++k) holds &= u >= count || FastValue<Tag>::holds(state.first.at[k], mine.at[k]);
    }
    if (!holds) return false;
    float inverse[V];
#pragma unroll
    for (int k = 0; k < V; ++k) inverse[k] = FastValue<Tag>::inverse(state.second.at[k]);
#pragma unroll
    for (int pair = 0; pair < kRowsInFlight; pair += 2) {
      if (pair >= count) break;
      Columns<T, V> values[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Columns<T, V> mine = bits_as<Columns<T, V>>(x[pair + i]);
#pragma unroll
        for (int k = 0; k < V; ++k) {
          values[i].at[k] = FastValue<Tag>::value(state.first.at[k], state.second.at[k], inverse[k], mine.at[k]);
        }
      }
      store<V>(call.result + place(call, pair, column), values[0]);
      if (pair + 1 < count) store<V>(call.result + place(call, pair + 1, column), values[1]);
    }
    return true;
  }
};

// Whether the next rows are fetched before the last ones are looked at: formulas of exponentials take as long as that.
template <class Tag>
constexpr bool kFetchesAhead = IsExponentialSum<Rule<Tag>>::value && sizeof(typename Tag::Element) <= 4;

// Folds the ranks [begin, end), of which `batch` holds the first `count`. In the end it holds the last `count`, from
// the rank on that is answered.
template <bool kAhead, class Tag, int V, class Ranks>
__device__ __forceinline__ int32_t fold_ranks(const Call<Tag>& call, const Ranks& list, int32_t begin, int32_t end,
                                              int32_t column, Batch<Tag, V>& batch, int32_t& count,
                                              State<Rule<Tag>, V>& state) {
  int32_t at = begin;
#pragma unroll 1
  while (true) {
    const int32_t left = end - at - kRowsInFlight, wanted = left < kRowsInFlight ? left : kRowsInFlight;
    if constexpr (kAhead) {
      Batch<Tag, V> following;
      if (left > 0) following.load(call, list, at + kRowsInFlight, wanted, column);
      batch.fold(state, count, at == begin);
      if (left <= 0) return at;
      batch = following;
    } else {
      batch.fold(state, count, at == begin);
      if (left <= 0) return at;
      batch.load(call, list, at + kRowsInFlight, wanted, column);
    }
    at += kRowsInFlight;
    count = wanted;
  }
}
// Writes the rows of the ranks from `begin` on, last ones first: the last `count` rows, from rank `at` on, are still in
// registers.
template <class Tag, int V, class Ranks>
__device__ __forceinline__ void finish_ranks(const Call<Tag>& call, const Ranks& list, int32_t begin, int32_t at,
                                             int32_t column, Batch<Tag, V>& batch, int32_t count,
                                             const State<Rule<Tag>, V>& state,
                                             const Columns<typename Tag::Element, V>& segment) {
#pragma unroll 1
  while (true) {
    batch.finish(call, list, state, segment, at, count, column);
    if (at == begin) return;
    at -= kRowsInFlight;
    count = kRowsInFlight;
    if constexpr (reads_rows_again<Tag>()) {
      batch.load(call, list, at, count, column);
    } else {
      batch.load_rows(list, at, count);
    }
  }
}

}  // namespace
}  // namespace baracuda::segment
