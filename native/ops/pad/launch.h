// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for pad; a missing instance fails to link. Every mode and direction is one of two calls.
#pragma once

#include "core/backend.h"
#include "core/dtype.h"
#include "ops/pad/problem.h"

namespace baracuda::pad {

// Every destination element takes one source element, or the value (Outside::kFill, Outside::kFold). Elements are moved
// as words of their width, so one instance serves every dtype of that width.
template <typename Word>
struct Moves {
  const Word* source;
  Word* destination;
  Word value;
};

// Every destination element adds up its source elements (Outside::kSum); one without any is 0.
template <typename T>
struct Sums {
  const T* source;
  T* destination;
};

// A word of 16 bytes, at a multiple of 8 as baracuda_kernels_bits128 is.
struct Word128 {
  uint64_t low, high;
};

// X(type) for every type of buffers.
#define BARACUDA_PAD_BUFFERS(X) \
  X(Moves<uint8_t>)             \
  X(Moves<uint16_t>)            \
  X(Moves<uint32_t>)            \
  X(Moves<uint64_t>)            \
  X(Moves<Word128>)             \
  X(Sums<float>)                \
  X(Sums<double>)               \
  X(Sums<Half>)                 \
  X(Sums<Bfloat16>)

// Enqueues the call. Every destination element is written; no workspace is needed.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::pad
