// SPDX-License-Identifier: Apache-2.0
// The sorted list of rows and how its work is cut, for both backends: the list is cut into chunks of consecutive ranks
// whatever the segments are, so no distribution of ids is slow. A segment within one chunk is finished there. One that
// crosses chunks leaves a piece in each of them, and the chunk in which it begins joins the pieces.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/workspace.h"
#include "ops/segment/problem.h"

namespace baracuda::segment {
namespace {

// One row in the order of segments; rows of one segment are in ascending order.
struct alignas(8) Record {
  int32_t key;  // key_of its id
  int32_t row;
};

// The key of the records before the first and after the last: no row has it.
constexpr int32_t kNoKey = -1;

// What a run of consecutive ranks shares with other runs. A run that lies wholly inside a segment is all head.
struct Edges {
  bool head;  // its first ranks continue a segment that began in an earlier run
  bool tail;  // its last ranks begin a segment that goes on in the next run
};

// From the keys of the run's first and last record and of the records beside it. Rows without a segment are no piece.
BARACUDA_HD Edges edges_of(int32_t before, int32_t first, int32_t last, int32_t after, int32_t num_segments) {
  const bool head = before == first && first != num_segments;
  const bool tail = after == last && last != num_segments && !(head && first == last);
  return {head, tail};
}

// The chunks of a list: `length` ranks each, the last one shorter.
struct Chunks {
  int32_t n;
  int32_t length;

  BARACUDA_HD int64_t count() const { return (static_cast<int64_t>(n) + length - 1) / length; }
  BARACUDA_HD int64_t begin(int64_t chunk) const { return chunk * length; }
  BARACUDA_HD int64_t end(int64_t chunk) const { return begin(chunk) + length < n ? begin(chunk) + length : n; }
  BARACUDA_HD Edges edges(int64_t chunk, const Record* list, int32_t num_segments) const {
    const int64_t first = begin(chunk), last = end(chunk) - 1;
    return edges_of(first > 0 ? list[first - 1].key : kNoKey, list[first].key, list[last].key,
                    last + 1 < n ? list[last + 1].key : kNoKey, num_segments);
  }
};

// Doubles a chunk's length up to `longest` while the pieces, two a chunk, take more memory than the list itself and a
// fixed allowance: a workspace is of the order of the ids, however wide the rows are.
constexpr int64_t kPieceAllowance = int64_t{16} << 20;
inline int32_t bound_pieces(const Problem& p, int64_t bytes_per_column, int32_t length, int32_t longest) {
  const int64_t column_bytes = 2 * bytes_per_column * p.d;  // times at most 2^26 chunks: below 2^63
  const int64_t allowed = kPieceAllowance + 16 * static_cast<int64_t>(p.n);
  while (length * 2 <= longest && column_bytes * Chunks{p.n, length}.count() > allowed) length *= 2;
  return length;
}

// The pieces of segments that cross chunks.
template <typename T>
struct Pieces {
  T* values;        // [2 chunks][d]: for each chunk the best of its head, then of its tail
  int32_t* rows;    // [2 chunks][d]: the rows that hold them; of a tail, after the join, the rows of the whole segment
  int32_t* starts;  // [chunks]: where the segment of a chunk's head begins

  // Rows are kept for a gradient alone.
  Pieces(const Problem& p, const Chunks& chunks, bool with_rows, WorkspaceLayout& layout, void* workspace) {
    const int64_t kept = 2 * chunks.count() * p.d;
    values = workspace_array<T>(workspace, layout.reserve<T>(kept));
    rows = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(with_rows ? kept : 0));
    starts = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(with_rows ? chunks.count() : 0));
  }

  static constexpr int64_t bytes_per_column(bool with_rows) { return sizeof(T) + (with_rows ? sizeof(int32_t) : 0); }
};

// Where the pieces of a chunk begin.
BARACUDA_HD int64_t head_piece(int64_t chunk, int64_t d) { return 2 * chunk * d; }
BARACUDA_HD int64_t tail_piece(int64_t chunk, int64_t d) { return (2 * chunk + 1) * d; }

}  // namespace
}  // namespace baracuda::segment
