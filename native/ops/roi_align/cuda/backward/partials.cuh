// SPDX-License-Identifier: Apache-2.0
// The sum over blocks of boxes, where there is more than one.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/dtype.h"

namespace baracuda::roi_align {
namespace {

constexpr int kTotalThreads = 256;
// Partial planes that a thread reads at once.
constexpr int kPlanesAtOnce = 8;

// Adds the partial planes of the blocks of boxes, ascending.
template <typename T>
__global__ void __launch_bounds__(kTotalThreads) add_partials(const Compute<T>* partials, T* grad_input, int64_t numel,
                                                              int32_t blocks) {
  wait_for_kernel_before();
  for (int64_t i = grid_thread(); i < numel; i += grid_threads()) {
    Compute<T> total = Compute<T>(0);
    for (int32_t first = 0; first < blocks; first += kPlanesAtOnce) {
      Compute<T> planes[kPlanesAtOnce];
#pragma unroll
      for (int k = 0; k < kPlanesAtOnce; ++k) {
        planes[k] = first + k < blocks ? partials[(first + k) * numel + i] : Compute<T>(0);
      }
#pragma unroll
      for (int k = 0; k < kPlanesAtOnce; ++k) {
        if (first + k < blocks) total = total + planes[k];
      }
    }
    grad_input[i] = narrow<T>(total);
  }
}

}  // namespace
}  // namespace baracuda::roi_align
