// SPDX-License-Identifier: Apache-2.0
// Pad on CUDA: a thread owns one aligned 16-byte vector of the destination. Where every element has one source the vector
// is copied, shifted into place; elsewhere its words are gathered or summed. Small tensors are staged (cuda_tiles.cuh).
#include "core/checked.h"
#include "ops/pad/cuda_slice.cuh"
#include "ops/pad/cuda_tiles.cuh"

namespace baracuda::pad {
namespace {

// One vector a thread and one shot: blocks start in address order, which DRAM rewards (loops and unrolling cost 2-5 %).
constexpr int kMoveThreads = 512;
// The threads at an edge are slow, and a block is as slow as its slowest.
constexpr int kSumThreads = 128;

template <typename Word, bool kFolds>
__global__ void __launch_bounds__(kMoveThreads) write_vectors(const __grid_constant__ Slice<Word> s) {
  constexpr int32_t kWords = kVectorBytes / sizeof(Word);
  const uint32_t thread = blockIdx.x * kMoveThreads + threadIdx.x;
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
    const Stretch& piece = k < pieces.split ? pieces.first : pieces.second;
    const uint32_t position = piece.position + static_cast<uint32_t>(k);
    int32_t place = static_cast<int32_t>(position);
    words[k] = s.value;
    if (position >= inner.count) {
      if (!kFolds) continue;
      place = folded(inner, inner.begin + position);
    }
    words[k] = *reinterpret_cast<const Word*>(s.source + (piece.source + place * inner.source_stride));
  }
  store(span, words);
}

// The source rows of one row of the destination, in the order of the sum; `source` is where each begins: source index 0
// of the innermost axis.
struct SourceRows {
  Steps steps[kMaxRank];
  int64_t source;
  uint32_t rows;
  uint32_t column;
  bool inside;
};

template <typename T>
__device__ __forceinline__ SourceRows source_rows(const Slice<T>& s, uint32_t element) {
  SourceRows found;
  found.source = 0;
  found.rows = 1;
  found.inside = true;
  uint32_t rest = element;
#pragma unroll
  for (int a = 0; a < kMaxAxes; ++a) {
    if (a >= s.rank) break;
    const DeviceAxis& axis = s.axes[a];
    const uint32_t above = axis.extent.divide(rest);
    const uint32_t index = rest - above * axis.extent.divisor;
    rest = above;
    if (a == 0) {
      found.column = index;
      if (axis.repeats) found.source -= static_cast<int64_t>(axis.first) * axis.source_stride;
    } else if (axis.repeats) {
      const uint32_t kept = index - axis.origin;
      found.inside = found.inside && kept < axis.padded.kept;
      if (!found.inside) break;
      const Preimages places = preimages_of(axis.padded, kept);
      found.steps[axis.place] = {places, axis.source_stride};
      found.rows *= places.count;
      found.source -= static_cast<int64_t>(axis.first) * axis.source_stride;
    } else {
      const uint32_t offset = index - axis.begin;
      found.inside = found.inside && offset < axis.count;
      found.source += static_cast<int32_t>(offset) * axis.source_stride;
    }
  }
  return found;
}

// Where else an element of the innermost axis is found, when it is found at most once on either side of its own place,
// or in a run: `below` places from `below_first` on, `above` places from `above_first` on.
struct Images {
  uint32_t below_first, below, above_first, above;
};

__device__ __forceinline__ Images images_of(const PaddedAxis& axis, uint32_t i) {
  const uint32_t place = axis.low + i, beyond = axis.extent - 1 - place;
  if (axis.period == 0) return {0, i == 0 ? place : 0, place + 1, i + 1 == axis.kept ? beyond : 0};
  uint32_t down = 2 * i + (axis.period - axis.mirror), up = axis.mirror - 2 * i;
  if (axis.mirror == 0 || down == 0 || up == 0) down = up = axis.period;
  return {place - down, place >= down ? 1u : 0u, place + up, beyond >= up ? 1u : 0u};
}

// Whether images_of is the whole story.
__device__ __forceinline__ bool has_few_images(const PaddedAxis& axis) {
  return axis.period == 0 || (axis.low < axis.kept && axis.extent - axis.low < 2 * axis.kept);
}

// Words [begin, end) of a vector, all in the row that `found` describes.
template <typename T>
__device__ __forceinline__ void add_words(const Slice<T>& s, const SourceRows& found, int32_t begin, int32_t end,
                                          T (&words)[kVectorBytes / sizeof(T)]) {
  constexpr int32_t kWords = kVectorBytes / sizeof(T);
  const DeviceAxis& inner = s.axes[0];
  const int64_t stride = inner.source_stride;
  const uint32_t origin = inner.repeats ? inner.origin : inner.begin;
  const uint32_t kept = inner.repeats ? inner.padded.kept : inner.count;
  Compute<T> sums[kWords] = {};
  uint32_t alone = found.rows == 1 ? ~0u : 0u;
  const auto add_row = [&](int64_t row) {
    const auto load = [&](uint32_t place) { return *reinterpret_cast<const T*>(s.source + (row + place * stride)); };
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      const uint32_t i = found.column + static_cast<uint32_t>(k - begin) - origin;
      if (k < begin || k >= end || i >= kept) continue;
      Images images{0, 0, 0, 0};
      if (inner.repeats) images = images_of(inner.padded, i);
      for (uint32_t j = 0; j < images.below; ++j) sums[k] += widen(load(images.below_first + j));
      words[k] = load(i + (inner.repeats ? inner.padded.low : 0));
      sums[k] += widen(words[k]);
      for (uint32_t j = 0; j < images.above; ++j) sums[k] += widen(load(images.above_first + j));
      if (images.below + images.above > 0) alone &= ~(1u << k);
    }
  };
  for_each_row(found.steps, s.repeating - inner.repeats, found.source, add_row);
#pragma unroll
  for (int32_t k = 0; k < kWords; ++k) {
    if (k < begin || k >= end) continue;
    const uint32_t i = found.column + static_cast<uint32_t>(k - begin) - origin;
    if (i >= kept) {
      words[k] = T{};
    } else if ((alone >> k & 1) == 0) {
      words[k] = narrow<T>(sums[k]);
    }
  }
}

