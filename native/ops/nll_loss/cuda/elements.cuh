// SPDX-License-Identifier: Apache-2.0
// Negative log-likelihood on CUDA: a thread an element, whose one log-probability it looks up.
#pragma once

#include "ops/nll_loss/cuda/sums.cuh"

namespace baracuda::nll_loss {
namespace {

// Where an element's logits begin; numbers of fewer than 2^31 elements are divided in 32 bits.
struct Places {
  Divider by_d;
  bool is_small;

  explicit Places(const Problem& p)
      : by_d(p.elements <= INT32_MAX && p.d > 0 ? p.d : 1), is_small(p.elements <= INT32_MAX) {}

  __device__ __forceinline__ int64_t first_logit(const Problem& p, int64_t element) const {
    const int64_t image = is_small ? static_cast<int64_t>(by_d.divide(static_cast<uint32_t>(element))) : element / p.d;
    return element + image * (static_cast<int64_t>(p.c) - 1) * p.d;
  }
};

// Elements, each of which also writes its loss where there is no reduction.
template <typename T>
struct ElementItems {
  Problem p;
  ForwardBuffers<T, false> b;
  Places places;

  __device__ __forceinline__ Item<Compute<T>> operator()(int64_t i) const {
    using C = Compute<T>;
    const int64_t target = index_at(b.target, i);
    C weight = C(0), loss = C(0);
    if (counts(p, target)) {
      weight = weight_of(b.weight, target);
      loss = -(weight * widen(b.input[places.first_logit(p, i) + target * p.d]));
    }
    if (!p.reduces()) b.output[i] = narrow<T>(loss);
    return item_of(p, target, loss, weight);
  }
};

template <typename T>
__global__ void __launch_bounds__(kChunk)
    sum_elements(const __grid_constant__ ElementItems<T> elements, const __grid_constant__ Items<Compute<T>> items) {
  using C = Compute<T>;
  __shared__ Item<C> of_warps[kChunk / 32];
  for (int64_t chunk = blockIdx.x; chunk < items.count; chunk += gridDim.x) {
    const int64_t i = chunk * kChunk + threadIdx.x;
    const Item<C> item = i < elements.p.elements ? elements(i) : Item<C>{};
    const Item<C> sum = sum_of_chunk(elements.p, item, of_warps);
    if (threadIdx.x == 0) items.put(chunk, sum);
    __syncthreads();
  }
}

}  // namespace
}  // namespace baracuda::nll_loss
