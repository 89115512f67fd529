// SPDX-License-Identifier: Apache-2.0
// Cross entropy of rows on CUDA. Rows of few classes have a thread; others have a warp or a block, in which a lane has
// a strand of every piece, and what such a row gives to the results is an item.
#pragma once

#include "ops/nll_loss/cuda/sums.cuh"

namespace baracuda::nll_loss {
namespace {

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;
// Classes of rows that have a thread, and of those that have a warp: a lane keeps what is known of a piece.
constexpr int32_t kFewClasses = 16, kWarpClasses = 8 * kRowPiece;

// Writes what becomes of a row, and answers what it gives to the results; one thread's work.
template <bool kSmooths, typename T>
__device__ __forceinline__ Item<Compute<T>> finished_row(const Problem& p, const ForwardBuffers<T, true>& b,
                                                         int64_t row, int64_t target, const Classes<Compute<T>>& all) {
  using C = Compute<T>;
  C weight = C(0), loss = C(0), log_sum_exp = C(0);
  if (counts(p, target)) {
    const C log_sum = log_sum_of(all);
    weight = weight_of(b.weight, target);
    loss = loss_of<kSmooths>(p, all, log_sum, widen(b.input[row * p.c + target]), weight);
    log_sum_exp = narrow<C>(all.largest + log_sum);
  }
  b.log_sum_exp[row] = log_sum_exp;
  if (!p.reduces()) b.output[row] = narrow<T>(loss);
  return item_of(p, target, loss, weight);
}

// Of strands whose largest logits are one, a lane each.
template <bool kSmooths, typename C>
__device__ __forceinline__ Classes<C> of_strands(Classes<C> strand) {
  strand.sum = sum_of_lanes(strand.sum);
  if (kSmooths) strand.weight = sum_of_lanes(strand.weight), strand.gap = sum_of_lanes(strand.gap);
  return strand;
}

// A piece of `count` classes, by a warp; `x` is the logit of class `first`. All are asked for before one is looked at.
template <bool kSmooths, bool kIsWhole, typename T>
__device__ __forceinline__ Classes<Compute<T>> of_classes(const T* x, const T* weight, int64_t first, int count) {
  using C = Compute<T>;
  const int lane = threadIdx.x % 32;
  T raw[kRowSteps];
#pragma unroll
  for (int step = 0; step < kRowSteps; ++step) {
    const int k = step * kStrands + lane;
    if (kIsWhole || k < count) raw[step] = x[k];
  }
  C logits[kRowSteps];
  Classes<C> strand = Classes<C>::none();
#pragma unroll
  for (int step = 0; step < kRowSteps; ++step) {
    const int k = step * kStrands + lane;
    logits[step] = kIsWhole || k < count ? widen(raw[step]) : lowest<C>();
    strand.largest = larger_of(strand.largest, logits[step]);
  }
  strand.largest = largest_of_lanes(strand.largest);
#pragma unroll
  for (int step = 0; step < kRowSteps; ++step) {
    const int k = step * kStrands + lane;
    if (kIsWhole || k < count) add_class<kSmooths>(logits[step], weight, first + k, &strand);
  }
  return of_strands<kSmooths>(strand);
}

template <bool kSmooths, typename T>
__device__ __forceinline__ Classes<Compute<T>> of_piece(const T* x, const T* weight, int64_t first, int count) {
  if (count == kRowPiece) return of_classes<kSmooths, true>(x, weight, first, count);
  return of_classes<kSmooths, false>(x, weight, first, count);
}

__device__ __forceinline__ int piece_size(int64_t first, int64_t end) {
  return static_cast<int>(end - first < kRowPiece ? end - first : kRowPiece);
}

// The sum of a thread's values in pairs of neighbours.
template <int kCount, typename C>
__device__ __forceinline__ C sum_in_pairs(C (&values)[kCount]) {
#pragma unroll
  for (int step = 1; step < kCount; step *= 2) {
#pragma unroll
    for (int k = 0; k < kCount; k += 2 * step) values[k] += values[k + step];
  }
  return values[0];
}

// All classes of a row whose first logit is at `x`, by one thread: each class is a strand by itself.
template <bool kSmooths, typename T>
__device__ __forceinline__ Classes<Compute<T>> of_few_classes(const Problem& p, const T* x, const T* weight) {
  using C = Compute<T>;
  T raw[kFewClasses];
#pragma unroll
  for (int k = 0; k < kFewClasses; ++k) {
    if (k < p.c) raw[k] = x[k];
  }
  C logits[kFewClasses];
  Classes<C> all = Classes<C>::none();
#pragma unroll
  for (int k = 0; k < kFewClasses; ++k) {
    logits[k] = k < p.c ? widen(raw[k]) : lowest<C>();
    all.largest = larger_of(all.largest, logits[k]);
  }
  C sums[kFewClasses], weights[kFewClasses], gaps[kFewClasses];
#pragma unroll
  for (int k = 0; k < kFewClasses; ++k) {
    Classes<C> strand{all.largest, C(0), C(0), C(0)};
    if (k < p.c) add_class<kSmooths>(logits[k], weight, k, &strand);
    sums[k] = strand.sum, weights[k] = strand.weight, gaps[k] = strand.gap;
  }
  all.sum = sum_in_pairs(sums);
  if (kSmooths) all.weight = sum_in_pairs(weights), all.gap = sum_in_pairs(gaps);
  return all;
}

// A thread a row.
template <typename T, bool kSmooths>
__global__ void __launch_bounds__(kChunk)
    sum_few_classes(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T, true> b,
                    const __grid_constant__ Items<Compute<T>> items) {
  using C = Compute<T>;
  __shared__ Item<C> of_warps[kChunk / 32];
  for (int64_t chunk = blockIdx.x; chunk < items.count; chunk += gridDim.x) {
    const int64_t row = chunk * kChunk + threadIdx.x;
    Item<C> item{};
    if (row < p.elements) {
      const int64_t target = index_at(b.target, row);
      Classes<C> all = Classes<C>::none();
      if (counts(p, target)) all = of_few_classes<kSmooths>(p, b.input + row * p.c, b.weight);
      item = finished_row<kSmooths>(p, b, row, target, all);
    }
    const Item<C> sum = sum_of_chunk(p, item, of_warps);
    if (threadIdx.x == 0) items.put(chunk, sum);
    __syncthreads();
  }
}

template <typename T, bool kSmooths>
__global__ void __launch_bounds__(kRowThreads)
    sum_rows_by_warp(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T, true> b,
                     const __grid_constant__ Items<Compute<T>> items) {
  using C = Compute<T>;
  const int lane = threadIdx.x % 32;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / 32; row < items.count;
       row += static_cast<int64_t>(gridDim.x) * kRowWarps) {
    const int64_t target = index_at(b.target, row);
    Classes<C> all = Classes<C>::none();
    if (counts(p, target)) {
      const T* const x = b.input + row * p.c;
      Classes<C> mine = Classes<C>::none();
      int pieces = 0;
      for (int32_t first = 0; first < p.c; first += kRowPiece, ++pieces) {
        all = of_piece<kSmooths>(x + first, b.weight, first, piece_size(first, p.c));
        if (lane == pieces) mine = all;
      }
      if (pieces > 1) {
        Classes<C> strand{largest_of_lanes(mine.largest), C(0), C(0), C(0)};
        if (lane < pieces) add_piece<kSmooths>(mine, strand.largest, &strand);
        all = of_strands<kSmooths>(strand);
      }
    }
    if (lane == 0) items.put(row, finished_row<kSmooths>(p, b, row, target, all));
  }
}

// A row's pieces that are joined at once.
template <typename C>
struct Pieces {
  C largest[kRowPieces], sum[kRowPieces], weight[kRowPieces], gap[kRowPieces];

