// SPDX-License-Identifier: Apache-2.0
// Segment selections on the CPU: rows are sorted by segment, threads own chunks of the sorted list, lanes are columns.
// Compiled once per instruction set.
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "ops/segment/chunks.h"
#include "ops/segment/cpu_sort.h"
#include "ops/segment/launch.h"

namespace baracuda::segment {
namespace {

// A chunk is long enough that its two pieces cost nothing beside its rows, and short enough that some hundred of them
// balance the threads.
constexpr int32_t kShortestChunk = 64;
constexpr int32_t kLongestChunk = 1024;
constexpr int64_t kEnoughChunks = 128;
// Columns of one task, so that few wide rows are shared out as well.
constexpr int64_t kTaskColumns = 1024;
// Columns that are compared at once: four 512-bit vectors of f32.
constexpr int32_t kLanes = 64;
// Rows that are fetched ahead: they lie anywhere, so the processor cannot guess them.
constexpr int64_t kRowsAhead = 8;
constexpr int64_t kCacheLine = 64;

inline Chunks cut(const Problem& p, int64_t bytes_per_column) {
  int32_t length = kShortestChunk;
  while (length < kLongestChunk && p.n / (2 * length) >= kEnoughChunks) length *= 2;
  constexpr int32_t kNoLimit = 1 << 30;
  return {p.n, bound_pieces(p, bytes_per_column, length, kNoLimit)};
}

// A choice of rows as arithmetic: beside 16-bit values, compilers turn `?:` into branches.
inline __attribute__((always_inline)) int32_t pick(bool first, int32_t a, int32_t b) {
  const int32_t mask = -static_cast<int32_t>(first);
  return (a & mask) | (b & ~mask);
}

// The winners of up to kLanes columns of one segment.
template <class Rule, typename T, bool kWithRows>
struct Winners {
  T values[kLanes];
  int32_t rows[kWithRows ? kLanes : 1];

  void begin(const T* __restrict__ first, int32_t row, int32_t count) {
    for (int32_t k = 0; k < count; ++k) values[k] = first[k];
    for (int32_t k = 0; kWithRows && k < count; ++k) rows[k] = row;
  }
  inline __attribute__((always_inline)) void offer_lanes(const T* __restrict__ later, int32_t row, int32_t count) {
    for (int32_t k = 0; k < count; ++k) {
      const bool better = wins(Rule{}, later[k], values[k]);
      values[k] = choose(better, later[k], values[k]);
      if (kWithRows) rows[k] = pick(better, row, rows[k]);
    }
  }
  void offer(const T* later, int32_t row, int32_t count) {
    // A loop of known length vectorises without a remainder.
    count == kLanes ? offer_lanes(later, row, kLanes) : offer_lanes(later, row, count);
  }

  // The same for pieces of a segment, which bring their own rows.
  void begin_piece(const T* __restrict__ first, const int32_t* __restrict__ first_rows, int32_t count) {
    for (int32_t k = 0; k < count; ++k) values[k] = first[k];
    for (int32_t k = 0; kWithRows && k < count; ++k) rows[k] = first_rows[k];
  }
  void offer_piece(const T* __restrict__ later, const int32_t* __restrict__ later_rows, int32_t count) {
    for (int32_t k = 0; k < count; ++k) {
      const bool better = wins(Rule{}, later[k], values[k]);
      values[k] = choose(better, later[k], values[k]);
      if (kWithRows) rows[k] = pick(better, later_rows[k], rows[k]);
    }
  }
  void store_piece(T* __restrict__ piece, int32_t* __restrict__ piece_rows, int32_t count) const {
    for (int32_t k = 0; k < count; ++k) piece[k] = values[k];
    for (int32_t k = 0; kWithRows && k < count; ++k) piece_rows[k] = rows[k];
  }
};

// The rows [begin, end) of the sorted list, all of one key, in the columns [column, column + count).
struct Part {
  int64_t begin, end;
  int64_t column;
  int32_t count;
};

// What becomes of a segment whose winners are known, and of rows without a segment: forward.
template <class R, typename T>
struct Forward {
  using Rule = R;
  using Element = T;
  static constexpr bool kWithRows = false;
  int64_t d;
  const T* input;
  T* output;
  uint8_t* present;

