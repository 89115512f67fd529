// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for pad; a missing instance fails to link. Elements are moved as words of their width, so
// one instance serves every dtype of that width and both directions.
#pragma once

#include "core/backend.h"
#include "ops/pad/problem.h"

namespace baracuda::pad {

template <typename Word>
struct Buffers {
  const Word* source;
  Word* destination;
  Word value;  // what an element outside the source holds
};

// Enqueues the call. Every destination element is written; no workspace is needed.
template <typename WordBuffers>
Status launch(const Problem& problem, const WordBuffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::pad
