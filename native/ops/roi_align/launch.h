// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for roi_align; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/roi_align/levels.h"
#include "ops/roi_align/problem.h"

namespace baracuda::roi_align {

template <typename T>
struct ForwardBuffers {
  using Element = T;
  const T* input;
  const Compute<T>* rois;
  T* output;
};

template <typename T>
struct BackwardBuffers {
  using Element = T;
  const T* grad_output;
  const Compute<T>* rois;
  T* grad_input;
};

template <typename T>
struct BoxesBackwardBuffers {
  using Element = T;
  const T* grad_output;
  const T* input;
  const Compute<T>* rois;
  Compute<T>* grad_rois;
};

// Those of several maps: a pointer for each, in the order of the levels.
template <typename T>
struct LevelsForwardBuffers {
  using Element = T;
  const T* inputs[kMostLevels];
  const Compute<T>* rois;
  T* output;
};

template <typename T>
struct LevelsBackwardBuffers {
  using Element = T;
  const T* grad_output;
  const Compute<T>* rois;
  T* grad_inputs[kMostLevels];
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);
template <typename Buffers>
size_t workspace_size(const LevelsProblem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);
template <typename Buffers>
Status launch(const LevelsProblem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::roi_align

// The gradient of the boxes, which needs no scratch.
#define BARACUDA_PROVIDE_BOXES_BACKWARD(T)                      \
  BARACUDA_PROVIDE_LAUNCH(Problem, BoxesBackwardBuffers<T>)     \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, BoxesBackwardBuffers<T>)

// Both directions on several maps, as BARACUDA_PROVIDE_BOTH_DIRECTIONS.
#define BARACUDA_PROVIDE_LEVELS(T)                                        \
  BARACUDA_PROVIDE_LAUNCH(LevelsProblem, LevelsForwardBuffers<T>)         \
  BARACUDA_PROVIDE_LAUNCH(LevelsProblem, LevelsBackwardBuffers<T>)        \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(LevelsProblem, LevelsForwardBuffers<T>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(LevelsProblem, LevelsBackwardBuffers<T>)