  void finish(const Record* list, const Part& part, const T* winners, const int32_t*) const {
    const int32_t key = list[part.begin].key;
    T* row = output + key * d + part.column;
    for (int32_t k = 0; k < part.count; ++k) row[k] = winners[k];
    if (part.column == 0) present[key] = 1;
  }
  void drop(const Record*, const Part&) const {}
};

// The same for the gradient.
template <class R, typename T>
struct Backward {
  using Rule = R;
  using Element = T;
  static constexpr bool kWithRows = true;
  int64_t d;
  const T* input;
  const T* grad_output;
  T* grad_input;

  void finish(const Record* list, const Part& part, const T*, const int32_t* __restrict__ winners) const {
    const T* __restrict__ grad = grad_output + list[part.begin].key * d + part.column;
    for (int64_t rank = part.begin; rank < part.end; ++rank) {
      const int32_t row = list[rank].row;
      T* __restrict__ grad_row = grad_input + row * d + part.column;
      if (part.count == kLanes) {
        for (int32_t k = 0; k < kLanes; ++k) grad_row[k] = choose(winners[k] == row, grad[k], T{});
      } else {
        for (int32_t k = 0; k < part.count; ++k) grad_row[k] = choose(winners[k] == row, grad[k], T{});
      }
    }
  }
  void drop(const Record* list, const Part& part) const {
    for (int64_t rank = part.begin; rank < part.end; ++rank) {
      T* grad_row = grad_input + list[rank].row * d + part.column;
      for (int32_t k = 0; k < part.count; ++k) grad_row[k] = T{};
    }
  }
};

template <typename T>
void fetch_row(const T* values, int32_t count) {
  const char* bytes = reinterpret_cast<const char*>(values);
  for (int64_t i = 0; i < count * static_cast<int64_t>(sizeof(T)); i += kCacheLine) __builtin_prefetch(bytes + i);
}

// The list, its chunks and the scratch of one call.
template <class Side>
struct Work {
  using T = typename Side::Element;
  using Best = Winners<typename Side::Rule, T, Side::kWithRows>;

  int32_t num_segments;
  int64_t d;
  WorkspaceLayout layout;
  Sorter sorter;
  Chunks chunks;
  Pieces<T> pieces;
  uint8_t* present;  // [num_segments], forward alone: whether a segment has rows
  const Record* list = nullptr;

  Work(const Problem& p, void* workspace)
      : num_segments(p.num_segments),
        d(p.d),
        sorter(p, layout, workspace),
        chunks(cut(p, Pieces<T>::bytes_per_column(Side::kWithRows))),
        pieces(p, chunks, Side::kWithRows, layout, workspace),
        present(workspace_array<uint8_t>(workspace, layout.reserve<uint8_t>(Side::kWithRows ? 0 : p.num_segments))) {}

  // Runs body(chunk, first column, end column) over every chunk and block of columns.
  template <class Body>
  void for_each_task(int64_t elements_per_column, Body body) const {
    const int64_t blocks = (d + kTaskColumns - 1) / kTaskColumns;
    const int64_t width = d < kTaskColumns ? d : kTaskColumns;
    const int64_t columns = d;
    parallel_for(chunks.count() * blocks, grain_for(elements_per_column * width), [=](int64_t task) {
      const int64_t first = task % blocks * kTaskColumns;
      body(task / blocks, first, first + kTaskColumns < columns ? first + kTaskColumns : columns);
    });
  }

  // The winners of one part of a segment.
  void select(const Side& side, const Part& part, Best& best) const {
    const int64_t last = chunks.n - 1;
    for (int64_t rank = part.begin; rank < part.end; ++rank) {
      const int64_t ahead = rank + kRowsAhead < last ? rank + kRowsAhead : last;
      fetch_row(side.input + list[ahead].row * d + part.column, part.count);
      const T* values = side.input + list[rank].row * d + part.column;
      if (rank == part.begin) {
        best.begin(values, list[rank].row, part.count);
      } else {
        best.offer(values, list[rank].row, part.count);
      }
    }
  }

