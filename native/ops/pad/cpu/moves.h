// SPDX-License-Identifier: Apache-2.0
// Rows whose every element has one source or holds the value: padding, forward in every mode and backward in constant.
#pragma once

#include "ops/pad/cpu/rows.h"
#include "ops/pad/launch.h"

namespace baracuda::pad {
namespace {

// Where the columns outside the window take their source, as far as it is noted down.
constexpr int64_t kNotedColumns = 1024;

template <typename WordType>
struct MoveWork {
  using Word = WordType;

  Planes planes;
  const Word* source;
  Word* destination;
  Word value;
  bool folds, noted;
  uint32_t outside[kNotedColumns];

  MoveWork(const Problem& p, const Moves<Word>& b)
      : planes(p), source(b.source), destination(b.destination), value(b.value), folds(p.outside == Outside::kFold) {
    const Axis& column = planes.column;
    const Window& window = column.window;
    noted = folds && column.repeats && column.extent - (window.end - window.begin) <= kNotedColumns;
    if (!noted) return;
    for (int64_t i = 0; i < window.begin; ++i) outside[i] = static_cast<uint32_t>(folded(column, i));
    for (int64_t i = window.end; i < column.extent; ++i) {
      outside[window.begin + i - window.end] = static_cast<uint32_t>(folded(column, i));
    }
  }

  static int64_t folded(const Axis& axis, int64_t index) {
    return axis.origin - axis.low + fold(axis.rule, axis.kept, index - axis.origin);
  }

  // Where a plane starts in both tensors. The source is unsigned because it may wrap outside, where it is not used.
  struct Plane {
    int64_t destination;
    uint64_t source;
    bool inside;
  };

  // Moves a place along an axis; false where the axis has no source.
  bool enter(const Axis& axis, int64_t index, uint64_t* place) const {
    const bool inside = index >= axis.window.begin && index < axis.window.end;
    const int64_t taken = folds && !inside ? folded(axis, index) : index - axis.low;
    *place += static_cast<uint64_t>(taken) * static_cast<uint64_t>(axis.source_stride);
    return folds || inside;
  }

  Plane plane_at(int64_t plane) const {
    Plane found{0, static_cast<uint64_t>(planes.source_offset), true};
    for (int32_t a = planes.outer_rank - 1; a >= 0; --a) {
      const Axis& axis = planes.outer[a];
      const int64_t index = plane % axis.extent;
      plane /= axis.extent;
      found.destination += index * axis.stride;
      found.inside = enter(axis, index, &found.source) && found.inside;
    }
    return found;
  }

  template <typename Writer>
  void write_rows(const Plane& plane, const Window& rows, int64_t begin, int64_t end, Word* first,
                  Writer& writer) const {
    // Copies of what the stores to `first` might change for all the compiler knows.
    const Axis row = planes.row, column = planes.column;
    const bool fills = !folds, hollow = fills && (!plane.inside || column.window.begin == column.window.end);
    const int64_t low = clamp(column.window.begin, begin, end), high = clamp(column.window.end, low, end);
    const int64_t stride = column.source_stride;
    for (int64_t r = rows.begin; r < rows.end; ++r, first += row.stride) {
      Word* to = first;
      writer.start(to);
      const bool inside = r >= row.window.begin && r < row.window.end;
      if (hollow || (fills && !inside)) {
        writer.fill(to, end - begin);
        continue;
      }
      const int64_t taken = inside ? r - row.low : folded(row, r);
      const uint64_t place = plane.source + static_cast<uint64_t>(taken) * static_cast<uint64_t>(row.source_stride);
      const Word* const from = source + static_cast<int64_t>(place);
      if (begin < low) to = fills ? writer.fill(to, low - begin) : write_folded(from, begin, low, to, writer);
      if (low < high) to = writer.copy(to, from + (low - column.low) * stride, stride, high - low);
      if (high < end) to = fills ? writer.fill(to, end - high) : write_folded(from, high, end, to, writer);
    }
  }

  template <typename Writer>
  Word* write_folded(const Word* from, int64_t begin, int64_t end, Word* to, Writer& writer) const {
    const Axis& column = planes.column;
    const uint32_t* const note = outside + (begin < column.window.begin ? 0 : column.window.begin - column.window.end);
    for (int64_t i = begin; i < end; ++i) {
      to = writer.put(to, from[(noted ? note[i] : folded(column, i)) * column.source_stride]);
    }
    return to;
  }
};

}  // namespace
}  // namespace baracuda::pad
