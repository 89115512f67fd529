// SPDX-License-Identifier: Apache-2.0
// Selections from the sorted list on CUDA: groups of lanes own consecutive ranks, a lane a few columns, and finish the
// segments that lie within a block's chunk. What crosses chunks is left to cuda_pieces.cuh.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/segment/chunks.h"
#include "ops/segment/cuda_columns.cuh"

namespace baracuda::segment {
namespace {

constexpr int kThreads = 256;
// Rows that a lane loads before it looks at the first.
constexpr int kRowsInFlight = 8;
// Blocks a multiprocessor, hence registers a thread: lanes that load 16 bytes need the registers, and two blocks of
// them have as many bytes in flight as four blocks of lanes that load 8.
constexpr int blocks_per_multiprocessor(size_t bytes, int columns) { return bytes > 8 ? 2 : columns > 2 ? 3 : 4; }
// Ranks of one group. More than 64 leave a tail of unequal blocks at the end of a launch.
constexpr int kMaxGroupRanks = 64;
// A chunk's records take 16 KiB of shared memory, beside 16 KiB of pieces.
constexpr int kMaxChunk = 2048;
// Two rounds of blocks on the largest devices; shorter chunks would only make more pieces.
constexpr int64_t kEnoughBlocks = 1024;

// How a chunk is shared out in a block: `lanes` threads, a power of two, go through `ranks` ranks of the list together.
struct Shape {
  int32_t lanes;
  int32_t ranks;
  BARACUDA_HD int32_t groups() const { return kThreads / lanes; }
  BARACUDA_HD int32_t chunk() const { return groups() * ranks; }
};

// From the problem's scalars alone, because the workspace depends on it.
inline Shape shape_for(const Problem& p, int64_t bytes_per_column) {
  Shape shape{1, kRowsInFlight};
  while (shape.lanes < 32 && shape.lanes < p.d) shape.lanes *= 2;
  const int64_t column_blocks = (static_cast<int64_t>(p.d) + 63) / 64;
  while (shape.ranks < kMaxGroupRanks && shape.chunk() * 2 <= kMaxChunk &&
         p.n / (shape.chunk() * 2) * column_blocks >= kEnoughBlocks) {
    shape.ranks *= 2;
  }
  shape.ranks = bound_pieces(p, bytes_per_column, shape.chunk(), kMaxChunk) / shape.groups();
  return shape;
}

BARACUDA_HD int64_t blocks_of_columns(int32_t d, const Shape& shape, int32_t columns_per_lane) {
  const int64_t width = static_cast<int64_t>(shape.lanes) * columns_per_lane;
  return (d + width - 1) / width;
}

// The best values so far of a lane's columns and the rows that hold them. A forward never reads the rows, so they cost
// it nothing.
template <class Rule, typename T, int V>
struct Best {
  Columns<T, V> values;
  Columns<int32_t, V> rows;

  __device__ __forceinline__ void offer(const Columns<T, V>& later, int32_t row, bool first) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const bool better = first || wins(Rule{}, later.at[k], values.at[k]);
      values.at[k] = choose(better, later.at[k], values.at[k]);
      rows.at[k] = better ? row : rows.at[k];
    }
  }
  __device__ __forceinline__ void join(const Best& later) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const bool better = wins(Rule{}, later.values.at[k], values.at[k]);
      values.at[k] = choose(better, later.values.at[k], values.at[k]);
      rows.at[k] = better ? later.rows.at[k] : rows.at[k];
    }
  }
};

// A selection, and what becomes of a segment whose winners are known.
template <class R, typename T>
struct Forward {
  using Rule = R;
  using Element = T;
  static constexpr bool kWithRows = false;
  int32_t d;
  int32_t num_segments;
  const T* input;
  T* output;
  uint8_t* present;  // [num_segments]: whether a segment has rows

  template <int V>
  __device__ __forceinline__ void finish(int32_t key, int64_t column, const Columns<T, V>& winners) const {
    store<V>(output + static_cast<int64_t>(key) * d + column, winners);
    if (column == 0) present[key] = 1;
  }
};

// Where a gradient comes from and goes to, as the bits W.
template <typename W>
struct Gradient {
  int32_t d;
  int32_t num_segments;
  const W* grad_output;
  W* grad_input;

  template <int V>
  __device__ __forceinline__ Columns<W, V> of_segment(int32_t key, int64_t column) const {
    return load<V>(grad_output + static_cast<int64_t>(key) * d + column);
  }
  // Writes one row: the segment's gradient where the row is the winner, else 0.
  template <int V>
  __device__ __forceinline__ void finish_row(int32_t row, int64_t column, const Columns<int32_t, V>& winners,
                                             const Columns<W, V>& gradient) const {
    Columns<W, V> values;
#pragma unroll
    for (int k = 0; k < V; ++k) values.at[k] = winners.at[k] == row ? gradient.at[k] : W{0};
    store<V>(grad_input + static_cast<int64_t>(row) * d + column, values);
  }
};

