// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for maximum unpooling; a missing instance fails to link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/max_unpool/problem.h"

namespace baracuda::max_unpool {

template <typename T>
struct ForwardBuffers {
  using Element = T;
  const T* input;
  const int64_t* indices;
  T* output;
};

template <typename T>
struct BackwardBuffers {
  using Element = T;
  const T* grad_output;
  const int64_t* indices;
  T* grad_input;
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::max_unpool
