// SPDX-License-Identifier: Apache-2.0
// What a rule keeps of rows in a lane's columns, in registers, and the parts of long segments that are kept in memory
// until they are joined.
#pragma once

#include "ops/segment/cuda/columns.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

// Threads of a block whose groups of lanes take segments. Few: a block holds its place until its last warp is done.
constexpr int kThreads = 64;
constexpr int kWarps = kThreads / 32;

// Rows whose loads a lane has in flight.
constexpr int kRowsInFlight = 8;
static_assert(kRowsInFlight <= kRowsBeyond && kRowsInFlight <= 1 << kShortPieceBits);

// The segments of several pieces, in the order in which they were found.
struct CutSegments {
  uint32_t* count;
  int32_t* keys;  // [n / piece's rows + 1]

  CutSegments(const Problem& p, int32_t piece_bits, uint32_t* word, WorkspaceLayout& layout, void* workspace)
      : count(word),
        keys(workspace_array<int32_t>(workspace, layout.reserve<int32_t>((int64_t{p.n} >> piece_bits) + 1))) {}
  __device__ __forceinline__ void add(int32_t key) const { keys[atomicAdd(count, 1u)] = key; }
};

template <typename T, int V>
struct PerColumn {
  T at[V];
};

// A rule's state for a lane's columns.
template <class Fold, int V>
struct State {
  PerColumn<typename Fold::First, V> first;
  PerColumn<typename Fold::Second, V> second;

  __device__ __forceinline__ void none(int32_t row) {
#pragma unroll
    for (int k = 0; k < V; ++k) Fold::none(first.at[k], second.at[k], row);
  }
  template <typename T>
  __device__ __forceinline__ void add(const Columns<T, V>& x, const Columns<T, V>& y, int32_t row, bool begins) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (begins) {
        Fold::begin(first.at[k], second.at[k], x.at[k], y.at[k], row);
      } else {
        Fold::add(first.at[k], second.at[k], x.at[k], y.at[k], row);
      }
    }
  }
  __device__ __forceinline__ void join(const State& later) {
#pragma unroll
    for (int k = 0; k < V; ++k) Fold::join(first.at[k], second.at[k], later.first.at[k], later.second.at[k]);
  }
};

// Arrays of states go by single columns: V may be more than one access holds.
template <int V, class Fold>
__device__ __forceinline__ State<Fold, V> load_part(const Parts<Fold>& parts, int64_t at) {
  State<Fold, V> state{};
#pragma unroll
  for (int k = 0; k < V; ++k) {
    state.first.at[k] = parts.first[at + k];
    if constexpr (Parts<Fold>::kHasSecond) state.second.at[k] = parts.second[at + k];
  }
  return state;
}
// For parts that other blocks of the same launch have kept: read past the first-level cache, which may hold what was
// there before.
template <typename T>
__device__ __forceinline__ T load_kept(const T* value) {
  return bits_as<T>(*reinterpret_cast<const volatile typename BitsOf<sizeof(T)>::type*>(value));
}
template <int V, class Fold>
__device__ __forceinline__ State<Fold, V> load_kept_part(const Parts<Fold>& parts, int64_t at) {
  State<Fold, V> state{};
#pragma unroll
  for (int k = 0; k < V; ++k) {
    state.first.at[k] = load_kept(parts.first + at + k);
    if constexpr (Parts<Fold>::kHasSecond) state.second.at[k] = load_kept(parts.second + at + k);
  }
  return state;
}
template <class Fold, int V>
__device__ __forceinline__ void store_part(const Parts<Fold>& parts, int64_t at, const State<Fold, V>& state) {
#pragma unroll
  for (int k = 0; k < V; ++k) {
    parts.first[at + k] = state.first.at[k];
    if constexpr (Parts<Fold>::kHasSecond) parts.second[at + k] = state.second.at[k];
  }
}

// Keeps a piece that is not its whole segment; the lane of the first column lists the segment with its first piece.
template <class Fold, int V, class Ranks>
__device__ __forceinline__ void keep_part(const Parts<Fold>& parts, const CutSegments& cut, const Ranks& list,
                                          int32_t d, int32_t key, int32_t piece, bool begins_segment, int32_t column,
                                          const State<Fold, V>& state) {
  store_part(parts, list.slot(piece, begins_segment) * d + column, state);
  if (begins_segment && column == 0) cut.add(key);
}

// Whether a rule's state is a sum relative to the largest value.
template <class Fold>
struct IsExponentialSum : std::false_type {};
template <template <typename> class Tag, typename T>
struct IsExponentialSum<Rule<Tag<T>>> : std::is_base_of<ExponentialSum<T>, Rule<Tag<T>>> {};

// The state of no rows. Of exponentials: below every row, so that the first one becomes what it is.
template <class Fold, int V>
__device__ __forceinline__ State<Fold, V> state_of_none() {
  State<Fold, V> state{};
  if constexpr (IsExponentialSum<Fold>::value) {
#pragma unroll
    for (int k = 0; k < V; ++k) state.first.at[k] = Limits<typename Fold::First>::lowest();
  }
  return state;
}

}  // namespace
}  // namespace baracuda::segment