template <class R, typename T>
struct Backward {
  using Rule = R;
  using Element = T;
  static constexpr bool kWithRows = true;
  int32_t d;
  int32_t num_segments;
  const T* input;
  Gradient<Bits<T>> gradient;
};

// A block's shared memory: the chunk's records with one neighbour on each side, and for each group the piece of a
// segment that it did not begin (head) and of one that it does not end (tail).
template <class Side, int V>
struct BlockTables {
  using T = typename Side::Element;
  using B = Best<typename Side::Rule, T, V>;
  Columns<T, V>* values;      // [2][kThreads]: heads, then tails
  Columns<int32_t, V>* rows;  // [2][kThreads]: the same, for a gradient
  Record* records;            // [-1 .. chunk]
  int32_t* begun;             // [groups]: the group in which the segment of a group's head begins

  __device__ BlockTables(unsigned char* bytes, const Shape& shape) {
    values = reinterpret_cast<Columns<T, V>*>(bytes);
    rows = reinterpret_cast<Columns<int32_t, V>*>(values + 2 * kThreads);
    records = reinterpret_cast<Record*>(rows + (Side::kWithRows ? 2 * kThreads : 0)) + 1;
    begun = reinterpret_cast<int32_t*>(records + shape.chunk() + 1);
  }
  static size_t bytes(const Shape& shape) {
    return 2 * kThreads * V * Pieces<T>::bytes_per_column(Side::kWithRows) + (shape.chunk() + 2) * sizeof(Record) +
           shape.groups() * sizeof(int32_t);
  }
  static __device__ __forceinline__ int head(int thread) { return thread; }
  static __device__ __forceinline__ int tail(int thread) { return kThreads + thread; }

  __device__ __forceinline__ void put(int slot, const B& best) const {
    values[slot] = best.values;
    if constexpr (Side::kWithRows) rows[slot] = best.rows;
  }
  __device__ __forceinline__ B get(int slot) const {
    B best;
    best.values = values[slot];
    if constexpr (Side::kWithRows) best.rows = rows[slot];
    return best;
  }
};

// One thread's part in a chunk.
template <class Side, int V>
struct Lane {
  using T = typename Side::Element;
  using B = Best<typename Side::Rule, T, V>;
  const Side& side;
  const BlockTables<Side, V>& tables;
  const Shape& shape;
  int32_t count;                 // ranks of the chunk
  int64_t column;                // the first of V
  bool active;                   // whether that column exists
  int32_t group;
  int32_t begin, end;            // the group's ranks within the chunk
  int32_t head_end, tail_begin;  // where its head ends and its tail begins
  Edges edges{false, false};

  __device__ __forceinline__ Lane(const Side& side, const BlockTables<Side, V>& tables, const Shape& shape,
                                  int32_t count, int64_t column_block)
      : side(side), tables(tables), shape(shape), count(count) {
    column = column_block * (shape.lanes * V) + threadIdx.x % shape.lanes * V;
    active = column < side.d;
    group = threadIdx.x / shape.lanes;
    begin = group * shape.ranks < count ? group * shape.ranks : count;
    end = begin + shape.ranks < count ? begin + shape.ranks : count;
    head_end = begin, tail_begin = end;
    if (begin < end) edges = edges_of(key(begin - 1), key(begin), key(end - 1), key(end), side.num_segments);
  }

  __device__ __forceinline__ int32_t key(int32_t rank) const { return tables.records[rank].key; }

  // Writes the gradient of the ranks [first, last), which are of one segment or of none.
  __device__ __forceinline__ void finish_rows(int32_t first, int32_t last, const Columns<int32_t, V>& winners) const {
    const int32_t segment = key(first);
    Columns<Bits<T>, V> gradient{};
    if (segment != side.num_segments) gradient = side.gradient.template of_segment<V>(segment, column);
#pragma unroll 1
    for (int32_t rank = first; rank < last; ++rank) {
      side.gradient.finish_row(tables.records[rank].row, column, winners, gradient);
    }
  }

  // The ranks [first, last) are what this group has of a segment, or of the rows without one.
  __device__ __forceinline__ void end_part(int32_t first, int32_t last, const B& best) {
    const bool head = first == begin && edges.head, tail = last == end && edges.tail;
    if (head || tail) {
      tables.put(head ? tables.head(threadIdx.x) : tables.tail(threadIdx.x), best);
      if (head) head_end = last;
      if (tail) tail_begin = first;
    } else if (active) {
      if constexpr (Side::kWithRows) {
        finish_rows(first, last, best.rows);
      } else if (key(first) != side.num_segments) {
        side.finish(key(first), column, best.values);
      }
    }
  }

