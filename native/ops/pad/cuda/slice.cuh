// SPDX-License-Identifier: Apache-2.0
// A pad problem as the kernels see it, and how a thread finds its vector, its row and its source. Holds no kernel.
#pragma once

#include "core/cuda_instructions.cuh"
#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "ops/pad/launch.h"
#include "ops/pad/sums.h"

namespace baracuda::pad {
namespace {

constexpr int kVectorBytes = 16;
// Elements per launch: every index, and one thread an element, then fits the 31 bits that division needs.
constexpr int64_t kSliceElements = int64_t{1} << 30;
constexpr int kMaxAxes = kMaxRank + 1;

// fold() without a branch, where no pad is wider than the period: positions count from index `origin`, results from the
// window's begin. Each mode, and an axis that does not repeat, has numbers that make the steps it does not need do
// nothing.
struct Fold {
  uint32_t origin;
  int32_t lowest, highest;
  uint32_t period;
  int32_t mirror, shift;
};

// An axis as a thread needs it; strides in bytes. Source places count from the begin of the window, which is source
// index `first` (0 where the axis does not repeat: nobody asks).
struct DeviceAxis {
  Divider extent;
  uint32_t begin, count;  // the window
  int64_t stride, source_stride;
  PaddedAxis padded;
  uint32_t origin, first;
  bool repeats;
  int8_t place;  // among the axes that repeat, in the order of sums
  int32_t step;  // source_stride in elements, of a compact slice
  Fold fold;     // likewise
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
  const char* source;                    // where every window begins; other places are bytes from here
  int64_t readable_begin, readable_end;  // what of the source may be touched
  bool dense_rows;                       // whether neighbours in a row are neighbours in the source
  bool folds;                            // whether the rule says what stands outside the window
  int8_t repeating;                      // axes that repeat
  bool inner_is_last;                    // whether the innermost axis comes last in the order of sums, or has no images
  bool compact;                          // whether compact_row() finds its rows
  int32_t head;                          // elements from an aligned vector's begin to the destination
  Word value;
};

// Where an index outside the window takes its source, counted from the window's begin.
__device__ __forceinline__ int32_t folded(const DeviceAxis& axis, uint32_t index) {
  const int64_t position = static_cast<int64_t>(index) - static_cast<int32_t>(axis.origin);
  const int64_t kept = fold(Rule{axis.padded.period, axis.padded.mirror}, axis.padded.kept, position);
  return static_cast<int32_t>(static_cast<uint32_t>(kept) + axis.padded.low - axis.first);
}

// A row of the destination: `source` is the place of the first column of its window.
struct Row {
  int64_t source;
  uint32_t column;
  bool inside;
};

template <bool kFolds>
__device__ __forceinline__ void enter_axis(const DeviceAxis& axis, uint32_t index, Row* row) {
  uint32_t offset = index - axis.begin;
  if (kFolds) {
    if (offset >= axis.count) offset = static_cast<uint32_t>(folded(axis, index));
  } else {
    row->inside = row->inside && offset < axis.count;
  }
  row->source += static_cast<int32_t>(offset) * axis.source_stride;
}

// The row and column of an element of a run.
template <bool kFolds, typename Word>
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
      enter_axis<kFolds>(axis, index, &row);
    }
    if (last) break;
    rest = above;
  }
  return row;
}

__device__ __forceinline__ int32_t folded_once(const Fold& fold, uint32_t index) {
  const int32_t position = min(max(static_cast<int32_t>(index - fold.origin), fold.lowest), fold.highest);
  // A negative number is a large one here, and so is one below the period less the period.
  const uint32_t below = static_cast<uint32_t>(position);
  const uint32_t above = min(below, below + fold.period);
  const int32_t within = static_cast<int32_t>(min(above, above - fold.period));
  return min(within, fold.mirror - within) + fold.shift;
}

__device__ __forceinline__ uint32_t divide_by_several(const Divider& by, uint32_t n) {
  return __umulhi(n, by.multiplier) >> by.shift;
}

