// SPDX-License-Identifier: Apache-2.0
// Sums where no pad is wider than its tensor: an element's images stand just below and just above it, side by side with
// those of its neighbours, so that the thread that owns a vector adds them up right away.
#pragma once

#include "ops/pad/cuda/slice.cuh"

namespace baracuda::pad {
namespace {

// Small blocks: one with an edge lasts longer, and keeps the places of all its warps until its end.
constexpr int kImageThreads = 128;
// Of a multiprocessor, hence 40 registers; 64 where planes are summed, too.
template <bool kPlanes>
constexpr int kImageBlocks = kPlanes ? 8 : 12;
// Words that a thread adds up at once.
template <typename T>
constexpr int32_t kImageWords = sizeof(T) < 4 ? 4 : kVectorBytes / static_cast<int32_t>(sizeof(T));

// The images that a pad of `count` source places has. Elements [begin, begin + length) have one each, at
// base + step * element; where the step is 0, the only element has them all.
struct PadImages {
  uint32_t begin, length, count;
  int32_t base;
};

// Element i < kept stands at source place low + i, after all its images in the pad below and before those above.
struct ImageAxis {
  uint32_t origin, kept;  // in the destination
  int32_t low, step;
  PadImages below, above;
};

// A pad for a thread that adds up several columns at once. The lowest of the source places of all their images is
// nearest + step * element; counted from the pad's first place, that is `first` less.
struct PadWindow {
  uint32_t nearest, first;
};

// An axis beyond the columns' that repeats.
struct OuterImages {
  ImageAxis images;
  int32_t axis;    // its number, or kMaxAxes where there is none and every element has one place
  int64_t stride;  // of the source, in bytes
};

// How a slice is summed along its columns' axis, its rows' and its planes'.
struct ImageSums {
  ImageAxis columns;
  PadWindow below, above;  // the columns'
  OuterImages rows, planes;
  int32_t window;          // the element where the columns' window begins
  const char* inside;      // its place, where the other axes' windows begin
  const char* source;      // where the axes that repeat have place 0
  const char* any_vector;  // two aligned vectors that may be read
};

// The widest pad that gives an element one image a side. The ends alone repeat without a period, any number of times.
inline int64_t widest_pad(const PaddedAxis& axis) {
  if (axis.period == 0) return kTermsInPartial;
  return axis.mirror == 0 ? int64_t{axis.kept} : int64_t{axis.mirror} - axis.kept + 1;
}

inline ImageAxis image_axis(const DeviceAxis& axis) {
  ImageAxis sum{};
  if (!axis.repeats) {
    sum.origin = axis.begin;
    sum.kept = axis.count;
    return sum;
  }
  const PaddedAxis& padded = axis.padded;
  const uint32_t kept = padded.kept, low = padded.low, high = padded.extent - low - kept;
  sum.origin = axis.origin;
  sum.kept = kept;
  sum.low = static_cast<int32_t>(low);
  const int32_t end = static_cast<int32_t>(low + kept);
  if (padded.period == 0) {
    sum.below = {0, low > 0, low, 0};
    sum.above = {kept - 1, high > 0, high, end};
  } else if (padded.mirror == 0) {
    sum.step = 1;
    sum.below = {kept - low, low, low, static_cast<int32_t>(low - kept)};
    sum.above = {0, high, high, end};
  } else {
    // Without a gap the mirror stands in the end element, which has no image in it.
    const uint32_t gap = padded.period - padded.mirror;
    sum.step = -1;
    sum.below = {1 - gap, low, low, static_cast<int32_t>(low - gap)};
    sum.above = {padded.mirror + 1 - kept - high, high, high, static_cast<int32_t>(low + padded.mirror)};
  }
  return sum;
}

// Whether no `words` neighbours have images in both pads.
inline bool are_apart(const ImageAxis& axis, int64_t words) {
  const PadImages &low = axis.below, &high = axis.above;
  if (low.length == 0 || high.length == 0) return true;
  const int64_t up = int64_t{high.begin} - (int64_t{low.begin} + low.length - 1);
  const int64_t down = int64_t{low.begin} - (int64_t{high.begin} + high.length - 1);
  return up >= words || down >= words;
}

// How many source places an element of an axis has at most.
inline uint64_t most_places(const ImageAxis& axis) {
  const uint64_t below = axis.step == 0 ? axis.below.count : axis.below.length > 0;
  const uint64_t above = axis.step == 0 ? axis.above.count : axis.above.length > 0;
  return 1 + (are_apart(axis, 1) ? (below > above ? below : above) : below + above);
}

// Whether a slice can be summed so, and how.
template <typename T>
bool find_images(const Slice<T>& s, ImageSums* sums) {
  *sums = {};
  sums->rows.axis = sums->planes.axis = kMaxAxes;
  sums->rows.images.kept = sums->planes.images.kept = 1;
  sums->source = s.source;
  if (!s.dense_rows || !s.inner_is_last || s.repeating - s.axes[0].repeats > 2) return false;
  if (s.runs == 1 && s.axes_in_run < s.rank) return false;  // axes of one element that a run passes over
  uint64_t terms = 1;
  for (int32_t a = 0; a < s.rank; ++a) {
    const DeviceAxis& axis = s.axes[a];
    const ImageAxis sum = image_axis(axis);
    if (a == 0) {
      sums->columns = sum;
      const int32_t back = sum.step < 0 ? kImageWords<T> - 1 : 0;
      sums->below = {static_cast<uint32_t>(sum.below.base - back), 0};
      sums->above = {static_cast<uint32_t>(sum.above.base - back), static_cast<uint32_t>(sum.low) + sum.kept};
      sums->window = static_cast<int32_t>(axis.begin - sum.origin);
      const int64_t place = int64_t{sum.low} + sums->window - (axis.repeats ? axis.first : 0);
      sums->inside = s.source + place * axis.source_stride;
    }
    if (!axis.repeats) continue;
    if (at_least(sum.below.count, sum.above.count) > widest_pad(axis.padded)) return false;
    terms *= most_places(sum);
    if (terms > kTermsInPartial) return false;  // a sum that is cut
    sums->source -= static_cast<int64_t>(axis.first) * axis.source_stride;
    if (a == 0) continue;
    const bool is_first = sums->rows.axis == kMaxAxes;
    if (!is_first && axis.place > s.axes[sums->rows.axis].place) return false;  // rows outside of planes
    (is_first ? sums->rows : sums->planes) = {sum, a, axis.source_stride};
  }
  const uint64_t head = (reinterpret_cast<uint64_t>(s.source) + s.readable_begin) % kVectorBytes;
  const int64_t aligned = s.readable_begin + (head == 0 ? 0 : kVectorBytes - static_cast<int64_t>(head));
  if (aligned + 2 * kVectorBytes > s.readable_end) return false;
  sums->any_vector = s.source + aligned;
  return are_apart(sums->columns, kImageWords<T>);
}

__device__ __forceinline__ bool has(const PadImages& images, uint32_t element) {
  return element - images.begin < images.length;
}

// How many source places an element of an axis has.
__device__ __forceinline__ uint32_t places_of(const ImageAxis& axis, uint32_t element) {
  const bool ends = axis.step == 0;
  uint32_t places = 1;
  if (has(axis.below, element)) places += ends ? axis.below.count : 1;
  if (has(axis.above, element)) places += ends ? axis.above.count : 1;
  return places;
}

// How far the place of an element that `k` others precede is from place 0 of its axis.
__device__ __forceinline__ int64_t offset_of(const OuterImages& outer, uint32_t element, uint32_t k) {
  const ImageAxis& axis = outer.images;
  const uint32_t several = axis.step == 0 ? axis.below.count : 1;
  const uint32_t below = has(axis.below, element) ? several : 0;
  const int32_t index = static_cast<int32_t>(element);
  int32_t place = axis.low + index;
  if (k < below) place = axis.below.base + axis.step * index + static_cast<int32_t>(k);
  if (k > below) place = axis.above.base + axis.step * index + static_cast<int32_t>(k - below - 1);
  return place * outer.stride;
}

// A destination row that has several source rows or none: where place 0 of the columns is in the axes that have one
// place, the row's elements of the others, and how many rows of how many planes that is.
struct SumRow {
  const char* source;
  uint32_t row, plane;
  uint32_t rows, planes;

