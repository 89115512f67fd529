// SPDX-License-Identifier: Apache-2.0
// Pad on CUDA: a thread owns one aligned 16-byte vector of the destination. Long rows read their source directly,
// shifted into place; short rows stage it in shared memory.
#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "ops/pad/launch.h"
#include "ops/pad/math.h"

namespace baracuda::pad {
namespace {

// One vector a thread and one shot: blocks start in address order, which DRAM rewards (loops and unrolling cost 2-5 %).
constexpr int kThreads = 512;
// Blocks that wait for their stage are small, so that many wait at once.
constexpr int kStagedThreads = 128;
constexpr int kVectorBytes = 16;
// Rows below this are staged: many of their vectors hold pieces of two rows, or of a row and its padding, which are
// gathered word by word.
constexpr int64_t kStagedRowBytes = 128;
// Room for a block's source: as much as it writes, twice over.
constexpr int kStageVectors = 2 * kStagedThreads + 2;
// Elements per launch: every index, and one thread an element, then fits the 31 bits that division needs.
constexpr int64_t kSliceElements = int64_t{1} << 30;
constexpr int kMaxAxes = kMaxRank + 1;

// An axis as a thread needs it; strides in bytes.
struct DeviceAxis {
  Divider extent;
  uint32_t begin, count;  // the window
  int64_t stride, source_stride;
};

// What one launch writes. The innermost axes that are contiguous in the destination make up a run, which is cut into
// aligned vectors wherever it starts; the others choose the run.
template <typename Word>
struct Slice {
  DeviceAxis axes[kMaxAxes];  // innermost first
  int32_t rank, axes_in_run;
  uint32_t runs, run_extent;
  uint32_t threads;
  Divider slots;  // threads per run
  char* destination;
  const char* source;                    // the first element inside every window; other places are bytes from here
  int64_t readable_begin, readable_end;  // what of the source may be touched
  bool dense_rows;                       // whether neighbours in a row are neighbours in the source
  Word value;
};

// A row of the destination: `source` is the place of the first column of its window.
struct Row {
  int64_t source;
  uint32_t column;
  bool inside;
};

__device__ __forceinline__ void enter_axis(const DeviceAxis& axis, uint32_t index, Row* row) {
  const uint32_t offset = index - axis.begin;
  row->inside = row->inside && offset < axis.count;
  row->source += offset * axis.source_stride;
}

// The row and column of an element of a run.
template <typename Word>
__device__ __forceinline__ Row row_at(const Slice<Word>& s, uint32_t element, Row row) {
  uint32_t rest = element;
#pragma unroll
  for (int a = 0; a < kMaxAxes; ++a) {
    const DeviceAxis& axis = s.axes[a];
    const bool last = a + 1 == s.axes_in_run;
    const uint32_t above = last ? 0 : axis.extent.divide(rest);
    const uint32_t index = rest - above * axis.extent.divisor;
    if (a == 0) {
      row.column = index;
    } else {
      enter_axis(axis, index, &row);
    }
    if (last) break;
    rest = above;
  }
  return row;
}

// Where a thread's vector lies: word k of it is element first + k of the run, for k in [begin, end).
struct Span {
  char* destination;  // of word 0, aligned
  int32_t first;
  int32_t begin, end;
};

template <typename Word>
__device__ __forceinline__ Span span_of(const Slice<Word>& s, uint32_t slot, char* run) {
  constexpr int32_t kWords = kVectorBytes / sizeof(Word);
  const int32_t head = static_cast<int32_t>(reinterpret_cast<uint64_t>(run) % kVectorBytes / sizeof(Word));
  Span span;
  span.first = static_cast<int32_t>(slot) * kWords - head;
  span.destination = run + static_cast<int64_t>(span.first) * static_cast<int64_t>(sizeof(Word));
  span.begin = span.first < 0 ? -span.first : 0;
  const int32_t rest = static_cast<int32_t>(s.run_extent) - span.first;
  span.end = rest < kWords ? rest : kWords;
  return span;
}

// A vector's words in one row: word k has window position `position` + k, and a source when that is below the window's
// count. kOutside stays above every count whatever is added.
constexpr uint32_t kOutside = 0x80000000u;
struct Stretch {
  int64_t source;
  uint32_t position;
};

// A vector holds pieces of at most two rows: words from `split` on lie in the second.
struct Pieces {
  Stretch first, second;
  int32_t split;
};

template <typename Word>
__device__ __forceinline__ Pieces pieces_of(const Slice<Word>& s, const Span& span, Row run) {
  const uint32_t window = s.axes[0].begin;
  const Row row = row_at(s, static_cast<uint32_t>(span.first + span.begin), run);
  const int32_t column = static_cast<int32_t>(row.column) - span.begin;  // of word 0
  Pieces pieces;
  pieces.first = {row.source, row.inside ? static_cast<uint32_t>(column) - window : kOutside};
  pieces.second = {0, kOutside};
  pieces.split = static_cast<int32_t>(s.axes[0].extent.divisor) - column;
  if (pieces.split < span.end) {
    const Row next = row_at(s, static_cast<uint32_t>(span.first + pieces.split), run);
    if (next.inside) pieces.second = {next.source, 0u - static_cast<uint32_t>(pieces.split) - window};
  }
  return pieces;
}

// Words that are inside come from `load(row's source, position)`; the others are what the mode puts there.
template <typename Word, typename Load>
__device__ __forceinline__ void gather(const Slice<Word>& s, const Pieces& pieces, Load load,
                                       Word (&words)[kVectorBytes / sizeof(Word)]) {
#pragma unroll
  for (int32_t k = 0; k < static_cast<int32_t>(kVectorBytes / sizeof(Word)); ++k) {
    const bool first = k < pieces.split;
    const int64_t source = first ? pieces.first.source : pieces.second.source;
    const uint32_t position = (first ? pieces.first.position : pieces.second.position) + static_cast<uint32_t>(k);
    words[k] = position < s.axes[0].count ? load(source, position) : s.value;
  }
}

template <typename Word>
__device__ __forceinline__ void store(const Span& span, const Word (&words)[kVectorBytes / sizeof(Word)]) {
  constexpr int32_t kWords = kVectorBytes / sizeof(Word);
  if (span.begin == 0 && span.end == kWords) {
    uint4 vector;
    memcpy(&vector, words, sizeof vector);
    *reinterpret_cast<uint4*>(span.destination) = vector;
    return;
  }
  Word* destination = reinterpret_cast<Word*>(span.destination);
#pragma unroll
  for (int32_t k = 0; k < kWords; ++k) {
    if (k >= span.begin && k < span.end) destination[k] = words[k];
  }
}

// 16 bytes that begin `shift` bytes into two aligned vectors.
__device__ __forceinline__ uint4 load_shifted(const uint4* aligned, uint32_t shift) {
  const uint4 low = aligned[0], high = aligned[1];
  const bool two = (shift & 8) != 0, one = (shift & 4) != 0;
  const uint32_t a0 = two ? low.z : low.x, a1 = two ? low.w : low.y, a2 = two ? high.x : low.z;
  const uint32_t a3 = two ? high.y : low.w, a4 = two ? high.z : high.x, a5 = two ? high.w : high.y;
  const uint32_t b0 = one ? a1 : a0, b1 = one ? a2 : a1, b2 = one ? a3 : a2, b3 = one ? a4 : a3, b4 = one ? a5 : a4;
  const uint32_t bits = (shift & 3) * 8;
  return {__funnelshift_r(b0, b1, bits), __funnelshift_r(b1, b2, bits), __funnelshift_r(b2, b3, bits),
          __funnelshift_r(b3, b4, bits)};
}

// A whole vector that lies inside, in one row, with its source in one piece. False when it is none.
template <typename Word>
__device__ __forceinline__ bool copy_vector(const Slice<Word>& s, const Span& span, const Pieces& pieces) {
  constexpr int32_t kWords = kVectorBytes / sizeof(Word);
  const uint32_t position = pieces.first.position, count = s.axes[0].count;
  if (!s.dense_rows || span.begin > 0 || span.end < kWords || pieces.split < kWords) return false;
  if (position >= count || count - position < kWords) return false;
  const int64_t source = pieces.first.source + position * static_cast<int64_t>(sizeof(Word));
  const uint32_t shift = static_cast<uint32_t>(reinterpret_cast<uint64_t>(s.source) + source) % kVectorBytes;
  const int64_t aligned = source - shift;
  const uint4* from = reinterpret_cast<const uint4*>(s.source + aligned);
  uint4* to = reinterpret_cast<uint4*>(span.destination);
  if (shift == 0) {
    *to = *from;
  } else if (aligned >= s.readable_begin && aligned + 2 * kVectorBytes <= s.readable_end) {
    *to = load_shifted(from, shift);
  } else {
    return false;
  }
  return true;
}

template <typename Word>
__global__ void __launch_bounds__(kThreads) write_vectors(const __grid_constant__ Slice<Word> s) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= s.threads) return;
  uint32_t slot = thread;
  char* destination = s.destination;
  Row run{0, 0, true};
  if (s.runs > 1) {
    uint32_t rest = s.slots.divide(thread);
    slot -= rest * s.slots.divisor;
#pragma unroll
    for (int a = 1; a < kMaxAxes; ++a) {
      if (a < s.axes_in_run) continue;
      if (a >= s.rank) break;
      const DeviceAxis& axis = s.axes[a];
      const uint32_t above = axis.extent.divide(rest);
      const uint32_t index = rest - above * axis.extent.divisor;
      destination += index * axis.stride;
      enter_axis(axis, index, &run);
      rest = above;
    }
  }
  const Span span = span_of(s, slot, destination);
  if (span.begin >= span.end) return;
  const Pieces pieces = pieces_of(s, span, run);
  if (copy_vector(s, span, pieces)) return;
  Word words[kVectorBytes / sizeof(Word)];
  gather(s, pieces, [&s](int64_t source, uint32_t position) {
    return *reinterpret_cast<const Word*>(s.source + (source + position * s.axes[0].source_stride));
  }, words);
  store(span, words);
}