  // Finishes the segments that lie within a chunk and keeps the pieces of those that do not.
  void own_chunk(const Side& side, int64_t chunk, int64_t first_column, int64_t end_column) const {
    const Edges edges = chunks.edges(chunk, list, num_segments);
    const int64_t begin = chunks.begin(chunk), end = chunks.end(chunk);
    for (int64_t rank = begin, next; rank < end; rank = next) {
      const int32_t key = list[rank].key;
      next = rank + 1;
      while (next < end && list[next].key == key) ++next;
      const bool is_head = rank == begin && edges.head, is_tail = next == end && edges.tail;
      for (int64_t column = first_column; column < end_column; column += kLanes) {
        const int32_t count = end_column - column < kLanes ? static_cast<int32_t>(end_column - column) : kLanes;
        const Part part{rank, next, column, count};
        if (key == num_segments) {
          side.drop(list, part);
          continue;
        }
        Best best;
        select(side, part, best);
        if (is_head || is_tail) {
          const int64_t at = (is_head ? head_piece(chunk, d) : tail_piece(chunk, d)) + column;
          best.store_piece(pieces.values + at, pieces.rows + at, count);
        } else {
          side.finish(list, part, best.values, best.rows);
        }
      }
    }
  }

  // Joins the pieces of the segment that begins in a chunk and leaves it, in ascending order.
  void join_pieces(const Side& side, int64_t chunk, int64_t first_column, int64_t end_column) const {
    if (!chunks.edges(chunk, list, num_segments).tail) return;
    const int64_t end = chunks.end(chunk);
    const int32_t key = list[end].key;
    for (int64_t column = first_column; column < end_column; column += kLanes) {
      const int32_t count = end_column - column < kLanes ? static_cast<int32_t>(end_column - column) : kLanes;
      const int64_t tail = tail_piece(chunk, d) + column;
      Best best;
      best.begin_piece(pieces.values + tail, pieces.rows + tail, count);
      for (int64_t later = chunk + 1; later < chunks.count() && list[chunks.begin(later)].key == key; ++later) {
        const int64_t head = head_piece(later, d) + column;
        best.offer_piece(pieces.values + head, pieces.rows + head, count);
        if (Side::kWithRows && column == 0) pieces.starts[later] = static_cast<int32_t>(chunk);
      }
      if (Side::kWithRows) {
        best.store_piece(pieces.values + tail, pieces.rows + tail, count);
      } else {
        side.finish(list, {end, end + 1, column, count}, best.values, best.rows);
      }
    }
  }

  // Finishes a chunk's parts of segments that cross chunks.
  void finish_pieces(const Side& side, int64_t chunk, int64_t first_column, int64_t end_column) const {
    const Edges edges = chunks.edges(chunk, list, num_segments);
    const int64_t begin = chunks.begin(chunk), end = chunks.end(chunk);
    int64_t head_end = begin, tail_begin = end;
    while (edges.head && head_end < end && list[head_end].key == list[begin].key) ++head_end;
    while (edges.tail && tail_begin > begin && list[tail_begin - 1].key == list[end - 1].key) --tail_begin;
    for (int64_t column = first_column; column < end_column; column += kLanes) {
      const int32_t count = end_column - column < kLanes ? static_cast<int32_t>(end_column - column) : kLanes;
      if (edges.head) {
        const int64_t at = tail_piece(pieces.starts[chunk], d) + column;
        side.finish(list, {begin, head_end, column, count}, pieces.values + at, pieces.rows + at);
      }
      if (edges.tail) {
        const int64_t at = tail_piece(chunk, d) + column;
        side.finish(list, {tail_begin, end, column, count}, pieces.values + at, pieces.rows + at);
      }
    }
  }

