// SPDX-License-Identifier: Apache-2.0
// What a call keeps in its workspace on CUDA, and the sizes that its kernels agree on.
#pragma once

#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/nms/math.h"
#include "ops/nms/problem.h"

namespace baracuda::nms {
namespace {

// A word says something of 64 boxes that follow each other in the order of their scores.
using Word = unsigned long long;
constexpr int kWordBits = 64;

// Boxes whose overlaps with each other are written down at a time: 8 MiB of words. A detector's boxes are one block; of
// 200,000 boxes all overlaps would take 5 GB.
constexpr int kBlockWords = 128;
constexpr int64_t kBlockBoxes = int64_t{kBlockWords} * kWordBits;

// Boxes of a block that are decided together.
constexpr int kStepWords = 8;
constexpr int kStepBoxes = kStepWords * kWordBits;

// Records that one CTA sorts.
constexpr int kTile = 1024;

// A score's key and its box: no two are equal, so there is one order.
template <typename C>
struct Scored;
template <>
struct Scored<float> {
  uint64_t both;  // the key above the index
  BARACUDA_HD static Scored of(uint32_t key, int32_t index) {
    return {static_cast<uint64_t>(key) << 32 | static_cast<uint32_t>(index)};
  }
  // Behind every record.
  BARACUDA_HD static Scored none() { return {~uint64_t{0}}; }
  BARACUDA_HD int32_t index() const { return static_cast<int32_t>(static_cast<uint32_t>(both)); }
  BARACUDA_HD bool operator<(const Scored& other) const { return both < other.both; }
};
template <>
struct alignas(16) Scored<double> {
  uint64_t key, place;
  BARACUDA_HD static Scored of(uint64_t key, int32_t index) { return {key, static_cast<uint64_t>(index)}; }
  BARACUDA_HD static Scored none() { return {~uint64_t{0}, ~uint64_t{0}}; }
  BARACUDA_HD int32_t index() const { return static_cast<int32_t>(place); }
  BARACUDA_HD bool operator<(const Scored& other) const {
    return key < other.key || (key == other.key && place < other.place);
  }
};

// Boxes in the order of their scores; all arrays are as long as there are boxes.
template <typename C>
struct Ranked {
  Box<C>* boxes;
  C* areas;
  int64_t* class_ids;  // where the problem has classes
  int32_t* indices;    // where it has scores: without, a box's rank is its index
};

// A bit for each word of a block.
struct alignas(16) Marks {
  static constexpr int kWords = kBlockWords / kWordBits;
  Word words[kWords];
};

// A bit, or a number, for each box or word in the order of the scores.
struct Decisions {
  Word* gone;         // suppressed by a box of an earlier block
  Word* kept;
  int32_t* before;    // how many boxes are kept in earlier words
  Word* overlaps;     // [block's boxes][block's words]; what each word says stands in overlaps.cuh
  Marks* marks;       // [block's boxes]: which of their words of `overlaps` are not 0; zeros between blocks
  int32_t* newcomers; // [kBlockBoxes]: the ranks of what the last block keeps, where others come after it
  int32_t* num_newcomers;
};

template <typename C>
struct Scratch {
  WorkspaceLayout layout;
  Scored<C>* tiles;
  Ranked<C> ranked;
  Decisions decisions;

  Scratch(const Problem& p, void* workspace) {
    const int64_t n = p.num_boxes, words = ceil_div(n, kWordBits);
    const int64_t rows = at_most(n, kBlockBoxes), columns = at_most(words, kBlockWords);
    tiles = workspace_array<Scored<C>>(workspace, layout.reserve<Scored<C>>(p.has_scores ? n : 0));
    ranked.boxes = workspace_array<Box<C>>(workspace, layout.reserve<Box<C>>(n));
    ranked.areas = workspace_array<C>(workspace, layout.reserve<C>(n));
    ranked.class_ids = workspace_array<int64_t>(workspace, layout.reserve<int64_t>(p.has_classes ? n : 0));
    ranked.indices = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.has_scores ? n : 0));
    decisions.gone = workspace_array<Word>(workspace, layout.reserve<Word>(words));
    decisions.kept = workspace_array<Word>(workspace, layout.reserve<Word>(words));
    decisions.before = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(words));
    decisions.overlaps = workspace_array<Word>(workspace, layout.reserve<Word>(rows * columns));
    decisions.marks = workspace_array<Marks>(workspace, layout.reserve<Marks>(rows));
    decisions.newcomers = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(n > kBlockBoxes ? rows : 0));
    decisions.num_newcomers = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(1));
  }
};

// Consecutive boxes in the order of their scores that are decided together.
struct Block {
  int64_t first;   // a multiple of kWordBits
  int32_t boxes, words;
  int32_t stride;  // words between rows of `overlaps`
};

inline Block block_of(const Problem& p, int64_t first) {
  const int64_t boxes = at_most(p.num_boxes - first, kBlockBoxes);
  return {first, static_cast<int32_t>(boxes), static_cast<int32_t>(ceil_div(boxes, kWordBits)),
          static_cast<int32_t>(at_most(ceil_div(p.num_boxes, kWordBits), kBlockWords))};
}

#if defined(__CUDACC__)
// The lowest `count` bits of a word.
__device__ __forceinline__ Word lowest(int32_t count) {
  return count >= kWordBits ? ~Word{0} : (Word{1} << count) - 1;
}
#endif

}  // namespace
}  // namespace baracuda::nms
