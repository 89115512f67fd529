// SPDX-License-Identifier: Apache-2.0
// Gradients of losses of classification on CUDA: nothing is added but the weights, where labels are smoothed.
#pragma once

#include "ops/nll_loss/cuda/sums.cuh"

namespace baracuda::nll_loss {
namespace {

constexpr int kGradientThreads = 256;
// Classes of an image that a thread sees to, and vectors that it asks for before it looks at one.
constexpr int kClasses = 32, kVectors = 4;

// 16 bytes, or one element where these do not lie so.
template <typename T, int kLanes>
struct alignas(kLanes * sizeof(T)) Vector {
  T lanes[kLanes];
};
template <typename T>
constexpr int kFullLanes = 16 / static_cast<int>(sizeof(T));

// The sum of all weights, in pairs.
template <typename T>
__global__ void __launch_bounds__(kFoldThreads)
    sum_weights(const __grid_constant__ int32_t c, const T* const __grid_constant__ weight,
                Compute<T>* const __grid_constant__ all_weights) {
  using C = Compute<T>;
  __shared__ C of_warps[kFoldThreads / 32];
  // Sums that wait for a neighbour, of 2^level times kFolded weights each, where the bit of `count` is set.
  C waiting[19];
  uint32_t count = 0;
  for (int64_t first = 0; first < c; first += kFolded, ++count) {
    C mine[kPerThread];
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      const int64_t i = first + threadIdx.x * kPerThread + k;
      mine[k] = i < c ? as_term(widen(weight[i])) : C(0);
    }
#pragma unroll
    for (int step = 1; step < kPerThread; step *= 2) {
#pragma unroll
      for (int k = 0; k < kPerThread; k += 2 * step) mine[k] += mine[k + step];
    }
    C sum = sum_of_warps(sum_of_lanes(mine[0]), of_warps);
    int level = 0;
    for (; (count >> level & 1) != 0; ++level) sum = waiting[level] + sum;
    waiting[level] = sum;
    __syncthreads();
  }
  C total = C(0);
  for (int level = 0; level < 19; ++level) {
    if ((count >> level & 1) != 0) total = waiting[level] + total;
  }
  if (threadIdx.x == 0) *all_weights = total;
}

// What is the same for all elements: the one loss's gradient, and the sum of weights where there is one.
template <typename T, bool kByLogits>
struct Shared {
  Problem p;
  BackwardBuffers<T, kByLogits> b;
  const Compute<T>* all_weights;

  __device__ __forceinline__ Compute<T> gradient() const {
    return p.reduces() ? shared_gradient(p, widen(*b.grad_output), b.total_weight) : Compute<T>(0);
  }
  __device__ __forceinline__ Compute<T> weights() const {
    return all_weights != nullptr ? *all_weights : static_cast<Compute<T>>(p.c);
  }
};

// What the gradients of one element need beside its logits.
template <typename T>
struct Element {
  int32_t target;  // -1 if it does not count
  Compute<T> log_sum_exp;
  Slopes<Compute<T>> slopes;
};

template <typename T, bool kByLogits>
__device__ __forceinline__ Element<T> element_of(const Shared<T, kByLogits>& call, int64_t i, Compute<T> gradient,
                                                 Compute<T> all_weights) {
  using C = Compute<T>;
  const int64_t target = index_at(call.b.target, i);
  Element<T> element{-1, C(0), {}};
  if (!counts(call.p, target)) return element;
  element.target = static_cast<int32_t>(target);
  if (!call.p.reduces()) gradient = widen(call.b.grad_output[i]);
  if constexpr (kByLogits) element.log_sum_exp = call.b.log_sum_exp[i];
  element.slopes = Slopes<C>(call.p, gradient, weight_of(call.b.weight, target), all_weights);
  return element;
}

// Of one class; `x` is its logit.
template <bool kSmooths, typename T, bool kByLogits>
__device__ __forceinline__ T gradient_of(const Shared<T, kByLogits>& call, const Element<T>& element, T x,
                                         int32_t number) {
  using C = Compute<T>;
  const bool is_target = element.target == number;
  if constexpr (!kByLogits) {
    return is_target ? narrow<T>(element.slopes.of_target) : T{};
  } else {
    const C weight = kSmooths ? weight_of(call.b.weight, number) : C(0);
    const C slope = element.slopes.template at<kSmooths>(widen(x), element.log_sum_exp, is_target, weight);
    return element.target >= 0 ? narrow<T>(slope) : T{};
  }
}

// How an image's elements are shared out: `vectors` of kLanes, and `groups` of classes.
struct ImageTasks {
  int64_t vectors, groups, count;

