// SPDX-License-Identifier: Apache-2.0
// Decides on CUDA which boxes of a block are kept. Box after box depends on those before it, so one CTA does it, in
// steps: a thread has a box of the step and learns, round after round, whether one that it overlaps is kept; then all
// threads strike out what the step's kept boxes overlap in later steps.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "ops/nms/cuda/scratch.cuh"

namespace baracuda::nms {
namespace {

// One for each box of a step and each word of its marks.
constexpr int kDecideThreads = kStepBoxes * Marks::kWords;
static_assert(kBlockWords <= kDecideThreads, "a thread has at most one word of a block");
// Words of a row that a thread strikes out with at a time.
constexpr int kWordsAtOnce = 3;
// Warps whose boxes share a word.
constexpr int kHalves = kWordBits / 32;

// What is known of a step's boxes in a round: those that are neither kept nor gone yet, and those that are kept.
struct StepState {
  uint32_t open[kStepWords * kHalves];
  uint32_t kept[kStepWords * kHalves];

  __device__ __forceinline__ Word open_word(int k) const { return joined(open, k); }
  __device__ __forceinline__ Word kept_word(int k) const { return joined(kept, k); }

 private:
  static __device__ __forceinline__ Word joined(const uint32_t* halves, int k) {
    return static_cast<Word>(halves[k * kHalves + 1]) << 32 | halves[k * kHalves];
  }
};

struct DecisionTables {
  Word gone[kBlockWords];
  Word kept[kBlockWords];
  int32_t before[kBlockWords];  // boxes that are kept in earlier words of the block
  StepState states[2];          // of a round, and of the one after it
};

// The boxes of a step that a thread's box overlaps and that come before it.
struct Earlier {
  Word words[kStepWords];
};

__device__ __forceinline__ Earlier fetch_earlier(const Block& block, const Decisions& decisions, int step) {
  Earlier earlier{};
  const int own = static_cast<int>(threadIdx.x), row = step * kStepBoxes + own;
  if (own >= kStepBoxes || row >= block.boxes) return earlier;
  const Word* const from = decisions.overlaps + static_cast<int64_t>(row) * block.stride + step * kStepWords;
#pragma unroll
  for (int k = 0; k < kStepWords; ++k) {
    if (k <= own / kWordBits) earlier.words[k] = from[k];
  }
  return earlier;
}

// Decides a step and answers the number of the state that knows it. In every round a box goes if one that it overlaps
// before it is kept, and stays if none of them is kept or open; the first open box always is one or the other.
__device__ __forceinline__ int decide_step(const Block& block, DecisionTables& tables, const Earlier& earlier,
                                           int step) {
  const int own = static_cast<int>(threadIdx.x), warp = own / 32, lane = own % 32;
  if (own < kStepWords) {
    const int word = step * kStepWords + own;
    const Word open = word < block.words ? lowest(block.boxes - word * kWordBits) & ~tables.gone[word] : 0;
    for (int half = 0; half < kHalves; ++half) {
      tables.states[0].open[own * kHalves + half] = static_cast<uint32_t>(open >> (32 * half));
      tables.states[0].kept[own * kHalves + half] = 0;
    }
  }
  __syncthreads();
  int number = 0;
  bool is_open = false;
  do {
    const StepState& now = tables.states[number];
    is_open = false;
    if (own < kStepBoxes) {
      Word by_kept = 0, by_any = 0;
#pragma unroll
      for (int k = 0; k < kStepWords; ++k) {
        const Word kept = now.kept_word(k);
        by_kept |= earlier.words[k] & kept;
        by_any |= earlier.words[k] & (kept | now.open_word(k));
      }
      is_open = (now.open[warp] >> lane & 1) != 0;
      const uint32_t stays = __ballot_sync(kFullWarp, is_open && by_any == 0);
      const uint32_t goes = __ballot_sync(kFullWarp, is_open && by_kept != 0);
      if (lane == 0) {
        tables.states[1 - number].kept[warp] = now.kept[warp] | stays;
        tables.states[1 - number].open[warp] = now.open[warp] & ~(stays | goes);
      }
      is_open = is_open && ((stays | goes) >> lane & 1) == 0;
    }
    number = 1 - number;
  } while (__syncthreads_or(is_open));
  return number;
}

// Which words behind its step a thread's row has that are not 0. Several threads share a row, each has some of them.
__device__ __forceinline__ Word fetch_marks(const Block& block, const Decisions& decisions, int step) {
  const int row = step * kStepBoxes + static_cast<int>(threadIdx.x) % kStepBoxes;
  const int part = static_cast<int>(threadIdx.x) / kStepBoxes;
  if (row >= block.boxes) return 0;
  return decisions.marks[row].words[part] & ~lowest(max((step + 1) * kStepWords - part * kWordBits, 0));
}

// Strikes out what the boxes that a step keeps overlap in later steps: few words of a row say something, and the others
// are not read.
__device__ __forceinline__ void strike_out_later(const Block& block, const Decisions& decisions,
                                                 DecisionTables& tables, const StepState& decided, Word marks,
                                                 int step) {
  const int own = static_cast<int>(threadIdx.x) % kStepBoxes;
  if ((decided.kept[own / 32] >> (own % 32) & 1) == 0) return;
  const int first = static_cast<int>(threadIdx.x) / kStepBoxes * kWordBits;
  const Word* const row = decisions.overlaps + static_cast<int64_t>(step * kStepBoxes + own) * block.stride + first;
  uint32_t* const gone = reinterpret_cast<uint32_t*>(tables.gone + first);
  while (marks != 0) {
    Word found[kWordsAtOnce];
    int words[kWordsAtOnce];
#pragma unroll
    for (int k = 0; k < kWordsAtOnce; ++k) {
      words[k] = marks != 0 ? __ffsll(static_cast<long long>(marks)) - 1 : 0;
      found[k] = marks != 0 ? row[words[k]] : 0;
      marks &= marks - 1;
    }
#pragma unroll
    for (int k = 0; k < kWordsAtOnce; ++k) {
      const uint32_t low = static_cast<uint32_t>(found[k]), high = static_cast<uint32_t>(found[k] >> 32);
      if (low != 0) atomicOr(gone + 2 * words[k], low);
      if (high != 0) atomicOr(gone + 2 * words[k] + 1, high);
    }
  }
}

// One CTA. `has_later` asks for the list of newcomers.
__global__ void __launch_bounds__(kDecideThreads)
    decide_block(const __grid_constant__ Block block, const __grid_constant__ Decisions decisions, bool has_later) {
  wait_for_kernel_before();
  let_kernel_after_start();
  __shared__ DecisionTables tables;
  const int t = static_cast<int>(threadIdx.x);
  const int64_t first_word = block.first / kWordBits;
  if (t < block.words) tables.gone[t] = decisions.gone[first_word + t];
  Earlier earlier = fetch_earlier(block, decisions, 0);
  __syncthreads();
  const int steps = groups_of(block.words, kStepWords);
  for (int step = 0; step < steps; ++step) {
    // On their way while the step is decided.
    const Word marks = fetch_marks(block, decisions, step);
    const Earlier next = fetch_earlier(block, decisions, step + 1);
    const StepState& decided = tables.states[decide_step(block, tables, earlier, step)];
    if (t < kStepWords && step * kStepWords + t < block.words) {
      tables.kept[step * kStepWords + t] = decided.kept_word(t);
    }
    strike_out_later(block, decisions, tables, decided, marks, step);
    earlier = next;
    __syncthreads();
  }
  const int32_t earlier_blocks =
      block.first == 0 ? 0 : decisions.before[first_word - 1] + __popcll(decisions.kept[first_word - 1]);
  if (t < block.words) {
    int32_t before = 0;
    for (int word = 0; word < t; ++word) before += __popcll(tables.kept[word]);
    tables.before[t] = before;
    decisions.kept[first_word + t] = tables.kept[t];
    decisions.before[first_word + t] = earlier_blocks + before;
    if (has_later && t == block.words - 1) *decisions.num_newcomers = before + __popcll(tables.kept[t]);
  }
  if (!has_later) return;
  __syncthreads();
  for (int row = t; row < block.boxes; row += kDecideThreads) {
    const Word kept = tables.kept[row / kWordBits];
    if ((kept >> (row % kWordBits) & 1) == 0) continue;
    const int place = tables.before[row / kWordBits] + __popcll(kept & lowest(row % kWordBits));
    decisions.newcomers[place] = static_cast<int32_t>(block.first + row);
  }
  // The next block begins without marks.
  for (int row = t; row < block.boxes; row += kDecideThreads) decisions.marks[row] = {};
}

inline Status enqueue_decisions(const Block& block, const Decisions& decisions, bool has_later, Stream stream) {
  return launch_early("nms decision kernel", decide_block, 1, kDecideThreads, 0, stream, block, decisions, has_later);
}

}  // namespace
}  // namespace baracuda::nms
