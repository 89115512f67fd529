// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for average pooling; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/avg_pool/problem.h"

namespace baracuda::avg_pool {

// Sums of input, divided.
template <typename T>
struct ForwardBuffers {
  using Element = T;
  static constexpr bool kBackward = false;
  const T* source;
  T* destination;
};

// Sums of the quotients of grad_output.
template <typename T>
struct BackwardBuffers {
  using Element = T;
  static constexpr bool kBackward = true;
  const T* source;
  T* destination;
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every destination element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::avg_pool
