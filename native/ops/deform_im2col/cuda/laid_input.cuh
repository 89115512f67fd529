// SPDX-License-Identifier: Apache-2.0
// The input on CUDA with its channels side by side in scratch: when it is laid out so, and how a sample's corners are
// read there.
#pragma once

#include "core/cuda_channel_blocks.cuh"
#include "core/workspace.h"
#include "ops/deform_im2col/math.h"

namespace baracuda::deform_im2col {
namespace {

// Channels fill a vector, and corners will read more pixels than there are.
template <typename T>
bool lays_input(const Problem& p) {
  if (p.input_numel == 0 || p.samples == 0) return false;
  return p.c >= kVectorChannels<T> && p.samples >= p.pixels / kCorners;
}

// All of it, as wide as may be.
template <typename T>
ChannelBlocks input_blocks(const Problem& p) {
  return channel_blocks<T>(p.c, p.pixels, INT64_MAX);
}

template <typename T>
size_t laid_input_bytes(const Problem& p) {
  const ChannelBlocks blocks = input_blocks<T>(p);
  WorkspaceLayout layout;
  layout.reserve<uint4>(p.groups * blocks.blocks * blocks.vectors_of_block());
  return layout.bytes();
}

// Not early: the kernel before may have made the input.
template <typename T>
Status lay_input(const char* name, const Problem& p, const T* input, uint4* laid, Stream stream) {
  const ChannelBlocks blocks = input_blocks<T>(p);
  const int64_t all = p.groups * blocks.blocks;
  return launch_kernel(name, lay_channels<T>, blocks_to_lay(blocks, all), kLayThreads, 0, stream, input, blocks, 0, all,
                       laid);
}

// How far apart things lie there, in bytes.
struct LaidStrides {
  int64_t corner[kCorners];  // from the first one
  int64_t pixel, block, group;
  int64_t next_block;        // from the end of a pixel's vectors
  int32_t vectors;           // of a pixel in a block

  LaidStrides(const ChannelBlocks& s, const Problem& p)
      : pixel(int64_t{16} << s.bits),
        block(16 * s.vectors_of_block()),
        group(s.blocks * block),
        next_block(block - pixel),
        vectors(1 << s.bits) {
    for (int k = 0; k < kCorners; ++k) corner[k] = corner_offset(k, p) * pixel;
  }
};

// Reads a sample's corners, vector by vector.
template <typename T>
struct LaidCorners {
  const LaidStrides& strides;
  const char* first;
  int32_t left;  // vectors of the block

  // `laid` is the group's, `first_pixel` that of the first corner, and channels begin with a block.
  __device__ LaidCorners(const char* laid, int64_t first_pixel, int64_t channel, const LaidStrides& s)
      : strides(s),
        first(laid + channel / (kVectorChannels<T> * s.vectors) * s.block + first_pixel * s.pixel),
        left(s.vectors) {}
  __device__ ChannelVector<T> load(int corner, int) const {
    return load_channels<T>(reinterpret_cast<const uint4*>(first + strides.corner[corner]));
  }
  __device__ void go_on() {
    first += sizeof(uint4);
    if (--left > 0) return;
    first += strides.next_block;
    left = strides.vectors;
  }
};

}  // namespace
}  // namespace baracuda::deform_im2col
