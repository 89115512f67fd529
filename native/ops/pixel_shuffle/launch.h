// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for pixel_shuffle and pixel_unshuffle; a missing instance fails to link.
#pragma once

#include <cstdint>

#include "core/backend.h"
#include "ops/pixel_shuffle/problem.h"

namespace baracuda::pixel_shuffle {

// Elements are words of their width: nothing is computed with them.
template <typename W>
struct ShuffleBuffers {
  using Word = W;
  const W* deep;
  W* wide;
};

template <typename W>
struct UnshuffleBuffers {
  using Word = W;
  const W* wide;
  W* deep;
};

// X(type) for every type of buffers.
#define BARACUDA_PIXEL_SHUFFLE_BUFFERS(X)                 \
  X(ShuffleBuffers<uint16_t>) X(ShuffleBuffers<uint32_t>) \
  X(ShuffleBuffers<uint64_t>) X(UnshuffleBuffers<uint16_t>) X(UnshuffleBuffers<uint32_t>) X(UnshuffleBuffers<uint64_t>)

// Enqueues the call. Every output element is written; no workspace is needed.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::pixel_shuffle
