// SPDX-License-Identifier: Apache-2.0
// The C functions of weighted counts, compiled into both libraries.
#include "abi/bincount.h"

#include "ops/bincount/launch.h"

namespace baracuda::bincount {
namespace {

template <typename T, typename I, class Block>
struct Counts {
  using Problem = bincount::Problem;
  using Arguments = Block;
  // Of rows nobody may ask how many bins they name.
  static void* extent_of(const BincountArguments& a) { return a.extent; }
  static void* extent_of(const BincountRowsArguments&) { return nullptr; }

  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.entries, sizeof(I), false},
             {"weights", a.weights, p.entries, sizeof(T), false},
             {"output", a.output, p.sums, sizeof(T), true},
             {"extent", extent_of(a), p.wants_extent ? 1 : 0, sizeof(int64_t), true}},
            4};
  }
  static size_t workspace_size(const Problem& p) { return bincount::workspace_size<Buffers<T, I>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    void* const extent = p.wants_extent ? extent_of(a) : nullptr;
    return bincount::launch(p, buffers_of<Buffers<T, I>>(a.input, a.weights, a.output, extent), workspace, stream);
  }
};

template <typename T, typename I>
struct Bincount : Counts<T, I, BincountArguments> {
  static Status make_problem(const BincountArguments& a, Problem* problem) {
    return bincount::make_problem(1, a.n, a.num_bins, a.wants_extent, sizeof(T), sizeof(I), problem);
  }
};

template <typename T, typename I>
struct BincountRows : Counts<T, I, BincountRowsArguments> {
  static Status make_problem(const BincountRowsArguments& a, Problem* problem) {
    return bincount::make_problem(a.rows, a.n, a.num_bins, 0, sizeof(T), sizeof(I), problem);
  }
};

}  // namespace
}  // namespace baracuda::bincount

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_BINCOUNT(bincount::Bincount)
BARACUDA_STAMP_EVERY_BINCOUNT_ROWS(bincount::BincountRows)
}
