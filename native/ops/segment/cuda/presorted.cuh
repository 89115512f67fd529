// SPDX-License-Identifier: Apache-2.0
// Rows that lie in the order of their segments on CUDA: nothing is moved and no list is made. A group of lanes takes
// whole segments, one after the other; segments of several pieces are left to other groups, which take a window of a
// piece's length each, and what these keep is joined as in a list.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_zeros.cuh"
#include "core/integer_math.h"
#include "ops/segment/cuda/batch.cuh"
#include "ops/segment/cuda/join/join.cuh"
#include "ops/segment/cuda/sort/begins.cuh"

namespace baracuda::segment {
namespace {

// What a call finds out on its way; all of them are 0 at the start.
enum Finding : int32_t {
  kDescends,  // ids or offsets are not in order: all rows are dropped
  kCut,       // how many segments of several pieces there are
  kFindings
};

// Offsets that are looked at together, because every look is a trip to memory.
constexpr int kProbes = 7;

// The rows as they lie: a rank is a row. Where offsets are not in order all answers are still ranks and segments that
// exist, but no more.
struct PresortedRows : Pieces {
  Index offsets;       // [num_segments + 1]: first row of a segment; where the last one ends
  uint32_t* findings;  // [kFindings]

  __device__ __forceinline__ int32_t row(int32_t rank) const { return rank; }
  __device__ __forceinline__ int32_t begin(int32_t key) const { return rank_of_offset(offsets[key], n); }
  __device__ __forceinline__ int32_t end(int32_t key) const { return rank_of_offset(offsets[int64_t{key} + 1], n); }
  __device__ __forceinline__ int32_t length(int32_t key) const { return end(key) - begin(key); }
  __device__ __forceinline__ bool in_pieces(int32_t key) const {
    return key < num_segments && length(key) > piece_rows();
  }

  // The last segment that begins at or before a rank, if the rank is not behind all of them; else num_segments.
  __device__ __forceinline__ int32_t key(int32_t rank) const {
    int64_t low = 0, high = int64_t{num_segments} + 1;  // the number of such offsets is between them
    while (low < high) {
      const int64_t step = (high - low + kProbes) / (kProbes + 1);
      int32_t begun = 0;
#pragma unroll
      for (int i = 0; i < kProbes; ++i) {
        const int64_t at = low + (i + 1) * step - 1;
        begun += at < high && offsets[at < high ? at : low] <= rank ? 1 : 0;
      }
      const int64_t next = low + (begun + 1) * step - 1;
      if (begun < kProbes && next < high) high = next;
      low += begun * step;
    }
    return low > 0 && low <= num_segments ? static_cast<int32_t>(low) - 1 : num_segments;
  }
};

// How the work is shared out: blocks for windows of a piece's length, then blocks for segments.
struct PresortedShape {
  int32_t lane_bits;      // of a group
  int32_t column_blocks;  // of lanes * V columns
  int32_t key_bits;       // consecutive segments of a group
  int64_t window_tasks;   // blocks, without a limit to their number
  int64_t tasks;          // these and those for segments

  PresortedShape(const Pieces& list, int32_t d, int columns, bool reduces) : lane_bits(0), key_bits(0) {
    while (lane_bits < 5 && (columns << lane_bits) < d) ++lane_bits;
    const int64_t block_columns = int64_t{columns} << lane_bits;
    column_blocks = static_cast<int32_t>(ceil_div(d, block_columns));
    while (key_bits < kMostKeyBits && list.num_segments >> (key_bits + 1) >= kManyGroups) ++key_bits;
    // Where every segment is one piece, windows have only the rows of no segment.
    const bool no_windows = reduces && list.n <= list.piece_rows();
    window_tasks = no_windows ? 0 : blocks_of(list.n, list.piece_bits);
    tasks = window_tasks + blocks_of(list.num_segments, key_bits);
  }
  BARACUDA_HD int32_t groups() const { return kThreads >> lane_bits; }

