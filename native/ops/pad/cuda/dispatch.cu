// SPDX-License-Identifier: Apache-2.0
// Pad on CUDA: a thread owns one aligned 16-byte vector of the destination. Where every element has one source the
// vector is copied, shifted into place; elsewhere its words are gathered or summed: by the thread itself where elements
// have few images (images.cuh), and without a branch of its own where they have one an axis (planes.cuh).
// Where the destination is one run its rows are found in 32 bits, and edges are joined from two copies (rows.cuh).
// Short rows are moved by a lane each (short_rows.cuh), other small tensors are staged (tiles.cuh). Words of 16 bytes
// that lie between vectors are moved one by one (halves.cuh).
#include "core/checked.h"
#include "ops/pad/cuda/halves.cuh"
#include "ops/pad/cuda/images.cuh"
#include "ops/pad/cuda/planes.cuh"
#include "ops/pad/cuda/rows.cuh"
#include "ops/pad/cuda/short_rows.cuh"
#include "ops/pad/cuda/slice.cuh"
#include "ops/pad/cuda/tiles.cuh"

namespace baracuda::pad {
namespace {

// One vector a thread and one shot: blocks start in address order, which DRAM rewards (loops and unrolling cost 2-5 %).
// Where edges fold they last longer than copies, and small blocks keep fewer warps waiting for them.
template <bool kFolds>
constexpr int kMoveThreads = kFolds ? 128 : 512;
constexpr int kSumThreads = 256;

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

// A vector that is no copy, as its words' later owners need it.
struct Edge {
  char* destination;  // of word 0
  int32_t first;      // word 0 among the slice's elements
  int16_t begin, end;
};

// Places are products of at most this many axes; more are rare enough for local memory.
constexpr int kSumAxes = 3;

template <typename T>
__device__ __noinline__ T sum_over_many_axes(const Slice<T>& s, const uint32_t* indices, int64_t source) {
  Steps steps[kMaxRank];
#pragma unroll 1
  for (int a = 0; a < s.rank; ++a) {
    const DeviceAxis& axis = s.axes[a];
    if (axis.repeats) steps[axis.place] = {preimages_of(axis.padded, indices[a] - axis.origin), axis.source_stride};
  }
  const auto load = [&s](int64_t place) { return *reinterpret_cast<const T*>(s.source + place); };
  return sum_over<T>(steps, s.repeating, source, load);
}

// One element, added up.
template <typename T>
__device__ __forceinline__ T sum_element(const Slice<T>& s, uint32_t element) {
  // The outermost axis of the sum first. Where there are fewer, the others have one place, which costs nothing.
  Steps steps[kSumAxes];
#pragma unroll
  for (int j = 0; j < kSumAxes; ++j) steps[j] = {{0, 1, 0, 0}, 0};
  int64_t source = 0;
  uint32_t rest = element;
  uint32_t indices[kMaxAxes];
#pragma unroll
  for (int a = 0; a < kMaxAxes; ++a) {
    if (a >= s.rank) break;
    const DeviceAxis& axis = s.axes[a];
    const uint32_t above = axis.extent.divide(rest);
    const uint32_t index = rest - above * axis.extent.divisor;
    rest = above;
    if (s.repeating > kSumAxes) indices[a] = index;
    if (!axis.repeats) {
      const uint32_t offset = index - axis.begin;
      if (offset >= axis.count) return T{};
      source += static_cast<int32_t>(offset) * axis.source_stride;
      continue;
    }
    const uint32_t kept = index - axis.origin;
    if (kept >= axis.padded.kept) return T{};
    source -= static_cast<int64_t>(axis.first) * axis.source_stride;
    if (s.repeating > kSumAxes) continue;
    const Preimages places = preimages_of(axis.padded, kept);
#pragma unroll
    for (int j = 0; j < kSumAxes; ++j) {
      if (axis.place == j) steps[j] = {places, axis.source_stride};
    }
  }
  if (s.repeating > kSumAxes) return sum_over_many_axes(s, indices, source);
  const auto load = [&s](int64_t place) { return *reinterpret_cast<const T*>(s.source + place); };
  Sum<T> sum;
  for_each_place(steps[0], source, [&](int64_t plane) {
    for_each_place(steps[1], plane, [&](int64_t row) { add_along(steps[2], row, load, &sum); });
  });
  return sum.result();
}

// Sums of any kind.
template <typename T>
__global__ void __launch_bounds__(kSumThreads) write_sums(const __grid_constant__ Slice<T> s) {
  constexpr int32_t kWords = kVectorBytes / sizeof(T);
  __shared__ Edge edges[kSumThreads];
  __shared__ int32_t edge_count;
  if (threadIdx.x == 0) edge_count = 0;
  __syncthreads();
  const uint32_t thread = blockIdx.x * kSumThreads + threadIdx.x;
  if (thread < s.threads) {
    const Run<T> run = run_of<false>(s, thread);
    const Span span = span_of<T>(run.slot, run.destination, s.run_extent);
    if (span.begin < span.end && !copy_vector(s, span, pieces_of<false>(s, span, run.row))) {
      const int32_t first = static_cast<int32_t>(run.number * s.run_extent) + span.first;
      // Whoever comes first: every word has one owner all the same.
      edges[atomicAdd(&edge_count, 1)] = {span.destination, first, static_cast<int16_t>(span.begin),
                                          static_cast<int16_t>(span.end)};
    }
  }
  __syncthreads();
  // Few vectors are at an edge, and a warp is as slow as its slowest thread: so their words are dealt out anew.
  const int32_t words = edge_count * kWords;
#pragma unroll 1
  for (int32_t word = static_cast<int32_t>(threadIdx.x); word < words; word += kSumThreads) {
    const Edge edge = edges[word / kWords];
    const int32_t k = word % kWords;
    if (k < edge.begin || k >= edge.end) continue;
    reinterpret_cast<T*>(edge.destination)[k] = sum_element(s, static_cast<uint32_t>(edge.first + k));
  }
}

template <typename Word>
Status launch_slice(const Problem& p, const Moves<Word>& b, Stream stream) {
  const Slice<Word> s = make_slice(p, b.source, b.destination, b.value);
  if constexpr (sizeof(Word) <= kBankBytes) {
    ShortRows rows;
    if (find_short_rows(s, &rows)) {
      return launch_kernel("pad kernel", write_short_rows<Word>, blocks_for(rows.count, kShortThreads), kShortThreads,
                           0, stream, s, source_vectors(s), rows);
    }
  }
  Tiles tiles{};
  if (cut_into_tiles(p, s, false, &tiles)) {
    uint32_t blocks = 0;
    BARACUDA_RETURN_IF_FAILED(blocks_that_share(tiles, &blocks));
    return launch_kernel("staged pad kernel", write_tiles<Word, false>, blocks, kTileThreads, tiles.shared_bytes,
                         stream, s, tiles);
  }
  if constexpr (sizeof(Word) < kVectorBytes) {
    if (s.compact && s.folds) {
      return launch_kernel("pad kernel", write_folded<Word>, blocks_for(s.threads, kFoldThreads), kFoldThreads, 0,
                           stream, s, source_vectors(s));
    }
    // Where nothing is filled and rows are whole vectors, all are plain copies.
    constexpr int64_t kWords = kVectorBytes / sizeof(Word);
    const bool copies = sizeof(Word) > 2 && is_filled_nowhere(s) && s.axes[0].extent.divisor % kWords == 0;
    if (s.compact && !s.folds && !copies && s.axes[0].count >= kWords) {
      return launch_kernel("pad kernel", write_filled<Word>, blocks_for(s.threads, kFillThreads), kFillThreads, 0,
                           stream, s, source_vectors(s));
    }
  }
  const int threads = s.folds ? kMoveThreads<true> : kMoveThreads<false>;
  return launch_kernel("pad kernel", s.folds ? write_vectors<Word, true> : write_vectors<Word, false>,
                       blocks_for(s.threads, threads), threads, 0, stream, s);
}

template <typename T>
Status launch_slice(const Problem& p, const Sums<T>& b, Stream stream) {
  const Slice<T> s = make_slice(p, b.source, b.destination, T{});
  Tiles tiles{};
  if (cut_into_tiles(p, s, true, &tiles)) {
    uint32_t blocks = 0;
    BARACUDA_RETURN_IF_FAILED(blocks_that_share(tiles, &blocks));
    return launch_kernel("staged pad gradient kernel", write_tiles<T, true>, blocks, kTileThreads, tiles.shared_bytes,
                         stream, s, tiles);
  }
  ImageSums sums;
  if (find_images(s, &sums)) {
    if constexpr (sizeof(T) >= 4) {
      PlaneSums planes;
      if (find_planes(s, sums, &planes)) {
        return launch_kernel("pad gradient kernel",
                             planes.only_ends ? write_plane_sums<T, true> : write_plane_sums<T, false>,
                             blocks_for(planes.vectors, kPlaneThreads), kPlaneThreads, 0, stream, planes);
      }
    }
    return launch_kernel("pad gradient kernel", write_image_sums<T>, blocks_for(s.threads, kImageThreads),
                         kImageThreads, 0, stream, s, sums);
  }
  return launch_kernel("pad gradient kernel", write_sums<T>, blocks_for(s.threads, kSumThreads), kSumThreads, 0, stream,
                       s);
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

// Words of 16 bytes that are vectors where they lie.
struct alignas(kVectorBytes) AlignedWord128 {
  uint64_t low, high;
};

Status run(const Problem& p, const Moves<Word128>& b, void*, Stream stream) {
  const auto places = reinterpret_cast<uint64_t>(b.source) | reinterpret_cast<uint64_t>(b.destination);
  if (places % kVectorBytes == 0) {
    return launch_slices(p,
                         Moves<AlignedWord128>{reinterpret_cast<const AlignedWord128*>(b.source),
                                               reinterpret_cast<AlignedWord128*>(b.destination),
                                               bits_as<AlignedWord128>(b.value)},
                         0, stream);
  }
  return launch_kernel("pad kernel", write_halves, blocks_for(p.numel, kHalfThreads), kHalfThreads, 0, stream, p, b);
}

}  // namespace

#define BARACUDA_PROVIDE(BUFFERS) BARACUDA_PROVIDE_LAUNCH(Problem, BUFFERS)
BARACUDA_PAD_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::pad
