// SPDX-License-Identifier: Apache-2.0
// The sorted list of rows and how its work is cut, for both backends. A segment's rows, in ascending order, are cut
// into pieces counted from the segment's own first row. A piece belongs to the run of the list in which it begins, so
// runs of equal length share out any distribution of ids. A segment of one piece is finished where its piece is; the
// pieces of a longer one are kept and joined in ascending order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/host_device.h"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/segment/math.h"
#include "ops/segment/problem.h"

namespace baracuda::segment {
namespace {

// Rows of a piece, as a power of two. 256 rows are the canonical order of sums. Rules that may be grouped in any way
// take shorter pieces where there are few rows, so that a long segment keeps many processors busy.
constexpr int32_t kLongPieceBits = 8;
constexpr int32_t kShortPieceBits = 5;
constexpr int32_t kManyRows = 1 << 18;
static_assert(1 << kLongPieceBits <= kRowsBeyond);

// One row in the order of segments; rows of one segment are in ascending order. Rows without a segment have the key
// num_segments and lie at the ends.
struct alignas(8) Record {
  int32_t key;
  int32_t row;
};

// How the rows in order are cut.
struct Pieces {
  int32_t n;
  int32_t num_segments;
  int32_t piece_bits;

  BARACUDA_HD int32_t piece_rows() const { return 1 << piece_bits; }

  // Where the parts of segments of several pieces are kept. Of the pieces that begin in one window of a piece's length
  // at most one is the first of such a segment, for it has full length, and at most one is a later one, for pieces of
  // one segment begin a full length apart and a segment's last piece is followed by the next one's first.
  BARACUDA_HD int64_t slot(int32_t begin, bool first) const {
    return 2 * static_cast<int64_t>(begin >> piece_bits) + (first ? 1 : 0);
  }
};

// The rows in order, and where each key begins.
struct List : Pieces {
  const Record* records;  // [n]
  const int32_t* begins;  // [num_segments + 2]: first rank of a segment; where the last one ends; n

  BARACUDA_HD int32_t key(int32_t rank) const { return records[rank].key; }
  BARACUDA_HD int32_t row(int32_t rank) const { return records[rank].row; }
  BARACUDA_HD int32_t begin(int32_t key) const { return begins[key]; }
  BARACUDA_HD int32_t end(int32_t key) const { return begins[int64_t{key} + 1]; }
  BARACUDA_HD int32_t length(int32_t key) const { return end(key) - begin(key); }
  BARACUDA_HD bool in_pieces(int32_t key) const { return key < num_segments && length(key) > piece_rows(); }

  // The first rank from `rank` on at which a piece begins, n if there is none.
  BARACUDA_HD int32_t boundary(int64_t rank) const {
    if (rank >= n) return n;
    const int32_t at = static_cast<int32_t>(rank), mine = key(at);
    const int32_t begin = begins[mine], end = begins[int64_t{mine} + 1];
    if (begin >= at) return at;
    const int64_t cut = at + piece_rows() - 1 - static_cast<int64_t>((at - begin - 1) & (piece_rows() - 1));
    const int64_t next = end > at && end < cut ? end : cut;
    return static_cast<int32_t>(next < n ? next : n);
  }
};

inline int64_t slot_count(int32_t n, int32_t piece_bits) {
  return 2 * groups_of_bits(int64_t{n}, piece_bits);
}

// The pieces of a call. Short ones only while what is kept of them takes no more memory than the list itself and a
// fixed allowance.
constexpr int64_t kPartAllowance = int64_t{16} << 20;
template <class Fold>
int32_t piece_bits_for(const Problem& p) {
  int32_t bits = Fold::kAnyGrouping && p.n < kManyRows ? kShortPieceBits : kLongPieceBits;
  const int64_t column_bytes = int64_t{p.d} * (sizeof(typename Fold::First) + sizeof(typename Fold::Second));
  const int64_t allowed = kPartAllowance + 16 * static_cast<int64_t>(p.n);
  // At most 2^14 slots a column block here: below 2^63.
  while (bits < kLongPieceBits && slot_count(p.n, bits) * column_bytes > allowed) ++bits;
  return bits;
}

// The kept parts: the two components of a rule's state.
template <class Fold>
struct Parts {
  using First = typename Fold::First;
  using Second = typename Fold::Second;
  static constexpr bool kHasSecond = !std::is_empty_v<Second>;
  int32_t piece_bits;
  First* first;    // [slots][d]
  Second* second;  // [slots][d], of rules that keep a second number

  Parts(const Problem& p, WorkspaceLayout& layout, void* workspace) : piece_bits(piece_bits_for<Fold>(p)) {
    const int64_t count = p.n > (1 << piece_bits) ? slot_count(p.n, piece_bits) * p.d : 0;
    first = workspace_array<First>(workspace, layout.reserve<First>(count));
    second = workspace_array<Second>(workspace, layout.reserve<Second>(kHasSecond ? count : 0));
  }
};

// The number of offsets[0 .. count) that are at most `row`.
template <class Offsets>
BARACUDA_HD int32_t offsets_up_to(const Offsets& offsets, int64_t count, int64_t row) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (offsets[middle] <= row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return static_cast<int32_t>(low);
}
// The key of a row that so many of offsets[0 .. num_segments] are at most; the last one is where the last segment ends.
BARACUDA_HD int32_t key_of_begun(int64_t begun, int32_t num_segments) {
  return begun > 0 && begun <= num_segments ? static_cast<int32_t>(begun) - 1 : num_segments;
}
template <class Offsets>
BARACUDA_HD int32_t key_by_offsets(const Offsets& offsets, int32_t num_segments, int64_t row) {
  return key_of_begun(offsets_up_to(offsets, int64_t{num_segments} + 1, row), num_segments);
}
template <typename I>
BARACUDA_HD int32_t rank_of_offset(I offset, int32_t n) {
  return offset < 0 ? 0 : offset < n ? static_cast<int32_t>(offset) : n;
}

}  // namespace
}  // namespace baracuda::segment
