// SPDX-License-Identifier: Apache-2.0
// Sums over planes whose rows are whole aligned vectors and whose elements have one image an axis at most, or whose
// ends alone have images: all terms of a vector are on their way at once, by code and parameters so short that a cold
// start does not show.
#pragma once

#include "core/cuda_instructions.cuh"
#include "ops/pad/cuda/images.cuh"

namespace baracuda::pad {
namespace {

constexpr int kPlaneThreads = 128;
constexpr int kPlaneBlocks = 12;  // of a multiprocessor, hence 40 registers

// The images that a pad holds: elements [begin, begin + length) have one each, `distance` + slope * element source
// places from their own.
struct PadDistances {
  uint32_t begin, length;
  int32_t distance;
};

struct AxisDistances {
  PadDistances below, above;
  int32_t slope;
};

// How a compact slice's planes are summed. Strides and places are in elements of the source.
struct PlaneSums {
  const char* source;  // where element 0 of row 0 of plane 0 stands
  uint4* destination;
  uint32_t vectors;
  Divider row_vectors, rows;  // vectors of a row, rows of a plane
  int32_t row_step, plane_step;
  int32_t first_readable;  // a vector that begins at one of so many places lies in two aligned ones that may be read
  uint32_t readable;
  uint32_t below_reach;  // of elements that begin a vector with an image in the columns' lower pad
  AxisDistances columns_images, rows_images;
  // Where only ends have images they may have several, side by side. Then the columns' are so many (`length`) at a
  // distance from word 0 of the end's vector, and these are the rows'.
  bool only_ends;
  uint32_t rows_below, rows_above;
};

inline PadDistances pad_distances(const ImageAxis& axis, const PadImages& pad) {
  const int32_t first = axis.step == 0 ? static_cast<int32_t>(pad.begin) : 0;
  return {pad.begin, pad.length, pad.base - axis.low - first};
}

// Whether an axis is all there and no element has images on both sides; if so, where they are.
inline bool find_distances(const DeviceAxis& device, const ImageAxis& axis, AxisDistances* found) {
  if (axis.origin != 0 || axis.kept != device.extent.divisor || !are_apart(axis, 1)) return false;
  *found = {pad_distances(axis, axis.below), pad_distances(axis, axis.above), axis.step < 0 ? -2 : 0};
  return true;
}

// Whether a slice of which find_images() said how it is summed is such planes, and how they are.
template <typename T>
bool find_planes(const Slice<T>& s, const ImageSums& images, PlaneSums* sums) {
  constexpr int64_t kBytes = sizeof(T), kWords = kVectorBytes / kBytes;
  if (!s.compact || s.head != 0 || s.rank < 2 || s.rank > 3) return false;
  const DeviceAxis &columns = s.axes[0], &rows = s.axes[1], &planes = s.axes[2];
  if (columns.extent.divisor % kWords != 0 || columns.extent.divisor < 2 * kWords) return false;
  *sums = {};
  if (!find_distances(columns, images.columns, &sums->columns_images)) return false;
  const ImageAxis along_rows = rows.repeats ? images.rows.images : image_axis(rows);
  if (!find_distances(rows, along_rows, &sums->rows_images)) return false;
  const auto widest_end = [](const ImageAxis& axis) {
    return axis.step == 0 ? at_least(axis.below.count, axis.above.count) : int64_t{0};
  };
  sums->only_ends = at_least(widest_end(images.columns), widest_end(along_rows)) > 1;
  if (sums->only_ends) {
    if (images.columns.step != 0 || along_rows.step != 0 || widest_end(images.columns) > kWords) return false;
    const uint32_t below = images.columns.below.count, above = images.columns.above.count;
    sums->columns_images.below = {0, below, -static_cast<int32_t>(below)};
    sums->columns_images.above = {0, above, static_cast<int32_t>(kWords)};
    sums->rows_below = along_rows.below.count;
    sums->rows_above = along_rows.above.count;
  }
  if (s.rank == 3 && (planes.repeats || planes.begin != 0 || planes.count != planes.extent.divisor)) return false;
  sums->source = images.source + images.columns.low * kBytes + along_rows.low * rows.source_stride;
  sums->destination = reinterpret_cast<uint4*>(s.destination);
  sums->vectors = s.threads;
  sums->row_vectors = Divider(columns.extent.divisor / kWords);
  sums->rows = rows.extent;
  sums->row_step = rows.step;
  sums->plane_step = s.rank == 3 ? planes.step : 0;
  const PadDistances& below = sums->columns_images.below;
  sums->below_reach = below.length > 0 ? below.length + (kWords - 1) : 0;
  const int64_t begin = static_cast<int64_t>(reinterpret_cast<uint64_t>(s.source)) + s.readable_begin;
  const int64_t end = begin + (s.readable_end - s.readable_begin);
  const int64_t from = static_cast<int64_t>(reinterpret_cast<uint64_t>(sums->source));
  const int64_t first = ceil_div(begin, kVectorBytes) * kVectorBytes, last = end / kVectorBytes * kVectorBytes;
  sums->first_readable = static_cast<int32_t>((first - from) / kBytes);
  sums->readable = static_cast<uint32_t>(at_least(last - kVectorBytes - first, 0) / kBytes);
  return true;
}

// The images of a vector's words in a source row, counted from the row's words: those of word k, or where only ends
// have images the k-th.
template <int32_t kWords, bool kEnds>
struct ColumnImages {
  bool is_below;
  uint32_t begin, length;  // the k that there are
  int32_t distance, step;  // of the first from word 0, and from one to the next

