// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for non-maximum suppression; a missing instance fails to link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/nms/problem.h"

namespace baracuda::nms {

// I is the type of class ids and of indices of boxes.
template <typename T, typename I>
struct Buffers {
  using Element = T;
  const T* boxes;
  const T* scores;     // where the problem has scores
  const I* class_ids;  // NULL where it has no classes
  I* keep;             // where it has scores
  int32_t* count;
  uint8_t* keep_mask;
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::nms

// X(T, I) for each pair of types that has a symbol.
#define BARACUDA_NMS_TYPES(X) \
  X(float, int32_t)           \
  X(float, int64_t)           \
  X(double, int32_t)          \
  X(double, int64_t)          \
  X(Half, int32_t)            \
  X(Half, int64_t)            \
  X(Bfloat16, int32_t)        \
  X(Bfloat16, int64_t)
// Both functions of a backend for one pair.
#define BARACUDA_PROVIDE_NMS(T, I)                \
  BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<T, I>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, Buffers<T, I>)