// A place in the source between those of the inside elements before and after `element`, or its own: coordinates
// clamped to their windows, and where an outer one was, the inner ones to the same end.
template <typename Word>
__device__ __forceinline__ int64_t nearest_source(const Slice<Word>& s, uint32_t element) {
  int64_t place = 0, end = 0;
  uint32_t rest = element;
#pragma unroll
  for (int a = 0; a < kMaxAxes; ++a) {
    const DeviceAxis& axis = s.axes[a];
    const bool last = a + 1 == s.axes_in_run;
    const uint32_t above = last ? 0 : axis.extent.divide(rest);
    const uint32_t index = rest - above * axis.extent.divisor;
    end += (axis.count - 1) * axis.source_stride;
    if (index < axis.begin) {
      place = 0;
    } else if (index - axis.begin >= axis.count) {
      place = end;
    } else {
      place += (index - axis.begin) * axis.source_stride;
    }
    if (last) break;
    rest = above;
  }
  return place;
}

// Copies the source from `begin` (aligned) to `end` into the stage: whole vectors, all in flight at once, or near the
// source's ends only the words that may be touched.
template <typename Word>
__device__ __forceinline__ void stage_source(const Slice<Word>& s, int64_t begin, int64_t end, uint4* stage) {
  constexpr int kRounds = (kStageVectors + kStagedThreads - 1) / kStagedThreads;
  const int vectors = static_cast<int>(end - begin + kVectorBytes - 1) / kVectorBytes;
  if (begin >= s.readable_begin && begin + vectors * kVectorBytes <= s.readable_end) {
    const uint4* from = reinterpret_cast<const uint4*>(s.source + begin);
    uint4 loaded[kRounds];
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int i = round * kStagedThreads + static_cast<int>(threadIdx.x);
      if (i < vectors) loaded[round] = from[i];
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int i = round * kStagedThreads + static_cast<int>(threadIdx.x);
      if (i < vectors) stage[i] = loaded[round];
    }
    return;
  }
  const Word* from = reinterpret_cast<const Word*>(s.source + begin);
  Word* to = reinterpret_cast<Word*>(stage);
  const int first = static_cast<int>((s.readable_begin - begin) / static_cast<int64_t>(sizeof(Word)));
  const int last = static_cast<int>((end - begin) / static_cast<int64_t>(sizeof(Word)));
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < last; i += kStagedThreads) {
    if (i >= first) to[i] = from[i];
  }
}