  __device__ __forceinline__ ColumnImages(const PlaneSums& p, uint32_t element) {
    const AxisDistances& axis = p.columns_images;
    if (kEnds) {
      is_below = element == 0;
      const bool is_last = element + kWords == p.row_vectors.divisor * kWords;
      begin = 0;
      length = is_below ? axis.below.length : is_last ? axis.above.length : 0;
      distance = is_below ? axis.below.distance : axis.above.distance;
      step = 1;
      return;
    }
    const uint32_t words_after = p.below_reach - axis.below.length;
    is_below = element + words_after - axis.below.begin < p.below_reach;
    begin = (is_below ? axis.below.begin : axis.above.begin) - element;
    length = is_below ? axis.below.length : axis.above.length;
    distance = (is_below ? axis.below.distance : axis.above.distance) + axis.slope * static_cast<int32_t>(element);
    step = 1 + axis.slope;
  }
  __device__ __forceinline__ bool has(int32_t k) const { return static_cast<uint32_t>(k) - begin < length; }
  // Whether a word has images.
  __device__ __forceinline__ bool are_of(int32_t word) const {
    return kEnds ? length > 0 && word == (is_below ? 0 : kWords - 1) : has(word);
  }
};

// The images' terms in a source row, of which word 0 is `at`, on their way. What there is none of gets -0, which
// changes no sum.
template <typename T, int32_t kWords, bool kEnds>
__device__ __forceinline__ void begin_images(const ColumnImages<kWords, kEnds>& columns, const char* at,
                                             T (&images)[kWords]) {
  constexpr int32_t kBytes = sizeof(T);
  const char* const image = at + static_cast<int64_t>(columns.distance) * kBytes;
  const int64_t step = columns.step * kBytes;
#pragma unroll
  for (int32_t k = 0; k < kWords; ++k) {
    images[k] = T(-0.0);
    begin_word_if(&images[k], image + k * step, columns.has(k));
  }
}

// A vector of the destination: one source row that all have, and for few rows others.
template <typename T, bool kEnds>
class PlaneVector {
 public:
  static constexpr int32_t kBytes = sizeof(T), kWords = kVectorBytes / kBytes;
  using Columns = ColumnImages<kWords, kEnds>;

  // Starts the loads of two rows. `place` is word 0's own.
  __device__ __forceinline__ void begin(const PlaneSums& p, const Columns& columns, uint32_t row, uint32_t place) {
    const PadDistances &below = p.rows_images.below, &above = p.rows_images.above;
    const bool is_below = row - below.begin < below.length;
    has_two_ = is_below || row - above.begin < above.length;
    const int32_t slope = p.rows_images.slope * static_cast<int32_t>(row);
    const int32_t distance = (is_below ? below.distance : above.distance) + slope;
    const uint32_t other = has_two_ ? place + static_cast<uint32_t>(distance * p.row_step) : place;
    place_ = static_cast<int32_t>(is_below ? other : place);
    if (kEnds) rows_ = has_two_ ? 1 + (is_below ? p.rows_below : p.rows_above) : 1;
    // Where only ends have images the compiler waits for the row's own terms before it begins what comes after them.
    if (!kEnds) begin_first(p);
    begin_images(columns, address(p, place_), images_);
    if (has_two_) {
      const int32_t next = kEnds ? place_ + p.row_step : static_cast<int32_t>(is_below ? place : other);
      begin_row(columns, address(p, next), second_own_, second_images_);
    }
    if (kEnds) begin_first(p);
  }