// A row of a compact slice: `source` is the place of the first column of its window, in elements, `offset` that of the
// row in the window of its innermost axis, and `inside` whether it is inside all windows.
struct CompactRow {
  int32_t source;
  uint32_t offset;
  bool inside;
};

// Row `number` of a compact slice, which is one run and has 31-bit places: a third of what row_at() takes.
template <bool kFolds, typename Word>
__device__ __forceinline__ CompactRow compact_row(const Slice<Word>& s, uint32_t number) {
  CompactRow row{0, 0, true};
  uint32_t source = 0, rest = number;
#pragma unroll
  for (int a = 1; a < kMaxAxes; ++a) {
    if (a >= s.rank) break;
    const DeviceAxis& axis = s.axes[a];
    const uint32_t above = divide_by_several(axis.extent, rest);
    const uint32_t index = rest - above * axis.extent.divisor, offset = index - axis.begin;
    const uint32_t place = kFolds ? static_cast<uint32_t>(folded_once(axis.fold, index)) : offset;
    source += place * static_cast<uint32_t>(axis.step);
    row.inside = row.inside && offset < axis.count;
    if (a == 1) row.offset = offset;
    rest = above;
  }
  row.source = static_cast<int32_t>(source);
  return row;
}

// The row after `row`, which is `number`: one step further, but for few rows.
template <bool kFolds, typename Word>
__device__ __forceinline__ CompactRow row_after(const Slice<Word>& s, const CompactRow& row, uint32_t number) {
  const DeviceAxis& rows = s.axes[1];
  if (row.inside && row.offset + 1 < rows.count) return {row.source + rows.step, row.offset + 1, true};
  return compact_row<kFolds>(s, number + 1);
}

// Where a thread's vector lies: word k of it is element first + k of the run, for k in [begin, end).
struct Span {
  char* destination;  // of word 0, aligned
  int32_t first;
  int32_t begin, end;
};

template <typename Word>
__device__ __forceinline__ Span span_of(uint32_t slot, char* run, uint32_t run_extent) {
  constexpr int32_t kWords = kVectorBytes / sizeof(Word);
  const int32_t head = static_cast<int32_t>(reinterpret_cast<uint64_t>(run) % kVectorBytes / sizeof(Word));
  Span span;
  span.first = static_cast<int32_t>(slot) * kWords - head;
  span.destination = run + static_cast<int64_t>(span.first) * static_cast<int64_t>(sizeof(Word));
  span.begin = span.first < 0 ? -span.first : 0;
  const int32_t rest = static_cast<int32_t>(run_extent) - span.first;
  span.end = rest < kWords ? rest : kWords;
  return span;
}

// A thread's run: its number, and where it begins in both tensors.
template <typename Word>
struct Run {
  uint32_t number, slot;
  char* destination;
  Row row;
};

