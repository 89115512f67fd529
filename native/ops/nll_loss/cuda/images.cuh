// SPDX-License-Identifier: Apache-2.0
// Cross entropy of images on CUDA: a thread an element, whose logits it keeps in registers, a piece of classes at once.
#pragma once

#include <type_traits>

#include "ops/nll_loss/cuda/elements.cuh"

namespace baracuda::nll_loss {
namespace {

// A number that the compiler does not know to be another one's multiple or copy: it would form each address by a
// product, and keep the outcome of every comparison for the next loop.
template <typename V>
__device__ __forceinline__ V known_alone(V value) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(V) == 8) {
    asm("" : "+l"(value));
  } else {
    asm("" : "+r"(value));
  }
#endif
  return value;
}

// An element at an address of which the compiler no longer knows that it lies in global memory.
template <typename T>
__device__ __forceinline__ Compute<T> logit_at(const T* address) {
#if defined(__CUDA_ARCH__)
  using Word = std::conditional_t<sizeof(T) == 8, unsigned long long,
                                  std::conditional_t<sizeof(T) == 4, unsigned int, unsigned short>>;
  return widen(bits_as<T>(__ldg(reinterpret_cast<const Word*>(address))));
#else
  return widen(*address);
#endif
}

// All classes of the element whose first logit is at `x`.
template <bool kSmooths, typename T>
__device__ __forceinline__ Classes<Compute<T>> classes_of(const Problem& p, const T* x, const T* weight) {
  using C = Compute<T>;
  const int64_t step = p.d;
  Classes<C> all = Classes<C>::none();
  for (int32_t left = p.c; left > 0; left -= kImagePiece) {
    const int32_t first = p.c - left;
    // Classes come in pairs, so that half as many jumps lead past those that are not there.
    C logits[kImagePiece];
#pragma unroll
    for (int k = 0; k < kImagePiece; k += 2) {
      if (k >= left) break;
      logits[k] = logit_at(x);
      x = known_alone(x + step);
      logits[k + 1] = k + 1 < left ? logit_at(x) : lowest<C>();
      x = known_alone(x + step);
    }
    const int32_t still_left = known_alone(left), left_to_add = known_alone(left);
    Classes<C> piece = Classes<C>::none();
#pragma unroll
    for (int k = 0; k < kImagePiece; k += 2) {
      if (k >= still_left) break;
      piece.largest = larger_of(larger_of(piece.largest, logits[k]), logits[k + 1]);
    }
#pragma unroll
    for (int k = 0; k < kImagePiece; k += 2) {
      if (k >= left_to_add) break;
      add_class<kSmooths>(logits[k], weight, first + k, &piece);
      if (kSmooths && k + 1 >= left_to_add) break;
      // One that is not there comes last, when its term is nothing beside the sum.
      add_class<kSmooths>(logits[k + 1], weight, first + k + 1, &piece);
    }
    all = first == 0 ? piece : joined<kSmooths>(all, piece);
  }
  return all;
}

template <typename T, bool kSmooths>
__global__ void __launch_bounds__(kChunk)
    sum_images(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T, true> b,
               const __grid_constant__ Places places, const __grid_constant__ Items<Compute<T>> items) {
  using C = Compute<T>;
  __shared__ Item<C> of_warps[kChunk / 32];
  for (int64_t chunk = blockIdx.x; chunk < items.count; chunk += gridDim.x) {
    const int64_t i = chunk * kChunk + threadIdx.x;
    Item<C> item{};
    if (i < p.elements) {
      const int64_t target = index_at(b.target, i);
      C weight = C(0), loss = C(0), log_sum_exp = C(0);
      if (counts(p, target)) {
        const T* const x = b.input + places.first_logit(p, i);
        // Asked for beside the others.
        const C of_target = widen(x[target * p.d]);
        weight = weight_of(b.weight, target);
        const Classes<C> all = classes_of<kSmooths>(p, x, b.weight);
        const C log_sum = log_sum_of(all);
        loss = loss_of<kSmooths>(p, all, log_sum, of_target, weight);
        log_sum_exp = narrow<C>(all.largest + log_sum);
      }
      b.log_sum_exp[i] = log_sum_exp;
      if (!p.reduces()) b.output[i] = narrow<T>(loss);
      item = item_of(p, target, loss, weight);
    }
    const Item<C> sum = sum_of_chunk(p, item, of_warps);
    if (threadIdx.x == 0) items.put(chunk, sum);
    __syncthreads();
  }
}

}  // namespace
}  // namespace baracuda::nll_loss
