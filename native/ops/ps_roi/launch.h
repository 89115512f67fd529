// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for position-sensitive pooling; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/ps_roi/problem.h"

namespace baracuda::ps_roi {

// How a bin is pooled.
enum class Kind { kSamples, kAverage };

template <typename T, Kind kKind>
struct ForwardBuffers {
  using Element = T;
  const T* input;
  const Compute<T>* rois;
  T* output;
};

template <typename T, Kind kKind>
struct BackwardBuffers {
  using Element = T;
  const T* grad_output;
  const Compute<T>* rois;
  T* grad_input;
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::ps_roi

// Both directions of both kinds.
#define BARACUDA_PROVIDE_KIND(T, KIND)                              \
  BARACUDA_PROVIDE_LAUNCH(Problem, ForwardBuffers<T, KIND>)         \
  BARACUDA_PROVIDE_LAUNCH(Problem, BackwardBuffers<T, KIND>)        \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, ForwardBuffers<T, KIND>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, BackwardBuffers<T, KIND>)
#define BARACUDA_PROVIDE_BOTH_KINDS(T)       \
  BARACUDA_PROVIDE_KIND(T, Kind::kSamples)   \
  BARACUDA_PROVIDE_KIND(T, Kind::kAverage)
