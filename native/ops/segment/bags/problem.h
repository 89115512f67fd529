// SPDX-License-Identifier: Apache-2.0
// What a valid problem of embedding bags is, forward and backward: extents and sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "ops/segment/problem.h"

namespace baracuda::embedding_bag {

struct Problem {
  int32_t n;  // positions
  int32_t num_bags;
  int32_t num_embeddings;
  int32_t d;  // columns
  int64_t padding_idx;
  bool mean;
  bool has_weights;
  bool wants_bags;
  bool by_frequency;

  int64_t bag_numel;    // num_bags d
  int64_t table_numel;  // num_embeddings d

  // Positions are rows: of bags, one after another; of rows of the table, in any order.
  segment::Problem by_bag() const {
    return {n, d, num_bags, segment::Form::kOffsets, int64_t{n} * d, bag_numel};
  }
  segment::Problem by_row() const {
    return {n, d, num_embeddings, segment::Form::kUnsorted, int64_t{n} * d, table_numel};
  }
};

// The scalars of a call; those that its operator has not are 0.
struct Scalars {
  int64_t num_indices;
  int32_t num_bags, num_embeddings, embedding_dim;
  int64_t padding_idx;
  int32_t mean, has_weights, wants_bags, by_frequency;
};

// Checks in the project's fixed order. `bags` and `table` are what texts call the tensors of these shapes,
// `element_bytes` is the size of T, `index_bytes` that of an index.
Status make_problem(const Scalars& scalars, int64_t element_bytes, int64_t index_bytes, const char* bags,
                    const char* table, bool has_arg, Problem* problem);

}  // namespace baracuda::embedding_bag
