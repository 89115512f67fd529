// SPDX-License-Identifier: Apache-2.0
// The gradient to the input of nearest samples on CUDA: each has one voxel, of weight 1. A counting sort lists each
// voxel's samples, gradients are laid out with a sample's channels side by side, and a few lanes own a voxel's sums.
#pragma once

#include <type_traits>

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/grid_sample/cuda/backward/list_sort.cuh"
#include "ops/grid_sample_3d/launch.h"
#include "ops/grid_sample_3d/math.h"

namespace baracuda::grid_sample_3d {
namespace {

constexpr int kNearestThreads = 256, kNearestWarps = kNearestThreads / 32;
// Channels that one lane has of a sample: 16 bytes of them.
template <typename T>
constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
// Pieces of a sample that lie side by side, at most: a line of 128 bytes.
constexpr int kMostPiecesShift = 3, kMostPieces = 1 << kMostPiecesShift;
// Samples for which one block of channels is at hand at a time, where there are more channels.
constexpr int64_t kFewestLaid = 65536;

// A number of a sample or a voxel among those of all volumes.
using Number = uint32_t;
constexpr Number kNowhere = UINT32_MAX;

// Voxels of a thread that gives them places for their lists.
constexpr int kReservedVoxels = 4;
// Lists of at most so many samples are sorted by a lane, and by a warp, which compare each sample with all; longer ones
// by a block. Those are added by a block, too: one chunk is the most that a voxel's own lanes take.
constexpr Number kLaneList = 16, kWarpList = kChunk;

struct alignas(16) NearestTotals {
  Number listed, long_lists;
};

// Several channels of a sample, or the only one.
template <typename T, int kEach>
struct alignas(kEach * sizeof(T)) Piece {
  T lanes[kEach];
};

// The samples of all volumes, by voxel.
struct NearestLists {
  int32_t samples, voxels;        // of all volumes
  Divider by_samples, by_voxels;  // of one volume
  size_t cleared_bytes;           // from the totals
  NearestTotals* totals;
  Number* counts;      // [voxel]: its samples
  Number* begins;      // [voxel]: where its list begins
  Number* long_lists;  // the voxels that have one
  Number* places;      // [sample]: its voxel, or kNowhere
  Number* listed;      // [sample]: by voxel, ascending; at first each sample's rank among those of its voxel
  Number* unsorted;    // [sample]: by voxel

  NearestLists(const Problem& p, WorkspaceLayout& layout, void* workspace)
      : samples(static_cast<int32_t>(p.n * p.samples)),
        voxels(static_cast<int32_t>(p.n * p.voxels)),
        by_samples(p.samples),
        by_voxels(p.voxels) {
    const size_t before = layout.bytes();
    totals = take<NearestTotals>(layout, workspace, 1);
    counts = take<Number>(layout, workspace, voxels);
    cleared_bytes = layout.bytes() - before;
    begins = take<Number>(layout, workspace, voxels);
    long_lists = take<Number>(layout, workspace, samples / kWarpList);
    places = take<Number>(layout, workspace, samples);
    listed = take<Number>(layout, workspace, samples);
    unsorted = take<Number>(layout, workspace, samples);
  }