  __device__ __forceinline__ bool is_single() const { return rows == 1 && planes == 1; }
};

// The source of a row's place that `n` others of its plane and `plane` planes precede.
template <bool kPlanes>
__device__ __forceinline__ const char* source_of(const ImageSums& sums, const SumRow& row, uint32_t n, uint32_t plane) {
  const char* const source = row.source + offset_of(sums.rows, row.row, n);
  return kPlanes ? source + offset_of(sums.planes, row.plane, plane) : source;
}

template <bool kPlanes, typename T>
__device__ __forceinline__ SumRow sum_row(const Slice<T>& s, const ImageSums& sums, uint32_t number) {
  SumRow row{sums.source, 0, 0, 0, 1};
  bool inside = true;
  uint32_t rest = number;
#pragma unroll
  for (int a = 1; a < kMaxAxes; ++a) {
    if (a >= s.rank) break;
    const DeviceAxis& axis = s.axes[a];
    const uint32_t above = axis.extent.divide(rest);
    const uint32_t index = rest - above * axis.extent.divisor;
    rest = above;
    if (a == sums.rows.axis) {
      row.row = index - sums.rows.images.origin;
      continue;
    }
    if (kPlanes && a == sums.planes.axis) {
      row.plane = index - sums.planes.images.origin;
      continue;
    }
    const uint32_t offset = index - axis.begin;
    inside = inside && offset < axis.count;
    row.source += static_cast<int32_t>(offset) * axis.source_stride;
  }
  if (!inside || row.row >= sums.rows.images.kept || (kPlanes && row.plane >= sums.planes.images.kept)) return row;
  row.rows = places_of(sums.rows.images, row.row);
  if (kPlanes) row.planes = places_of(sums.planes.images, row.plane);
  return row;
}

// The images of neighbouring words, of which the first is `element`: all are in one pad.
struct NearImages {
  bool is_below;
  uint32_t begin, length;  // the words that have images
  uint32_t count;          // places of the pad
  uint32_t first;          // the lowest place of the words' images, counted from the pad's
  int32_t distance;        // of that from the place of word 0

