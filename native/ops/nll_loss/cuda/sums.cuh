// SPDX-License-Identifier: Apache-2.0
// Sums in pairs on CUDA: of a warp, of a block, and of the items that blocks leave, down to the results.
#pragma once

#include <cstdint>
#include <utility>

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/workspace.h"
#include "ops/nll_loss/launch.h"
#include "ops/nll_loss/math.h"

namespace baracuda::nll_loss {
namespace {

// Elements of a block, whose sum is an item.
constexpr int kChunk = 256;
// What a block folds to one: eight items for each thread.
constexpr int kFoldThreads = 1024, kPerThread = 8, kFolded = kFoldThreads * kPerThread;

// What an element gives to the results, and what several do.
template <typename C>
struct Item {
  C loss, weight;
  int64_t dropped;
};

template <typename C>
__device__ __forceinline__ Item<C> operator+(const Item<C>& a, const Item<C>& b) {
  return {a.loss + b.loss, a.weight + b.weight, a.dropped + b.dropped};
}

// What is added for an element.
template <typename C>
__device__ __forceinline__ Item<C> item_of(const Problem& p, int64_t target, C loss, C weight) {
  return {as_term(loss), as_term(weight), is_dropped(p, target)};
}

// Of all lanes, in each of them.
template <typename C>
__device__ __forceinline__ C sum_of_lanes(C value) {
#pragma unroll
  for (int other = 1; other < 32; other *= 2) value += __shfl_xor_sync(kFullWarp, value, other);
  return value;
}

template <typename C>
__device__ __forceinline__ Item<C> sum_of_lanes(Item<C> item) {
  return {sum_of_lanes(item.loss), sum_of_lanes(item.weight), sum_of_lanes(item.dropped)};
}

template <typename C>
__device__ __forceinline__ C largest_of_lanes(C value) {
#pragma unroll
  for (int other = 1; other < 32; other *= 2) value = larger_of(value, __shfl_xor_sync(kFullWarp, value, other));
  return value;
}

// Of a block's warps, each of which has `value`, in the first one; before the next sum the block meets again.
template <typename V>
__device__ __forceinline__ V sum_of_warps(V value, V* of_warps) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  if (warp == 0) value = sum_of_lanes(lane < warps ? of_warps[lane] : V{});
  return value;
}

// Of a block's elements, as sum_of_warps(); elements are dropped one by one, so that votes count them.
template <typename C>
__device__ __forceinline__ Item<C> sum_of_chunk(const Problem& p, const Item<C>& item, Item<C>* of_warps) {
  Item<C> sum{C(0), C(0), __popc(__ballot_sync(kFullWarp, item.dropped != 0))};
  if (p.reduces()) sum.loss = sum_of_lanes(item.loss), sum.weight = sum_of_lanes(item.weight);
  return sum_of_warps(sum, of_warps);
}

// The items in the workspace.
template <typename C>
struct Items {
  C* losses;
  C* weights;
  int64_t* dropped;
  int64_t count;

  __device__ __forceinline__ Item<C> operator()(int64_t i) const { return {losses[i], weights[i], dropped[i]}; }
  __device__ __forceinline__ void put(int64_t i, const Item<C>& item) const {
    losses[i] = item.loss, weights[i] = item.weight, dropped[i] = item.dropped;
  }
};

// The items of a call, and what they are folded to where one block does not suffice.
template <typename C>
struct ItemsLayout {
  WorkspaceLayout layout;
  Items<C> first, second;

  ItemsLayout(int64_t count, void* workspace) {
    first = reserved(count, workspace);
    second = reserved(count > kFolded ? ceil_div(count, kFolded) : 0, workspace);
  }

 private:
  Items<C> reserved(int64_t count, void* workspace) {
    C* const losses = workspace_array<C>(workspace, layout.reserve<C>(count));
    C* const weights = workspace_array<C>(workspace, layout.reserve<C>(count));
    return {losses, weights, workspace_array<int64_t>(workspace, layout.reserve<int64_t>(count)), count};
  }
};

template <typename T>
struct Results {
  T* output;
  Compute<T>* total_weight;
  Indices<void> num_dropped;
};

// Folds what `items(i)` answers of `count` numbers; one block alone writes the results.
template <typename T, class Source>
__global__ void __launch_bounds__(kFoldThreads)
    fold_items(const __grid_constant__ Problem p, const __grid_constant__ Source items,
               const __grid_constant__ int64_t count, const __grid_constant__ Items<Compute<T>> folded,
               const __grid_constant__ Results<T> results) {
  using C = Compute<T>;
  __shared__ Item<C> of_warps[kFoldThreads / 32];
  wait_for_kernel_before();
  for (int64_t block = blockIdx.x; block == 0 || block * kFolded < count; block += gridDim.x) {
    Item<C> mine[kPerThread];
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      const int64_t i = block * kFolded + threadIdx.x * kPerThread + k;
      mine[k] = i < count ? items(i) : Item<C>{};
    }
#pragma unroll
    for (int step = 1; step < kPerThread; step *= 2) {
#pragma unroll
      for (int k = 0; k < kPerThread; k += 2 * step) mine[k] = mine[k] + mine[k + step];
    }
    const Item<C> sum = sum_of_warps(sum_of_lanes(mine[0]), of_warps);
    if (threadIdx.x == 0) {
      if (count > kFolded) {
        folded.put(block, sum);
      } else {
        store_count(results.num_dropped, sum.dropped);
        *results.total_weight = p.reduces() ? narrow<C>(sum.weight) : C(0);
        if (p.reduces()) *results.output = reduced<T>(p, sum.loss, sum.weight);
      }
    }
    __syncthreads();
  }
}

// Folds a call's items, which the kernel before this writes, down to its results.
template <typename T>
Status enqueue_fold(const Problem& p, const ItemsLayout<Compute<T>>& layout, const Results<T>& results, Stream stream) {
  Items<Compute<T>> items = layout.first, folded = layout.second;
  while (true) {
    const int64_t blocks = items.count > kFolded ? ceil_div(items.count, kFolded) : 1;
    BARACUDA_RETURN_IF_FAILED(launch_early("nll_loss fold kernel", fold_items<T, Items<Compute<T>>>,
                                           blocks_for(blocks, 1), kFoldThreads, 0, stream, p, items, items.count,
                                           folded, results));
    if (blocks == 1) return Status::kOk;
    // What was folded is no longer read.
    std::swap(items, folded);
    items.count = blocks;
  }
}

}  // namespace
}  // namespace baracuda::nll_loss
