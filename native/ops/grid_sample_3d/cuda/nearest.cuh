// SPDX-License-Identifier: Apache-2.0
// The gradient to the input of nearest samples on CUDA: each has one voxel, of weight 1. Gradients are laid out with a
// sample's channels side by side, and a few lanes own a voxel's sums.
#pragma once

#include <type_traits>

#include "ops/grid_sample_3d/cuda/nearest_lists.cuh"

namespace baracuda::grid_sample_3d {
namespace {

// Channels that one lane has of a sample: 16 bytes of them.
template <typename T>
constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
// Pieces of a sample that lie side by side, at most: a line of 128 bytes.
constexpr int kMostPiecesShift = 3, kMostPieces = 1 << kMostPiecesShift;
// Samples for which one block of channels is at hand at a time, where there are more channels.
constexpr int64_t kFewestLaid = 65536;

// Several channels of a sample, or the only one.
template <typename T, int kEach>
struct alignas(kEach * sizeof(T)) Piece {
  T lanes[kEach];
};

// How gradients are laid out: in blocks of channels, several of which are at hand at a time. A single channel lies so
// already.
template <typename T>
struct Laying {
  int32_t pieces_shift;    // pieces of a sample in a block
  int32_t channel_blocks;  // at hand at a time

  explicit Laying(const Problem& p) : pieces_shift(0), channel_blocks(1) {
    if (p.c == 1) return;
    while (pieces_shift < kMostPiecesShift && kPiece<T> << pieces_shift < p.c) ++pieces_shift;
    const int64_t together = at_least(kFewestLaid / (p.n * p.samples), 1);
    channel_blocks = static_cast<int32_t>(at_most(ceil_div(p.c, width()), together));
  }
  int64_t pieces(const Problem& p) const { return p.c == 1 ? 0 : (p.n * p.samples * channel_blocks) << pieces_shift; }
  // Channels of a block.
  BARACUDA_HD int32_t width() const { return kPiece<T> << pieces_shift; }
};

template <typename T>
struct NearestStorage {
  using Pieces = Piece<T, kPiece<T>>;
  WorkspaceLayout layout;
  Laying<T> laying;
  Pieces* gradients;  // [block of channels][sample][piece]
  NearestLists lists;

