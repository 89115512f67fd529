// SPDX-License-Identifier: Apache-2.0
// The backward's last launch where its sums are cut into blocks of boxes: the partial sums of an element, ascending.
#pragma once

#include "core/cuda_launch.cuh"
#include "ops/roi_pool/launch.h"

namespace baracuda::roi_pool {
namespace {

constexpr int kAddThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kAddThreads)
    add_blocks(int64_t numel, int64_t blocks, const Compute<T>* partials, T* grad_input) {
  using C = Compute<T>;
  wait_for_kernel_before();
  for (int64_t i = grid_thread(); i < numel; i += grid_threads()) {
    C total = C(0);
#pragma unroll 4
    for (int64_t block = 0; block < blocks; ++block) total = total + partials[block * numel + i];
    grad_input[i] = narrow<T>(total);
  }
}

// `partials` is [blocks][n c h w].
template <typename T>
Status enqueue_blocks(const Problem& p, const Compute<T>* partials, T* grad_input, Stream stream) {
  return launch_early("roi_pool_backward block kernel", add_blocks<T>, blocks_for(p.input_numel, kAddThreads),
                      kAddThreads, 0, stream, p.input_numel, p.blocks(), partials, grad_input);
}

}  // namespace
}  // namespace baracuda::roi_pool
