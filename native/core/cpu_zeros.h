// SPDX-License-Identifier: Apache-2.0
// Zeros on the CPU, for results that nothing adds to: what core/cuda_zeros.cuh is on CUDA.
#pragma once

#include <cstdint>

#include "core/cpu_parallel.h"
#include "core/status.h"

namespace baracuda {
namespace {

// `numel` elements, none if that is 0; by several threads where there is enough to write.
template <typename T>
Status write_zeros(T* to, int64_t numel) {
  parallel_for(numel, kPartElements, [=](int64_t i) { to[i] = T{}; });
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda
