// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for order statistics; a missing instance fails to link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/order/problem.h"

namespace baracuda::order {

// Of kthvalue, median and nanmedian.
template <typename T>
struct SelectionBuffers {
  using Element = T;
  const T* input;
  T* output;
  int64_t* indices;
};

template <typename T>
struct ModeBuffers {
  using Element = T;
  const T* input;
  T* output;
  int64_t* indices;
};

template <typename T>
struct GradientBuffers {
  using Element = T;
  const T* grad_output;
  const int64_t* indices;
  T* grad_input;
};

// X(T) for every type of elements.
#define BARACUDA_ORDER_FLOATS(X) X(float) X(double) X(Half) X(Bfloat16)
#define BARACUDA_ORDER_TYPES(X) BARACUDA_ORDER_FLOATS(X) X(int32_t) X(int64_t) X(int8_t) X(uint8_t)

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::order
