// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for dequantize_per_channel; a missing instance fails to link.
#pragma once

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/dequantize/problem.h"

namespace baracuda::dequantize {

// `Input` is int8_t or uint8_t.
template <typename T, typename Q>
struct ForwardBuffers {
  using Input = Q;
  using Output = T;
  const Q* input;
  const T* scale;
  const int32_t* zero_point;
  T* output;
};

// grad_input may be grad_output itself.
template <typename T>
struct BackwardBuffers {
  using Input = T;
  using Output = T;
  const T* input;  // grad_output
  const T* scale;
  T* output;  // grad_input
};

// X(type) for every type of buffers.
#define BARACUDA_DEQUANTIZE_BUFFERS_OF(X, T) \
  X(ForwardBuffers<T, int8_t>) X(ForwardBuffers<T, uint8_t>) X(BackwardBuffers<T>)
#define BARACUDA_DEQUANTIZE_BUFFERS(X)      \
  BARACUDA_DEQUANTIZE_BUFFERS_OF(X, float)  \
  BARACUDA_DEQUANTIZE_BUFFERS_OF(X, double) \
  BARACUDA_DEQUANTIZE_BUFFERS_OF(X, Half)   \
  BARACUDA_DEQUANTIZE_BUFFERS_OF(X, Bfloat16)

// Enqueues the call. Every output element is written; no workspace is needed.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::dequantize