  template <typename I>
  void run(const Side& side, const I* ids) {
    list = sorter.sort(ids);
    const Work& work = *this;
    for_each_task(chunks.length, [&](int64_t chunk, int64_t first, int64_t end) {
      work.own_chunk(side, chunk, first, end);
    });
    for_each_task(2, [&](int64_t chunk, int64_t first, int64_t end) { work.join_pieces(side, chunk, first, end); });
    if (!Side::kWithRows) return;
    for_each_task(chunks.length, [&](int64_t chunk, int64_t first, int64_t end) {
      work.finish_pieces(side, chunk, first, end);
    });
  }
};

template <class Rule, typename T, typename I>
Status run(const Problem& p, const SelectBuffers<Rule, T, I>& b, void* workspace) {
  Work<Forward<Rule, T>> work(p, workspace);
  const Forward<Rule, T> side{p.d, b.input, b.output, work.present};
  parallel_for(p.num_segments, grain_for(1), [&](int64_t key) { side.present[key] = 0; });
  if (p.n > 0) work.run(side, b.segment_ids);
  parallel_for(p.num_segments, grain_for(p.d), [&](int64_t key) {
    if (side.present[key] != 0) return;
    for (int64_t k = 0; k < side.d; ++k) side.output[key * side.d + k] = of_no_rows<T>(Rule{});
  });
  return Status::kOk;
}

template <class Rule, typename T, typename I>
Status run(const Problem& p, const SelectBackwardBuffers<Rule, T, I>& b, void* workspace) {
  if (p.num_segments == 0) {
    parallel_for(p.input_numel, kPartElements, [&](int64_t i) { b.grad_input[i] = T{}; });
    return Status::kOk;
  }
  const Backward<Rule, T> side{p.d, b.input, b.grad_output, b.grad_input};
  Work<Backward<Rule, T>>(p, workspace).run(side, b.segment_ids);
  return Status::kOk;
}

}  // namespace

#define BARACUDA_PROVIDE(T)                                      \
  BARACUDA_PROVIDE_LAUNCH(Problem, MaxBuffers<T>)                \
  BARACUDA_PROVIDE_LAUNCH(Problem, MaxBuffersI64<T>)             \
  BARACUDA_PROVIDE_LAUNCH(Problem, MaxBackwardBuffers<T>)        \
  BARACUDA_PROVIDE_LAUNCH(Problem, MaxBackwardBuffersI64<T>)
BARACUDA_PROVIDE(float)
BARACUDA_PROVIDE(double)
BARACUDA_PROVIDE(Half)
BARACUDA_PROVIDE(Bfloat16)
#undef BARACUDA_PROVIDE

#if defined(BARACUDA_CPU_ISA_IS_PORTABLE)
namespace {
template <class Rule, typename T, typename I>
size_t bytes_of(const Problem& p, const SelectBuffers<Rule, T, I>*) {
  return Work<Forward<Rule, T>>(p, nullptr).layout.bytes();
}
template <class Rule, typename T, typename I>
size_t bytes_of(const Problem& p, const SelectBackwardBuffers<Rule, T, I>*) {
  return p.num_segments > 0 ? Work<Backward<Rule, T>>(p, nullptr).layout.bytes() : 0;
}
}  // namespace

template <typename Buffers>
size_t workspace_size(const Problem& problem) {
  return bytes_of(problem, static_cast<const Buffers*>(nullptr));
}

#define BARACUDA_PROVIDE(T)                                              \
  template size_t workspace_size<MaxBuffers<T>>(const Problem&);         \
  template size_t workspace_size<MaxBuffersI64<T>>(const Problem&);      \
  template size_t workspace_size<MaxBackwardBuffers<T>>(const Problem&); \
  template size_t workspace_size<MaxBackwardBuffersI64<T>>(const Problem&);
BARACUDA_PROVIDE(float)
BARACUDA_PROVIDE(double)
BARACUDA_PROVIDE(Half)
BARACUDA_PROVIDE(Bfloat16)
#undef BARACUDA_PROVIDE
#endif

}  // namespace baracuda::segment
