// SPDX-License-Identifier: Apache-2.0
// What cuda_chunks.cuh leaves: segments that cross chunks, joined and finished, and segments without rows.
#pragma once

#include "ops/segment/cuda_chunks.cuh"

namespace baracuda::segment {
namespace {

// A block joins the pieces of the segments that begin in a window of 32 chunks and leave their chunk, a warp a segment.
// The last of them may go on beyond the window, up to the end of the list: the whole block joins that part.
constexpr int kJoinWarps = 32;
constexpr int kJoinThreads = 32 * kJoinWarps;

template <class Side>
struct Joiner {
  using T = typename Side::Element;
  using B = Best<typename Side::Rule, T, 1>;
  const Side& side;
  const Chunks& chunks;
  const Record* list;
  const Pieces<T>& pieces;
  int64_t column;

  // The pieces take 32 columns a warp; lanes beyond the last column read the first one's and write nothing.
  __device__ __forceinline__ bool active() const { return column < side.d; }
  __device__ __forceinline__ B piece(int64_t at) const {
    const int64_t i = at + (active() ? column : 0);
    B best;
    best.values = load<1>(pieces.values + i);
    if constexpr (Side::kWithRows) best.rows = load<1>(pieces.rows + i);
    return best;
  }
  __device__ __forceinline__ B head(int64_t chunk) const { return piece(head_piece(chunk, side.d)); }
  __device__ __forceinline__ B tail(int64_t chunk) const { return piece(tail_piece(chunk, side.d)); }
  __device__ __forceinline__ bool begins_with(int64_t chunk, int32_t key) const {
    return chunk < chunks.count() && list[chunks.begin(chunk)].key == key;
  }
  // Joins the heads of the chunks [first, last); several loads are in flight.
  __device__ __forceinline__ void join_heads(B& best, int64_t first, int64_t last) const {
#pragma unroll 8
    for (int64_t chunk = first; chunk < last; ++chunk) best.join(head(chunk));
  }
  __device__ __forceinline__ void note_start(int64_t chunk, int64_t start) const {
    if (Side::kWithRows && column < 32) pieces.starts[chunk] = static_cast<int32_t>(start);
  }
  __device__ __forceinline__ void finish(int64_t chunk, int32_t key, const B& best) const {
    if (!active()) return;
    if constexpr (Side::kWithRows) {
      store<1>(pieces.rows + tail_piece(chunk, side.d) + column, best.rows);
    } else {
      side.finish(key, column, best.values);
    }
  }
};

template <class Side>
__global__ void __launch_bounds__(kJoinThreads, 1)
    join_chunks(Side side, Chunks chunks, const Record* list, Pieces<typename Side::Element> pieces) {
  using B = Best<typename Side::Rule, typename Side::Element, 1>;
  __shared__ B shared_parts[kJoinWarps][32];
  __shared__ int32_t open_warp;  // whose segment leaves the window, or -1
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column_blocks = (static_cast<int64_t>(side.d) + 31) / 32;
  const int64_t windows = (chunks.count() + kJoinWarps - 1) / kJoinWarps;
  for (int64_t task = blockIdx.x; task < windows * column_blocks; task += gridDim.x) {
    const int64_t window = task / column_blocks * kJoinWarps, next = window + kJoinWarps, chunk = window + warp;
    const Joiner<Side> joiner{side, chunks, list, pieces, task % column_blocks * 32 + lane};
    if (threadIdx.x == 0) open_warp = -1;
    __syncthreads();

    B best{};
    if (chunk < chunks.count() && chunks.edges(chunk, list, side.num_segments).tail) {
      const int32_t key = list[chunks.end(chunk)].key;
      const uint32_t same = __ballot_sync(0xffffffffu, joiner.begins_with(window + lane, key));
      // The run of set bits above this warp's: the chunks that the segment goes on in.
      const int run = warp < 31 ? __ffs(~(same >> (warp + 1))) - 1 : 0;
      best = joiner.tail(chunk);
      joiner.join_heads(best, chunk + 1, chunk + 1 + run);
      if (lane < run) joiner.note_start(chunk + 1 + lane, chunk);
      if (warp + run == 31 && joiner.begins_with(next, key)) {
        if (lane == 0) open_warp = warp;
      } else {
        joiner.finish(chunk, key, best);
      }
    }
    __syncthreads();

    if (open_warp >= 0) {
      const int32_t key = list[chunks.begin(next)].key;
      int64_t length = 0;
      for (int32_t found = kJoinThreads; found == kJoinThreads; length += found) {
        const int64_t later = next + length + threadIdx.x;
        const bool same = joiner.begins_with(later, key);
        if (same) joiner.note_start(later, window + open_warp);
        found = __syncthreads_count(same);
      }
      // Equal parts for the warps, in ascending order.
      const int64_t each = (length + kJoinWarps - 1) / kJoinWarps, first = warp * each;
      if (first < length) {
        B part = joiner.head(next + first);
        joiner.join_heads(part, next + first + 1, next + (first + each < length ? first + each : length));
        shared_parts[warp][lane] = part;
      }
      __syncthreads();
      if (warp == open_warp) {
        for (int i = 0; i * each < length; ++i) best.join(shared_parts[i][lane]);
        joiner.finish(chunk, key, best);
      }
    }
    __syncthreads();
  }
}

// Writes the gradient of the rows whose segments cross chunks.
template <typename W, int V>
__global__ void __launch_bounds__(kThreads, 4)
    finish_chunks(Gradient<W> gradient, Shape shape, Chunks chunks, const Record* list, const int32_t* piece_rows,
                  const int32_t* starts) {
  const int64_t column_blocks = blocks_of_columns(gradient.d, shape, V);
  for (int64_t task = blockIdx.x; task < chunks.count() * column_blocks; task += gridDim.x) {
    const int64_t chunk = task / column_blocks;
    const int64_t column = task % column_blocks * (shape.lanes * V) + threadIdx.x % shape.lanes * V;
    const Edges edges = chunks.edges(chunk, list, gradient.num_segments);
    if (!(edges.head || edges.tail) || column >= gradient.d) continue;
    // A part that the chunk does not have keeps a key that no record has.
    int32_t head_key = kNoKey, tail_key = kNoKey;
    Columns<int32_t, V> head_rows{}, tail_rows{};
    Columns<W, V> head_gradient{}, tail_gradient{};
    if (edges.head) {
      head_key = list[chunks.begin(chunk)].key;
      head_rows = load<V>(piece_rows + tail_piece(starts[chunk], gradient.d) + column);
      head_gradient = gradient.template of_segment<V>(head_key, column);
    }
    if (edges.tail) {
      tail_key = list[chunks.end(chunk) - 1].key;
      tail_rows = load<V>(piece_rows + tail_piece(chunk, gradient.d) + column);
      tail_gradient = gradient.template of_segment<V>(tail_key, column);
    }
    const int64_t begin = chunks.begin(chunk) + threadIdx.x / shape.lanes * shape.ranks;
    const int64_t end = begin + shape.ranks < chunks.end(chunk) ? begin + shape.ranks : chunks.end(chunk);
#pragma unroll 4
    for (int64_t rank = begin; rank < end; ++rank) {
      const Record record = list[rank];
      if (record.key == head_key) {
        gradient.finish_row(record.row, column, head_rows, head_gradient);
      } else if (record.key == tail_key) {
        gradient.finish_row(record.row, column, tail_rows, tail_gradient);
      }
    }
  }
}

// Fills the segments without rows; a block takes 32 segments and some columns of them.
constexpr int64_t kFillColumns = 4096;

template <typename W>
__global__ void __launch_bounds__(kThreads)
    fill_empty(int32_t d, int32_t num_segments, const uint8_t* present, W value, W* output) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column_blocks = (d + kFillColumns - 1) / kFillColumns;
  const int64_t tasks = (static_cast<int64_t>(num_segments) + 31) / 32 * column_blocks;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t first = task / column_blocks * 32, column = task % column_blocks * kFillColumns;
    const int64_t end = column + kFillColumns < d ? column + kFillColumns : d;
    const bool empty = first + lane < num_segments && present[first + lane] == 0;
    const uint32_t all = __ballot_sync(0xffffffffu, empty);
    for (int i = warp; i < 32; i += kThreads / 32) {
      if ((all >> i & 1) == 0) continue;
      for (int64_t k = column + lane; k < end; k += 32) output[(first + i) * d + k] = value;
    }
  }
}

}  // namespace
}  // namespace baracuda::segment
