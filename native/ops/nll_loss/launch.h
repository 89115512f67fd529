// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for the losses of classification; a missing instance fails to link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/nll_loss/problem.h"

namespace baracuda::nll_loss {

// An array of indices of either width: read once for many logits, so that kernels need not be compiled for both.
template <typename Void>
struct Indices {
  Void* data;
  bool is_wide;  // 64 bits, else 32
};

// Of log-probabilities `log_sum_exp` is NULL.
template <typename T, bool kByLogits>
struct ForwardBuffers {
  const T* input;
  Indices<const void> target;
  const T* weight;  // NULL without weights
  T* output;
  Compute<T>* log_sum_exp;
  Compute<T>* total_weight;
  Indices<void> num_dropped;
};

// Of log-probabilities `input` and `log_sum_exp` are NULL.
template <typename T, bool kByLogits>
struct BackwardBuffers {
  const T* grad_output;
  const T* input;
  Indices<const void> target;
  const T* weight;
  const Compute<T>* log_sum_exp;
  const Compute<T>* total_weight;
  T* grad_input;
};

// X(Problem, type of buffers) for every one of an element's type.
#define BARACUDA_NLL_LOSS_BUFFERS(X, T)                               \
  X(Problem, ForwardBuffers<T, false>) X(Problem, ForwardBuffers<T, true>) \
  X(Problem, BackwardBuffers<T, false>) X(Problem, BackwardBuffers<T, true>)

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::nll_loss
