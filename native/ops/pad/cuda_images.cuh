// SPDX-License-Identifier: Apache-2.0
// Sums where no pad is wider than its tensor: an element's images stand just below and just above it, side by side with
// those of its neighbours, so that the thread that owns a vector adds them up right away.
#pragma once

#include "ops/pad/cuda_slice.cuh"

namespace baracuda::pad {
namespace {

// Small blocks: one with an edge lasts longer, and keeps the places of all its warps until its end.
constexpr int kImageThreads = 128;
constexpr int kImageBlocks = 12;
// Words that a thread adds up at once.
template <typename T>
constexpr int32_t kImageWords = sizeof(T) < 4 ? 4 : kVectorBytes / static_cast<int32_t>(sizeof(T));

// What a pad adds to its axis: source places [first, first + count). Element i of [begin, begin + length) has the one
// at base + step * i; where the step is 0, the only element has them all.
struct PadImages {
  uint32_t first, count;
  uint32_t begin, length;
  int32_t base;
};

// Element i < kept stands at source place low + i, after all its images in the pad below and before those above.
struct ImageAxis {
  uint32_t origin, kept;  // in the destination
  int32_t low, step;
  PadImages below, above;
};

// How a slice is summed along its rows' axis and its columns'.
struct ImageSums {
  ImageAxis rows, columns;
  int32_t row_axis;    // its number, or kMaxAxes where rows have one place
  int64_t row_stride;  // of the source, in bytes
  int32_t window;      // the element where the columns' window begins
  const char* inside;  // its place, where the other axes' windows begin
  const char* source;  // where the axes that repeat have place 0
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
    sum.below = {0, low, 0, low > 0, 0};
    sum.above = {low + kept, high, kept - 1, high > 0, end};
  } else if (padded.mirror == 0) {
    sum.step = 1;
    sum.below = {0, low, kept - low, low, static_cast<int32_t>(low - kept)};
    sum.above = {low + kept, high, 0, high, end};
  } else {
    // Without a gap the mirror stands in the end element, which has no image in it.
    const uint32_t gap = padded.period - padded.mirror;
    sum.step = -1;
    sum.below = {0, low, 1 - gap, low, static_cast<int32_t>(low - gap)};
    sum.above = {low + kept, high, padded.mirror + 1 - kept - high, high, static_cast<int32_t>(low + padded.mirror)};
  }
  return sum;
}

// How many source places an element of an axis has at most.
inline uint64_t most_places(const ImageAxis& axis) {
  const uint64_t below = axis.step == 0 ? axis.below.count : axis.below.length > 0;
  const uint64_t above = axis.step == 0 ? axis.above.count : axis.above.length > 0;
  return below + 1 + above;
}

// Whether no `words` neighbours have images in both pads.
inline bool are_apart(const ImageAxis& axis, int64_t words) {
  const PadImages &low = axis.below, &high = axis.above;
  if (low.length == 0 || high.length == 0) return true;
  const int64_t up = int64_t{high.begin} - (int64_t{low.begin} + low.length - 1);
  const int64_t down = int64_t{low.begin} - (int64_t{high.begin} + high.length - 1);
  return up >= words || down >= words;
}

// Whether a slice can be summed so, and how.
template <typename T>
bool find_images(const Slice<T>& s, ImageSums* sums) {
  *sums = {};
  sums->row_axis = kMaxAxes;
  sums->rows.kept = 1;
  sums->source = s.source;
  if (!s.dense_rows || !s.inner_is_last || s.repeating - s.axes[0].repeats > 1) return false;
  uint64_t terms = 1;
  for (int32_t a = 0; a < s.rank; ++a) {
    const DeviceAxis& axis = s.axes[a];
    const ImageAxis sum = image_axis(axis);
    if (a == 0) {
      sums->columns = sum;
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
    sums->rows = sum;
    sums->row_axis = a;
    sums->row_stride = axis.source_stride;
  }
  return are_apart(sums->columns, kImageWords<T>);
}

__device__ __forceinline__ bool has(const PadImages& images, uint32_t element) {
  return element - images.begin < images.length;
}

// A destination row that has several source rows or none: where place 0 of the columns is in the axes that have one
// place, the row's element and how many places that has.
struct SumRow {
  const char* source;
  uint32_t element, places;
};

template <typename T>
__device__ __forceinline__ SumRow sum_row(const Slice<T>& s, const ImageSums& sums, uint32_t number) {
  SumRow row{sums.source, 0, 0};
  bool inside = true;
  uint32_t rest = number;
#pragma unroll
  for (int a = 1; a < kMaxAxes; ++a) {
    if (a >= s.rank) break;
    const DeviceAxis& axis = s.axes[a];
    const uint32_t above = axis.extent.divide(rest);
    const uint32_t index = rest - above * axis.extent.divisor;
    rest = above;
    if (a == sums.row_axis) {
      row.element = index - sums.rows.origin;
      continue;
    }
    const uint32_t offset = index - axis.begin;
    inside = inside && offset < axis.count;
    row.source += static_cast<int32_t>(offset) * axis.source_stride;
  }
  if (!inside || row.element >= sums.rows.kept) return row;
  row.places = 1;
  const bool ends = sums.rows.step == 0;
  if (has(sums.rows.below, row.element)) row.places += ends ? sums.rows.below.count : 1;
  if (has(sums.rows.above, row.element)) row.places += ends ? sums.rows.above.count : 1;
  return row;
}

// The source of a row's place that `k` others precede.
__device__ __forceinline__ const char* source_of(const ImageSums& sums, const SumRow& row, uint32_t k) {
  const ImageAxis& rows = sums.rows;
  const uint32_t several = rows.step == 0 ? rows.below.count : 1;
  const uint32_t below = has(rows.below, row.element) ? several : 0;
  const int32_t element = static_cast<int32_t>(row.element);
  int32_t place = rows.low + element;
  if (k < below) place = rows.below.base + rows.step * element + static_cast<int32_t>(k);
  if (k > below) place = rows.above.base + rows.step * element + static_cast<int32_t>(k - below - 1);
  return row.source + place * sums.row_stride;
}

template <typename T>
__device__ __forceinline__ T load_word(const char* at, int32_t k) {
  return reinterpret_cast<const T*>(at)[k];
}

// Neighbouring words of one row, of which the first is `element`.
template <typename T>
class ImageWords {
 public:
  static constexpr int32_t kWords = kImageWords<T>;

  __device__ __forceinline__ ImageWords(const ImageAxis& axis, uint32_t element) : axis_(axis), element_(element) {
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) sums_[k] = 0;
    const uint32_t reach = axis.below.length > 0 ? axis.below.length + (kWords - 1) : 0;
    is_below_ = element + (kWords - 1) - axis.below.begin < reach;
    const PadImages& pad = is_below_ ? axis.below : axis.above;
    first_ = pad.first;
    count_ = pad.count;
    base_ = pad.base;
    begin_ = pad.begin;
  }

  // Adds the terms of one source row; `own` is the place of word 0. -0 changes no sum.
  __device__ __forceinline__ void add(const char* own) {
    const T nothing = narrow<T>(Compute<T>(-0.0));
    const char* const image = own + distance() * static_cast<int32_t>(sizeof(T));
    T images[kWords];
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      own_[k] = element_ + static_cast<uint32_t>(k) < axis_.kept ? load_word<T>(own, k) : nothing;
      images[k] = nothing;
    }
    if (axis_.step == 0) {
      add_end(image);
      return;
    }
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      if (lowest() - first_ + static_cast<uint32_t>(k) < count_) images[k] = load_word<T>(image, k);
    }
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      const Compute<T> one = widen(own_[k]), other = widen(axis_.step < 0 ? images[kWords - 1 - k] : images[k]);
      sums_[k] += is_below_ ? other : one;
      sums_[k] += is_below_ ? one : other;
    }
  }

  // Word k, of which `rows` source rows were added. A single term is no sum: it keeps its bits.
  __device__ __forceinline__ T result(int32_t k, bool one_row) const {
    const uint32_t element = element_ + static_cast<uint32_t>(k);
    const bool single = one_row & (element < axis_.kept) & !has(axis_.below, element) & !has(axis_.above, element);
    return single ? own_[k] : narrow<T>(sums_[k]);
  }

 private:
  // The lowest source place of an image.
  __device__ __forceinline__ uint32_t lowest() const {
    const uint32_t nearest = static_cast<uint32_t>(base_) + static_cast<uint32_t>(axis_.step) * element_;
    return axis_.step < 0 ? nearest - (kWords - 1) : nearest;
  }

  // How far that is from the place of word 0.
  __device__ __forceinline__ int32_t distance() const {
    return static_cast<int32_t>(lowest() - static_cast<uint32_t>(axis_.low) - element_);
  }

  // One word may be the end that repeats.
  __device__ __forceinline__ void add_end(const char* image) {
    const Compute<T> nothing = Compute<T>(-0.0);
    const uint32_t word = begin_ - element_;
    Compute<T> sum = nothing;
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      if (!is_below_) sums_[k] += widen(own_[k]);
      sum = word == static_cast<uint32_t>(k) ? sums_[k] : sum;
    }
    const uint32_t count = word < static_cast<uint32_t>(kWords) ? count_ : 0;
