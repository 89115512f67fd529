// SPDX-License-Identifier: Apache-2.0
// Cross entropy of rows on CUDA: a lane has a strand of every piece. Rows of few classes share a warp, others have a
// warp or a block for themselves; what a row gives to the results is an item.
#pragma once

#include "ops/nll_loss/cuda/sums.cuh"

namespace baracuda::nll_loss {
namespace {

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;
// Classes of rows that share a warp, and of those that have one: a lane keeps what is known of a piece.
constexpr int32_t kFewClasses = 16, kWarpClasses = 8 * kRowPiece;

// Writes what becomes of a row; one thread's work.
template <bool kSmooths, typename T>
__device__ __forceinline__ void finish_row(const Problem& p, const ForwardBuffers<T, true>& b,
                                           const Items<Compute<T>>& items, int64_t row, int64_t target,
                                           const Classes<Compute<T>>& all) {
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
  items.put(row, item_of(p, target, loss, weight));
}

// Of strands whose largest logits are one, a lane each.
template <bool kSmooths, typename C>
__device__ __forceinline__ Classes<C> of_strands(Classes<C> strand, int lanes = 32) {
  strand.sum = sum_of_lanes(strand.sum, lanes);
  if (kSmooths) strand.weight = sum_of_lanes(strand.weight, lanes), strand.gap = sum_of_lanes(strand.gap, lanes);
  return strand;
}

// A piece of `count` classes, by a warp; `x` is the logit of class `first`.
template <bool kSmooths, typename T>
__device__ __forceinline__ Classes<Compute<T>> of_piece(const T* x, const T* weight, int64_t first, int count) {
  using C = Compute<T>;
  const int lane = threadIdx.x % 32;
  C logits[kRowSteps];
#pragma unroll
  for (int step = 0; step < kRowSteps; ++step) {
    const int k = step * kStrands + lane;
    if (step * kStrands < count) logits[step] = k < count ? widen(x[k]) : lowest<C>();
  }
  Classes<C> strand = Classes<C>::none();
#pragma unroll
  for (int step = 0; step < kRowSteps; ++step) {
    if (step * kStrands < count) strand.largest = larger_of(strand.largest, logits[step]);
  }
  strand.largest = largest_of_lanes(strand.largest);
#pragma unroll
  for (int step = 0; step < kRowSteps; ++step) {
    const int k = step * kStrands + lane;
    if (step * kStrands < count && k < count) add_class<kSmooths>(logits[step], weight, first + k, &strand);
  }
  return of_strands<kSmooths>(strand);
}

__device__ __forceinline__ int piece_size(int64_t first, int64_t end) {
  return static_cast<int>(end - first < kRowPiece ? end - first : kRowPiece);
}

// A row a group of `lanes` lanes, which are as many as it has classes, or up to twice as many.
template <typename T, bool kSmooths>
__global__ void __launch_bounds__(kRowThreads)
    sum_few_classes(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T, true> b,
                    const __grid_constant__ int lanes, const __grid_constant__ Items<Compute<T>> items) {
  using C = Compute<T>;
  const int lane = threadIdx.x % lanes, rows = kRowThreads / lanes;
  // All lanes of a warp stay for its votes.
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * rows; first < items.count;
       first += static_cast<int64_t>(gridDim.x) * rows) {
    const int64_t row = first + threadIdx.x / lanes;
    const int64_t target = row < items.count ? index_at(b.target, row) : -1;
    const bool is_there = row < items.count && lane < p.c && counts(p, target);
    const C logit = is_there ? widen(b.input[row * p.c + lane]) : lowest<C>();
    Classes<C> strand = Classes<C>::none();
    strand.largest = largest_of_lanes(logit, lanes);
    if (is_there) add_class<kSmooths>(logit, b.weight, lane, &strand);
    const Classes<C> all = of_strands<kSmooths>(strand, lanes);
    if (lane == 0 && row < items.count) finish_row<kSmooths>(p, b, items, row, target, all);
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
    if (lane == 0) finish_row<kSmooths>(p, b, items, row, target, all);
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
__global__ void __launch_bounds__(kRowThreads)
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
    if (threadIdx.x == 0) finish_row<kSmooths>(p, b, items, row, target, all);
  }
}

}  // namespace
}  // namespace baracuda::nll_loss
