// SPDX-License-Identifier: Apache-2.0
// How the CPU kernels walk a destination: planes of rows, rows in segments, each written front to back by one thread.
// What stands in a row is the caller's affair.
#pragma once

#include "core/cpu_bytes.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "ops/pad/problem.h"

namespace baracuda::pad {
namespace {

// Rows of half this gain nothing: too large a part of them is lines shared with a neighbour, which are gathered first.
constexpr int64_t kStreamedRowBytes = 8 * kCacheLine;

// How a row is written: element by element, as bytes, or as bytes past the caches.
enum class Rows { kStrided, kDense, kStreamed };

// Writes the elements of one row after the other. The place goes in and comes out, so that it stays in a register: a
// member would have to be read again after every store of a char.
template <Rows kRows, typename Word>
class RowWriter {
 public:
  RowWriter(Word* to, int64_t stride, Word value) : lines_(to), stride_(stride), value_(value) {
    for (Word& word : line_) word = value;
  }

  void start(Word* to) {
    if (kRows == Rows::kStreamed) lines_.move(to);
  }

  Word* fill(Word* to, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(Word));
    const char* line = reinterpret_cast<const char*>(line_);
    if (kRows == Rows::kStrided) {
      for (int64_t i = 0; i < count; ++i) to[i * stride_] = value_;
    } else if (kRows == Rows::kStreamed) {
      lines_.fill(line, bytes);
    } else if (bytes <= kCacheLine) {
      copy_row(reinterpret_cast<char*>(to), line, bytes);
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = value_;
    }
    return after(to, count);
  }

  Word* copy(Word* to, const Word* from, int64_t source_stride, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(Word));
    if (kRows == Rows::kStrided) {
      for (int64_t i = 0; i < count; ++i) to[i * stride_] = from[i * source_stride];
    } else if (kRows == Rows::kStreamed) {
      lines_.copy(reinterpret_cast<const char*>(from), bytes);
    } else {
      copy_row(reinterpret_cast<char*>(to), reinterpret_cast<const char*>(from), bytes);
    }
    return after(to, count);
  }

  Word* put(Word* to, Word word) {
    if (kRows == Rows::kStreamed) {
      lines_.copy(reinterpret_cast<const char*>(&word), sizeof word);
    } else {
      *to = word;
    }
    return after(to, 1);
  }

  void finish() {
    if (kRows == Rows::kStreamed) lines_.finish();
  }

 private:
  Word* after(Word* to, int64_t count) const { return to + (kRows == Rows::kStrided ? count * stride_ : count); }

  LineWriter lines_;
  int64_t stride_;
  Word value_;
  Word line_[kCacheLine / sizeof(Word)];  // the value, a cache line of it
};

// The problem as planes of rows: its last two axes, walked by tight loops, and the axes above them. Rows are cut in
// segments, so that one long row also has many owners.
struct Planes {
  int32_t outer_rank;
  Axis outer[kMaxRank], row, column;
  int64_t numel, source_offset;
  int64_t segments, segment_extent;

  explicit Planes(const Problem& p) : numel(p.numel), source_offset(p.source_offset) {
    outer_rank = p.rank > 2 ? p.rank - 2 : 0;
    for (int32_t a = 0; a < outer_rank; ++a) outer[a] = p.axes[a];
    row = p.rank > 1 ? p.axes[p.rank - 2] : Axis{1, 0, 1, 0, 0, 0, 1, {0, 0}, false, 0, {0, 1}};
    column = p.axes[p.rank - 1];
    segment_extent = column.extent < kPartElements ? column.extent : kPartElements;
    segments = ceil_div(column.extent, segment_extent);
  }
};

// `Work` has: `Word`, the type of an element; `Planes planes`; `Word* destination`; `Word value`;
//   Plane plane_at(int64_t plane) const                      with the place `destination` of its first element
//   write_rows(plane, rows, begin, end, to, writer) const    writes the columns [begin, end) of the plane's rows in the
//                                                            window `rows`, the first at `to`
template <Rows kRows, typename Work>
void write_segments(void* context, int64_t begin, int64_t end) {
  const Work& work = *static_cast<const Work*>(context);
  const Planes& planes = work.planes;
  const int64_t stride = planes.column.stride, row_stride = planes.row.stride;
  RowWriter<kRows, typename Work::Word> writer(work.destination, stride, work.value);
  for (int64_t i = begin; i < end;) {
    const int64_t line = i / planes.segments, first = line % planes.row.extent;
    const auto plane = work.plane_at(line / planes.row.extent);
    typename Work::Word* const to = work.destination + plane.destination;
    if (planes.segments == 1) {
      const int64_t last = end - i < planes.row.extent - first ? first + (end - i) : planes.row.extent;
      work.write_rows(plane, {first, last}, 0, planes.column.extent, to + first * row_stride, writer);
      i += last - first;
      continue;
    }
    const int64_t from = i % planes.segments * planes.segment_extent;
    const int64_t until = from + planes.segment_extent;
    work.write_rows(plane, {first, first + 1}, from, until < planes.column.extent ? until : planes.column.extent,
                    to + first * row_stride + from * stride, writer);
    ++i;
  }
  writer.finish();
}

// Whether rows can be written as bytes.
template <typename Work>
bool has_dense_rows(const Work& work) {
  const Axis& column = work.planes.column;
  return column.stride == 1 && (column.source_stride == 1 || column.source_extent == 1);
}

// Whether rows gain by being written past the caches.
template <typename Work>
bool has_streamed_rows(const Work& work) {
  constexpr int64_t kBytes = sizeof(typename Work::Word);
  // Lines are filled from one line of the value, which begins with a whole word.
  const bool in_step = reinterpret_cast<uintptr_t>(work.destination) % kBytes == 0;
  return has_dense_rows(work) && in_step && work.planes.numel * kBytes >= kStreamedBytes &&
         work.planes.column.extent * kBytes >= kStreamedRowBytes;
}

template <Rows kRows, typename Work>
Status write_planes(Work* work) {
  const Planes& planes = work->planes;
  parallel_ranges(planes.numel / planes.column.extent * planes.segments, grain_for(planes.segment_extent),
                  write_segments<kRows, Work>, work);
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::pad
