// SPDX-License-Identifier: Apache-2.0
// The C functions of copies of rows by an index, compiled into both libraries.
#include "abi/index_copy.h"

#include "core/dtype.h"
#include "ops/index_copy/launch.h"

namespace baracuda::index_copy {
namespace {

template <typename T, typename I>
struct IndexCopy {
  using Problem = index_copy::Problem;
  using Arguments = IndexCopyArguments;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return index_copy::make_problem(a.outer, a.length, a.n, a.inner, sizeof(T), sizeof(I), problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"index", a.index, p.n, sizeof(I), false},
             {"source", a.source, p.source_numel, sizeof(T), false},
             {"output", a.output, p.input_numel, sizeof(T), true, 0}},
            4};
  }
  static size_t workspace_size(const Problem& p) { return index_copy::workspace_size<Buffers<I>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return index_copy::launch(p, buffers_of<Buffers<I>>(a.input, a.index, a.source, a.output), workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::index_copy

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_INDEX_COPY(index_copy::IndexCopy)
}
