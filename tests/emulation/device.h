// SPDX-License-Identifier: Apache-2.0
// The threads of a block as fibers: where they are, and where they meet. cuda_runtime.h gives this CUDA's names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulation {

struct Place {
  unsigned x, y, z;
};
struct Extents {
  unsigned x, y, z;
  Extents(unsigned extent = 1) : x(extent), y(1), z(1) {}
};

// Of the fiber that runs.
extern __thread Place threadIdx, blockIdx, blockDim, gridDim;
inline int lane() { return static_cast<int>(threadIdx.x % 32); }

// The block's memory of the size that its launch gives.
void* dynamic_shared_memory();

// What threads say where a block meets.
struct Votes {
  bool any, all;
};
Votes meet_block(bool vote);

// What the lanes of a mask say where they meet; those that have ended say nothing.
struct Told {
  uint64_t words[32];
  uint32_t lanes;
  bool has(int lane) const { return (lanes >> lane & 1) != 0; }
};
Told meet_warp(uint32_t mask, uint64_t word);

// Runs `run(what)` in every thread.
void launch(unsigned blocks, unsigned threads, size_t shared_bytes, void (*run)(const void*), const void* what);

}  // namespace emulation
