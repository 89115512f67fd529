// SPDX-License-Identifier: Apache-2.0
// Copies of rows by an index on the CPU. Threads own what they write. Compiled once per instruction set.
//
//   path   what a task is
//   rows   some rows of a table of output: what input holds there, then their rows of source in ascending order, of
//          which the last stays
#include <cstring>

#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "ops/index_copy/launch.h"

namespace baracuda::index_copy {
namespace {

// How many parts a table has. Each reads the whole index: there are no more than keep all threads busy, and one where
// all of the call is no more work than a thread is woken for.
int64_t parts_of(const Problem& p) {
  constexpr int64_t kElement = 4;  // bytes, of those that kPartElements counts
  const int64_t threads = cpu_threads();
  if (p.outer >= threads || (p.length + p.n) * p.row_bytes <= kElement * kPartElements) return 1;
  return at_most(ceil_div(threads, p.outer), p.length);
}

// The rows [begin, end) of a table. Of kBytes > 0 each: the compiler then moves words.
template <int64_t kBytes, typename I>
void put_rows(const Problem& p, const I* index, const char* source, char* table, int64_t begin, int64_t end) {
  const int64_t bytes = kBytes > 0 ? kBytes : p.row_bytes;
  const uint64_t rows = static_cast<uint64_t>(end - begin);
  for (int64_t i = 0; i < p.n; ++i) {
    // A negative place is past every end.
    const uint64_t place = static_cast<uint64_t>(index[i]) - static_cast<uint64_t>(begin);
    if (place >= rows) continue;
    memcpy(table + (begin + static_cast<int64_t>(place)) * bytes, source + i * bytes, static_cast<size_t>(bytes));
  }
}

template <typename I>
void put_rows_of_any_width(const Problem& p, const I* index, const char* source, char* table, int64_t begin,
                           int64_t end) {
  switch (p.row_bytes) {
    case 1:
      return put_rows<1>(p, index, source, table, begin, end);
    case 2:
      return put_rows<2>(p, index, source, table, begin, end);
    case 4:
      return put_rows<4>(p, index, source, table, begin, end);
    case 8:
      return put_rows<8>(p, index, source, table, begin, end);
    case 16:
      return put_rows<16>(p, index, source, table, begin, end);
    default:
      return put_rows<0>(p, index, source, table, begin, end);
  }
}

template <typename I>
struct RowsPath {
  static const char* name() { return "rows"; }
  const Request<Problem, Buffers<I>>& call;
  Status enqueue() const {
    const Problem& p = call.p;
    const Buffers<I>& b = call.b;
    const int64_t parts = parts_of(p), table_bytes = p.length * p.row_bytes;
    const int64_t rows = ceil_div(p.length, parts);
    parallel_for(p.outer * parts, grain_for((rows + p.n) * p.row_bytes / 4 + p.n), [&](int64_t task) {
      const int64_t o = task / parts, begin = at_most(task % parts * rows, p.length);
      const int64_t end = at_most(begin + rows, p.length);
      char* const table = static_cast<char*>(b.output) + o * table_bytes;
      if (b.output != b.input) {
        const int64_t first = begin * p.row_bytes;
        memcpy(table + first, static_cast<const char*>(b.input) + o * table_bytes + first,
               static_cast<size_t>((end - begin) * p.row_bytes));
      }
      const char* const source = static_cast<const char*>(b.source) + o * p.n * p.row_bytes;
      put_rows_of_any_width(p, b.index, source, table, begin, end);
    });
    return Status::kOk;
  }
};

template <typename I>
Status run(const Problem& p, const Buffers<I>& b, void* workspace) {
  return Paths<RowsPath<I>>::enqueue(Request<Problem, Buffers<I>>{p, b, workspace});
}

template <class Buffers>
size_t bytes_of(const Problem&, const Buffers*) {
  return 0;
}

}  // namespace

BARACUDA_INDEX_COPY_BUFFERS(BARACUDA_PROVIDE_LAUNCH)
BARACUDA_INDEX_COPY_BUFFERS(BARACUDA_PROVIDE_WORKSPACE_SIZE)

}  // namespace baracuda::index_copy
