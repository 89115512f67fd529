// SPDX-License-Identifier: Apache-2.0
// What a valid segment problem is, forward and backward: extents and the sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::segment {

// How rows name their segments: an id a row in any order, an id a row in ascending order, or the rank at which each
// segment begins.
enum class Form : int32_t { kUnsorted, kSorted, kOffsets };

// A rank is kept in 32 bits, also one that lies less than a piece behind the last row.
constexpr int32_t kRowsBeyond = 256;
constexpr int32_t kMostRows = INT32_MAX - kRowsBeyond;

struct Problem {
  int32_t n;  // rows
  int32_t d;  // columns
  int32_t num_segments;
  Form form;

  int64_t row_numel;      // n d
  int64_t segment_numel;  // num_segments d

  // Elements of the ids or offsets.
  int64_t index_numel() const { return form == Form::kOffsets ? int64_t{num_segments} + 1 : int64_t{n}; }
};

// Checks in the project's fixed order. `rows_name` is what texts call the number of rows; `rows` and `segments` are
// what they call the tensors (no segments: nullptr), `element_bytes` is the size of T.
Status make_problem(const char* rows_name, int64_t num_rows, int32_t embedding_dim, int32_t num_segments, Form form,
                    int64_t element_bytes, const char* rows, const char* segments, Problem* problem);

}  // namespace baracuda::segment
