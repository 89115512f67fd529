// SPDX-License-Identifier: Apache-2.0
// Average pooling on the CPU: which path a call takes. Threads own rows of the destination. Compiled once per
// instruction set.
//
//   path     calls                                            code
//   zeros    nothing to read                                  here
//   kept     backward where elements have few windows         kept_rows.h
//   rows     the others                                       rows.h
#include <type_traits>

#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/avg_pool/cpu/kept_rows.h"
#include "ops/avg_pool/cpu/rows.h"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

template <class Buffers>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, Buffers>& call;
  bool can() const { return source_numel<Buffers::kBackward>(call.p) == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    return write_zeros(call.b.destination, destination_numel<Buffers::kBackward>(call.p));
  }
};

// add(begin, end) for parts of all rows of the destination.
template <class Buffers, class Add>
Status add_rows(const Problem& p, Add add) {
  const int64_t numel = destination_numel<Buffers::kBackward>(p);
  const int64_t rows = numel / destination_extent<Buffers::kBackward>(p.axes[2]);
  // What a row reads or writes, whichever is more.
  const int64_t most = numel > source_numel<Buffers::kBackward>(p) ? numel : source_numel<Buffers::kBackward>(p);
  const int64_t rows_per_task = grain_for(most / rows);
  parallel_for(ceil_div(rows, rows_per_task), 1, [&](int64_t task) {
    add(task * rows_per_task, at_most((task + 1) * rows_per_task, rows));
  });
  return Status::kOk;
}

// The workspace: the calling thread's arrays.
template <class Arrays>
struct Scratch {
  WorkspaceLayout layout;
  TaskScratch<Arrays> arrays;
  explicit Scratch(void* workspace) : arrays(layout, workspace) {}
};

template <class Buffers>
struct KeptPath {
  using T = typename Buffers::Element;
  using Arrays = KeptArrays<Compute<T>>;
  static const char* name() { return "kept"; }
  const Request<Problem, Buffers>& call;
  bool can() const { return KeptRowSums<T>::can(call.p); }
  size_t bytes() const { return Scratch<Arrays>(nullptr).layout.bytes(); }
  Status enqueue() const {
    const Scratch<Arrays> scratch(call.workspace);
    const Pooling pooling(call.p);
    return add_rows<Buffers>(call.p, [&](int64_t begin, int64_t end) {
      KeptRowSums<T>(call.p, pooling, call.b, scratch.arrays.mine()).add_rows(begin, end);
    });
  }
};

template <class Buffers>
struct RowsPath {
  using Arrays = avg_pool::Arrays<Compute<typename Buffers::Element>>;
  static const char* name() { return "rows"; }
  const Request<Problem, Buffers>& call;
  size_t bytes() const { return Scratch<Arrays>(nullptr).layout.bytes(); }
  Status enqueue() const {
    const Scratch<Arrays> scratch(call.workspace);
    const Pooling pooling(call.p);
    return add_rows<Buffers>(call.p, [&](int64_t begin, int64_t end) {
      RowSums<Buffers>(pooling, call.b, scratch.arrays.mine()).add_rows(begin, end);
    });
  }
};

template <class Buffers>
using PathsOf = std::conditional_t<Buffers::kBackward,
                                   Paths<ZerosPath<Buffers>, KeptPath<Buffers>, RowsPath<Buffers>>,
                                   Paths<ZerosPath<Buffers>, RowsPath<Buffers>>>;

template <class Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace) {
  return PathsOf<Buffers>::enqueue(Request<Problem, Buffers>{p, b, workspace});
}

template <class Buffers>
size_t bytes_of(const Problem& p, const Buffers*) {
  if (destination_numel<Buffers::kBackward>(p) == 0) return 0;
  const Buffers none{};
  return PathsOf<Buffers>::choose(Request<Problem, Buffers>{p, none, nullptr},
                                  [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::avg_pool
