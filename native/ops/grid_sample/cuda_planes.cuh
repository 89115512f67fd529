// SPDX-License-Identifier: Apache-2.0
// The forward from small images on CUDA: a block copies a whole plane to shared memory, where scattered taps cost no
// sectors of memory.
#pragma once

#include "ops/grid_sample/cuda_staging.cuh"

namespace baracuda::grid_sample {
namespace {

constexpr int kPlaneThreads = 256;
// Blocks that share a multiprocessor at least: one copies while another samples.
constexpr int kPlaneBlocks = 2;

// Bytes of shared memory for a plane that starts anywhere.
template <typename T>
int64_t plane_bytes(const Problem& p) {
  return p.pixels * static_cast<int64_t>(sizeof(T)) + 16;
}

// Whether planes pay: they fit, there are enough of them, and samples are few enough that neighbours share no sectors
// and many enough to meet most of them.
template <typename T>
bool takes_planes(const Problem& p, const DeviceTraits& device) {
  constexpr int kReserved = 1024;  // of each block's shared memory, by the driver
  if (p.pixels > device.shared_bytes || plane_bytes<T>(p) + kReserved > device.shared_bytes / kPlaneBlocks) return false;
  return p.samples <= p.pixels / 2 && p.samples >= p.pixels / 16 &&
         int64_t{p.n} * p.c >= int64_t{2} * kPlaneBlocks * device.multiprocessors;
}

template <typename T>
__global__ void __launch_bounds__(kPlaneThreads) sample_planes(Problem p, ForwardBuffers<T> b) {
  using C = Compute<T>;
  extern __shared__ uint4 words[];
  const int64_t planes = int64_t{p.n} * p.c;
  const int pixels = static_cast<int>(p.pixels), thread = static_cast<int>(threadIdx.x);
  for (int64_t number = blockIdx.x; number < planes; number += gridDim.x) {
    const T* const plane = b.input + number * p.pixels;
    // The copy starts as far from a multiple of 16 bytes as the plane does, so that its middle can move 16 at a time.
    constexpr int kEach = 16 / static_cast<int>(sizeof(T));
    const int skipped = static_cast<int>(reinterpret_cast<uintptr_t>(plane) % 16 / sizeof(T));
    T* const copy = reinterpret_cast<T*>(words) + skipped;
    const int head = (kEach - skipped) % kEach < pixels ? (kEach - skipped) % kEach : pixels;
    const int chunks = (pixels - head) / kEach, tail = head + chunks * kEach;
    for (int i = thread; i < chunks; i += kPlaneThreads) {
      copy_async<16>(copy + head + i * kEach, plane + head + i * kEach);
    }
    if (thread < head) copy[thread] = plane[thread];
    if (thread < pixels - tail) copy[tail + thread] = plane[tail + thread];
    wait_for_copies();
    __syncthreads();
    const C* const grid = b.grid + 2 * (number / p.c) * p.samples;
    T* const output = b.output + number * p.samples;
#pragma unroll 4
    for (int i = thread; i < static_cast<int>(p.samples); i += kPlaneThreads) {
      const C grid_x = grid[2 * i], grid_y = grid[2 * i + 1];
      const Position<C> position = locate_sample(grid_x, grid_y, p);
      const Taps<C> taps = value_taps(position, p);
      const int first = position.y.low * p.input_w + position.x.low;
      const int offsets[4] = {0, 1, p.input_w, p.input_w + 1};
      C sum = is_missing(grid_x, grid_y) ? canonical_nan<C>() : C(0);
#pragma unroll
      for (int tap = 0; tap < 4; ++tap) {
        if (taps.weight[tap] != C(0)) sum = fma(taps.weight[tap], widen(copy[first + offsets[tap]]), sum);
      }
      output[i] = narrow<T>(sum);
    }
    __syncthreads();  // the next plane overwrites this one
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
