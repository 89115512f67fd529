// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for grid_sample; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/grid_sample/problem.h"

namespace baracuda::grid_sample {

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
size_t workspace_size(const RuledProblem& problem);

// Enqueues the call. Every element of the outputs that the problem asks for is written; the others are NULL.
// `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const RuledProblem& problem, const Buffers& buffers, void* workspace, Stream stream);

// Stamps what a backend provides for one dtype.
#define BARACUDA_PROVIDE_GRID_SAMPLE(T)                            \
  BARACUDA_PROVIDE_LAUNCH(RuledProblem, ForwardBuffers<T>)         \
  BARACUDA_PROVIDE_LAUNCH(RuledProblem, BackwardBuffers<T>)        \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(RuledProblem, ForwardBuffers<T>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(RuledProblem, BackwardBuffers<T>)

}  // namespace baracuda::grid_sample
