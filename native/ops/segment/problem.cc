// SPDX-License-Identifier: Apache-2.0
// Validation of segment problems. No pointers, no CUDA.
#include "ops/segment/problem.h"

#include "core/checked.h"

namespace baracuda::segment {

Status make_problem(int32_t num_inputs, int32_t embedding_dim, int32_t num_segments, int64_t element_bytes,
                    const char* rows, const char* segments, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("num_inputs", num_inputs));
  BARACUDA_RETURN_IF_FAILED(check_extent("embedding_dim", embedding_dim));
  BARACUDA_RETURN_IF_FAILED(check_extent("num_segments", num_segments));

  Problem p{};
  p.n = num_inputs, p.d = embedding_dim, p.num_segments = num_segments;
  BARACUDA_RETURN_IF_FAILED(
      check_count(rows, CheckedCount(element_bytes).times(num_inputs).times(embedding_dim), &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(
      check_count(segments, CheckedCount(element_bytes).times(num_segments).times(embedding_dim), &p.output_numel));
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::segment
