// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for the segment operators; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/segment/math.h"
#include "ops/segment/problem.h"

namespace baracuda::segment {

// A selection by `R` over rows of T with ids of I, and its gradient.
template <class R, typename T, typename I>
struct SelectBuffers {
  using Rule = R;
  using Element = T;
  const T* input;
  const I* segment_ids;
  T* output;
};

template <class R, typename T, typename I>
struct SelectBackwardBuffers {
  using Rule = R;
  using Element = T;
  const T* grad_output;
  const T* input;
  const I* segment_ids;
  T* grad_input;
};

// One name per instance of T, as the stamps need.
template <typename T>
using MaxBuffers = SelectBuffers<Max, T, int32_t>;
template <typename T>
using MaxBuffersI64 = SelectBuffers<Max, T, int64_t>;
template <typename T>
using MaxBackwardBuffers = SelectBackwardBuffers<Max, T, int32_t>;
template <typename T>
using MaxBackwardBuffersI64 = SelectBackwardBuffers<Max, T, int64_t>;

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::segment