  __device__ __forceinline__ uint4 finish(const PlaneSums& p, const Columns& columns) const {
    const char* const at = address(p, place_);
    uint4 vector = shifted(low_, high_, shift_of(at));
    alignas(kVectorBytes) T words[kWords];
    memcpy(words, &vector, sizeof words);
    if (!is_readable(p)) {
#pragma unroll
      for (int32_t k = 0; k < kWords; ++k) words[k] = load_word<T>(at, k);
    }
    Compute<T> sums[kWords];
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      // Two terms have no order, and the zero that all sums begin with comes last as well as first.
      sums[k] = kEnds ? Compute<T>(0) : widen(words[k]) + widen(images_[k]) + 0;
    }
    if (kEnds) add_row(columns, words, images_, sums);
    if (has_two_) add_row(columns, second_own_, second_images_, sums);
    if (kEnds) {
#pragma unroll 1
      for (uint32_t n = 2; n < rows_; ++n) {
        T own[kWords], images[kWords];
        begin_row(columns, address(p, place_ + static_cast<int32_t>(n) * p.row_step), own, images);
        add_row(columns, own, images, sums);
      }
    }
    // A single term is no sum: it keeps its bits.
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      if (has_two_ || columns.are_of(k)) words[k] = narrow<T>(sums[k]);
    }
    memcpy(&vector, words, sizeof vector);
    return vector;
  }

 private:
  static __device__ __forceinline__ const char* address(const PlaneSums& p, int32_t place) {
    return p.source + static_cast<int64_t>(place) * kBytes;
  }
  static __device__ __forceinline__ uint32_t shift_of(const char* at) {
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(at)) % kVectorBytes;
  }
  __device__ __forceinline__ bool is_readable(const PlaneSums& p) const {
    return static_cast<uint32_t>(place_) - static_cast<uint32_t>(p.first_readable) < p.readable;
  }

  __device__ __forceinline__ void begin_first(const PlaneSums& p) {
    const char* const at = address(p, place_);
    const uint64_t vector = reinterpret_cast<uint64_t>(at) / kVectorBytes * kVectorBytes;
    const uint4* const from = reinterpret_cast<const uint4*>(vector);
    low_ = begin_load_if(from, is_readable(p));
    high_ = begin_load_if(from + 1, is_readable(p) && shift_of(at) != 0);
  }

  static __device__ __forceinline__ void begin_row(const Columns& columns, const char* at, T (&own)[kWords],
                                                   T (&images)[kWords]) {
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) own[k] = load_word<T>(at, k);
    begin_images(columns, at, images);
  }

  // Adds a row's terms in their order.
  static __device__ __forceinline__ void add_row(const Columns& columns, const T (&own)[kWords],
                                                 const T (&images)[kWords], Compute<T> (&sums)[kWords]) {
    const T nothing = T(-0.0);
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      if (kEnds) sums[0] += widen(columns.is_below ? images[k] : nothing);
      if (!kEnds) sums[k] += widen(columns.is_below ? images[k] : own[k]);
    }
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) sums[k] += widen(kEnds || columns.is_below ? own[k] : images[k]);
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      if (kEnds) sums[kWords - 1] += widen(columns.is_below ? nothing : images[k]);
    }
  }

  uint4 low_, high_;
  T images_[kWords], second_own_[kWords], second_images_[kWords];
  int32_t place_;
  uint32_t rows_;  // set where only ends have images
  bool has_two_;
};

template <typename T, bool kEnds>
__global__ void __launch_bounds__(kPlaneThreads, kPlaneBlocks) write_plane_sums(const __grid_constant__ PlaneSums p) {
  constexpr int32_t kWords = kVectorBytes / sizeof(T);
  const uint32_t vector = blockIdx.x * kPlaneThreads + threadIdx.x;
  if (vector >= p.vectors) return;
  const uint32_t number = divide_by_several(p.row_vectors, vector);
  const uint32_t element = (vector - number * p.row_vectors.divisor) * kWords;
  const uint32_t plane = divide_by_several(p.rows, number), row = number - plane * p.rows.divisor;
  const ColumnImages<kWords, kEnds> columns(p, element);
  const uint32_t row_begin = plane * static_cast<uint32_t>(p.plane_step) + row * static_cast<uint32_t>(p.row_step);
  PlaneVector<T, kEnds> sums;
  sums.begin(p, columns, row, row_begin + element);
  // Without this some loads are waited for before others are on their way.
  __syncwarp();
  p.destination[vector] = sums.finish(p, columns);
}

}  // namespace
}  // namespace baracuda::pad
