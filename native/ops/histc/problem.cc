// SPDX-License-Identifier: Apache-2.0
// Validation of histograms. No pointers, no CUDA.
#include "ops/histc/problem.h"

#include <cmath>

#include "core/checked.h"

namespace baracuda::histc {
namespace {

Status check_finite(const char* name, double value) {
  if (std::isfinite(value)) return Status::kOk;
  return fail(Status::kInvalidProblem, "%s is %g; wanted a finite number", name, value);
}

// Whether every step to a bin's number is finite. Rounds as kernels do.
template <typename C>
bool reaches(double min, double max, int64_t bins) {
  const C width = static_cast<C>(max) - static_cast<C>(min);
  return std::isfinite(width * static_cast<C>(bins));
}

}  // namespace

Status make_problem(const Scalars& scalars, int64_t element_bytes, bool is_wide, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("num_elements", scalars.numel));
  BARACUDA_RETURN_IF_FAILED(check_extent("bins", scalars.bins));
  BARACUDA_RETURN_IF_FAILED(check_finite("min", scalars.min));
  BARACUDA_RETURN_IF_FAILED(check_finite("max", scalars.max));
  if (scalars.max < scalars.min) {
    return fail(Status::kInvalidProblem, "max is %g; wanted at least min, which is %g", scalars.max, scalars.min);
  }

  Problem p{};
  p.min = is_wide ? scalars.min : static_cast<double>(static_cast<float>(scalars.min));
  p.max = is_wide ? scalars.max : static_cast<double>(static_cast<float>(scalars.max));
  p.has_datas_range = p.min == p.max;
  if (!(is_wide ? reaches<double>(p.min, p.max, scalars.bins) : reaches<float>(p.min, p.max, scalars.bins))) {
    return fail(Status::kInvalidProblem, "max is %g, min is %g; wanted a range of which bins times are finite",
                scalars.max, scalars.min);
  }
  BARACUDA_RETURN_IF_FAILED(check_count("input", CheckedCount(element_bytes).times(scalars.numel), &p.numel));
  BARACUDA_RETURN_IF_FAILED(check_count("output", CheckedCount(element_bytes).times(scalars.bins), &p.bins));
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::histc
