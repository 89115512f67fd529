// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for embedding bags; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/segment/bags/problem.h"

namespace baracuda::embedding_bag {

// Indices, offsets, bag ids and sizes and args are of one type, of 64 bits where `wide`.
template <typename T>
struct SumBuffers {
  using Element = T;
  const T* weight;
  const void* indices;
  const void* offsets;
  const T* per_sample_weights;  // NULL: each weighs 1
  T* output;
  void* bag_ids;    // this and the next one: NULL where they are not wanted
  void* bag_sizes;
  bool wide = false;
};

template <typename T>
struct MaxBuffers {
  using Element = T;
  const T* weight;
  const void* indices;
  const void* offsets;
  T* output;
  void* bag_ids;
  void* bag_sizes;
  void* arg;
  bool wide = false;
};

template <typename T>
struct SumGradientBuffers {
  using Element = T;
  const T* grad_output;
  const void* indices;
  const void* bag_ids;
  const void* bag_sizes;        // NULL unless the forward was a mean
  const T* per_sample_weights;  // NULL: each weighs 1
  T* grad_weight;
  bool wide = false;
};

template <typename T>
struct MaxGradientBuffers {
  using Element = T;
  const T* grad_output;
  const void* indices;
  const void* bag_ids;
  const void* arg;
  T* grad_weight;
  bool wide = false;
};

template <typename T>
struct WeightsGradientBuffers {
  using Element = T;
  const T* grad_output;
  const T* weight;
  const void* indices;
  const void* bag_ids;
  T* grad_weights;
  bool wide = false;
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <class Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <class Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::embedding_bag

// Every instance that a backend provides, as X(Buffers).
#define BARACUDA_BAG_BUFFERS_OF(X, T)                                                              \
  X(SumBuffers<T>) X(MaxBuffers<T>) X(SumGradientBuffers<T>) X(MaxGradientBuffers<T>)              \
  X(WeightsGradientBuffers<T>)
#define BARACUDA_BAG_BUFFERS(X)                                             \
  BARACUDA_BAG_BUFFERS_OF(X, float) BARACUDA_BAG_BUFFERS_OF(X, double)      \
  BARACUDA_BAG_BUFFERS_OF(X, Half) BARACUDA_BAG_BUFFERS_OF(X, Bfloat16)