  template <bool kSmooths>
  __device__ __forceinline__ void put(int i, const Classes<C>& classes) {
    largest[i] = classes.largest, sum[i] = classes.sum;
    if (kSmooths) weight[i] = classes.weight, gap[i] = classes.gap;
  }
  template <bool kSmooths>
  __device__ __forceinline__ Classes<C> at(int i) const {
    return kSmooths ? Classes<C>{largest[i], sum[i], weight[i], gap[i]} : Classes<C>{largest[i], sum[i], C(0), C(0)};
  }
};

// By one warp.
template <bool kSmooths, typename C>
__device__ __forceinline__ Classes<C> of_pieces(const Pieces<C>& pieces, int count) {
  const int lane = threadIdx.x % 32;
  C largest = lowest<C>();
  for (int i = lane; i < count; i += kStrands) largest = larger_of(largest, pieces.largest[i]);
  Classes<C> strand{largest_of_lanes(largest), C(0), C(0), C(0)};
  for (int i = lane; i < count; i += kStrands) {
    add_piece<kSmooths>(pieces.template at<kSmooths>(i), strand.largest, &strand);
  }
  return of_strands<kSmooths>(strand);
}

template <typename T, bool kSmooths>
__global__ void __launch_bounds__(kRowThreads, sizeof(Compute<T>) == 4 ? 4 : 2)
    sum_rows_by_block(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T, true> b,
                      const __grid_constant__ Items<Compute<T>> items) {
  using C = Compute<T>;
  __shared__ Pieces<C> pieces;
  const int warp = threadIdx.x / 32;
  constexpr int64_t kAtOnce = int64_t{kRowPieces} * kRowPiece;
  for (int64_t row = blockIdx.x; row < items.count; row += gridDim.x) {
    const int64_t target = index_at(b.target, row);
    Classes<C> all = Classes<C>::none();
    if (counts(p, target)) {
      const T* const x = b.input + row * p.c;
      for (int64_t begin = 0; begin < p.c; begin += kAtOnce) {
        const int64_t end = p.c - begin < kAtOnce ? p.c : begin + kAtOnce;
        const int count = static_cast<int>((end - begin + kRowPiece - 1) / kRowPiece);
        for (int i = warp; i < count; i += kRowWarps) {
          const int64_t first = begin + int64_t{i} * kRowPiece;
          const Classes<C> piece = of_piece<kSmooths>(x + first, b.weight, first, piece_size(first, end));
          if (threadIdx.x % 32 == 0) pieces.template put<kSmooths>(i, piece);
        }
        __syncthreads();
        if (warp == 0) {
          const Classes<C> found = of_pieces<kSmooths>(pieces, count);
          all = begin == 0 ? found : joined<kSmooths>(all, found);
        }
        __syncthreads();
      }
    }
    if (threadIdx.x == 0) items.put(row, finished_row<kSmooths>(p, b, row, target, all));
  }
}

}  // namespace
}  // namespace baracuda::nll_loss
