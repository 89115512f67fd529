// SPDX-License-Identifier: Apache-2.0
// Validation of losses of classification. No pointers, no CUDA.
#include "ops/nll_loss/problem.h"

#include <cmath>

#include "core/checked.h"

namespace baracuda::nll_loss {

Status make_problem(const Scalars& scalars, const Names& names, int64_t element_bytes, int64_t index_bytes,
                    int64_t sum_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", scalars.n));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", scalars.c));
  BARACUDA_RETURN_IF_FAILED(check_extent("d", scalars.d));
  BARACUDA_RETURN_IF_FAILED(check_range("has_weight", scalars.has_weight, 0, 1));
  BARACUDA_RETURN_IF_FAILED(check_range("reduction", scalars.reduction, 0, 2));
  if (!std::isfinite(scalars.label_smoothing)) {
    return fail(Status::kInvalidProblem, "label_smoothing is %g; wanted a finite number", scalars.label_smoothing);
  }
  Problem p{};
  p.n = scalars.n, p.c = scalars.c, p.d = scalars.d;
  p.has_weight = scalars.has_weight != 0;
  p.ignore_index = scalars.ignore_index;
  p.reduction = static_cast<Reduction>(scalars.reduction);
  // A share that f64 does not tell from none is none.
  p.alone = 1.0 - scalars.label_smoothing;
  p.each = p.smooths() && p.c > 0 ? scalars.label_smoothing / p.c : 0.0;
  const auto elements_of = [&p](int64_t bytes) { return CheckedCount(bytes).times(p.n).times(p.d); };
  BARACUDA_RETURN_IF_FAILED(
      check_count(names.per_class, CheckedCount(element_bytes).times(p.n).times(p.c).times(p.d), &p.logits));
  BARACUDA_RETURN_IF_FAILED(check_count("target", elements_of(index_bytes), &p.elements));
  if (!p.reduces()) BARACUDA_RETURN_IF_FAILED(check_count(names.per_loss, elements_of(element_bytes), &p.elements));
  if (names.log_sum_exp != nullptr) {
    BARACUDA_RETURN_IF_FAILED(check_count(names.log_sum_exp, elements_of(sum_bytes), &p.elements));
  }
  p.losses = p.reduces() ? 1 : p.elements;
  p.weights = p.has_weight ? p.c : 0;
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::nll_loss
