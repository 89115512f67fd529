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

// Blocks that find the voxels and blocks that lay gradients out, blocks of channels from `channel` on: the first ones
// wait for atomics and the others for memory, so that one of `each` is one of `count_blocks`.
template <typename T>
__global__ void __launch_bounds__(kNearestThreads, kNearestBlocks)
    prepare_nearest(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b, int32_t channel,
                    uint32_t count_blocks, Divider by_each, Divider by_tasks,
                    const __grid_constant__ NearestStorage<T> s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const uint32_t round = by_each.divide(blockIdx.x);
  if (round < count_blocks && round * by_each.divisor == blockIdx.x) {
    find_voxels(p, b.grid, b.grad_grid, s.lists, round);
    return;
  }
  const uint32_t task = blockIdx.x - (round < count_blocks ? round + 1 : count_blocks), block = by_tasks.divide(task);
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

// Voxels of a group of lanes, which each have one piece, and samples of a voxel that are asked for at once.
constexpr int kOwnedVoxels = 2, kAtOnce = 2;

// The sums of the voxels from `first` on, but for those whose lists are long.
template <typename T, int kEach>
__device__ void sum_short_lists(const Problem& p, const Piece<T, kEach>* gradients, T* grad_input, int64_t from,
                                int32_t first, int shift, const NearestLists& s) {
  constexpr int kMostVoxels = kOwnedVoxels * kNearestThreads;
  // Sums by channel and voxel, in rows of one more than there are voxels.
  __shared__ T sums[kMostVoxels * kEach + kMostPieces * kEach];
  __shared__ bool has_long_list[kMostVoxels];
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread >> shift, groups = kNearestThreads >> shift, piece = thread & ((1 << shift) - 1);
  const int count = kOwnedVoxels * groups, pitch = count + 1, width = kEach << shift;
  const int32_t left = s.voxels - first;
  const auto load = [&](Number sample) { return gradients[(int64_t{sample} << shift) + piece]; };
  Number begins[kOwnedVoxels], counts[kOwnedVoxels], samples[kOwnedVoxels][kAtOnce];
  Piece<T, kEach> found[kOwnedVoxels][kAtOnce];
#pragma unroll
  for (int k = 0; k < kOwnedVoxels; ++k) {
    const int own = k * groups + group;
    begins[k] = own < left ? s.begins[first + own] : 0;
    counts[k] = own < left ? s.counts[first + own] : 0;
  }
#pragma unroll
  for (int k = 0; k < kOwnedVoxels; ++k) {
    const bool is_long = counts[k] > kWarpList;
    if (piece == 0) has_long_list[k * groups + group] = is_long;
    if (is_long) counts[k] = 0;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      samples[k][i] = static_cast<Number>(i) < counts[k] ? s.listed[begins[k] + i] : 0;
    }
  }
#pragma unroll
  for (int k = 0; k < kOwnedVoxels; ++k) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (static_cast<Number>(i) < counts[k]) found[k][i] = load(samples[k][i]);
    }
  }
#pragma unroll
  for (int k = 0; k < kOwnedVoxels; ++k) {
    // One chunk: its sum is the voxel's.
    PieceSums<Compute<T>, kEach> sum;
    for (Number base = 0; base < counts[k]; base += kAtOnce) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (base + i < counts[k]) sum.add(found[k][i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (base + kAtOnce + i < counts[k]) found[k][i] = load(s.listed[begins[k] + base + kAtOnce + i]);
      }
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      sums[(piece * kEach + j) * pitch + k * groups + group] = narrow<T>(sum.sums[j]);
    }
  }
  __syncthreads();
  const int64_t stride = p.voxels;
  const int rows = static_cast<int>(p.c - from < width ? p.c - from : width);
  const int columns = count < kNearestThreads ? count : kNearestThreads;
  for (int column = thread & (columns - 1); column < count && column < left; column += columns) {
    if (has_long_list[column]) continue;
    const uint32_t voxel = static_cast<uint32_t>(first + column), volume = s.by_voxels.divide(voxel);
    T* const to = grad_input + (volume * int64_t{p.c} + from) * stride + (voxel - volume * stride);
    for (int row = thread / columns; row < rows; row += kNearestThreads / columns) {
      store_once(to + row * stride, sums[row * pitch + column]);
    }
  }
}

// The sum of a long list: groups of lanes have a chunk each, which are added in order.
template <typename T, int kEach>
__device__ void sum_long_list(const Problem& p, const Piece<T, kEach>* gradients, T* grad_input, int64_t from,
                              Number voxel, int shift, const NearestLists& s) {
  using C = Compute<T>;
  __shared__ C partials[kNearestThreads * kEach];  // by group and channel
  const int thread = static_cast<int>(threadIdx.x), width = kEach << shift;
  const uint32_t groups = kNearestThreads >> shift;
  const Number count = s.counts[voxel];
  const Number* const listed = s.listed + s.begins[voxel];
  const Piece<T, kEach>* const own_piece = gradients + (thread & ((1 << shift) - 1));
  C total = C(0);
  for (Number base = 0; base < count; base += groups * kChunk) {
    const Number own = base + static_cast<Number>(thread >> shift) * kChunk;
    const Number end = own + kChunk < count ? own + kChunk : count;
    PieceSums<C, kEach> partial;
#pragma unroll 4
    for (Number i = own; i < end; ++i) partial.add(own_piece[int64_t{listed[i]} << shift]);
    __syncthreads();  // the partial sums before have been added
#pragma unroll
    for (int k = 0; k < kEach; ++k) partials[thread * kEach + k] = partial.sums[k];
    __syncthreads();
    if (thread >= width) continue;
    for (uint32_t group = 0; group < groups && base + group * kChunk < count; ++group) {
      total = total + partials[group * static_cast<uint32_t>(width) + static_cast<uint32_t>(thread)];
    }
  }
  if (thread < width && from + thread < p.c) {
    const uint32_t volume = s.by_voxels.divide(voxel);
    grad_input[(volume * int64_t{p.c} + from + thread) * p.voxels + (voxel - volume * p.voxels)] = narrow<T>(total);
  }
}

// The gradients to blocks of channels from `channel` on: the first `long_blocks` blocks have the long lists, most often
// none, the others some voxels each. kEach is 1 for a single channel.
template <typename T, int kEach>
__global__ void __launch_bounds__(kNearestThreads, sizeof(T) == 2 ? 4 : kNearestBlocks)
    sum_nearest(const __grid_constant__ Problem p, const Piece<T, kEach>* gradients, T* grad_input, int32_t channel,
                const __grid_constant__ Laying<T> laying, uint32_t long_blocks, Divider by_tasks,
                const __grid_constant__ NearestLists s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const int shift = laying.pieces_shift;
  const int64_t width = kEach << shift;
  if (blockIdx.x < long_blocks) {
    const int64_t jobs = int64_t{s.totals->long_lists} * laying.channel_blocks;
    for (int64_t job = blockIdx.x; job < jobs; job += long_blocks) {
      const int64_t block = job % laying.channel_blocks;
      sum_long_list(p, gradients + (block * s.samples << shift), grad_input, channel + block * width,
                    s.long_lists[job / laying.channel_blocks], shift, s);
    }
    return;
  }
  const uint32_t task = blockIdx.x - long_blocks, block = by_tasks.divide(task);
  const uint32_t first = (task - block * by_tasks.divisor) * (kOwnedVoxels * kNearestThreads >> shift);
  sum_short_lists(p, gradients + (int64_t{block} * s.samples << shift), grad_input, channel + block * width,
                  static_cast<int32_t>(first), shift, s);
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
