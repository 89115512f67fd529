// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for the sampling of deformable convolution; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/deform_im2col/problem.h"

namespace baracuda::deform_im2col {

// Where samples lie and what they are multiplied by; without a mask that pointer is not looked at.
template <typename T>
struct ForwardBuffers {
  using Element = T;
  const T* input;
  const Compute<T>* offset;
  const Compute<T>* mask;
  T* columns;
};

template <typename T>
struct InputBuffers {
  using Element = T;
  const T* grad_columns;
  const Compute<T>* offset;
  const Compute<T>* mask;
  T* grad_input;
};

template <typename T>
struct OffsetBuffers {
  using Element = T;
  const T* grad_columns;
  const T* input;
  const Compute<T>* offset;
  const Compute<T>* mask;
  Compute<T>* grad_offset;
  Compute<T>* grad_mask;
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::deform_im2col

#define BARACUDA_PROVIDE_BUFFERS(T, BUFFERS)    \
  BARACUDA_PROVIDE_LAUNCH(Problem, BUFFERS<T>)  \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, BUFFERS<T>)
// The forward and the gradients of one type.
#define BARACUDA_PROVIDE_SAMPLING(T)          \
  BARACUDA_PROVIDE_BUFFERS(T, ForwardBuffers) \
  BARACUDA_PROVIDE_BUFFERS(T, InputBuffers)   \
  BARACUDA_PROVIDE_BUFFERS(T, OffsetBuffers)
