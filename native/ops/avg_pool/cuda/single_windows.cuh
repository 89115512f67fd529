// SPDX-License-Identifier: Apache-2.0
// The backward on CUDA where a plane has a single window, which holds all of it: its elements all have the same share.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/pool_strips.cuh"
#include "ops/avg_pool/cuda/divisors.cuh"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

constexpr int kSingleThreads = 256;

template <typename T>
struct SingleWindowCall {
  BackwardBuffers<T> buffers;
  CommonDivisor<Compute<T>> by;
  Divider plane_numel;
  uint32_t numel, planes;
};

template <typename T>
bool has_single_windows(const Problem& p, const BackwardBuffers<T>& b) {
  for (const PoolAxis& axis : p.axes) {
    // A fixed window begins at or before the first element.
    if (axis.bins != 1 || (!axis.is_adaptive() && axis.kernel - axis.padding < axis.extent)) return false;
  }
  // A vector lies in two planes at most. A window that is cut off has a divisor that is not the others'.
  return p.input_numel / p.planes >= kStripLanes<T> && CommonDivisor<Compute<T>>(p).is_common &&
         reinterpret_cast<uintptr_t>(b.destination) % 16 == 0;
}

template <typename T>
__global__ void __launch_bounds__(kSingleThreads) fill_planes(const __grid_constant__ SingleWindowCall<T> call) {
  using C = Compute<T>;
  constexpr uint32_t kLanes = kStripLanes<T>;
  const uint32_t first = (blockIdx.x * static_cast<uint32_t>(kSingleThreads) + threadIdx.x) * kLanes;
  if (first >= call.numel) return;
  const uint32_t plane = call.plane_numel.divide(first);
  // How many elements of the vector lie in this plane, at least.
  const uint32_t rest = (plane + 1) * call.plane_numel.divisor - first;
  C shares[2] = {widen(call.buffers.source[plane]),
                 rest < kLanes && plane + 1 < call.planes ? widen(call.buffers.source[plane + 1]) : C(0)};
  divide_by_common<T, 2>(call.by, shares);
  // As a sum of one term, which is never -0.
  const T ours = narrow<T>(C(0) + shares[0]), next = narrow<T>(C(0) + shares[1]);
  Strip<T> strip;
#pragma unroll
  for (uint32_t lane = 0; lane < kLanes; ++lane) strip.lanes[lane] = lane < rest ? ours : next;
  if (call.numel - first >= kLanes) {
    *reinterpret_cast<Strip<T>*>(call.buffers.destination + first) = strip;
    return;
  }
#pragma unroll
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (first + lane < call.numel) call.buffers.destination[first + lane] = strip.lanes[lane];
  }
}

// For calls with has_single_windows() and indices of 32 bits.
template <typename T>
Status enqueue_single_windows(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  const SingleWindowCall<T> call{b, CommonDivisor<Compute<T>>(p), Divider(p.input_numel / p.planes),
                                 static_cast<uint32_t>(p.input_numel), static_cast<uint32_t>(p.planes)};
  const int64_t blocks = ceil_div(p.input_numel, int64_t{kSingleThreads} * kStripLanes<T>);
  return launch_kernel("avg_pool_backward single window kernel", fill_planes<T>, static_cast<uint32_t>(blocks),
                       kSingleThreads, 0, stream, call);
}

}  // namespace
}  // namespace baracuda::avg_pool
