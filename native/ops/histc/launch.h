// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for histograms; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/histc/problem.h"

namespace baracuda::histc {

template <typename T>
struct Buffers {
  using Element = T;
  const T* input;
  T* output;
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename B>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename B>
Status launch(const Problem& problem, const B& buffers, void* workspace, Stream stream);

}  // namespace baracuda::histc
