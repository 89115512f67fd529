// SPDX-License-Identifier: Apache-2.0
// Rows whose elements add up their sources: the gradient of padding in the modes that repeat.
#pragma once

#include "core/cpu_convert.h"
#include "ops/pad/cpu/rows.h"
#include "ops/pad/launch.h"
#include "ops/pad/sums.h"

namespace baracuda::pad {
namespace {

// The places of the columns that have several, as far as they are noted down.
constexpr int64_t kNotedSums = 512;
constexpr int64_t kNotedPlaces = 2048;
// Columns that are summed at once: their sums stay in the nearest cache.
constexpr int64_t kSumColumns = 512;

template <typename T>
struct SumWork {
  using Word = T;

  Planes planes;
  const T* source;
  T* destination;
  T value{};
  int32_t repeating;    // axes that repeat
  bool column_is_last;  // in the order of sums, or no part of it
  bool noted;
  int64_t most;  // terms of one column in one row
  uint32_t starts[kNotedSums + 1], places[kNotedPlaces];

  SumWork(const Problem& p, const Sums<T>& b)
      : planes(p),
        source(b.source),
        destination(b.destination),
        repeating(0),
        column_is_last(true),
        noted(true),
        most(1) {
    const Axis& column = planes.column;
    for (int32_t a = 0; a < p.rank; ++a) {
      repeating += p.axes[a].repeats;
      if (column.repeats && p.axes[a].repeats && p.axes[a].nest > column.nest) column_is_last = false;
    }
    note_columns();
  }

  void note_columns() {
    const Axis& column = planes.column;
    starts[0] = 0;
    if (!column.repeats) return;
    int64_t sums = 0, next = 0;
    noted = column.extent - (column.window.end - column.window.begin) <= kNotedSums;
    for (int64_t i = 0; noted && i < column.extent; ++i) {
      if (i == column.window.begin) i = column.window.end;
      if (i == column.extent) break;
      const Preimages found = column_places(i);
      noted = next + found.count <= kNotedPlaces;
      if (!noted) break;
      for (uint32_t k = 0; k < found.count; ++k) places[next++] = static_cast<uint32_t>(place_of(found, k));
      starts[++sums] = static_cast<uint32_t>(next);
      most = found.count > most ? found.count : most;
    }
  }

  static bool is_kept(const Axis& axis, int64_t index) {
    return index >= axis.origin && index < axis.origin + axis.kept;
  }

  // None for a column that was cut off.
  Preimages column_places(int64_t index) const {
    const Axis& column = planes.column;
    if (!is_kept(column, index)) return {0, 0, 0, 0};
    return preimages_of(padded_axis(column), static_cast<uint32_t>(index - column.origin));
  }

  // A plane's or a row's source rows, in the order of the sum: on the axes that repeat, by their place in the order.
  struct Plane {
    int64_t destination;
    int64_t source;
    uint64_t rows;
    bool inside;
    Steps steps[kMaxRank];
  };

  void enter(const Axis& axis, int64_t index, Plane* plane) const {
    plane->inside = plane->inside && is_kept(axis, index);
    if (!plane->inside) return;
    if (!axis.repeats) {
      plane->source += (index - axis.low) * axis.source_stride;
      return;
    }
    const Preimages found = preimages_of(padded_axis(axis), static_cast<uint32_t>(index - axis.origin));
    plane->steps[place_in_order(axis)] = {found, axis.source_stride};
    plane->rows *= found.count;
  }

  int32_t place_in_order(const Axis& axis) const {
    int32_t place = 0;
    const auto comes_before = [&](const Axis& other) { return other.repeats && other.nest < axis.nest; };
    for (int32_t a = 0; a < planes.outer_rank; ++a) place += comes_before(planes.outer[a]);
    return place + comes_before(planes.row) + comes_before(planes.column);
  }

  Plane plane_at(int64_t plane) const {
    Plane found;
    found.destination = 0;
    found.source = planes.source_offset;
    found.rows = 1;
    found.inside = true;
    for (int32_t a = planes.outer_rank - 1; a >= 0; --a) {
      const Axis& axis = planes.outer[a];
      const int64_t index = plane % axis.extent;
      plane /= axis.extent;
      found.destination += index * axis.stride;
      enter(axis, index, &found);
    }
    return found;
  }

  template <typename Writer>
  void write_rows(const Plane& plane, const Window& rows, int64_t begin, int64_t end, T* first, Writer& writer) const {
    for (int64_t r = rows.begin; r < rows.end; ++r, first += planes.row.stride) {
      writer.start(first);
      Plane found = plane;
      enter(planes.row, r, &found);
      write_row(found, begin, end, first, writer);
    }
  }