 protected:
  template <typename U>
  static U* take(WorkspaceLayout& layout, void* workspace, int64_t count) {
    return workspace_array<U>(workspace, layout.reserve<U>(count));
  }
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

// Finds each sample's voxel and its rank among those of the voxel, in the order of arrival; a warp's samples of one
// voxel make one atomic. Writes the gradient to the grid, where it is asked for: it is 0.
template <typename C>
__device__ void find_voxels(const Problem& p, const C* grid, C* grad_grid, const NearestLists& s, uint32_t block) {
  const unsigned lane = threadIdx.x % 32;
  const Number i = block * kNearestThreads + threadIdx.x;
  const bool exists = i < static_cast<Number>(s.samples);
  Number voxel = kNowhere;
  if (exists) {
    const int64_t first = int64_t{kAxes} * i;
    const Position<C> at = locate_sample(grid + first, p);
    if (!at.is_outside()) {
      voxel = static_cast<Number>(s.by_samples.divide(i) * p.voxels + first_voxel(at, p));
    }
    if (grad_grid != nullptr) {
      for (int axis = 0; axis < kAxes; ++axis) grad_grid[first + axis] = C(0);
    }
  }
  const unsigned same = __match_any_sync(kFullWarp, voxel);
  const int head = __ffs(static_cast<int>(same)) - 1;
  Number rank = 0;
  if (voxel != kNowhere && static_cast<int>(lane) == head) {
    rank = atomicAdd(&s.counts[voxel], static_cast<Number>(__popc(same)));
  }
  rank = __shfl_sync(kFullWarp, rank, head) + static_cast<Number>(__popc(same & ((1u << lane) - 1)));
  if (exists) {
    s.places[i] = voxel;
    s.listed[i] = rank;
  }
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

// Gives each voxel a place for its list; lists of a block's voxels follow each other. Learns which ones are long.
__global__ void __launch_bounds__(kNearestThreads) reserve_nearest(NearestLists s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  __shared__ Number warp_totals[kNearestWarps];
  __shared__ Number first;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int32_t quads = groups_of(s.voxels, kReservedVoxels);
  const int32_t quad = static_cast<int32_t>(blockIdx.x) * kNearestThreads + thread;
  // What is behind the last voxel was cleared with the counts.
  const uint4 found = quad < quads ? reinterpret_cast<const uint4*>(s.counts)[quad] : make_uint4(0, 0, 0, 0);
  const Number counts[kReservedVoxels] = {found.x, found.y, found.z, found.w};
  const Number sum = counts[0] + counts[1] + counts[2] + counts[3];
  const Number up_to_here = grid_sample::sum_up_to_lane(sum);
  if (lane == 31) warp_totals[warp] = up_to_here;
  __syncthreads();
  Number begin = up_to_here - sum, total = 0;
  for (int w = 0; w < kNearestWarps; ++w) {
    if (w < warp) begin += warp_totals[w];
    total += warp_totals[w];
  }
  if (thread == 0) first = atomicAdd(&s.totals->listed, total);
  __syncthreads();
  if (quad >= quads) return;
  begin += first;
  const Number second = begin + counts[0], third = second + counts[1];
  reinterpret_cast<uint4*>(s.begins)[quad] = make_uint4(begin, second, third, third + counts[2]);
#pragma unroll
  for (int k = 0; k < kReservedVoxels; ++k) {
    if (counts[k] <= kWarpList) continue;
    s.long_lists[atomicAdd(&s.totals->long_lists, Number{1})] = static_cast<Number>(quad * kReservedVoxels + k);
  }
}

__global__ void __launch_bounds__(kNearestThreads) list_nearest(NearestLists s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const Number i = static_cast<Number>(grid_thread());
  if (i >= static_cast<Number>(s.samples)) return;
  const Number voxel = s.places[i];
  if (voxel != kNowhere) s.unsorted[s.begins[voxel] + s.listed[i]] = i;
}

// Puts every `stride`-th sample of a list from `start` on in its place.
__device__ __forceinline__ void place_samples(const Number* unsorted, Number count, Number start, Number stride,
                                              Number* listed) {
  for (Number i = start; i < count; i += stride) {
    const Number own = unsorted[i];
    Number place = 0;
    for (Number k = 0; k < count; ++k) place += unsorted[k] < own;
    listed[place] = own;
  }
}

// Sorts the lists that are not long: a lane its voxel's, a warp the longer ones among them.
__global__ void __launch_bounds__(kNearestThreads) sort_nearest(NearestLists s) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const unsigned lane = threadIdx.x % 32;
  const Number voxel = static_cast<Number>(grid_thread());
  const bool exists = voxel < static_cast<Number>(s.voxels);
  const Number count = exists ? s.counts[voxel] : 0, begin = exists ? s.begins[voxel] : 0;
  if (count <= kLaneList) place_samples(s.unsorted + begin, count, 0, 1, s.listed + begin);
  unsigned left = __ballot_sync(kFullWarp, count > kLaneList && count <= kWarpList);
  for (; left != 0; left &= left - 1) {
    const int source = __ffs(static_cast<int>(left)) - 1;
    const Number first = __shfl_sync(kFullWarp, begin, source);
    place_samples(s.unsorted + first, __shfl_sync(kFullWarp, count, source), lane, 32, s.listed + first);
  }
}

// Sorts the long lists, a block each, in linear time.
__global__ void __launch_bounds__(grid_sample::kSortThreads<Number>) sort_long_nearest(NearestLists s) {
  wait_for_kernel_before();
  __shared__ grid_sample::SortShared<Number> shared;
  for (Number job = blockIdx.x; job < s.totals->long_lists; job += gridDim.x) {
    const Number voxel = s.long_lists[job], begin = s.begins[voxel], count = s.counts[voxel];
    for (Number i = threadIdx.x; i < count; i += blockDim.x) s.listed[begin + i] = s.unsorted[begin + i];
    __syncthreads();
    grid_sample::sort_by_digits(s.listed + begin, s.unsorted + begin, int64_t{count}, int64_t{s.samples}, shared);
  }
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