// One run, whose source ascends with it: the source of a block's elements is one stretch of memory.
template <typename Word>
__global__ void __launch_bounds__(kStagedThreads) write_staged(const __grid_constant__ Slice<Word> s) {
  constexpr uint32_t kWords = kVectorBytes / sizeof(Word);
  __shared__ uint4 stage[kStageVectors];
  const uint32_t slot = blockIdx.x * kStagedThreads + threadIdx.x;
  const Span span = span_of(s, slot, s.destination);
  // Odd lanes find the end of the block's source, even ones its begin.
  const int32_t block_first = span.first - static_cast<int32_t>(threadIdx.x * kWords);
  const int32_t block_end = block_first + static_cast<int32_t>(kStagedThreads * kWords);
  const int32_t run_extent = static_cast<int32_t>(s.run_extent);
  const int32_t edge = threadIdx.x % 2 == 0 ? (block_first < 0 ? 0 : block_first)
                                            : (block_end < run_extent ? block_end : run_extent) - 1;
  const int64_t place = nearest_source(s, static_cast<uint32_t>(edge));
  const int64_t lowest = __shfl_sync(0xffffffffu, place, 0);
  const int64_t begin = lowest - static_cast<int64_t>((reinterpret_cast<uint64_t>(s.source) + lowest) % kVectorBytes);
  const int64_t end = __shfl_sync(0xffffffffu, place, 1) + static_cast<int64_t>(sizeof(Word));
  stage_source(s, begin, end, stage);
  __syncthreads();
  if (span.begin >= span.end) return;
  const Pieces pieces = pieces_of(s, span, Row{-begin, 0, true});
  Word words[kWords];
  const char* staged = reinterpret_cast<const char*>(stage);
  gather(s, pieces, [staged](int64_t source, uint32_t position) {
    // The row may begin before the stage does.
    const int32_t place = static_cast<int32_t>(source) + static_cast<int32_t>(position * sizeof(Word));
    return *reinterpret_cast<const Word*>(staged + place);
  }, words);
  store(span, words);
}

