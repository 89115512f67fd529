// SPDX-License-Identifier: Apache-2.0
// What a backend must provide for affine_grid; a missing instance fails to link.
#pragma once

#include <cstddef>

#include "core/backend.h"
#include "core/dtype.h"
#include "core/workspace.h"
#include "ops/affine_grid/problem.h"

namespace baracuda::affine_grid {

// kDimensions: coordinates of a position, 2 or 3.
template <typename T, int kDimensions>
struct ForwardBuffers {
  using Element = T;
  static constexpr int kAxes = kDimensions;
  const T* theta;
  T* grid;
};

template <typename T, int kDimensions>
struct BackwardBuffers {
  using Element = T;
  static constexpr int kAxes = kDimensions;
  const T* grad_grid;
  T* grad_theta;
};

namespace {

// The backward's scratch: partials[map][element of theta][chunk].
template <typename T, int kAxes>
struct Partials {
  T* sums;
  size_t bytes;

  Partials(const Problem& p, void* workspace) {
    WorkspaceLayout layout;
    const size_t offset = layout.reserve<T>(p.n * p.chunks * theta_size(kAxes));
    bytes = layout.bytes();
    sums = workspace_array<T>(workspace, offset);
  }
};

template <typename T, int kAxes>
inline size_t bytes_of(const Problem&, const ForwardBuffers<T, kAxes>*) {
  return 0;
}
template <typename T, int kAxes>
inline size_t bytes_of(const Problem& p, const BackwardBuffers<T, kAxes>*) {
  return Partials<T, kAxes>(p, nullptr).bytes;
}

}  // namespace

// Bytes of scratch for one call, from the problem's scalars alone.
template <typename Buffers>
size_t workspace_size(const Problem& problem);

// Enqueues the call. Every output element is written; `workspace` holds workspace_size bytes, 16-byte aligned.
template <typename Buffers>
Status launch(const Problem& problem, const Buffers& buffers, void* workspace, Stream stream);

}  // namespace baracuda::affine_grid
