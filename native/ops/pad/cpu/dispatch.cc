// SPDX-License-Identifier: Apache-2.0
// pad on the CPU: threads own rows of the destination, which are mostly copies. Compiled once per instruction set.
#include "ops/pad/cpu/moves.h"
#include "ops/pad/cpu/sums.h"

namespace baracuda::pad {
namespace {

template <typename Word>
Status run(const Problem& p, const Moves<Word>& b, void*) {
  MoveWork<Word> work(p, b);
  return write_planes(&work);
}

template <typename T>
Status run(const Problem& p, const Sums<T>& b, void*) {
  SumWork<T> work(p, b);
  return write_planes(&work);
}

}  // namespace

#define BARACUDA_PROVIDE(BUFFERS) BARACUDA_PROVIDE_LAUNCH(Problem, BUFFERS)
BARACUDA_PAD_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::pad