// Axes as threads need them, and the source that they may touch.
template <typename Word>
void set_source(const Problem& p, const Word* source, Slice<Word>* s) {
  constexpr int64_t kBytes = sizeof(Word);
  int64_t first = p.source_offset, lowest = 0, highest = 0;
  bool any = true;
  for (int32_t a = 0; a < p.rank; ++a) {
    const Window window = window_of(p.axes[a]);
    any = any && window.begin < window.end;
    if (!any) break;
    const int64_t reach = (window.end - window.begin - 1) * p.axes[a].source_stride;
    first += (window.begin - p.axes[a].low) * p.axes[a].source_stride;
    (reach < 0 ? lowest : highest) += reach;
  }
  if (!any) {
    for (int32_t a = 0; a < s->rank; ++a) s->axes[a].count = 0;
    return;
  }
  s->source = reinterpret_cast<const char*>(source + first);
  s->readable_begin = lowest * kBytes;
  s->readable_end = (highest + 1) * kBytes;
}

template <typename Word>
Slice<Word> make_slice(const Problem& p, const Buffers<Word>& b) {
  constexpr int64_t kBytes = sizeof(Word), kWords = kVectorBytes / kBytes;
  Slice<Word> s{};
  s.destination = reinterpret_cast<char*>(b.destination);
  s.value = b.value;
  const Axis& inner = p.axes[p.rank - 1];
  int64_t run = 1;
  // Where neighbours are apart in the destination, a run is one element.
  if (inner.stride != 1) s.axes[s.rank++] = {Divider(1), 0, 1, kBytes, kBytes};
  bool grows = inner.stride == 1;
  for (int32_t a = p.rank - 1; a >= 0; --a) {
    const Axis& axis = p.axes[a];
    const Window window = window_of(axis);
    // A run of several rows needs rows that a vector cannot reach across.
    grows = grows && axis.stride == run && (s.rank == 0 || inner.extent >= kWords - 1);
    if (grows) {
      run *= axis.extent;
      s.axes_in_run = s.rank + 1;
    }
    s.axes[s.rank++] = {Divider(axis.extent), static_cast<uint32_t>(window.begin),
                        static_cast<uint32_t>(window.end - window.begin), axis.stride * kBytes,
                        axis.source_stride * kBytes};
  }
  if (s.axes_in_run == 0) s.axes_in_run = 1;
  s.dense_rows = s.axes[0].source_stride == kBytes;
  s.run_extent = static_cast<uint32_t>(run);
  s.runs = static_cast<uint32_t>(p.numel / run);
  // A run that may start anywhere touches up to this many aligned vectors.
  s.slots = Divider((kWords - 1 + run + kWords - 1) / kWords);
  s.threads = s.runs * s.slots.divisor;
  set_source(p, b.source, &s);
  return s;
}

