// SPDX-License-Identifier: Apache-2.0
// Pad on the CPU: threads own rows of the destination, which are fill, copy, fill. Compiled once per instruction set.
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "ops/pad/cpu_bytes.h"
#include "ops/pad/launch.h"
#include "ops/pad/math.h"

namespace baracuda::pad {
namespace {

// Rows of half this gain nothing: too large a part of them is lines shared with a neighbour, which are gathered first.
constexpr int64_t kStreamedRowBytes = 8 * kCacheLine;

// How a row is written: element by element, as bytes, or as bytes past the caches.
enum class Rows { kStrided, kDense, kStreamed };

// The problem as planes of rows: its last two axes, walked by tight loops, and the axes above them. Rows are cut in
// segments, so that one long row also has many owners.
template <typename Word>
struct Work {
  const Buffers<Word>& buffers;
  int32_t outer_rank;
  Axis outer[kMaxRank], row, column;
  Window outer_windows[kMaxRank], rows, columns;
  int64_t source_offset;
  int64_t segments, segment_extent;
  Word fill[kCacheLine / sizeof(Word)];  // the value, a cache line of it

  Work(const Problem& p, const Buffers<Word>& b) : buffers(b), source_offset(p.source_offset) {
    outer_rank = p.rank > 2 ? p.rank - 2 : 0;
    for (int32_t a = 0; a < outer_rank; ++a) {
      outer[a] = p.axes[a];
      outer_windows[a] = window_of(outer[a]);
    }
    row = p.rank > 1 ? p.axes[p.rank - 2] : Axis{1, 0, 1, 0, 0};
    column = p.axes[p.rank - 1];
    rows = window_of(row);
    columns = window_of(column);
    segment_extent = column.extent < kPartElements ? column.extent : kPartElements;
    segments = (column.extent + segment_extent - 1) / segment_extent;
    for (Word& word : fill) word = b.value;
  }
};

// Where a plane starts in both tensors. The source is unsigned because it may wrap outside, where it is not used.
struct Plane {
  int64_t destination;
  uint64_t source;
  bool inside;
};

template <typename Word>
Plane plane_at(const Work<Word>& work, int64_t plane) {
  Plane found{0, static_cast<uint64_t>(work.source_offset), true};
  for (int32_t a = work.outer_rank - 1; a >= 0; --a) {
    const Axis& axis = work.outer[a];
    const int64_t index = plane % axis.extent;
    plane /= axis.extent;
    found.destination += index * axis.stride;
    found.source += static_cast<uint64_t>(index - axis.low) * static_cast<uint64_t>(axis.source_stride);
    found.inside = found.inside && index >= work.outer_windows[a].begin && index < work.outer_windows[a].end;
  }
  return found;
}

template <Rows kRows, typename Word>
void fill(const Work<Word>& work, Word* to, int64_t count, LineWriter& writer) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(Word));
  const char* line = reinterpret_cast<const char*>(work.fill);
  if (kRows == Rows::kStrided) {
    for (int64_t i = 0; i < count; ++i) to[i * work.column.stride] = work.fill[0];
  } else if (kRows == Rows::kStreamed) {
    writer.fill(line, bytes);
  } else if (bytes <= kCacheLine) {
    copy_row(reinterpret_cast<char*>(to), line, bytes);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = work.fill[0];
  }
}

template <Rows kRows, typename Word>
void copy(const Work<Word>& work, Word* to, const Word* from, int64_t count, LineWriter& writer) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(Word));
  if (kRows == Rows::kStrided) {
    const int64_t stride = work.column.stride, source_stride = work.column.source_stride;
    for (int64_t i = 0; i < count; ++i) to[i * stride] = from[i * source_stride];
  } else if (kRows == Rows::kStreamed) {
    writer.copy(reinterpret_cast<const char*>(from), bytes);
  } else {
    copy_row(reinterpret_cast<char*>(to), reinterpret_cast<const char*>(from), bytes);
  }
}

// Columns [begin, end) of a plane's rows [first, last).
template <Rows kRows, typename Word>
void write_rows(const Work<Word>& work, const Plane& plane, int64_t first, int64_t last, int64_t begin, int64_t end,
                LineWriter& writer) {
  const int64_t stride = work.column.stride;
  const int64_t low = clamp(work.columns.begin, begin, end), high = clamp(work.columns.end, low, end);
  const bool inside = plane.inside && low < high;
  const uint64_t row_stride = static_cast<uint64_t>(work.row.source_stride);
  const uint64_t column_stride = static_cast<uint64_t>(work.column.source_stride);
  const uint64_t source = plane.source + static_cast<uint64_t>(low - work.column.low) * column_stride;
  Word* to = work.buffers.destination + plane.destination + first * work.row.stride + begin * stride;
  for (int64_t r = first; r < last; ++r, to += work.row.stride) {
    if (kRows == Rows::kStreamed) writer.move(to);
    if (!inside || r < work.rows.begin || r >= work.rows.end) {
      fill<kRows>(work, to, end - begin, writer);
      continue;
    }
    const uint64_t row = source + static_cast<uint64_t>(r - work.row.low) * row_stride;
    const Word* from = work.buffers.source + static_cast<int64_t>(row);
    if (low > begin) fill<kRows>(work, to, low - begin, writer);
    copy<kRows>(work, to + (low - begin) * stride, from, high - low, writer);
    if (high < end) fill<kRows>(work, to + (high - begin) * stride, end - high, writer);
  }
}

// Segments [begin, end) of all rows in order.
template <Rows kRows, typename Word>
void write_segments(void* context, int64_t begin, int64_t end) {
  const Work<Word>& work = *static_cast<const Work<Word>*>(context);
  LineWriter writer(work.buffers.destination);
  for (int64_t i = begin; i < end;) {
    const int64_t line = i / work.segments, first = line % work.row.extent;
    const Plane plane = plane_at(work, line / work.row.extent);
    if (work.segments == 1) {
      const int64_t last = end - i < work.row.extent - first ? first + (end - i) : work.row.extent;
      write_rows<kRows>(work, plane, first, last, 0, work.column.extent, writer);
      i += last - first;
      continue;
    }
    const int64_t from = i % work.segments * work.segment_extent;
    const int64_t to = from + work.segment_extent;
    write_rows<kRows>(work, plane, first, first + 1, from, to < work.column.extent ? to : work.column.extent, writer);
    ++i;
  }
  if (kRows == Rows::kStreamed) writer.finish();
}

template <typename Word>
Status run(const Problem& p, const Buffers<Word>& b, void*) {
  Work<Word> work(p, b);
  constexpr int64_t kBytes = sizeof(Word);
  const bool dense = work.column.stride == 1 && work.column.source_stride == 1;
  const bool streamed =
      dense && p.numel * kBytes >= kStreamedBytes && work.column.extent * kBytes >= kStreamedRowBytes;
  const auto body = streamed ? write_segments<Rows::kStreamed, Word>
                             : (dense ? write_segments<Rows::kDense, Word> : write_segments<Rows::kStrided, Word>);
  parallel_ranges(p.numel / work.column.extent * work.segments, grain_for(work.segment_extent), body, &work);
  return Status::kOk;
}

}  // namespace

BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<uint16_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<uint32_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<uint64_t>)

}  // namespace baracuda::pad
