// SPDX-License-Identifier: Apache-2.0
// pad on the CPU: which path a call takes. Threads own rows of the destination, which are mostly copies. Compiled once
// per instruction set.
//
//   path            calls                                               code
//   streamed rows   dense rows of a large result: past the caches       rows.h
//   dense rows      dense rows: as bytes                                rows.h
//   strided rows    all: element by element                             rows.h
//
// What stands in a row is the affair of moves.h and sums.h.
#include "core/paths.h"
#include "ops/pad/cpu/moves.h"
#include "ops/pad/cpu/sums.h"

namespace baracuda::pad {
namespace {

template <class Work>
struct StreamedPath {
  static const char* name() { return "streamed rows"; }
  Work* work;
  bool can() const { return has_streamed_rows(*work); }
  Status enqueue() const { return write_planes<Rows::kStreamed>(work); }
};

template <class Work>
struct DensePath {
  static const char* name() { return "dense rows"; }
  Work* work;
  bool can() const { return has_dense_rows(*work); }
  Status enqueue() const { return write_planes<Rows::kDense>(work); }
};

template <class Work>
struct StridedPath {
  static const char* name() { return "strided rows"; }
  Work* work;
  Status enqueue() const { return write_planes<Rows::kStrided>(work); }
};

template <class Work>
Status enqueue_planes(Work* work) {
  return Paths<StreamedPath<Work>, DensePath<Work>, StridedPath<Work>>::enqueue(work);
}

template <typename Word>
Status run(const Problem& p, const Moves<Word>& b, void*) {
  MoveWork<Word> work(p, b);
  return enqueue_planes(&work);
}

template <typename T>
Status run(const Problem& p, const Sums<T>& b, void*) {
  SumWork<T> work(p, b);
  return enqueue_planes(&work);
}

}  // namespace

#define BARACUDA_PROVIDE(BUFFERS) BARACUDA_PROVIDE_LAUNCH(Problem, BUFFERS)
BARACUDA_PAD_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::pad