  __device__ __forceinline__ bool has(int32_t word) const { return static_cast<uint32_t>(word) - begin < length; }
};

template <int32_t kWords>
__device__ __forceinline__ NearImages near_images(const ImageSums& s, uint32_t element) {
  const ImageAxis& axis = s.columns;
  const uint32_t reach = axis.below.length > 0 ? axis.below.length + (kWords - 1) : 0;
  NearImages near;
  near.is_below = element + (kWords - 1) - axis.below.begin < reach;
  const uint32_t nearest = near.is_below ? s.below.nearest : s.above.nearest;
  const uint32_t lowest = nearest + static_cast<uint32_t>(axis.step) * element;
  near.count = near.is_below ? axis.below.count : axis.above.count;
  near.first = lowest - (near.is_below ? s.below.first : s.above.first);
  near.distance = static_cast<int32_t>(lowest - element - static_cast<uint32_t>(axis.low));
  near.begin = (near.is_below ? axis.below.begin : axis.above.begin) - element;
  near.length = near.is_below ? axis.below.length : axis.above.length;
  return near;
}

template <typename T>
__device__ __forceinline__ T load_word(const char* at, int32_t k) {
  return reinterpret_cast<const T*>(at)[k];
}

// The words' own terms and, where the step is not 0, those of their images.
template <typename T>
struct NearTerms {
  static constexpr int32_t kWords = kImageWords<T>;
  T own[kWords], images[kWords];