  // Gradients stand first, so that a sample's line begins at 128 bytes where the workspace does.
  NearestStorage(const Problem& p, void* workspace)
      : laying(p),
        gradients(workspace_array<Pieces>(workspace, layout.reserve<Pieces>(laying.pieces(p)))),
        lists(p, layout, workspace) {}
};

// What is read or written once leaves the cache first: laid gradients and lists are to stay there.
template <typename T>
using WordOf = std::conditional_t<sizeof(T) == 2, unsigned short,
                                  std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>>;
template <typename T>
__device__ __forceinline__ T load_once(const T* from) {
  return bits_as<T>(__ldcs(reinterpret_cast<const WordOf<T>*>(from)));
}
template <typename T>
__device__ __forceinline__ void store_once(T* to, T value) {
  __stcs(reinterpret_cast<WordOf<T>*>(to), bits_as<WordOf<T>>(value));
}

// Samples whose gradients are laid out together. Rows are 4 longer, so that sixteen samples of two neighbouring pieces,
// which make whole sectors, stand in 32 banks.
constexpr int kLaidSamples = 64, kLaidPitch = kLaidSamples + 4;
constexpr int kLaidRows = kNearestThreads / kLaidSamples;  // channels that a block reads at once
constexpr int kLaidAtOnce = 8;                             // loads of a thread under way

// Lays channels from `from` on side by side, for some samples from `first` on.
template <typename T>
__device__ void lay_gradients(const Problem& p, const T* grad_output, int64_t from, int32_t first, int pieces_shift,
                              const NearestLists& s, Piece<T, kPiece<T>>* gradients) {
  __shared__ T tile[kMostPieces * kPiece<T>][kLaidPitch];
  const int thread = static_cast<int>(threadIdx.x), column = thread % kLaidSamples;
  const int32_t left = s.samples - first, width = kPiece<T> << pieces_shift;
  const uint32_t own = static_cast<uint32_t>(first) + static_cast<uint32_t>(column < left ? column : 0);
  const uint32_t volume = s.by_samples.divide(own);
  const int64_t stride = p.samples;
  const T* const gradient = grad_output + (volume * int64_t{p.c} + from) * stride + (own - volume * stride);
  const int32_t rows = column < left ? static_cast<int32_t>(p.c - from < width ? p.c - from : width) : 0;
  for (int base = thread / kLaidSamples; base < width; base += kLaidRows * kLaidAtOnce) {
    T values[kLaidAtOnce];
#pragma unroll
    for (int k = 0; k < kLaidAtOnce; ++k) {
      const int row = base + k * kLaidRows;
      values[k] = row < rows ? load_once(gradient + row * stride) : T{};
    }
#pragma unroll
    for (int k = 0; k < kLaidAtOnce; ++k) {
      const int row = base + k * kLaidRows;
      if (row < width) tile[row][column] = values[k];
    }
  }
  __syncthreads();
  Piece<T, kPiece<T>>* const to = gradients + (int64_t{first} << pieces_shift);
  for (int i = thread; i < kLaidSamples << pieces_shift; i += kNearestThreads) {
    // Two neighbouring pieces of a sample, then the next sample.
    const bool is_single = pieces_shift == 0;
    const int sample = (is_single ? i : i / 2) % kLaidSamples;
    const int piece = is_single ? 0 : i % 2 + i / (2 * kLaidSamples) * 2;
    if (sample >= left) continue;
    Piece<T, kPiece<T>> found;
#pragma unroll
    for (int k = 0; k < kPiece<T>; ++k) found.lanes[k] = tile[piece * kPiece<T> + k][sample];
    to[(sample << pieces_shift) + piece] = found;
  }
}

// The first of `count_blocks` blocks find the voxels, the others lay gradients out, blocks of channels from `channel`
// on: one waits for atomics and the other one for memory.
template <typename T>
__global__ void __launch_bounds__(kNearestThreads, 4)
    prepare_nearest(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b, int32_t channel,
                    uint32_t count_blocks, Divider by_tasks, const __grid_constant__ NearestStorage<T> s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  if (blockIdx.x < count_blocks) {
    find_voxels(p, b.grid, b.grad_grid, s.lists, blockIdx.x);
    return;
  }
  const uint32_t task = blockIdx.x - count_blocks, block = by_tasks.divide(task);
  const uint32_t first = (task - block * by_tasks.divisor) * kLaidSamples;
  const int shift = s.laying.pieces_shift;
  lay_gradients(p, b.grad_output, channel + int64_t{block} * s.laying.width(), static_cast<int32_t>(first), shift,
                s.lists, s.gradients + (int64_t{block} * s.lists.samples << shift));
}

// One lane's sums of at most a chunk.
template <typename C, int kEach>
struct PieceSums {
  C sums[kEach];

