// SPDX-License-Identifier: Apache-2.0
// Validation of segment problems. No pointers, no CUDA.
#include "ops/segment/problem.h"

#include "core/checked.h"

namespace baracuda::segment {

Status make_problem(const char* rows_name, int64_t num_rows, int32_t embedding_dim, int32_t num_segments, Form form,
                    int64_t element_bytes, const char* rows, const char* segments, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_range(rows_name, num_rows, 0, kMostRows));
  BARACUDA_RETURN_IF_FAILED(check_extent("embedding_dim", embedding_dim));
  BARACUDA_RETURN_IF_FAILED(check_extent("num_segments", num_segments));

  Problem p{};
  p.n = static_cast<int32_t>(num_rows), p.d = embedding_dim, p.num_segments = num_segments, p.form = form;
  BARACUDA_RETURN_IF_FAILED(
      check_count(rows, CheckedCount(element_bytes).times(p.n).times(embedding_dim), &p.row_numel));
  const CheckedCount of_segments = CheckedCount(element_bytes).times(num_segments).times(embedding_dim);
  if (segments != nullptr) {
    BARACUDA_RETURN_IF_FAILED(check_count(segments, of_segments, &p.segment_numel));
  } else {
    p.segment_numel = of_segments.fits() ? of_segments.value() : INT64_MAX;
  }
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::segment
