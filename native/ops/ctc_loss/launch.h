// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for connectionist temporal classification; a missing instance fails to link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/ctc_loss/problem.h"

namespace baracuda::ctc_loss {

// Targets and lengths, all of either width: read seldom, so that kernels need not be compiled for both.
struct Sequences {
  const void* targets;
  const void* input_lengths;
  const void* target_lengths;
  bool is_wide;  // 64 bits, else 32
};

template <typename T>
struct ForwardBuffers {
  const T* log_probs;
  Sequences sequences;
  Compute<T>* neg_log_likelihood;
  Compute<T>* log_alpha;
};

template <typename T>
struct BackwardBuffers {
  const Compute<T>* grad_output;
  const T* log_probs;
  Sequences sequences;
  const Compute<T>* neg_log_likelihood;
  const Compute<T>* log_alpha;
  T* grad_log_probs;
};

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::ctc_loss
