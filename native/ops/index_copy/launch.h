// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for copies of rows by an index; a missing instance fails to link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "ops/index_copy/problem.h"

namespace baracuda::index_copy {

// Rows are bytes, so that one instance serves every dtype.
template <typename I>
struct Buffers {
  using Index = I;
  const void* input;
  const I* index;
  const void* source;
  void* output;  // may be input
};

// X(Problem, type of buffers) for every one.
#define BARACUDA_INDEX_COPY_BUFFERS(X) X(Problem, Buffers<int32_t>) X(Problem, Buffers<int64_t>)

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element that is not input's is written; `workspace` holds workspace_size bytes,
// 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::index_copy