 private:
  // So many groups fill a GPU several times: beyond, a group that takes several segments costs less than its start.
  static constexpr int32_t kManyGroups = 1 << 14;
  static constexpr int32_t kMostKeyBits = 5;

  // Of 2^bits items a group.
  int64_t blocks_of(int64_t items, int32_t bits) const {
    return ceil_div(groups_of_bits(items, bits), groups()) * column_blocks;
  }
};

// Calls visit(key, begin, end) for the pieces that a window of a piece's length is responsible for: of a segment of
// several pieces the one that holds the window's first rank, and the last one if no window begins in it.
template <class Ranks, class Visit>
__device__ __forceinline__ void for_each_piece(const Ranks& list, int32_t window_begin, const Visit& visit) {
  const int32_t key = list.key(window_begin), rows = list.piece_rows();
  if (key == list.num_segments) return;
  const int32_t first = list.begin(key), end = list.end(key);
  if (end - first <= rows || first > window_begin || end <= window_begin) return;
  int32_t begin = first + ((window_begin - first) & -rows);
#pragma unroll 1
  while (begin < end && (begin <= window_begin || end - window_begin <= rows)) {
    const int32_t next = end - begin < rows ? end : begin + rows;
    visit(key, begin, next);
    begin = next;
  }
}

template <int V, class Tag>
__device__ __forceinline__ void fill_segment(const Call<Tag>& call, int32_t key, int32_t column) {
  using T = typename Tag::Element;
  Columns<T, V> values;
#pragma unroll
  for (int k = 0; k < V; ++k) values.at[k] = call.of_no_rows;
  store<V>(call.result + call.place(key, column), values);
  if (call.result_arg == nullptr) return;
#pragma unroll
  for (int k = 0; k < V; ++k) store_row_index(call.result_arg, call.wide, call.place(key, column) + k, -1);
}

// The rows of a short segment arrive in two trips that overlap, unless that takes more registers than there are.
template <class Tag, int V>
constexpr bool kOverlapsTrips =
    kFetchesAhead<Tag> || (Rule<Tag>::kRows == 1 && V <= 2 && sizeof(typename Tag::Element) * V <= 8);
// Blocks a multiprocessor, hence registers a thread.
template <class Tag>
constexpr int kPresortedBlocks = sizeof(typename Tag::Element) > 4 ? 8 : 10;

// A segment of at most a piece.
template <int V, class Tag>
__device__ __forceinline__ void fold_segment(const Call<Tag>& call, const PresortedRows& list, int32_t key,
                                             int32_t column) {
  const int64_t offset = list.offsets[key], next_offset = list.offsets[int64_t{key} + 1];
  if (next_offset < offset) list.findings[kDescends] = 1;
  const int32_t begin = rank_of_offset(offset, list.n), end = rank_of_offset(next_offset, list.n);
  if (end - begin > list.piece_rows()) return;
  if (end <= begin) {
    if constexpr (Call<Tag>::kReduces) fill_segment<V>(call, key, column);
    return;
  }
  Batch<Tag, V> batch;
  int32_t count = end - begin < kRowsInFlight ? end - begin : kRowsInFlight;
  batch.load(call, list, begin, count, column);
  const auto segment = call.template of_segment<V>(key, column);
  auto state = state_of_none<Rule<Tag>, V>();
  const int32_t at = fold_ranks<kOverlapsTrips<Tag, V>>(call, list, begin, end, column, batch, count, state);
  if constexpr (Call<Tag>::kReduces) {
    call.template finish_segment<V>(key, column, state, end - begin);
  } else {
    finish_ranks(call, list, begin, at, column, batch, count, state, segment);
  }
}

// The pieces of a window, and zeros for its rows that no segment has.
template <int V, class Tag>
__device__ __forceinline__ void fold_window(const Call<Tag>& call, const PresortedRows& list,
                                            const Parts<Rule<Tag>>& parts, const CutSegments& cut, int32_t begin,
                                            int32_t column) {
  if constexpr (!Call<Tag>::kReduces) {
    const int32_t end = list.n - begin < list.piece_rows() ? list.n : begin + list.piece_rows();
    const int32_t first = list.begin(0), last = list.end(list.num_segments - 1);
    for (int32_t row = begin; row < end && row < first; ++row) call.template drop_row<V>(row, column);
    for (int32_t row = begin > last ? begin : last; row < end; ++row) call.template drop_row<V>(row, column);
  }
  for_each_piece(list, begin, [&](int32_t key, int32_t piece, int32_t next) {
    auto state = state_of_none<Rule<Tag>, V>();
    if constexpr (Call<Tag>::kReduces || reads_rows_again<Tag>()) {
      Batch<Tag, V> batch;
      int32_t count = next - piece < kRowsInFlight ? next - piece : kRowsInFlight;
      batch.load(call, list, piece, count, column);
      fold_ranks<kOverlapsTrips<Tag, V>>(call, list, piece, next, column, batch, count, state);
    } else {
      state = zero_rows<V, kRowsInFlight>(call, list, piece, next, column, true);
    }
    keep_part(parts, cut, list, call.d, key, piece, list.begin(key) == piece, column, state);
  });
}

template <class Tag, int V>
__global__ void __launch_bounds__(kThreads, kPresortedBlocks<Tag>)
    fold_presorted(Call<Tag> call, PresortedShape shape, PresortedRows list, Parts<Rule<Tag>> parts, CutSegments cut) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const int32_t lane = static_cast<int32_t>(threadIdx.x) & ((1 << shape.lane_bits) - 1);
  for (int64_t block = blockIdx.x; block < shape.tasks; block += gridDim.x) {
    const bool takes_window = block < shape.window_tasks;
    const int64_t task = takes_window ? block : block - shape.window_tasks;
    const int64_t at = shape.column_blocks == 1 ? task : task / shape.column_blocks;
    const int64_t column = (((task - at * shape.column_blocks) << shape.lane_bits) + lane) * V;
    if (column >= call.d) continue;
    const int64_t group = at * shape.groups() + (threadIdx.x >> shape.lane_bits);
    if (takes_window) {
      const int64_t begin = group << list.piece_bits;
      if (begin < list.n) {
        fold_window<V>(call, list, parts, cut, static_cast<int32_t>(begin), static_cast<int32_t>(column));
      }
    } else {
      const int64_t end = (group + 1) << shape.key_bits;
#pragma unroll 1
      for (int64_t key = group << shape.key_bits; key < end && key < list.num_segments; ++key) {
        fold_segment<V>(call, list, static_cast<int32_t>(key), static_cast<int32_t>(column));
      }
    }
  }
}

// Joins what there is to join. What is said to be in order and is not has all its rows dropped, whatever was written
// before.
template <class Tag>
__global__ void __launch_bounds__(kJoinThreads)
    join_presorted_parts(Call<Tag> call, PresortedRows list, Parts<Rule<Tag>> parts, CutSegments cut) {
  wait_for_kernel_before();
  let_kernel_after_start();
  using T = typename Tag::Element;
  if (list.findings[kDescends] != 0) {
    constexpr bool kReduces = Call<Tag>::kReduces;
    const int64_t numel = int64_t{kReduces ? list.num_segments : list.n} * call.d;
    for (int64_t i = grid_thread(); i < numel; i += grid_threads()) {
      call.result[i] = kReduces ? call.of_no_rows : T{};
      if (kReduces && call.result_arg != nullptr) store_row_index(call.result_arg, call.wide, i, -1);
    }
  } else {
    join_segments(call, list, parts, cut);
  }
}

// Writes the rows of segments of several pieces.
template <class Tag, int V>
__global__ void __launch_bounds__(kThreads, kPresortedBlocks<Tag>)
    finish_presorted(Call<Tag> call, PresortedShape shape, PresortedRows list, Parts<Rule<Tag>> parts) {
  wait_for_kernel_before();
  let_kernel_after_start();
  if (list.findings[kDescends] != 0 || list.findings[kCut] == 0) return;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) & ((1 << shape.lane_bits) - 1);
  for (int64_t task = blockIdx.x; task < shape.window_tasks; task += gridDim.x) {
    const int64_t at = shape.column_blocks == 1 ? task : task / shape.column_blocks;
    const int64_t place = (((task - at * shape.column_blocks) << shape.lane_bits) + lane) * V;
    const int64_t window = (at * shape.groups() + (threadIdx.x >> shape.lane_bits)) << list.piece_bits;
    if (place >= call.d || window >= list.n) continue;
    const int32_t column = static_cast<int32_t>(place);
    for_each_piece(list, static_cast<int32_t>(window), [&](int32_t key, int32_t piece, int32_t next) {
      const auto state = load_part<V>(parts, list.slot(list.begin(key), true) * call.d + column);
      const auto segment = call.template of_segment<V>(key, column);
#pragma unroll 1
      for (int32_t row = piece; row < next; row += kRowsInFlight) {
        Batch<Tag, V> batch;
        const int32_t count = next - row < kRowsInFlight ? next - row : kRowsInFlight;
        batch.load(call, list, row, count, column);
        batch.finish(call, list, state, segment, row, count, column);
      }
    });
  }
}