// The same, whatever the order of the axes and the number of terms.
template <typename T>
__device__ __noinline__ T sum_element(const Slice<T>& s, SourceRows& found, uint32_t column) {
  const DeviceAxis& inner = s.axes[0];
  int32_t count = s.repeating;
  int64_t source = found.source;
  if (inner.repeats) {
    const uint32_t i = column - inner.origin;
    if (i >= inner.padded.kept) return T{};
    found.steps[inner.place] = {preimages_of(inner.padded, i), inner.source_stride};
  } else {
    const uint32_t offset = column - inner.begin;
    if (offset >= inner.count) return T{};
    source += offset * inner.source_stride;
  }
  const auto load = [&s](int64_t place) { return *reinterpret_cast<const T*>(s.source + place); };
  return sum_over<T>(found.steps, count, source, load);
}

template <typename T>
__global__ void __launch_bounds__(kSumThreads) write_sums(const __grid_constant__ Slice<T> s) {
  constexpr int32_t kWords = kVectorBytes / sizeof(T);
  const uint32_t thread = blockIdx.x * kSumThreads + threadIdx.x;
  if (thread >= s.threads) return;
  const Run<T> run = run_of<false>(s, thread);
  const Span span = span_of<T>(run.slot, run.destination, s.run_extent);
  if (span.begin >= span.end) return;
  if (copy_vector(s, span, pieces_of<false>(s, span, run.row))) return;
  T words[kWords] = {};
  const uint32_t first = run.number * s.run_extent + static_cast<uint32_t>(span.first);
  const DeviceAxis& inner = s.axes[0];
  const bool simple = s.inner_is_last && (!inner.repeats || has_few_images(inner.padded));
  // No element of a row has more terms than this times the rows.
  const uint32_t most = !inner.repeats ? 1 : (inner.padded.period != 0 ? 3 : inner.padded.extent);
#pragma unroll 1
  for (int32_t begin = span.begin; begin < span.end;) {
    SourceRows found = source_rows(s, first + static_cast<uint32_t>(begin));
    const int32_t rest = static_cast<int32_t>(inner.extent.divisor - found.column);
    const int32_t end = span.end - begin < rest ? span.end : begin + rest;
    if (found.inside && simple && most <= kTermsInPartial && found.rows <= kTermsInPartial / most) {
      add_words(s, found, begin, end, words);
    } else if (found.inside) {
#pragma unroll
      for (int32_t k = 0; k < kWords; ++k) {
        if (k >= begin && k < end) words[k] = sum_element(s, found, found.column + static_cast<uint32_t>(k - begin));
      }
    }
    begin = end;
  }
  store(span, words);
}

