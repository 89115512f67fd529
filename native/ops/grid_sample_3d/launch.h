// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for grid_sample_3d; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/grid_sample_3d/problem.h"

namespace baracuda::grid_sample_3d {

template <typename T>
struct ForwardBuffers {
  using Element = T;
  const T* input;
  const Compute<T>* grid;
  T* output;
};

template <typename T>
struct BackwardBuffers {
  using Element = T;
  const T* grad_output;
  const T* input;
  const Compute<T>* grid;
  T* grad_input;
  Compute<T>* grad_grid;
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every element of the outputs that the problem asks for is written; the others are NULL.
// `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::grid_sample_3d