template <bool kFolds, typename Word>
__device__ __forceinline__ Run<Word> run_of(const Slice<Word>& s, uint32_t thread) {
  Run<Word> run{0, thread, s.destination, {0, 0, true}};
  if (s.runs <= 1) return run;
  uint32_t rest = run.number = s.slots.divide(thread);
  run.slot -= rest * s.slots.divisor;
#pragma unroll
  for (int a = 1; a < kMaxAxes; ++a) {
    if (a < s.axes_in_run) continue;
    if (a >= s.rank) break;
    const DeviceAxis& axis = s.axes[a];
    const uint32_t above = axis.extent.divide(rest);
    const uint32_t index = rest - above * axis.extent.divisor;
    run.destination += index * axis.stride;
    enter_axis<kFolds>(axis, index, &run.row);
    rest = above;
  }
  return run;
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

// The first piece of a vector, and where the second begins.
template <bool kFolds, typename Word>
__device__ __forceinline__ Pieces first_piece_of(const Slice<Word>& s, const Span& span, Row run) {
  const Row row = row_at<kFolds>(s, static_cast<uint32_t>(span.first + span.begin), run);
  const int32_t column = static_cast<int32_t>(row.column) - span.begin;  // of word 0
  Pieces pieces;
  pieces.first = {row.source, row.inside ? static_cast<uint32_t>(column) - s.axes[0].begin : kOutside};
  pieces.second = {0, kOutside};
  pieces.split = static_cast<int32_t>(s.axes[0].extent.divisor) - column;
  return pieces;
}

template <bool kFolds, typename Word>
__device__ __forceinline__ Pieces pieces_of(const Slice<Word>& s, const Span& span, Row run) {
  Pieces pieces = first_piece_of<kFolds>(s, span, run);
  if (pieces.split < span.end) {
    const Row next = row_at<kFolds>(s, static_cast<uint32_t>(span.first + pieces.split), run);
    if (next.inside) pieces.second = {next.source, 0u - static_cast<uint32_t>(pieces.split) - s.axes[0].begin};
  }
  return pieces;
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
__device__ __forceinline__ uint4 shifted(const uint4& low, const uint4& high, uint32_t shift) {
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
    *to = shifted(from[0], from[1], shift);
  } else {
    return false;
  }
  return true;
}

// Where in the source an axis may be touched, counted from its window's begin.
struct Reach {
  int64_t first, last;
};

inline Reach reach_of(const Problem& p, const Axis& axis, const DeviceAxis& device) {
  if (!axis.repeats) return {0, static_cast<int64_t>(device.count) - 1};
  const int64_t low = p.outside == Outside::kSum ? 0 : device.padded.low;
  const int64_t count = p.outside == Outside::kSum ? axis.source_extent : axis.kept;
  return {low - device.first, low - device.first + count - 1};
}

template <typename Word>
DeviceAxis device_axis(const Problem& p, const Axis& axis) {
  constexpr int64_t kBytes = sizeof(Word);
  DeviceAxis device{};
  device.extent = Divider(axis.extent);
  device.begin = static_cast<uint32_t>(axis.window.begin);
  device.count = static_cast<uint32_t>(axis.window.end - axis.window.begin);
  device.stride = axis.stride * kBytes;
  device.source_stride = axis.source_stride * kBytes;
  device.repeats = axis.repeats;
  if (!axis.repeats) return device;
  device.padded = padded_axis(axis);
  device.origin = static_cast<uint32_t>(axis.origin);
  if (device.count > 0) device.first = static_cast<uint32_t>(axis.window.begin - axis.low);
  for (int32_t a = 0; a < p.rank; ++a) device.place += p.axes[a].repeats && p.axes[a].nest < axis.nest;
  return device;
}

// The source that the kernels start from and may touch. Without any inside element none is touched.
template <typename Word>
void set_source(const Problem& p, const Word* source, Slice<Word>* s) {
  constexpr int64_t kBytes = sizeof(Word);
  int64_t first = p.source_offset, lowest = 0, highest = 0;
  for (int32_t a = 0; a < p.rank; ++a) {
    const Axis& axis = p.axes[a];
    const DeviceAxis& device = s->axes[s->rank - 1 - a];
    if (!axis.repeats && device.count == 0) {
      for (int32_t b = 0; b < s->rank; ++b) {
        if (!s->axes[b].repeats) s->axes[b].count = 0;
      }
      return;
    }
    const Reach reach = reach_of(p, axis, device);
    first += (axis.repeats ? device.first : axis.window.begin - axis.low) * axis.source_stride;
    const int64_t one = reach.first * axis.source_stride, other = reach.last * axis.source_stride;
    lowest += one < other ? one : other;
    highest += one < other ? other : one;
  }
  s->source = reinterpret_cast<const char*>(source + first);
  s->readable_begin = lowest * kBytes;
  s->readable_end = (highest + 1) * kBytes;
}

// Whether compact_row() and folded_once() do for a slice; gives its axes their steps.
template <typename Word>
bool make_compact(const Problem& p, Slice<Word>* s) {
  constexpr int64_t kBytes = sizeof(Word), kMost = INT32_MAX / 2;
  if (s->runs > 1 || s->axes_in_run < s->rank || !s->dense_rows) return false;
  if ((s->readable_end - s->readable_begin) / kBytes > INT32_MAX - kVectorBytes) return false;
  for (int32_t a = 0; a < s->rank; ++a) {
    DeviceAxis& device = s->axes[a];
    const int64_t step = device.source_stride / kBytes;
    if (device.extent.divisor < 2 || step > INT32_MAX || step < INT32_MIN) return false;
    device.step = static_cast<int32_t>(step);
    const Axis& axis = p.axes[p.rank - 1 - a];
    const int64_t period = axis.rule.period;
    device.fold = {device.begin, INT32_MIN, INT32_MAX, 0, INT32_MAX, 0};
    if (p.outside != Outside::kFold || !axis.repeats) continue;
    if (axis.kept > kMost) return false;
    device.fold.origin = device.origin;
    device.fold.shift = static_cast<int32_t>(device.padded.low - device.first);
    if (period == 0) {
      device.fold.lowest = 0;
      device.fold.highest = static_cast<int32_t>(axis.kept) - 1;
      continue;
    }
    const int64_t lowest = -axis.origin, highest = axis.extent - 1 - axis.origin;
    if (period > kMost || lowest < -period || highest >= 2 * period) return false;
    device.fold.period = static_cast<uint32_t>(period);
    if (axis.rule.mirror != 0) device.fold.mirror = static_cast<int32_t>(axis.rule.mirror);
  }
  return true;
}

template <typename Word>
Slice<Word> make_slice(const Problem& p, const Word* source, Word* destination, Word value) {
  constexpr int64_t kBytes = sizeof(Word), kWords = kVectorBytes / kBytes;
  Slice<Word> s{};
  s.destination = reinterpret_cast<char*>(destination);
  s.value = value;
  s.folds = p.outside == Outside::kFold;
  const Axis& inner = p.axes[p.rank - 1];
  int64_t run = 1;
  // Where neighbours are apart in the destination, a run is one element.
  if (inner.stride != 1) {
    DeviceAxis one{};
    one.extent = Divider(1);
    one.count = 1;
    one.stride = one.source_stride = kBytes;
    s.axes[s.rank++] = one;
  }
  bool grows = inner.stride == 1;
  for (int32_t a = p.rank - 1; a >= 0; --a) {
    const Axis& axis = p.axes[a];
    // A run of several rows needs rows that a vector cannot reach across.
    grows = grows && (axis.stride == run || axis.extent == 1) && (s.rank == 0 || inner.extent >= kWords - 1);
    if (grows) {
      run *= axis.extent;
      s.axes_in_run = s.rank + 1;
    }
    s.repeating += axis.repeats;
    s.axes[s.rank++] = device_axis<Word>(p, axis);
  }
  if (s.axes_in_run == 0) s.axes_in_run = 1;
  s.dense_rows = s.axes[0].source_stride == kBytes;
  s.inner_is_last = !s.axes[0].repeats || s.axes[0].place + 1 == s.repeating;
  s.run_extent = static_cast<uint32_t>(run);
  s.runs = static_cast<uint32_t>(p.numel / run);
  // A run that may start anywhere touches up to this many aligned vectors.
  s.slots = Divider(ceil_div(kWords - 1 + run, kWords));
  s.threads = s.runs * s.slots.divisor;
  set_source(p, source, &s);
  s.head = static_cast<int32_t>(reinterpret_cast<uint64_t>(destination) % kVectorBytes / kBytes);
  s.compact = make_compact(p, &s);
  if (s.compact) s.threads = static_cast<uint32_t>(ceil_div(s.head + run, kWords));
  return s;
}

// Whether every element is inside all windows.
template <typename Word>
bool is_filled_nowhere(const Slice<Word>& s) {
  for (int32_t a = 0; a < s.rank; ++a) {
    if (s.axes[a].count < s.axes[a].extent.divisor) return false;
  }
  return true;
}

// Part of the axis `a`.
inline Problem part_of(const Problem& p, int32_t a, int64_t first, int64_t count) {
  Problem part = p;
  Axis& axis = part.axes[a];
  part.numel = p.numel / axis.extent * count;
  axis.extent = count;
  axis.low -= first;
  axis.origin -= first;
  axis.window = {clamp(axis.window.begin - first, 0, count), clamp(axis.window.end - first, 0, count)};
  return part;
}

}  // namespace
}  // namespace baracuda::pad
