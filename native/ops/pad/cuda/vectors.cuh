// SPDX-License-Identifier: Apache-2.0
// Moves of any kind, by aligned vectors of the destination: a vector inside a row of the source is copied, shifted into
// place; the words of the others are gathered.
#pragma once

#include "ops/pad/cuda/slice.cuh"

namespace baracuda::pad {
namespace {

// One vector a thread and one shot: blocks start in address order, which DRAM rewards (loops and unrolling cost 2-5 %).
// Where edges fold they last longer than copies, and small blocks keep fewer warps waiting for them.
template <bool kFolds>
constexpr int kMoveThreads = kFolds ? 128 : 512;

template <typename Word, bool kFolds>
__global__ void __launch_bounds__(kMoveThreads<kFolds>) write_vectors(const __grid_constant__ Slice<Word> s) {
  constexpr int32_t kWords = kVectorBytes / sizeof(Word);
  const uint32_t thread = blockIdx.x * kMoveThreads<kFolds> + threadIdx.x;
  if (thread >= s.threads) return;
  const Run<Word> run = run_of<kFolds>(s, thread);
  const Span span = span_of<Word>(run.slot, run.destination, s.run_extent);
  if (span.begin >= span.end) return;
  const Pieces pieces = pieces_of<kFolds>(s, span, run.row);
  if (copy_vector(s, span, pieces)) return;
  const DeviceAxis& inner = s.axes[0];
  Word words[kWords];
#pragma unroll
  for (int32_t k = 0; k < kWords; ++k) {
    if (k < span.begin || k >= span.end) continue;
    const bool first = k < pieces.split;
    const int64_t row = first ? pieces.first.source : pieces.second.source;
    const uint32_t position = (first ? pieces.first.position : pieces.second.position) + static_cast<uint32_t>(k);
    int32_t place = static_cast<int32_t>(position);
    words[k] = s.value;
    if (position >= inner.count) {
      if (!kFolds) continue;
      place = folded(inner, inner.begin + position);
    }
    words[k] = *reinterpret_cast<const Word*>(s.source + (row + place * inner.source_stride));
  }
  store(span, words);
}

}  // namespace
}  // namespace baracuda::pad