#pragma unroll 1
    for (uint32_t n = 0; n < count; ++n) {
      sum += widen(load_word<T>(image, 0));
      image += sizeof(T);
    }
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      sums_[k] = word == static_cast<uint32_t>(k) ? sum : sums_[k];
      if (is_below_) sums_[k] += widen(own_[k]);
    }
  }

  const ImageAxis& axis_;
  uint32_t element_;
  bool is_below_;
  uint32_t first_, count_, begin_;
  int32_t base_;
  Compute<T> sums_[kWords];
  T own_[kWords];
};

// Writes words [begin, end) of a vector's part at `destination`.
template <typename T>
__device__ __forceinline__ void store_part(const ImageWords<T>& words, bool one_row, int32_t begin, int32_t end,
                                           char* destination) {
  constexpr int32_t kWords = ImageWords<T>::kWords;
  struct alignas(kWords * sizeof(T)) Whole {
    T words[kWords];
  } whole;
#pragma unroll
  for (int32_t k = 0; k < kWords; ++k) whole.words[k] = words.result(k, one_row);
  if (begin <= 0 && end >= kWords) {
    *reinterpret_cast<Whole*>(destination) = whole;
    return;
  }
#pragma unroll
  for (int32_t k = 0; k < kWords; ++k) {
    if ((k >= begin) & (k < end)) reinterpret_cast<T*>(destination)[k] = whole.words[k];
  }
}

