// SPDX-License-Identifier: Apache-2.0
// Rows whose every element has one source or holds the value: padding, forward in every mode and backward in constant.
#pragma once

#include "ops/pad/cpu_rows.h"
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
  void write_row(const Plane& plane, int64_t row, int64_t begin, int64_t end, Writer& writer) const {
    const Axis& column = planes.column;
    uint64_t place = plane.source;
    if (!enter(planes.row, row, &place) || !plane.inside || column.window.begin == column.window.end) {
      if (!folds) return writer.fill(end - begin);
    }
    const Word* const from = source + static_cast<int64_t>(place);
    const int64_t low = clamp(column.window.begin, begin, end), high = clamp(column.window.end, low, end);
    write_outside(from, begin, low, writer);
    if (low < high) writer.copy(from + (low - column.low) * column.source_stride, column.source_stride, high - low);
    write_outside(from, high, end, writer);
  }

  template <typename Writer>
  void write_outside(const Word* from, int64_t begin, int64_t end, Writer& writer) const {
    if (begin == end) return;
    if (!folds) return writer.fill(end - begin);
    const Axis& column = planes.column;
    const uint32_t* const note = outside + (begin < column.window.begin ? 0 : column.window.begin - column.window.end);
    for (int64_t i = begin; i < end; ++i) {
      writer.put(from[(noted ? note[i] : folded(column, i)) * column.source_stride]);
    }
  }
};

}  // namespace
}  // namespace baracuda::pad
