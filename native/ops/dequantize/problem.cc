// SPDX-License-Identifier: Apache-2.0
// Validation of dequantize_per_channel problems. No pointers, no CUDA.
#include "ops/dequantize/problem.h"

#include "core/checked.h"

namespace baracuda::dequantize {
namespace {

constexpr int32_t kRank = 4;

}  // namespace

Status make_problem(int64_t numel, const int32_t* shape, int32_t axis, const char* tensor, int64_t element_bytes,
                    Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_host_array("shape", shape));
  BARACUDA_RETURN_IF_FAILED(check_range("numel", numel, 0, INT64_MAX));
  BARACUDA_RETURN_IF_FAILED(check_range("axis", axis, 0, kRank - 1));
  CheckedCount elements(1), bytes(element_bytes);
  CheckedCount outer(1), inner(1);
  for (int32_t a = 0; a < kRank; ++a) {
    if (shape[a] < 0) {
      return fail(Status::kInvalidProblem, "shape[%d] is %d; wanted at least 0", a, shape[a]);
    }
    elements.times(shape[a]);
    bytes.times(shape[a]);
    if (a < axis) outer.times(shape[a]);
    if (a > axis) inner.times(shape[a]);
  }
  if (elements.fits() && elements.value() != numel) {
    return fail(Status::kInvalidProblem, "numel is %lld; wanted the product of shape, %lld",
                static_cast<long long>(numel), static_cast<long long>(elements.value()));
  }
  Problem p{};
  BARACUDA_RETURN_IF_FAILED(check_count(tensor, bytes, &p.numel));
  p.outer = outer.value(), p.channels = shape[axis], p.inner = inner.value();
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::dequantize
