// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for scans; a missing instance fails to link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/scan/problem.h"

namespace baracuda::scan {

template <typename T>
struct SumBuffers {
  using Element = T;
  const T* input;
  T* output;
};

template <typename T>
struct ProductBuffers {
  using Element = T;
  const T* input;
  T* output;
};

template <typename T>
struct LogSumBuffers {
  using Element = T;
  const T* input;
  T* output;
};

template <typename T>
struct ExtremumBuffers {
  using Element = T;
  const T* input;
  T* output;
  int64_t* indices;
};

// Of the gradients the input of the scan is grad_output, and its output grad_input.
template <typename T>
struct ProductGradientBuffers {
  using Element = T;
  const T* input;
  const T* factors;
  const T* products;
  T* output;
};

template <typename T>
struct LogSumGradientBuffers {
  using Element = T;
  const T* input;
  const T* terms;
  const T* logarithms;
  T* output;
};

template <typename T>
struct ExtremumGradientBuffers {
  using Element = T;
  const T* input;
  const int64_t* indices;
  T* output;
};

// X(type) for every type of buffers.
#define BARACUDA_SCAN_OF_NUMBERS(X, T) X(SumBuffers<T>) X(ProductBuffers<T>) X(ExtremumBuffers<T>)
#define BARACUDA_SCAN_OF_FLOATS(X, T)                                                            \
  BARACUDA_SCAN_OF_NUMBERS(X, T)                                                                 \
  X(LogSumBuffers<T>) X(ProductGradientBuffers<T>) X(LogSumGradientBuffers<T>) X(ExtremumGradientBuffers<T>)
#define BARACUDA_SCAN_BUFFERS(X)                                                      \
  BARACUDA_SCAN_OF_FLOATS(X, float) BARACUDA_SCAN_OF_FLOATS(X, double)                \
  BARACUDA_SCAN_OF_FLOATS(X, Half) BARACUDA_SCAN_OF_FLOATS(X, Bfloat16)               \
  BARACUDA_SCAN_OF_NUMBERS(X, int32_t) BARACUDA_SCAN_OF_NUMBERS(X, int64_t)           \
  X(ExtremumBuffers<int8_t>) X(ExtremumBuffers<uint8_t>)

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::scan
