// SPDX-License-Identifier: Apache-2.0
// Pad on the CPU: threads own rows of the destination, which are mostly copies. Compiled once per instruction set.
#include "ops/pad/cpu_moves.h"
#include "ops/pad/cpu_sums.h"

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

BARACUDA_PROVIDE_LAUNCH(Problem, Moves<uint8_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Moves<uint16_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Moves<uint32_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Moves<uint64_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Moves<Word128>)
BARACUDA_PROVIDE_LAUNCH(Problem, Sums<float>)
BARACUDA_PROVIDE_LAUNCH(Problem, Sums<double>)
BARACUDA_PROVIDE_LAUNCH(Problem, Sums<Half>)
BARACUDA_PROVIDE_LAUNCH(Problem, Sums<Bfloat16>)

}  // namespace baracuda::pad