// Writes a vector of sums, the words of one row after those of the other.
template <typename T>
__device__ __forceinline__ void write_images(const Slice<T>& s, const ImageSums& sums, uint32_t run, const Span& span,
                                             const Pieces& pieces) {
  constexpr int32_t kWords = kImageWords<T>;
  constexpr int32_t kBytes = sizeof(T);
  Stretch piece = pieces.first;
  int32_t begin = span.begin, end = pieces.split < span.end ? pieces.split : span.end;
#pragma unroll 1
  while (begin < span.end) {
    // A row inside has one place, which is known.
    uint32_t element = piece.position + static_cast<uint32_t>(sums.window);  // of word 0
    const char* own = sums.inside + (piece.source + static_cast<int32_t>(piece.position) * kBytes);
    SumRow row{nullptr, 0, 1};
    if (piece.position == kOutside) {
      const uint32_t number = run * s.run_extent + static_cast<uint32_t>(span.first + begin);
      const uint32_t above = s.axes[0].extent.divide(number);
      element = number - above * s.axes[0].extent.divisor - static_cast<uint32_t>(begin) - sums.columns.origin;
      row = sum_row(s, sums, above);
    }
#pragma unroll 1
    for (int32_t at = begin / kWords * kWords; at < end; at += kWords) {
      const uint32_t first = element + static_cast<uint32_t>(at);
      const int32_t column = sums.columns.low + static_cast<int32_t>(first);
      ImageWords<T> words(sums.columns, first);
#pragma unroll 1
      for (uint32_t k = 0; k < row.places; ++k) {
        words.add(row.source == nullptr ? own + at * kBytes : source_of(sums, row, k) + column * kBytes);
      }
      store_part(words, row.places == 1, begin - at, end - at, span.destination + at * kBytes);
    }
    begin = end;
    end = span.end;
    piece.position = kOutside;
  }
}

template <typename T>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    write_image_sums(const __grid_constant__ Slice<T> s, const __grid_constant__ ImageSums sums) {
  const uint32_t thread = blockIdx.x * kImageThreads + threadIdx.x;
  if (thread >= s.threads) return;
  const Run<T> run = run_of<false>(s, thread);
  const Span span = span_of<T>(run.slot, run.destination, s.run_extent);
  if (span.begin >= span.end) return;
  const Pieces pieces = first_piece_of<false>(s, span, run.row);
  if (!copy_vector(s, span, pieces)) write_images(s, sums, run.number, span, pieces);
}

}  // namespace
}  // namespace baracuda::pad
