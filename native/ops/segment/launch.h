// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for the segment operators; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "ops/segment/problem.h"
#include "ops/segment/rules.h"

namespace baracuda::segment {

// The tensors of one call; NULL where an operator has none.
template <class TheTag>
struct Buffers {
  using Tag = TheTag;
  using T = typename TheTag::Element;
  const T* rows[2];      // [n][d] each: x and y of math/rule.h
  const T* segments[2];  // [num_segments][d] each: s and t
  const void* index;     // ids [n] or offsets [num_segments + 1]
  const void* arg;       // [num_segments][d]: rows, in the type of the index
  T* result;             // [n][d] or [num_segments][d]
  void* result_arg;      // [num_segments][d]: rows, in the type of the index
  T of_no_rows;          // what a segment without rows is, of a rule that reduces
  bool wide_index;       // whether the index and args are of 64 bits
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <class Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <class Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::segment
