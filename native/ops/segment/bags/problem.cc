// SPDX-License-Identifier: Apache-2.0
// Validation of problems of embedding bags. No pointers, no CUDA.
#include "ops/segment/bags/problem.h"

#include "core/checked.h"

namespace baracuda::embedding_bag {

Status make_problem(const Scalars& scalars, int64_t element_bytes, int64_t index_bytes, const char* bags,
                    const char* table, bool has_arg, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_range("num_indices", scalars.num_indices, 0, segment::kMostRows));
  BARACUDA_RETURN_IF_FAILED(check_extent("num_bags", scalars.num_bags));
  BARACUDA_RETURN_IF_FAILED(check_extent("num_embeddings", scalars.num_embeddings));
  BARACUDA_RETURN_IF_FAILED(check_extent("embedding_dim", scalars.embedding_dim));
  BARACUDA_RETURN_IF_FAILED(check_range("mean", scalars.mean, 0, 1));
  BARACUDA_RETURN_IF_FAILED(check_range("has_per_sample_weights", scalars.has_weights, 0, 1));
  BARACUDA_RETURN_IF_FAILED(check_range("wants_bags", scalars.wants_bags, 0, 1));
  BARACUDA_RETURN_IF_FAILED(check_range("scale_grad_by_freq", scalars.by_frequency, 0, 1));

  Problem p{};
  p.n = static_cast<int32_t>(scalars.num_indices), p.num_bags = scalars.num_bags;
  p.num_embeddings = scalars.num_embeddings, p.d = scalars.embedding_dim, p.padding_idx = scalars.padding_idx;
  p.mean = scalars.mean != 0, p.has_weights = scalars.has_weights != 0;
  p.wants_bags = scalars.wants_bags != 0, p.by_frequency = scalars.by_frequency != 0;
  const auto count = [&p](int64_t bytes, int64_t rows) { return CheckedCount(bytes).times(rows).times(p.d); };
  BARACUDA_RETURN_IF_FAILED(check_count(bags, count(element_bytes, p.num_bags), &p.bag_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(table, count(element_bytes, p.num_embeddings), &p.table_numel));
  if (has_arg) {
    int64_t numel = 0;
    BARACUDA_RETURN_IF_FAILED(check_count("arg", count(index_bytes, p.num_bags), &numel));
  }
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::embedding_bag
