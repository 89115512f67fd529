// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for weighted counts; a missing instance fails to link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/bincount/problem.h"

namespace baracuda::bincount {

template <typename T, typename I>
struct Buffers {
  const I* input;
  const T* weights;
  T* output;
  int64_t* extent;  // NULL: not wanted
};

// X(Problem, type of buffers) for every one.
#define BARACUDA_BINCOUNT_OF_BOTH(X, T) X(Problem, Buffers<T, int32_t>) X(Problem, Buffers<T, int64_t>)
#define BARACUDA_BINCOUNT_BUFFERS(X)                                                \
  BARACUDA_BINCOUNT_OF_BOTH(X, float) BARACUDA_BINCOUNT_OF_BOTH(X, double)          \
  BARACUDA_BINCOUNT_OF_BOTH(X, Half) BARACUDA_BINCOUNT_OF_BOTH(X, Bfloat16)         \
  BARACUDA_BINCOUNT_OF_BOTH(X, int32_t) BARACUDA_BINCOUNT_OF_BOTH(X, int64_t)

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::bincount