  // Goes through the group's ranks.
  __device__ __forceinline__ void own_ranks() {
    B best{};
    int32_t first = begin;
    for (int32_t batch = begin; batch < end; batch += kRowsInFlight) {
      Words<T, V> values[kRowsInFlight];
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        values[u] = Words<T, V>{};
        // Beyond the end the last row again, without a branch: the loads are issued together.
        const Record record = tables.records[batch + u < end ? batch + u : end - 1];
        if (active && record.key != side.num_segments) {
          values[u] = load_words<V>(side.input + static_cast<int64_t>(record.row) * side.d + column);
        }
      }
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        const int32_t rank = batch + u;
        if (rank >= end) break;
        best.offer(bits_as<Columns<T, V>>(values[u]), tables.records[rank].row, rank == first);
        if (rank + 1 == end || key(rank + 1) != key(rank)) {
          end_part(first, rank + 1, best);
          first = rank + 1;
        }
      }
    }
  }

  // Joins a piece of this group with the heads of the following groups that continue its segment.
  __device__ __forceinline__ B join(int slot, int32_t segment) const {
    B best = tables.get(slot);
#pragma unroll 1
    for (int32_t next = group + 1, thread = threadIdx.x + shape.lanes;
         next < shape.groups() && next * shape.ranks < count && key(next * shape.ranks) == segment;
         ++next, thread += shape.lanes) {
      best.join(tables.get(tables.head(thread)));
      if (Side::kWithRows && threadIdx.x % shape.lanes == 0) tables.begun[next] = group;
    }
    return best;
  }

  // Writes the group's ranks of segments that cross groups but stay within the chunk, whose winners are now in the tail
  // of the group in which they begin.
  __device__ __forceinline__ void finish_crossing(int32_t before, int32_t after) const {
    if (!active) return;
    if (edges.head && key(begin) != before && key(begin) != after) {
      const int thread = tables.begun[group] * shape.lanes + threadIdx.x % shape.lanes;
      finish_rows(begin, head_end, tables.rows[tables.tail(thread)]);
    }
    if (edges.tail && key(end - 1) != after) {
      finish_rows(tail_begin, end, tables.rows[tables.tail(threadIdx.x)]);
    }
  }
};

template <class Side, int V>
__device__ __forceinline__ void keep_piece(const Pieces<typename Side::Element>& pieces, int64_t at,
                                           const Lane<Side, V>& lane,
                                           const Best<typename Side::Rule, typename Side::Element, V>& best) {
  if (!lane.active) return;
  store<V>(pieces.values + at + lane.column, best.values);
  if constexpr (Side::kWithRows) store<V>(pieces.rows + at + lane.column, best.rows);
}

// Each block owns a chunk for some columns: it finishes the segments that lie within the chunk and keeps the pieces of
// those that do not.
template <class Side, int V>
__global__ void __launch_bounds__(kThreads, blocks_per_multiprocessor(sizeof(typename Side::Element) * V, V))
    own_chunks(Side side, Shape shape, Chunks chunks, const Record* list, Pieces<typename Side::Element> pieces) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const BlockTables<Side, V> tables(shared_bytes, shape);
  const int64_t column_blocks = blocks_of_columns(side.d, shape, V);
  for (int64_t task = blockIdx.x; task < chunks.count() * column_blocks; task += gridDim.x) {
    const int64_t chunk = task / column_blocks, first_rank = chunks.begin(chunk);
    const int32_t count = static_cast<int32_t>(chunks.end(chunk) - first_rank);
    for (int32_t i = static_cast<int32_t>(threadIdx.x) - 1; i <= count; i += kThreads) {
      const int64_t rank = first_rank + i;
      tables.records[i] = rank >= 0 && rank < chunks.n ? list[rank] : Record{kNoKey, 0};
    }
    __syncthreads();
    Lane<Side, V> lane(side, tables, shape, count, task % column_blocks);
    lane.own_ranks();
    __syncthreads();

    // The group in which a segment begins joins its pieces; the first group joins those of an earlier chunk's segment.
    const int32_t before = lane.key(-1), after = lane.key(count);
    if (lane.edges.head && lane.group == 0) {
      keep_piece(pieces, head_piece(chunk, side.d), lane, lane.join(tables.head(threadIdx.x), before));
    }
    if (lane.edges.tail) {
      const int32_t segment = lane.key(lane.end - 1);
      const auto best = lane.join(tables.tail(threadIdx.x), segment);
      if (segment == after) {
        keep_piece(pieces, tail_piece(chunk, side.d), lane, best);
      } else if constexpr (Side::kWithRows) {
        tables.put(tables.tail(threadIdx.x), best);
      } else if (lane.active) {
        side.finish(segment, lane.column, best.values);
      }
    }
    __syncthreads();
    if constexpr (Side::kWithRows) {
      lane.finish_crossing(before, after);
      __syncthreads();
    }
  }
}

}  // namespace
}  // namespace baracuda::segment