// The scratch of one call and what comes before its folds.
template <class Tag>
struct PresortedScratch {
  WorkspaceLayout layout;
  uint32_t* findings;  // [kFindings]
  int32_t* begins;     // [num_segments + 2], of sorted ids
  Parts<Rule<Tag>> parts;
  CutSegments cut;

  PresortedScratch(const Problem& p, void* workspace)
      : findings(workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(kFindings))),
        begins(workspace_array<int32_t>(
            workspace, layout.reserve<int32_t>(p.form == Form::kSorted ? int64_t{p.num_segments} + 2 : 0))),
        parts(p, layout, workspace), cut(p, parts.piece_bits, findings + kCut, layout, workspace) {}

  Status enqueue_offsets(const Problem& p, const Index& index, Stream stream, Index* offsets) const {
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(findings, kFindings * sizeof(uint32_t), stream));
    *offsets = index;
    if (p.form != Form::kSorted) return Status::kOk;
    *offsets = Index(begins, false, p.num_segments);
    return enqueue_begins_of_ids(index, p, begins, findings + kDescends, stream);
  }
};

template <int V, class Tag>
Status enqueue_presorted(const Call<Tag>& call, const PresortedRows& list, const PresortedScratch<Tag>& scratch,
                        Stream stream) {
  constexpr bool kReduces = Call<Tag>::kReduces;
  const PresortedShape shape(list, call.d, V, kReduces);
  BARACUDA_RETURN_IF_FAILED(launch_early("segment fold kernel", fold_presorted<Tag, V>, blocks_for(shape.tasks, 1),
                                         kThreads, 0, stream, call, shape, list, scratch.parts, scratch.cut));
  BARACUDA_RETURN_IF_FAILED(launch_early("segment join kernel", join_presorted_parts<Tag>, join_blocks(list, call.d),
                                         kJoinThreads, 0, stream, call, list, scratch.parts, scratch.cut));
  if constexpr (reads_rows_again<Tag>()) {
    if (list.n > list.piece_rows()) {
      return launch_early("segment finish kernel", finish_presorted<Tag, V>, blocks_for(shape.window_tasks, 1),
                          kThreads, 0, stream, call, shape, list, scratch.parts);
    }
  }
  return Status::kOk;
}

template <class Tag>
Status enqueue_presorted(const Problem& p, const Buffers<Tag>& b, void* workspace, Stream stream) {
  const Index index = index_of(p, b);
  const PresortedScratch<Tag> scratch(p, workspace);
  PresortedRows list{{p.n, p.num_segments, scratch.parts.piece_bits}, index, scratch.findings};
  BARACUDA_RETURN_IF_FAILED(scratch.enqueue_offsets(p, index, stream, &list.offsets));
  return with_columns(p, b, 4, [&](auto columns) {
    return enqueue_presorted<decltype(columns)::value>(Call<Tag>(p, b), list, scratch, stream);
  });
}

}  // namespace
}  // namespace baracuda::segment
