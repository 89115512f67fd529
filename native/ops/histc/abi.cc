// SPDX-License-Identifier: Apache-2.0
// The C functions of histograms, compiled into both libraries.
#include "abi/histc.h"
#include "ops/histc/launch.h"

namespace baracuda::histc {
namespace {

template <typename T>
struct Histc {
  using Arguments = HistcArguments;
  using Problem = histc::Problem;
  static Status make_problem(const Arguments& a, Problem* problem) {
    return histc::make_problem({a.num_elements, a.bins, a.min, a.max}, sizeof(T), sizeof(T) == 8, problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.numel, sizeof(T), false}, {"output", a.output, p.bins, sizeof(T), true}}, 2};
  }
  static size_t workspace_size(const Problem& p) { return histc::workspace_size<Buffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return histc::launch(p, buffers_of<Buffers<T>>(a.input, a.output), workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::histc

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_HISTC(histc::Histc)
}