  ImageTasks(const Problem& p, int lanes)
      : vectors(p.d / lanes), groups(ceil_div(p.c, kClasses)), count(p.n * groups * vectors) {}
};

template <typename T, bool kByLogits, bool kSmooths, int kLanes>
__global__ void __launch_bounds__(kGradientThreads)
    image_gradients(const __grid_constant__ Shared<T, kByLogits> call, const __grid_constant__ ImageTasks tasks) {
  using C = Compute<T>;
  using V = Vector<T, kLanes>;
  const Problem& p = call.p;
  const C gradient = call.gradient(), all_weights = kSmooths ? call.weights() : C(0);
  for (int64_t task = grid_thread(); task < tasks.count; task += grid_threads()) {
    const Division by_vectors(task, tasks.vectors), by_groups(by_vectors.quotient, tasks.groups);
    const int64_t place = by_vectors.remainder * kLanes;
    Element<T> elements[kLanes];
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      elements[lane] = element_of(call, by_groups.quotient * p.d + place + lane, gradient, all_weights);
    }
    const int32_t first = static_cast<int32_t>(by_groups.remainder) * kClasses;
    // Of 32 bits without a sign, since the last step leads behind what an element can have.
    const uint32_t end = static_cast<uint32_t>(p.c - first < kClasses ? p.c : first + kClasses);
    int64_t at = (by_groups.quotient * p.c + first) * p.d + place;
    // As many classes are asked for as registers hold before one is looked at.
    constexpr int kAsked = sizeof(T) == 8 ? 2 : kVectors;
    for (uint32_t number = static_cast<uint32_t>(first); number < end; number += kAsked, at += kAsked * int64_t{p.d}) {
      V x[kAsked] = {};
      if constexpr (kByLogits) {
#pragma unroll
        for (int k = 0; k < kAsked; ++k) {
          if (number + k < end) x[k] = *reinterpret_cast<const V*>(call.b.input + at + k * int64_t{p.d});
        }
      }
#pragma unroll
      for (int k = 0; k < kAsked; ++k) {
        if (number + k >= end) break;
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
          x[k].lanes[lane] = gradient_of<kSmooths>(call, elements[lane], x[k].lanes[lane],
                                                static_cast<int32_t>(number + k));
        }
        *reinterpret_cast<V*>(call.b.grad_input + at + k * int64_t{p.d}) = x[k];
      }
    }
  }
}

// Which row a vector lies in; numbers of fewer than 2^31 vectors are divided in 32 bits.
struct RowTasks {
  int64_t vectors, count;  // of a row, and of all
  Divider by_vectors;
  bool is_small;

  RowTasks(const Problem& p, int lanes)
      : vectors(p.c / lanes),
        count(p.logits / lanes),
        by_vectors(count <= INT32_MAX ? vectors : 1),
        is_small(count <= INT32_MAX) {}

  __device__ __forceinline__ int64_t row_of(int64_t vector) const {
    return is_small ? static_cast<int64_t>(by_vectors.divide(static_cast<uint32_t>(vector))) : vector / vectors;
  }
};