  __device__ PieceSums() : sums{} {}
  template <typename T>
  __device__ __forceinline__ void add(Piece<T, kEach> gradients) {
#pragma unroll
    for (int k = 0; k < kEach; ++k) sums[k] = fma(C(1), widen(gradients.lanes[k]), sums[k]);
  }
};

// Voxels of a group of lanes, which each have one piece.
constexpr int kOwnedVoxels = 2;

// The gradients to blocks of channels from `channel` on, but for voxels whose lists are long; kEach is 1 for a single
// channel.
template <typename T, int kEach>
__global__ void __launch_bounds__(kNearestThreads, 4)
    sum_nearest(const __grid_constant__ Problem p, const Piece<T, kEach>* gradients, T* grad_input, int32_t channel,
                int shift, Divider by_tasks, const __grid_constant__ NearestLists s) {
  constexpr int kMostVoxels = kOwnedVoxels * kNearestThreads;
  // Sums by channel and voxel, in rows of one more than there are voxels.
  __shared__ T sums[kMostVoxels * kEach + kMostPieces * kEach];
  __shared__ Number begins[kMostVoxels], counts[kMostVoxels];
  wait_for_kernel_before();
  let_kernel_after_start();
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread >> shift, groups = kNearestThreads >> shift, piece = thread & ((1 << shift) - 1);
  const int count = kOwnedVoxels * groups, pitch = count + 1, width = kEach << shift;
  const uint32_t block = by_tasks.divide(blockIdx.x);
  const int32_t first = static_cast<int32_t>(blockIdx.x - block * by_tasks.divisor) * count, left = s.voxels - first;
  for (int k = thread; k < count; k += kNearestThreads) {
    begins[k] = k < left ? s.begins[first + k] : 0;
    counts[k] = k < left ? s.counts[first + k] : 0;
  }
  __syncthreads();
  const Piece<T, kEach>* const from = gradients + ((int64_t{block} * s.samples << shift) + piece);
  const auto load = [&](Number place) { return from[int64_t{s.listed[place]} << shift]; };
  Piece<T, kEach> next[kOwnedVoxels];
#pragma unroll
  for (int k = 0; k < kOwnedVoxels; ++k) {
    const Number samples = counts[k * groups + group];
    if (samples > 0 && samples <= kWarpList) next[k] = load(begins[k * groups + group]);
  }
#pragma unroll
  for (int k = 0; k < kOwnedVoxels; ++k) {
    const int own = k * groups + group;
    const Number samples = counts[own] <= kWarpList ? counts[own] : 0, begin = begins[own];
    // One chunk: its sum is the voxel's.
    PieceSums<Compute<T>, kEach> sum;
    for (Number i = 0; i < samples; ++i) {
      const Piece<T, kEach> gradient = next[k];
      if (i + 1 < samples) next[k] = load(begin + i + 1);
      sum.add(gradient);
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) sums[(piece * kEach + j) * pitch + own] = narrow<T>(sum.sums[j]);
  }
  __syncthreads();
  const int64_t begin = channel + int64_t{block} * width, stride = p.voxels;
  const int rows = static_cast<int>(p.c - begin < width ? p.c - begin : width);
  const int columns = count < kNearestThreads ? count : kNearestThreads;
  for (int column = thread & (columns - 1); column < count && column < left; column += columns) {
    if (counts[column] > kWarpList) continue;
    const uint32_t voxel = static_cast<uint32_t>(first + column), volume = s.by_voxels.divide(voxel);
    T* const to = grad_input + (volume * int64_t{p.c} + begin) * stride + (voxel - volume * stride);
    for (int row = thread / columns; row < rows; row += kNearestThreads / columns) {
      store_once(to + row * stride, sums[row * pitch + column]);
    }
  }
}

// The same of the long lists, a block each: its groups of lanes have a chunk each, which are added in order.
template <typename T, int kEach>
__global__ void __launch_bounds__(kNearestThreads)
    sum_long_nearest(const __grid_constant__ Problem p, const Piece<T, kEach>* gradients, T* grad_input,
                     int32_t channel, int shift, uint32_t channel_blocks, const __grid_constant__ NearestLists s) {
  using C = Compute<T>;
  __shared__ C partials[kNearestThreads * kEach];  // by group and channel
  wait_for_kernel_before();
  let_kernel_after_start();
  const int thread = static_cast<int>(threadIdx.x), piece = thread & ((1 << shift) - 1), width = kEach << shift;
  const uint32_t groups = kNearestThreads >> shift;
  const int64_t jobs = int64_t{s.totals->long_lists} * channel_blocks;
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const Number voxel = s.long_lists[job / channel_blocks], count = s.counts[voxel];
    const int64_t block = job % channel_blocks;
    const Piece<T, kEach>* const from = gradients + ((block * s.samples << shift) + piece);
    const Number* const listed = s.listed + s.begins[voxel];
    C total = C(0);
    for (Number base = 0; base < count; base += groups * kChunk) {
      const Number own = base + static_cast<Number>(thread >> shift) * kChunk;
      const Number end = own + kChunk < count ? own + kChunk : count;
      PieceSums<C, kEach> partial;
#pragma unroll 4
      for (Number i = own; i < end; ++i) partial.add(from[int64_t{listed[i]} << shift]);
      __syncthreads();  // the partial sums before have been added
#pragma unroll
      for (int k = 0; k < kEach; ++k) partials[thread * kEach + k] = partial.sums[k];
      __syncthreads();
      if (thread >= width) continue;
      for (uint32_t group = 0; group < groups && base + group * kChunk < count; ++group) {
        total = total + partials[group * static_cast<uint32_t>(width) + static_cast<uint32_t>(thread)];
      }
    }
    const int64_t of = channel + block * width + thread;
    if (thread < width && of < p.c) {
      const uint32_t volume = s.by_voxels.divide(voxel);
      grad_input[(volume * int64_t{p.c} + of) * p.voxels + (voxel - volume * p.voxels)] = narrow<T>(total);
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
