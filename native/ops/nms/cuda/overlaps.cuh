// SPDX-License-Identifier: Apache-2.0
// Compares boxes on CUDA: those of a block with each other, and what a block keeps with all boxes behind it.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/nms/cuda/scratch.cuh"

namespace baracuda::nms {
namespace {

constexpr int kCompareThreads = 256;
// Words of a row that one CTA writes, and rows of boxes that it writes them for: one word a thread.
constexpr int kGroupWords = kCompareThreads / kWordBits;
// A warp asks now and then whether all its boxes are decided.
constexpr int kBetweenLooks = 16;

// A bound, and what decides most pairs without a division: most boxes do not even meet, and a quotient of 0 takes the
// long way through a division.
template <typename C>
struct Bound {
  // Beyond what the roundings of a product and a quotient of normal numbers can do.
  static constexpr C kMargin = sizeof(C) == 4 ? C(1.0 / (1 << 20)) : C(1.0 / (int64_t{1} << 45));

  C value;
  C least;  // of products that are normal, as are their margins

  __device__ explicit Bound(C bound) : value(bound), least(sizeof(C) == 4 ? C(1e-30) : C(1e-250)) {
    // Near other bounds a quotient may be no normal number. No product exceeds NaN.
    if (!(bound >= C(1e-6) && bound <= C(1e6))) least = canonical_nan<C>();
  }

  // overlap_of(...) > value where `is_sure`. A quotient is above or below the bound as the dividend is above or below
  // bound times divisor, unless they are nearly equal.
  __device__ __forceinline__ bool is_exceeded(const Box<C>& a, C area_a, const Box<C>& b, C area_b,
                                              bool* is_sure) const {
    const C inter = intersection_of(a, b), joint = area_a + area_b - inter;
    const C edge = value * joint, gap = inter - edge, margin = edge * kMargin;
    *is_sure = edge > least && (gap > margin || gap < -margin);
    return gap > C(0);
  }
};

// Boxes that all threads of a CTA compare theirs with.
template <bool kClasses, typename C>
struct Others {
  Box<C> boxes[kCompareThreads];
  C areas[kCompareThreads];
  int64_t class_ids[kClasses ? kCompareThreads : 1];

  __device__ __forceinline__ void put(int place, const Ranked<C>& ranked, int64_t rank) {
    boxes[place] = ranked.boxes[rank];
    areas[place] = ranked.areas[rank];
    if constexpr (kClasses) class_ids[place] = ranked.class_ids[rank];
  }
  // A box that overlaps none, whatever the bound.
  __device__ __forceinline__ void put_none(int place) {
    boxes[place] = {};
    areas[place] = canonical_nan<C>();
    if constexpr (kClasses) class_ids[place] = 0;
  }
};

// A thread's box.
template <bool kClasses, typename C>
struct Mine {
  Box<C> box;
  C area;
  int64_t class_id;