template <typename T, bool kByLogits, bool kSmooths, int kLanes>
__global__ void __launch_bounds__(kGradientThreads)
    row_gradients(const __grid_constant__ Shared<T, kByLogits> call, const __grid_constant__ RowTasks tasks) {
  using C = Compute<T>;
  using V = Vector<T, kLanes>;
  const C gradient = call.gradient(), all_weights = kSmooths ? call.weights() : C(0);
  constexpr int64_t kBlock = int64_t{kGradientThreads} * kVectors;
  for (int64_t first = blockIdx.x * kBlock; first < tasks.count; first += gridDim.x * kBlock) {
    V x[kVectors];
    int64_t rows[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int64_t vector = first + k * kGradientThreads + threadIdx.x;
      rows[k] = vector < tasks.count ? tasks.row_of(vector) : -1;
      x[k] = V{};
      if constexpr (kByLogits) {
        if (rows[k] >= 0) x[k] = *reinterpret_cast<const V*>(call.b.input + vector * kLanes);
      }
    }
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (rows[k] < 0) continue;
      const int64_t vector = first + k * kGradientThreads + threadIdx.x;
      const Element<T> element = element_of(call, rows[k], gradient, all_weights);
      const int32_t number = static_cast<int32_t>(vector - rows[k] * tasks.vectors) * kLanes;
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        x[k].lanes[lane] = gradient_of<kSmooths>(call, element, x[k].lanes[lane], number + lane);
      }
      *reinterpret_cast<V*>(call.b.grad_input + vector * kLanes) = x[k];
    }
  }
}

// Classes from which on a block has some of one row alone, and how many vectors of it each of its threads has.
constexpr int32_t kLongRow = 2048;
constexpr int kLongVectors = 16;

// How long rows are shared out: `parts` of kGradientThreads kLongVectors vectors, of which a row has `vectors`.
struct LongRowTasks {
  int64_t vectors, parts, count;

  LongRowTasks(const Problem& p, int lanes)
      : vectors(p.c / lanes), parts(ceil_div(vectors, kGradientThreads * kLongVectors)), count(p.n * parts) {}
};

template <typename T, bool kByLogits, bool kSmooths, int kLanes>
__global__ void __launch_bounds__(kGradientThreads)
    long_row_gradients(const __grid_constant__ Shared<T, kByLogits> call, const __grid_constant__ LongRowTasks tasks) {
  using C = Compute<T>;
  using V = Vector<T, kLanes>;
  const C gradient = call.gradient(), all_weights = kSmooths ? call.weights() : C(0);
  for (int64_t task = blockIdx.x; task < tasks.count; task += gridDim.x) {
    const Division by_parts(task, tasks.parts);
    const Element<T> element = element_of(call, by_parts.quotient, gradient, all_weights);
    const V* const input = reinterpret_cast<const V*>(call.b.input) + by_parts.quotient * tasks.vectors;
    V* const grad_input = reinterpret_cast<V*>(call.b.grad_input) + by_parts.quotient * tasks.vectors;
    // Of 32 bits without a sign, since the last part may end behind what a row can have.
    const uint32_t first = static_cast<uint32_t>(by_parts.remainder) * (kGradientThreads * kLongVectors) + threadIdx.x;
    const uint32_t end = static_cast<uint32_t>(tasks.vectors);
    for (int round = 0; round < kLongVectors / kVectors; ++round) {
      const uint32_t begin = first + round * (kGradientThreads * kVectors);
      V x[kVectors] = {};
      if constexpr (kByLogits) {
#pragma unroll
        for (int k = 0; k < kVectors; ++k) {
          if (begin + k * kGradientThreads < end) x[k] = input[begin + k * kGradientThreads];
        }
      }
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        const uint32_t at = begin + k * kGradientThreads;
        if (at >= end) break;
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
          x[k].lanes[lane] = gradient_of<kSmooths>(call, element, x[k].lanes[lane],
                                                static_cast<int32_t>(at * kLanes + lane));
        }
        grad_input[at] = x[k];
      }
    }
  }
}

}  // namespace
}  // namespace baracuda::nll_loss