// Whether short rows make staging worthwhile, and the source of consecutive elements is one short stretch.
template <typename Word>
bool stages(const Slice<Word>& s) {
  constexpr int64_t kBytes = sizeof(Word), kBlock = kStagedThreads * kVectorBytes / kBytes;
  if (s.runs > 1 || !s.dense_rows || s.axes_in_run == 1 || s.axes[0].extent.divisor * kBytes >= kStagedRowBytes) {
    return false;
  }
  // A block of elements takes at most kBlock steps along a row, and each axis as many steps as its inner extents fit
  // in; a step along it passes the gap that follows the inner window.
  int64_t reach = kBlock * kBytes, inner = 1;
  for (int32_t a = 0; a < s.axes_in_run; ++a) {
    const DeviceAxis& axis = s.axes[a];
    if (axis.count == 0) return false;
    if (a > 0) {
      const int64_t gap = axis.source_stride - s.axes[a - 1].count * s.axes[a - 1].source_stride;
      if (gap < 0 || gap > kStageVectors * kVectorBytes) return false;
      reach += (kBlock + inner - 1) / inner * gap;
    }
    inner *= axis.extent.divisor;
  }
  return reach <= (kStageVectors - 2) * kVectorBytes;
}

// Part of the outermost axis. A single index of it is no axis any more: it chooses a place in the source, or none.
Problem part_of(const Problem& p, int64_t first, int64_t count) {
  Problem part = p;
  part.numel = p.numel / p.axes[0].extent * count;
  part.axes[0].extent = count;
  part.axes[0].low -= first;
  if (count > 1 || p.rank == 1) return part;
  const Window window = window_of(part.axes[0]);
  for (int32_t a = 1; a < p.rank; ++a) {
    part.axes[a - 1] = p.axes[a];
    if (window.begin == window.end) part.axes[a - 1].source_extent = 0;
  }
  part.rank = p.rank - 1;
  if (window.begin < window.end) part.source_offset -= (p.axes[0].low - first) * p.axes[0].source_stride;
  return part;
}

template <typename Word>
Status run(const Problem& p, const Buffers<Word>& b, void* workspace, Stream stream) {
  if (p.numel > kSliceElements) {
    const Axis& outer = p.axes[0];
    const int64_t inner = p.numel / outer.extent;
    const int64_t step = inner < kSliceElements ? kSliceElements / inner : 1;
    for (int64_t first = 0; first < outer.extent; first += step) {
      const int64_t count = step < outer.extent - first ? step : outer.extent - first;
      const Buffers<Word> part{b.source, b.destination + first * outer.stride, b.value};
      BARACUDA_RETURN_IF_FAILED(run(part_of(p, first, count), part, workspace, stream));
    }
    return Status::kOk;
  }
  const Slice<Word> s = make_slice(p, b);
  if (stages(s)) {
    return launch_kernel("staged pad kernel", write_staged<Word>, blocks_for(s.threads, kStagedThreads), kStagedThreads,
                         0, stream, s);
  }
  return launch_kernel("pad kernel", write_vectors<Word>, blocks_for(s.threads, kThreads), kThreads, 0, stream, s);
}

}  // namespace

BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<uint16_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<uint32_t>)
BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<uint64_t>)

}  // namespace baracuda::pad
