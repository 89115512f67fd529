// SPDX-License-Identifier: Apache-2.0
// Either direction on CUDA by one thread for each destination element, which adds the box of its sources: for any
// problem, and best where boxes are small.
#pragma once

#include <type_traits>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

constexpr int kElementThreads = 256;

// How to find an element's place from its number.
struct ElementDividers {
  Divider w, h, d;
};

struct ElementPlace {
  int64_t plane;
  int32_t d, h, w;
};

template <bool kBackward, typename Index>
__device__ __forceinline__ ElementPlace place_of(int64_t element, const Pooling& p, const ElementDividers& by) {
  if constexpr (std::is_same_v<Index, uint32_t>) {
    const uint32_t row = by.w.divide(static_cast<uint32_t>(element));
    const uint32_t slab = by.h.divide(row);
    const uint32_t plane = by.d.divide(slab);
    return {plane, static_cast<int32_t>(slab - plane * by.d.divisor), static_cast<int32_t>(row - slab * by.h.divisor),
            static_cast<int32_t>(static_cast<uint32_t>(element) - row * by.w.divisor)};
  } else {
    const Division row(element, destination_extent<kBackward>(p.axes[2]));
    const Division slab(row.quotient, destination_extent<kBackward>(p.axes[1]));
    const Division plane(slab.quotient, destination_extent<kBackward>(p.axes[0]));
    return {plane.quotient, static_cast<int32_t>(plane.remainder), static_cast<int32_t>(slab.remainder),
            static_cast<int32_t>(row.remainder)};
  }
}

// A list that is known to have at most kTermsInPartial terms needs no partial sums.
template <typename C>
class ShortSum {
 public:
  __device__ __forceinline__ void add(C term) { sum_ += term; }
  __device__ __forceinline__ C result() const { return sum_; }

 private:
  C sum_ = 0;
};

// `Index` counts the elements of both tensors: uint32_t where they are fewer than 2^31, and lists are short; else
// int64_t.
template <class Buffers, typename Index>
__global__ void __launch_bounds__(kElementThreads)
    add_elements(const __grid_constant__ Pooling p, const __grid_constant__ Buffers b,
                 const __grid_constant__ ElementDividers by, const __grid_constant__ int64_t numel) {
  using T = typename Buffers::Element;
  using C = Compute<T>;
  using List = std::conditional_t<std::is_same_v<Index, uint32_t>, ShortSum<C>, Sum<C>>;
  constexpr bool kBackward = Buffers::kBackward;
  const Index rows = source_extent<kBackward>(p.axes[1]), width = source_extent<kBackward>(p.axes[2]);
  const Index depth_of_source = source_extent<kBackward>(p.axes[0]);
  for (int64_t element = grid_thread(); element < numel; element += grid_threads()) {
    const ElementPlace at = place_of<kBackward, Index>(element, p, by);
    const PoolRange ds = sources_of<kBackward>(p.axes[0], at.d), hs = sources_of<kBackward>(p.axes[1], at.h),
                    ws = sources_of<kBackward>(p.axes[2], at.w);
    const T* const plane = b.source + static_cast<Index>(at.plane) * depth_of_source * rows * width;
    List sum;
    for (int32_t w = ws.first; w < ws.end; ++w) {
      List column;
      for (int32_t h = hs.first; h < hs.end; ++h) {
        List depth;
        for (int32_t d = ds.first; d < ds.end; ++d) {
          C term = widen(plane[(static_cast<Index>(d) * rows + static_cast<Index>(h)) * width + static_cast<Index>(w)]);
          if constexpr (kBackward) term /= static_cast<C>(divisor_of(p, d, h, w));
          depth.add(term);
        }
        column.add(depth.result());
      }
      sum.add(column.result());
    }
    C total = sum.result();
    if constexpr (!kBackward) {
      // Nothing is not divided, by 0 at that.
      const bool is_empty = ds.size() <= 0 || hs.size() <= 0 || ws.size() <= 0;
      if (!is_empty) total /= static_cast<C>(divisor_of(p, at.d, at.h, at.w));
    }
    b.destination[element] = narrow<T>(total);
  }
}

template <class Buffers, typename Index>
Status enqueue_elements(const Problem& p, const Buffers& b, Stream stream) {
  constexpr bool kBackward = Buffers::kBackward;
  // Every extent that divides is at least 1, since there are elements.
  const ElementDividers by{Divider(destination_extent<kBackward>(p.axes[2])),
                           Divider(destination_extent<kBackward>(p.axes[1])),
                           Divider(destination_extent<kBackward>(p.axes[0]))};
  const int64_t numel = destination_numel<kBackward>(p);
  return launch_kernel("avg_pool kernel", add_elements<Buffers, Index>, blocks_for(numel, kElementThreads),
                       kElementThreads, 0, stream, Pooling(p), b, by, numel);
}

}  // namespace
}  // namespace baracuda::avg_pool
