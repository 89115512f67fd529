// SPDX-License-Identifier: Apache-2.0
// What a valid scan is, forward and backward: extents, direction and the sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::scan {

// How a row is cut, which is part of what results are: the library's header states it. Blocks are halved down to single
// elements; blocks of a tile are joined one after the other, and so are the tiles of a row.
constexpr int32_t kBlock = 128;
constexpr int32_t kTile = 8192;

struct Problem {
  int64_t outer, length, inner;
  bool reverse;  // whether the scan begins at a row's end
  bool minimum;  // of maxima and minima: which

  int64_t rows;   // outer inner
  int64_t tiles;  // of a row
  int64_t numel;
};

// The scalars that all operators have, by the names of the C arguments.
struct Scalars {
  int64_t outer, length, inner;
  int32_t reverse;
};

// Checks in the project's fixed order. `element_bytes` are those of the widest tensor, which texts call `widest`.
Status make_problem(const Scalars& scalars, bool is_backward, int64_t element_bytes, const char* widest,
                    Problem* problem);

}  // namespace baracuda::scan