  // What has no term gets `nothing`. All loads are on their way before the first is waited for.
  __device__ __forceinline__ NearTerms(const ImageSums& s, const NearImages& near, uint32_t element, const char* at,
                                       T nothing) {
    const char* const image_at = at + near.distance * static_cast<int32_t>(sizeof(T));
    const bool descends = s.columns.step < 0;
    T loaded[kWords];
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      own[k] = loaded[k] = nothing;
      if (element + static_cast<uint32_t>(k) < s.columns.kept) own[k] = load_word<T>(at, k);
      if (s.columns.step != 0 && near.first + static_cast<uint32_t>(k) < near.count) {
        loaded[k] = load_word<T>(image_at, k);
      }
    }
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) images[k] = descends ? loaded[kWords - 1 - k] : loaded[k];
  }
};

// Adds the terms of the end that has all places of a pad to its sum.
template <typename T>
__device__ __forceinline__ Compute<T> add_end(const NearImages& near, const char* own, Compute<T> sum) {
  const T* at = reinterpret_cast<const T*>(own) + near.distance;
#pragma unroll 1
  for (uint32_t n = 0; n < near.count; ++n) sum += widen(at[n]);
  return sum;
}

// A part of a vector as it is stored.
template <typename T>
struct alignas(kImageWords<T> * sizeof(T)) ImagePart {
  T words[kImageWords<T>];
};

// Part of a row that has one source row, in which word 0 has the place `at`. A single term is no sum: it keeps its
// bits.
template <typename T>
__device__ __forceinline__ ImagePart<T> sum_one_row(const ImageSums& s, uint32_t element, const char* at) {
  constexpr int32_t kWords = kImageWords<T>;
  const NearImages near = near_images<kWords>(s, element);
  const NearTerms<T> terms(s, near, element, at, T{});
  ImagePart<T> part;
#pragma unroll
  for (int32_t k = 0; k < kWords; ++k) {
    // Two terms have no order, and the zero that all sums begin with comes last as well as first.
    const T sum = narrow<T>(widen(terms.own[k]) + widen(terms.images[k]) + 0);
    part.words[k] = near.has(k) ? sum : terms.own[k];
  }
  if (s.columns.step == 0 && near.length > 0 && near.begin < static_cast<uint32_t>(kWords)) {
    T own = terms.own[0];
#pragma unroll
    for (int32_t k = 1; k < kWords; ++k) own = near.begin == static_cast<uint32_t>(k) ? terms.own[k] : own;
    Compute<T> sum = near.is_below ? Compute<T>(0) : Compute<T>(0) + widen(own);
    sum = add_end<T>(near, at, sum);
    if (near.is_below) sum += widen(own);
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      part.words[k] = near.begin == static_cast<uint32_t>(k) ? narrow<T>(sum) : part.words[k];
    }
  }
  return part;
}

// Part of a row that has several source rows, or none. -0 changes no sum.
template <bool kPlanes, typename T>
__device__ __forceinline__ ImagePart<T> sum_rows(const ImageSums& s, const SumRow& row, uint32_t element) {
  constexpr int32_t kWords = kImageWords<T>;
  const NearImages near = near_images<kWords>(s, element);
  const int32_t column = (s.columns.low + static_cast<int32_t>(element)) * static_cast<int32_t>(sizeof(T));
  const T nothing = narrow<T>(Compute<T>(-0.0));
  Compute<T> sums[kWords];
#pragma unroll
  for (int32_t k = 0; k < kWords; ++k) sums[k] = 0;
  uint32_t n = 0, plane = 0;
#pragma unroll 1
  for (uint32_t left = row.rows * row.planes; left > 0; --left) {
    const char* const at = source_of<kPlanes>(s, row, n, plane) + column;
    if (++n == row.rows && kPlanes) n = 0, ++plane;
    const NearTerms<T> terms(s, near, element, at, nothing);
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      const Compute<T> own = widen(terms.own[k]), image = widen(terms.images[k]);
      if (s.columns.step != 0) sums[k] += near.is_below ? image : own;
      if (s.columns.step == 0 && !near.is_below) sums[k] += own;
    }
    if (s.columns.step == 0 && near.length > 0 && near.begin < static_cast<uint32_t>(kWords)) {
      Compute<T> sum = sums[0];
#pragma unroll
      for (int32_t k = 1; k < kWords; ++k) sum = near.begin == static_cast<uint32_t>(k) ? sums[k] : sum;
      sum = add_end<T>(near, at, sum);
#pragma unroll
      for (int32_t k = 0; k < kWords; ++k) sums[k] = near.begin == static_cast<uint32_t>(k) ? sum : sums[k];
    }
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      const Compute<T> own = widen(terms.own[k]), image = widen(terms.images[k]);
      if (s.columns.step != 0) sums[k] += near.is_below ? own : image;
      if (s.columns.step == 0 && near.is_below) sums[k] += own;
    }
  }
  ImagePart<T> part;