  template <typename Writer>
  void write_row(Plane& row, int64_t begin, int64_t end, T* to, Writer& writer) const {
    if (!row.inside) {
      writer.fill(to, end - begin);
    } else if (!noted || !column_is_last || row.rows > kTermsInPartial / static_cast<uint64_t>(most)) {
      for (int64_t i = begin; i < end; ++i) to = writer.put(to, sum_element(row, i));
    } else if (row.rows == 1) {
      write_one_row(row, begin, end, to, writer);
    } else {
      write_sums(row, begin, end, to, writer);
    }
  }

  T sum_element(Plane& row, int64_t index) const {
    const Axis& column = planes.column;
    int64_t place = row.source;
    if (!is_kept(column, index)) return T{};
    if (column.repeats) {
      row.steps[place_in_order(column)] = {column_places(index), column.source_stride};
    } else {
      place += (index - column.low) * column.source_stride;
    }
    const auto load = [this](int64_t at) { return source[at]; };
    return repeating == 0 ? load(place) : sum_over<T>(row.steps, repeating, place, load);
  }

  // Calls sum(column, places, count) for columns of [begin, end) that may have several places or none, and
  // alone(first, last) for the others.
  template <typename SumColumn, typename Alone>
  void split_columns(int64_t begin, int64_t end, const SumColumn& sum, const Alone& alone) const {
    const Window& window = planes.column.window;
    const int64_t low = clamp(window.begin, begin, end), high = clamp(window.end, low, end);
    const auto sum_each = [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        if (!planes.column.repeats) {
          sum(i, places, 0);
          continue;
        }
        const int64_t note = i < window.begin ? i : i - window.end + window.begin;
        sum(i, places + starts[note], starts[note + 1] - starts[note]);
      }
    };
    sum_each(begin, low);
    if (low < high) alone(low, high);
    sum_each(high, end);
  }

  template <typename Writer>
  void write_one_row(const Plane& row, int64_t begin, int64_t end, T* to, Writer& writer) const {
    const int64_t stride = planes.column.source_stride;
    const T* const from = source + only_place(row);
    split_columns(
        begin, end,
        [&](int64_t, const uint32_t* at, uint32_t count) {
          Compute<T> sum = 0;
          for (uint32_t k = 0; k < count && count > 1; ++k) sum += widen(from[at[k] * stride]);
          to = writer.put(to, count == 1 ? from[at[0] * stride] : narrow<T>(sum));
        },
        [&](int64_t first, int64_t last) {
          to = writer.copy(to, from + (first - planes.column.low) * stride, stride, last - first);
        });
  }

  int64_t only_place(const Plane& row) const {
    int64_t place = row.source;
    for (int32_t a = 0; a < repeating - planes.column.repeats; ++a) {
      place += row.steps[a].places.first * row.steps[a].stride;
    }
    return place;
  }

  // Several source rows, none of whose sums is cut.
  template <typename Writer>
  void write_sums(const Plane& row, int64_t begin, int64_t end, T* to, Writer& writer) const {
    const int64_t stride = planes.column.source_stride;
    Compute<T> sums[kSumColumns];
    T results[kSumColumns];
    for (int64_t first = begin; first < end; first += kSumColumns) {
      const int64_t last = end - first < kSumColumns ? end : first + kSumColumns;
      for (int64_t j = 0; j < last - first; ++j) sums[j] = 0;
      for_each_row(row.steps, repeating - planes.column.repeats, row.source, [&](int64_t place) {
        const T* const from = source + place;
        split_columns(
            first, last,
            [&](int64_t i, const uint32_t* at, uint32_t count) {
              for (uint32_t k = 0; k < count; ++k) sums[i - first] += widen(from[at[k] * stride]);
            },
            [&](int64_t low, int64_t high) {
              add_row(from + (low - planes.column.low) * stride, stride, high - low, sums + (low - first));
            });
      });
      narrow_row<T>(sums, results, last - first);
      to = writer.copy(to, results, 1, last - first);
    }
  }

  static void add_row(const T* from, int64_t stride, int64_t count, Compute<T>* sums) {
    if (stride != 1) {
      for (int64_t j = 0; j < count; ++j) sums[j] += widen(from[j * stride]);
      return;
    }
    Compute<T> terms[kSumColumns];
    widen_row<T>(from, terms, count);
    for (int64_t j = 0; j < count; ++j) sums[j] += terms[j];
  }
};

}  // namespace
}  // namespace baracuda::pad
