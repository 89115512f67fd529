// SPDX-License-Identifier: Apache-2.0
// Rules with long formulas, and those that read a segment's rows again once they are folded, on CUDA: a group of lanes
// takes its pieces one after the other. The rows of a short piece are still in registers when its state is known, those
// of a longer one in a cache. Formulas appear once each in the code: unrolled over rows of several segments they would
// not fit the instruction cache.
#pragma once

#include "ops/segment/cuda/list/pieces.cuh"

namespace baracuda::segment {
namespace {

// Whether a rule's results take its rows again.
template <class Name>
constexpr bool reads_rows_again() {
  if constexpr (Rule<Name>::kKind == Kind::kDistribute) {
    return Rule<Name>::kReadsRowsAgain;
  } else {
    return false;
  }
}

// Whether a rule's pieces of a list take distribute_list rather than reduce_list or select_in_list.
template <class Name>
constexpr bool takes_pieces_singly() {
  return reads_rows_again<Name>() || IsExponentialSum<Rule<Name>>::value;
}

// A rule's value() in fewer operations and with the same bits, where holds() says so.
template <class Name>
struct Near {
  static constexpr bool kExists = false;
};
// Softmax where no term is so small that it or its share could be subnormal; never where the largest value is not
// finite.
template <typename T>
struct NearSoftmax {
  static constexpr bool kExists = true;
  static __device__ __forceinline__ bool holds(float largest, T x) { return wide(x) - largest >= -40.0f; }
  // 1 / sum, to all bits but perhaps the last.
  static __device__ __forceinline__ float inverse(float sum) {
    float seed;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(seed) : "f"(sum));
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
struct Near<rule::Softmax<float>> : NearSoftmax<float> {};
template <>
struct Near<rule::Softmax<Half>> : NearSoftmax<Half> {};
template <>
struct Near<rule::Softmax<Bfloat16>> : NearSoftmax<Bfloat16> {};

// Some consecutive ranks of one segment: where their rows lie and what they hold.
template <class Name, int V>
struct Batch {
  using Fold = Rule<Name>;
  using T = typename Name::Element;
  int32_t rows[kRowsInFlight];
  Words<T, V> x[kRowsInFlight];
  Words<T, V> y[kRowsInFlight];

  // Where a row's columns begin: one multiplication, for neither number is negative.
  __device__ __forceinline__ int64_t place(const Side<Name>& side, int u, int32_t column) const {
    return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(rows[u])} * static_cast<uint32_t>(side.d)) + column;
  }
  // The ranks from `begin` on, of which `count` are wanted: without a branch, so that all loads are issued together.
  template <class Ranks>
  __device__ __forceinline__ void load_rows(const Ranks& list, int32_t begin, int32_t count) {
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) rows[u] = u < count ? list.row(begin + u) : 0;
  }
  __device__ __forceinline__ void load_values(const Side<Name>& side, int32_t column, int32_t count) {
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const int64_t at = place(side, u, column);
      x[u] = Words<T, V>{};
      if (u < count) x[u] = reads_rows_again<Name>() ? load_words<V>(side.x + at) : load_words_once<V>(side.x + at);
      if constexpr (Fold::kRows > 1) {
        y[u] = Words<T, V>{};
        if (u < count) y[u] = load_words<V>(side.y + at);
      } else {
        y[u] = x[u];
      }
    }
  }
  template <class Ranks>
  __device__ __forceinline__ void load(const Side<Name>& side, const Ranks& list, int32_t begin, int32_t count,
                                       int32_t column) {
    load_rows(list, begin, count);
    load_values(side, column, count);
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
  __device__ __forceinline__ void finish(const Side<Name>& side, const Ranks& list, const State<Fold, V>& state,
                                         const Columns<T, V>& segment, int32_t begin, int32_t count,
                                         int32_t column) const {
    if constexpr (Near<Name>::kExists) {
      if (finish_near(side, state, count, column)) return;
      // Rare: short code matters more than what it takes to read the rows again.
#pragma unroll 1
      for (int32_t rank = begin; rank < begin + count; ++rank) {
        side.template finish_row<V>(list.row(rank), column, state, segment);
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
        store<V>(side.result + place(side, u, column), values);
      }
    }
  }

  // Finishes the rows if all of them may take the shorter way. Two at a time: each chain of operations is long.
  __device__ __forceinline__ bool finish_near(const Side<Name>& side, const State<Fold, V>& state, int32_t count,
                                              int32_t column) const {
    bool holds = true;
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const Columns<T, V> mine = bits_as<Columns<T, V>>(x[u]);
#pragma unroll
      for (int k = 0; k < V; ++k) holds &= u >= count || Near<Name>::holds(state.first.at[k], mine.at[k]);
    }
    if (!holds) return false;
    float inverse[V];
#pragma unroll
    for (int k = 0; k < V; ++k) inverse[k] = Near<Name>::inverse(state.second.at[k]);
#pragma unroll
    for (int pair = 0; pair < kRowsInFlight; pair += 2) {
      if (pair >= count) break;
      Columns<T, V> values[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Columns<T, V> mine = bits_as<Columns<T, V>>(x[pair + i]);
#pragma unroll
        for (int k = 0; k < V; ++k) {
          values[i].at[k] = Near<Name>::value(state.first.at[k], state.second.at[k], inverse[k], mine.at[k]);
        }
      }
      store<V>(side.result + place(side, pair, column), values[0]);
      if (pair + 1 < count) store<V>(side.result + place(side, pair + 1, column), values[1]);
    }
    return true;
  }
};

