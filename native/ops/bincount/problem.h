// SPDX-License-Identifier: Apache-2.0
// What a valid weighted count is, of one row of entries or of many. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::bincount {

// The cuts of a sum, which are part of its definition: entries of a block, and of a group of 64 blocks.
constexpr int64_t kBlock = 4096, kBlocksOfGroup = 64, kGroup = kBlock * kBlocksOfGroup;

// A warp has a table of so many sums in shared memory, in f64, too, on every GPU.
constexpr int32_t kMostBins = 4096;

struct Problem {
  int64_t rows;
  int64_t n;        // entries of a row
  int32_t num_bins;
  int64_t blocks;   // of a row, begun ones
  int64_t groups;   // of a row, begun ones
  int64_t entries;  // of all rows
  int64_t sums;     // of all rows
  bool wants_extent;
};

// Checks in the project's fixed order.
Status make_problem(int64_t rows, int64_t n, int32_t num_bins, int32_t wants_extent, int64_t element_bytes,
                    int64_t index_bytes, Problem* problem);

}  // namespace baracuda::bincount
