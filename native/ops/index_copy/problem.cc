// SPDX-License-Identifier: Apache-2.0
// Validation of copies of rows by an index. No pointers, no CUDA.
#include "ops/index_copy/problem.h"

#include "core/checked.h"

namespace baracuda::index_copy {

Status make_problem(int64_t outer, int64_t length, int64_t n, int64_t inner, int64_t element_bytes, int64_t index_bytes,
                    Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("outer", outer));
  BARACUDA_RETURN_IF_FAILED(check_extent("length", length));
  BARACUDA_RETURN_IF_FAILED(check_extent("n", n));
  BARACUDA_RETURN_IF_FAILED(check_extent("inner", inner));
  Problem p{};
  p.outer = outer;
  p.length = length;
  p.n = n;
  BARACUDA_RETURN_IF_FAILED(
      check_count("input", CheckedCount(element_bytes).times(outer).times(length).times(inner), &p.input_numel));
  int64_t entries = 0;
  BARACUDA_RETURN_IF_FAILED(check_count("index", CheckedCount(index_bytes).times(n), &entries));
  BARACUDA_RETURN_IF_FAILED(
      check_count("source", CheckedCount(element_bytes).times(outer).times(n).times(inner), &p.source_numel));
  // Where input is empty nothing is moved, and the product may be too large.
  p.row_bytes = p.input_numel > 0 ? inner * element_bytes : 0;
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::index_copy