// Whether the next rows are fetched before the last ones are looked at: formulas of exponentials take as long as that.
template <class Name>
constexpr bool kFetchesAhead = IsExponentialSum<Rule<Name>>::value && sizeof(typename Name::Element) <= 4;

// Folds the ranks [begin, end), of which `batch` holds the first `count`. In the end it holds the last `count`, from
// the rank on that is answered.
template <bool kAhead, class Name, int V, class Ranks>
__device__ __forceinline__ int32_t fold_ranks(const Side<Name>& side, const Ranks& list, int32_t begin, int32_t end,
                                              int32_t column, Batch<Name, V>& batch, int32_t& count,
                                              State<Rule<Name>, V>& state) {
  int32_t at = begin;
#pragma unroll 1
  while (true) {
    const int32_t left = end - at - kRowsInFlight, wanted = left < kRowsInFlight ? left : kRowsInFlight;
    if constexpr (kAhead) {
      Batch<Name, V> following;
      if (left > 0) following.load(side, list, at + kRowsInFlight, wanted, column);
      batch.fold(state, count, at == begin);
      if (left <= 0) return at;
      batch = following;
    } else {
      batch.fold(state, count, at == begin);
      if (left <= 0) return at;
      batch.load(side, list, at + kRowsInFlight, wanted, column);
    }
    at += kRowsInFlight;
    count = wanted;
  }
}
// Writes the rows of the ranks from `begin` on, backwards from those that are at hand: `count` from `at` on.
template <class Name, int V, class Ranks>
__device__ __forceinline__ void finish_ranks(const Side<Name>& side, const Ranks& list, int32_t begin, int32_t at,
                                             int32_t column, Batch<Name, V>& batch, int32_t count,
                                             const State<Rule<Name>, V>& state,
                                             const Columns<typename Name::Element, V>& segment) {
#pragma unroll 1
  while (true) {
    batch.finish(side, list, state, segment, at, count, column);
    if (at == begin) return;
    at -= kRowsInFlight;
    count = kRowsInFlight;
    if constexpr (reads_rows_again<Name>()) {
      batch.load(side, list, at, count, column);
    } else {
      batch.load_rows(list, at, count);
    }
  }
}

// Blocks a multiprocessor, hence registers a thread: for a batch of one tensor or of two.
template <class Name>
constexpr int kSingleBlocks = sizeof(typename Name::Element) > 4 ? 8
                              : Side<Name>::kReduces             ? 16
                              : Rule<Name>::kRows > 1            ? 10
                                                                 : 12;