template <typename Word>
Status launch_slice(const Problem& p, const Moves<Word>& b, Stream stream) {
  const Slice<Word> s = make_slice(p, b.source, b.destination, b.value);
  Tiles tiles{};
  if (cut_into_tiles(p, s, false, &tiles)) {
    return launch_kernel("staged pad kernel", write_tiles<Word, false>, blocks_for(tiles.count, tiles.per_block),
                         kTileThreads, tiles.shared_bytes, stream, s, tiles);
  }
  return launch_kernel("pad kernel", s.folds ? write_vectors<Word, true> : write_vectors<Word, false>,
                       blocks_for(s.threads, kMoveThreads), kMoveThreads, 0, stream, s);
}

template <typename T>
Status launch_slice(const Problem& p, const Sums<T>& b, Stream stream) {
  const Slice<T> s = make_slice(p, b.source, b.destination, T{});
  Tiles tiles{};
  if (cut_into_tiles(p, s, true, &tiles)) {
    return launch_kernel("staged pad gradient kernel", write_tiles<T, true>, blocks_for(tiles.count, tiles.per_block),
                         kTileThreads, tiles.shared_bytes, stream, s, tiles);
  }
  return launch_kernel("pad gradient kernel", write_sums<T>, blocks_for(s.threads, kSumThreads), kSumThreads, 0, stream, s);
}

// Cuts the problem until a launch can count its elements, the outermost axes first.
template <typename Buffers>
Status launch_slices(const Problem& p, const Buffers& b, int32_t axis, Stream stream) {
  if (p.numel <= kSliceElements) return launch_slice(p, b, stream);
  const Axis& outer = p.axes[axis];
  const int64_t inner = p.numel / outer.extent;
  const int64_t step = inner < kSliceElements ? kSliceElements / inner : 1;
  for (int64_t first = 0; first < outer.extent; first += step) {
    const int64_t count = step < outer.extent - first ? step : outer.extent - first;
    Buffers part = b;
    part.destination += first * outer.stride;
    BARACUDA_RETURN_IF_FAILED(launch_slices(part_of(p, axis, first, count), part, axis + 1, stream));
  }
  return Status::kOk;
}

template <typename Buffers>
Status run(const Problem& p, const Buffers& b, void*, Stream stream) {
  return launch_slices(p, b, 0, stream);
}

}  // namespace

BARACUDA_PROVIDE_LAUNCH(Problem, Moves<uint8_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Moves<uint16_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Moves<uint32_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Moves<uint64_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Moves<Word128>)
BARACUDA_PROVIDE_LAUNCH(Problem, Sums<float>)
BARACUDA_PROVIDE_LAUNCH(Problem, Sums<double>)
BARACUDA_PROVIDE_LAUNCH(Problem, Sums<Half>)
BARACUDA_PROVIDE_LAUNCH(Problem, Sums<Bfloat16>)

}  // namespace baracuda::pad