#pragma unroll
  for (int32_t k = 0; k < kWords; ++k) part.words[k] = narrow<T>(sums[k]);
  return part;
}

// Makes the compiler compute anew what depends on a value.
__device__ __forceinline__ void forget(uint32_t* value) { asm volatile("" : "+r"(*value)); }

// Writes words [begin, end) of a part.
template <typename T>
__device__ __forceinline__ void store_part(const ImagePart<T>& part, int32_t begin, int32_t end, char* destination) {
  constexpr int32_t kWords = kImageWords<T>;
  if (begin <= 0 && end >= kWords) {
    *reinterpret_cast<ImagePart<T>*>(destination) = part;
    return;
  }
#pragma unroll
  for (int32_t k = 0; k < kWords; ++k) {
    if ((k >= begin) & (k < end)) reinterpret_cast<T*>(destination)[k] = part.words[k];
  }
}

// Writes the words of a row that has several source rows, or none.
template <bool kPlanes, typename T>
__device__ __forceinline__ void write_several_rows(const ImageSums& sums, const Span& span, uint32_t element,
                                                   const SumRow& row) {
  constexpr int32_t kWords = kImageWords<T>;
#pragma unroll 1
  for (int32_t at = span.begin / kWords * kWords; at < span.end; at += kWords) {
    const ImagePart<T> part = sum_rows<kPlanes, T>(sums, row, element + static_cast<uint32_t>(at));
    store_part(part, span.begin - at, span.end - at, span.destination + at * static_cast<int32_t>(sizeof(T)));
  }
}

// Writes a vector that lies in one row with one source row, in which word 0 has the place `own`.
template <typename T>
__device__ __forceinline__ void write_one_row(const ImageSums& sums, const Span& span, uint32_t element,
                                              const char* own) {
  constexpr int32_t kWords = kImageWords<T>;
#pragma unroll 1
  for (int32_t at = span.begin / kWords * kWords; at < span.end; at += kWords) {
    const int32_t bytes = at * static_cast<int32_t>(sizeof(T));
    const ImagePart<T> part = sum_one_row<T>(sums, element + static_cast<uint32_t>(at), own + bytes);
    store_part(part, span.begin - at, span.end - at, span.destination + bytes);
  }
}

// Writes any vector.
template <bool kPlanes, typename T>
__device__ __forceinline__ void write_rows(const Slice<T>& s, const ImageSums& sums, uint32_t thread) {
  const Run<T> run = run_of<false>(s, thread);
  const Span span = span_of<T>(run.slot, run.destination, s.run_extent);
  const Divider& extent = s.axes[0].extent;
  Span piece = span;
#pragma unroll 1
  for (; piece.begin < span.end; piece.begin = piece.end) {
    const uint32_t first = run.number * s.run_extent + static_cast<uint32_t>(span.first + piece.begin);
    const uint32_t number = extent.divide(first);
    const uint32_t column = first - number * extent.divisor - static_cast<uint32_t>(piece.begin);  // of word 0
    const int32_t rest = static_cast<int32_t>(extent.divisor - column);
    piece.end = rest < span.end ? rest : span.end;
    const uint32_t element = column - sums.columns.origin;
    const SumRow row = sum_row<kPlanes>(s, sums, number);
    if (row.is_single()) {
      const int32_t place = sums.columns.low + static_cast<int32_t>(element);
      const char* const own = source_of<kPlanes>(sums, row, 0, 0) + place * static_cast<int32_t>(sizeof(T));
      write_one_row<T>(sums, piece, element, own);
    } else {
      write_several_rows<kPlanes, T>(sums, piece, element, row);
    }
  }
}