  __device__ __forceinline__ Mine(const Ranked<C>& ranked, int64_t rank)
      : box(ranked.boxes[rank]), area(ranked.areas[rank]), class_id(0) {
    if constexpr (kClasses) class_id = ranked.class_ids[rank];
  }
  __device__ __forceinline__ bool is_of_class(const Others<kClasses, C>& others, int place) const {
    return !kClasses || others.class_ids[place] == class_id;
  }
  __device__ __forceinline__ bool probably_meets(const Others<kClasses, C>& others, int place, const Bound<C>& bound,
                                                 bool* is_sure) const {
    return bound.is_exceeded(others.boxes[place], others.areas[place], box, area, is_sure);
  }
  __device__ __forceinline__ bool meets(const Others<kClasses, C>& others, int place, const Bound<C>& bound) const {
    return overlap_of(others.boxes[place], others.areas[place], box, area) > bound.value;
  }
};

// Which of 32 boxes a thread's box overlaps. What is not sure is looked at once more, apart, so that the loop over all
// has no branches.
template <bool kClasses, typename C>
__device__ __forceinline__ uint32_t meetings(const Mine<kClasses, C>& mine, const Others<kClasses, C>& others,
                                             int first, const Bound<C>& bound) {
  uint32_t bits = 0, unsure = 0;
#pragma unroll 8
  for (int j = 0; j < 32; ++j) {
    bool is_sure = false;
    const bool meets = mine.probably_meets(others, first + j, bound, &is_sure);
    const bool is_of_class = mine.is_of_class(others, first + j);
    if (meets && is_sure && is_of_class) bits |= 1u << j;
    if (!is_sure && is_of_class) unsure |= 1u << j;
  }
#pragma unroll 1
  for (; unsure != 0; unsure &= unsure - 1) {
    const int j = __ffs(static_cast<int>(unsure)) - 1;
    if (mine.meets(others, first + j, bound)) bits |= 1u << j;
  }
  return bits;
}

// overlaps[i][w] of a block: which of word w's boxes box i overlaps, for the words of its step and all behind it; in
// its own word the boxes before it alone. Words before its step are not written, nor are zeros behind it: marks[i] has
// a bit for each word that is not 0. What an earlier block suppresses overlaps none.
template <bool kClasses, typename C>
__global__ void __launch_bounds__(kCompareThreads)
    find_overlaps(const __grid_constant__ Block block, const __grid_constant__ Ranked<C> ranked,
                  const __grid_constant__ Decisions decisions, C bound) {
  wait_for_kernel_before();
  let_kernel_after_start();
  __shared__ Others<kClasses, C> others;
  const int groups = groups_of(block.words, kGroupWords);
  const int row_word = static_cast<int>(blockIdx.x) / groups, group = static_cast<int>(blockIdx.x) % groups;
  const int first_word = row_word / kStepWords * kStepWords;
  if ((group + 1) * kGroupWords <= first_word) return;
  const int t = static_cast<int>(threadIdx.x), column = group * kCompareThreads + t;
  if (column < block.boxes) {
    others.put(t, ranked, block.first + column);
  } else {
    others.put_none(t);
  }
  __syncthreads();
  const int word = group * kGroupWords + t / kWordBits, row = row_word * kWordBits + t % kWordBits;
  if (word < first_word || word >= block.words || row >= block.boxes) return;
  Word bits = 0;
  if ((decisions.gone[block.first / kWordBits + row_word] >> (t % kWordBits) & 1) == 0) {
    const Mine<kClasses, C> mine(ranked, block.first + row);
    const int first = t / kWordBits * kWordBits;
    const Bound<C> exact(bound);
    bits = meetings(mine, others, first, exact) | static_cast<Word>(meetings(mine, others, first + 32, exact)) << 32;
    if (word == row_word) bits &= lowest(t % kWordBits);
  }
  if (bits == 0 && word >= first_word + kStepWords) return;
  decisions.overlaps[static_cast<int64_t>(row) * block.stride + word] = bits;
  if (bits != 0) atomicOr(&decisions.marks[row].words[word / kWordBits], Word{1} << (word % kWordBits));
}

template <bool kClasses, typename C>
Status enqueue_overlaps(const Block& block, const Scratch<C>& scratch, C bound, Stream stream) {
  const uint32_t blocks = static_cast<uint32_t>(block.words * groups_of(block.words, kGroupWords));
  return launch_early("nms overlap kernel", find_overlaps<kClasses, C>, blocks, kCompareThreads, 0, stream, block,
                      scratch.ranked, scratch.decisions, bound);
}

// Notes which boxes from `first` on the newcomers suppress. A thread has a box, a CTA a part of the newcomers; which of
// several CTAs finds a box first does not show in its bit.
template <bool kClasses, typename C>
__global__ void __launch_bounds__(kCompareThreads)
    strike_out(int64_t first, int32_t num_boxes, int32_t parts, const __grid_constant__ Ranked<C> ranked,
               const __grid_constant__ Decisions decisions, C bound) {
  wait_for_kernel_before();
  let_kernel_after_start();
  __shared__ Others<kClasses, C> others;
  const int t = static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.x % static_cast<uint32_t>(parts)) * kCompareThreads;
  const int left = *decisions.num_newcomers - begin;
  if (left <= 0) return;
  if (t < left) others.put(t, ranked, decisions.newcomers[begin + t]);
  __syncthreads();
  const int64_t rank = first + int64_t{blockIdx.x / static_cast<uint32_t>(parts)} * kCompareThreads + t;
  uint32_t* const gone = reinterpret_cast<uint32_t*>(decisions.gone) + rank / 32;
  const bool is_decided =
      rank >= num_boxes || (*static_cast<volatile uint32_t*>(gone) >> (threadIdx.x % 32) & 1) != 0;
  if (__all_sync(kFullWarp, is_decided)) return;
  const Mine<kClasses, C> mine(ranked, rank < num_boxes ? rank : num_boxes - 1);
  const int count = left < kCompareThreads ? left : kCompareThreads;
  const Bound<C> exact(bound);
  bool found = false;
  for (int place = 0; place < count; ++place) {
    bool is_sure = false, meets = mine.probably_meets(others, place, exact, &is_sure);
    if (!is_sure) meets = mine.meets(others, place, exact);
    found = found || (meets && mine.is_of_class(others, place));
    if (place % kBetweenLooks == kBetweenLooks - 1 && __all_sync(kFullWarp, found || is_decided)) break;
  }
  // A word of 32 boxes begins with a warp's first.
  const uint32_t bits = __ballot_sync(kFullWarp, found && !is_decided);
  if (bits != 0 && threadIdx.x % 32 == 0) atomicOr(gone, bits);
}

template <bool kClasses, typename C>
Status enqueue_strike_out(int64_t first, int32_t num_boxes, const Scratch<C>& scratch, C bound, Stream stream) {
  const int32_t parts = static_cast<int32_t>(kBlockBoxes / kCompareThreads);
  const int64_t blocks = ceil_div(num_boxes - first, kCompareThreads) * parts;
  return launch_early("nms strike kernel", strike_out<kClasses, C>, static_cast<uint32_t>(blocks), kCompareThreads, 0,
                      stream, first, num_boxes, parts, scratch.ranked, scratch.decisions, bound);
}

}  // namespace
}  // namespace baracuda::nms