// The segments of some ranks, or a piece of one.
template <class Name, int V>
__device__ __forceinline__ void distribute_range(const Side<Name>& side, const List& list,
                                                 const Parts<Rule<Name>>& parts, const Cuts& cuts, RankRange range,
                                                 int32_t column) {
  using T = typename Name::Element;
#pragma unroll 1
  for (int32_t piece = range.begin, next; piece < range.end; piece = next) {
    Batch<Name, V> batch;
    // The first rows are fetched before it is known how many the piece has: those of other segments are not wanted.
    Record records[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      records[u] = piece + u < range.end ? list.records[piece + u] : Record{-1, 0};
    }
    const int32_t key = records[0].key;
    int32_t count = 0;
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      count += records[u].key == key ? 1 : 0;
      batch.rows[u] = records[u].row;
    }
    if (!Side<Name>::kReduces && key == list.num_segments) {
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        if (u < count) side.template drop_row<V>(batch.rows[u], column);
      }
      next = piece + count;
      continue;
    }
    batch.load_values(side, column, count);
    const int32_t segment_begin = list.begin(key), segment_end = list.end(key);
    const Columns<T, V> segment = side.template of_segment<V>(key, column);
    next = segment_end - piece < list.piece_rows() ? segment_end : piece + list.piece_rows();
    auto state = state_of_none<Rule<Name>, V>();
    const int32_t at = fold_ranks<kFetchesAhead<Name>>(side, list, piece, next, column, batch, count, state);
    if (segment_begin != piece || segment_end != next) {
      keep_part(parts, cuts, list, side.d, key, piece, segment_begin == piece, column, state);
      continue;
    }
    if constexpr (Side<Name>::kReduces) {
      side.template finish_segment<V>(key, column, state, next - piece);
    } else {
      finish_ranks(side, list, piece, at, column, batch, count, state, segment);
    }
  }
}

template <class Name, int V>
__global__ void __launch_bounds__(kThreads, kSingleBlocks<Name>)
    distribute_list(Side<Name> side, Shape shape, List list, Parts<Rule<Name>> parts, Cuts cuts, int64_t tasks) {
  wait_for_kernel_before();
  let_kernel_after_start();
  take_tasks<V>(side, shape, list, tasks, [&](const Task& task, RankRange range) {
    distribute_range<Name, V>(side, list, parts, cuts, range, task.column);
  });
}

// Writes the rows of segments of several pieces, which are longer than a window: only the segments that hold its first
// and its last rank can be such.
template <class Name, int V>
__global__ void __launch_bounds__(kThreads, kSingleBlocks<Name>)
    distribute_parts(Side<Name> side, Shape shape, List list, Parts<Rule<Name>> parts) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const int32_t group = static_cast<int32_t>(threadIdx.x % 32) >> shape.lane_bits;
  const int64_t tasks = shape.finish_tasks(list.n);
  for (int64_t at = first_task(); at < tasks; at += task_step()) {
    const Place place(shape, at, side.d, V);
    const int64_t window_begin = (place.first + group) << shape.long_bits;
    if (window_begin >= list.n || place.column >= side.d) continue;
    const int64_t window_end = window_begin + (int64_t{1} << shape.long_bits);
    const int32_t begin = static_cast<int32_t>(window_begin);
    const int32_t end = window_end < list.n ? static_cast<int32_t>(window_end) : list.n;
    const int32_t head = list.key(begin), tail = list.key(end - 1);
#pragma unroll 1
    for (int32_t key = head;; key = tail) {
      if (list.in_pieces(key)) {
        const int32_t first = list.begin(key), last = list.end(key);
        const int32_t stop = last < end ? last : end;
        const auto state = load_part<V>(parts, list.slot(first, true) * side.d + place.column);
        const auto segment = side.template of_segment<V>(key, place.column);
#pragma unroll 1
        for (int32_t rank = first > begin ? first : begin; rank < stop; rank += kRowsInFlight) {
          Batch<Name, V> batch;
          const int32_t count = stop - rank < kRowsInFlight ? stop - rank : kRowsInFlight;
          batch.load(side, list, rank, count, place.column);
          batch.finish(side, list, state, segment, rank, count, place.column);
        }
      }
      if (key == tail) break;
    }
  }
}

}  // namespace
}  // namespace baracuda::segment