// A thread's vector and its first piece: word 0 is at `source` + `position` words, if the piece is inside, and the
// piece ends before word `split`.
struct VectorStart {
  Span span;
  int64_t source;
  uint32_t position;
  int32_t split;
};

template <typename T>
__device__ __forceinline__ VectorStart vector_start(const Slice<T>& s, uint32_t thread) {
  VectorStart start;
  if (!s.compact) {
    const Run<T> run = run_of<false>(s, thread);
    start.span = span_of<T>(run.slot, run.destination, s.run_extent);
    const Pieces pieces = first_piece_of<false>(s, start.span, run.row);
    start.source = pieces.first.source;
    start.position = pieces.first.position;
    start.split = pieces.split;
    return start;
  }
  constexpr int32_t kBytes = sizeof(T), kWords = kVectorBytes / kBytes;
  const DeviceAxis& inner = s.axes[0];
  const int32_t first = static_cast<int32_t>(thread) * kWords - s.head;
  start.span = {s.destination + static_cast<int64_t>(first) * kBytes, first, max(-first, 0),
                min(static_cast<int32_t>(s.run_extent) - first, kWords)};
  const uint32_t number = divide_by_several(inner.extent, static_cast<uint32_t>(max(first, 0)));
  const int32_t extent = static_cast<int32_t>(inner.extent.divisor);
  const int32_t column = first - static_cast<int32_t>(number) * extent;
  const CompactRow row = compact_row<false>(s, number);
  start.source = static_cast<int64_t>(row.source) * kBytes;
  start.position = row.inside ? static_cast<uint32_t>(column) - inner.begin : kOutside;
  start.split = extent - column;
  return start;
}

template <typename T, bool kPlanes>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks<kPlanes>)
    write_image_sums(const __grid_constant__ Slice<T> s, const __grid_constant__ ImageSums sums) {
  constexpr int32_t kWords = kVectorBytes / sizeof(T);
  uint32_t thread = blockIdx.x * kImageThreads + threadIdx.x;
  const VectorStart piece = vector_start(s, thread);
  const Span& span = piece.span;
  if (thread >= s.threads || span.begin >= span.end) return;
  const uint32_t count = s.axes[0].count;
  const int64_t source = piece.source + piece.position * static_cast<int64_t>(sizeof(T));
  const uint32_t shift = static_cast<uint32_t>(reinterpret_cast<uint64_t>(s.source) + source) % kVectorBytes;
  const int64_t aligned = source - shift;
  const bool is_copy = span.begin == 0 && span.end == kWords && piece.split >= kWords && piece.position < count &&
                       count - piece.position >= kWords && aligned >= s.readable_begin &&
                       aligned + 2 * kVectorBytes <= s.readable_end;
  if (!is_copy && (piece.position == kOutside || piece.split < span.end)) {
    // These are few: what they need is found anew, as keeping it would cost the others their registers.
    forget(&thread);
    write_rows<kPlanes>(s, sums, thread);
    return;
  }
  const uint4* const from = reinterpret_cast<const uint4*>(is_copy ? s.source + aligned : sums.any_vector);
  const uint4 low = begin_load(from), high = begin_load(from + 1);
  if (!is_copy) {
    const int32_t column = static_cast<int32_t>(piece.position) * static_cast<int32_t>(sizeof(T));
    write_one_row<T>(sums, span, piece.position + static_cast<uint32_t>(sums.window),
                     sums.inside + (piece.source + column));
  }
  // Without this the copies wait for their vectors before the edge begins.
  __syncwarp();
  if (is_copy) *reinterpret_cast<uint4*>(span.destination) = shifted(low, high, shift);
}

}  // namespace
}  // namespace baracuda::pad
