// SPDX-License-Identifier: Apache-2.0
// pixel_shuffle and pixel_unshuffle on CUDA: a thread owns 16 bytes of the wide image where it can, else an element.
//
//   path           calls
//   vectors        factors 2, 4 and 8 that divide the elements of 16 bytes; rows of whole vectors, aligned
//   narrow index   fewer than 2^31 elements
//   wide index     all
#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "core/paths.h"
#include "ops/pixel_shuffle/launch.h"
#include "ops/pixel_shuffle/math.h"

namespace baracuda::pixel_shuffle {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorBytes = 16;

// Loads and stores whole.
template <typename W, int kCount>
struct alignas(sizeof(W) * kCount) Pack {
  W of[kCount];
};

template <typename W>
__device__ __forceinline__ void move(const ShuffleBuffers<W>& b, int64_t wide, int64_t deep) {
  b.wide[wide] = b.deep[deep];
}
template <typename W>
__device__ __forceinline__ void move(const UnshuffleBuffers<W>& b, int64_t wide, int64_t deep) {
  b.deep[deep] = b.wide[wide];
}

// A vector of the wide image from `wide` on and kFactor pieces of it, one in each of the deep rows, `plane` apart.
template <int kFactor, typename W>
__device__ __forceinline__ void move_vector(const ShuffleBuffers<W>& b, int64_t wide, int64_t deep, int64_t plane) {
  constexpr int kCount = kVectorBytes / sizeof(W), kPiece = kCount / kFactor;
  Pack<W, kCount> vector;
#pragma unroll
  for (int j = 0; j < kFactor; ++j) {
    const auto piece = *reinterpret_cast<const Pack<W, kPiece>*>(b.deep + deep + j * plane);
#pragma unroll
    for (int k = 0; k < kPiece; ++k) vector.of[k * kFactor + j] = piece.of[k];
  }
  *reinterpret_cast<Pack<W, kCount>*>(b.wide + wide) = vector;
}
template <int kFactor, typename W>
__device__ __forceinline__ void move_vector(const UnshuffleBuffers<W>& b, int64_t wide, int64_t deep, int64_t plane) {
  constexpr int kCount = kVectorBytes / sizeof(W), kPiece = kCount / kFactor;
  const auto vector = *reinterpret_cast<const Pack<W, kCount>*>(b.wide + wide);
#pragma unroll
  for (int j = 0; j < kFactor; ++j) {
    Pack<W, kPiece> piece;
#pragma unroll
    for (int k = 0; k < kPiece; ++k) piece.of[k] = vector.of[k * kFactor + j];
    *reinterpret_cast<Pack<W, kPiece>*>(b.deep + deep + j * plane) = piece;
  }
}

// What a launch divides by, for numbers below 2^31.
struct Dividers {
  Divider row, factor, h;
};

// Where a place of a row of the wide image stands in the deep one: `row` counts rows, `w` pixels of the deep one.
__device__ __forceinline__ int64_t deep_place(const Problem& p, const Dividers& by, uint32_t row, uint32_t w) {
  const uint32_t group = by.factor.divide(row);
  const uint32_t plane = by.h.divide(group);
  return first_deep_row(p, plane, static_cast<int32_t>(group - plane * by.h.divisor),
                        static_cast<int32_t>(row - group * by.factor.divisor)) +
         w;
}

// `by.row` are vectors in a row of the wide image.
template <int kFactor, typename Buffers>
__global__ void __launch_bounds__(kThreads)
    move_vectors(const __grid_constant__ Problem p, const __grid_constant__ Buffers b,
                 const __grid_constant__ Dividers by, uint32_t vectors) {
  constexpr int kCount = kVectorBytes / sizeof(typename Buffers::Word);
  for (int64_t item = grid_thread(); item < vectors; item += grid_threads()) {
    const uint32_t vector = static_cast<uint32_t>(item);
    const uint32_t row = by.row.divide(vector);
    const uint32_t w = (vector - row * by.row.divisor) * (kCount / kFactor);
    move_vector<kFactor>(b, item * kCount, deep_place(p, by, row, w), deep_plane_numel(p));
  }
}

// `by.row` are elements in a row of the wide image.
template <typename Buffers>
__global__ void __launch_bounds__(kThreads)
    move_elements(const __grid_constant__ Problem p, const __grid_constant__ Buffers b,
                  const __grid_constant__ Dividers by) {
  for (int64_t item = grid_thread(); item < p.numel; item += grid_threads()) {
    const uint32_t element = static_cast<uint32_t>(item);
    const uint32_t row = by.row.divide(element), column = element - row * by.row.divisor;
    const uint32_t w = by.factor.divide(column), j = column - w * by.factor.divisor;
    move(b, item, deep_place(p, by, row, w) + j * deep_plane_numel(p));
  }
}

template <typename Buffers>
__global__ void __launch_bounds__(kThreads)
    move_elements_of_any_number(const __grid_constant__ Problem p, const __grid_constant__ Buffers b) {
  for (int64_t item = grid_thread(); item < p.numel; item += grid_threads()) {
    const Division row(item, p.wide_w), column(row.remainder, p.factor);
    const Division group(row.quotient, p.factor), plane(group.quotient, p.h);
    const int64_t deep = first_deep_row(p, plane.quotient, static_cast<int32_t>(plane.remainder),
                                        static_cast<int32_t>(group.remainder));
    move(b, item, deep + column.quotient + column.remainder * deep_plane_numel(p));
  }
}

template <typename Buffers>
struct VectorsPath {
  using Word = typename Buffers::Word;
  static constexpr int kCount = kVectorBytes / sizeof(Word);
  static const char* name() { return "vectors"; }
  const Request<Problem, Buffers>& call;

  static bool is_aligned(const void* pointer, size_t bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
  }
  bool can() const {
    const Problem& p = call.p;
    return (p.factor == 2 || p.factor == 4 || p.factor == 8) && p.factor <= kCount && p.wide_w % kCount == 0 &&
           p.numel / kCount <= INT32_MAX && is_aligned(call.b.wide, kVectorBytes) &&
           is_aligned(call.b.deep, kVectorBytes / p.factor);
  }
  template <int kFactor>
  Status enqueue_factor() const {
    if constexpr (kFactor > kCount) {
      return Status::kOk;  // can() has said no
    } else {
      const Problem& p = call.p;
      const int64_t vectors = p.numel / kCount;
      return launch_kernel("pixel_shuffle vector kernel", move_vectors<kFactor, Buffers>, blocks_for(vectors, kThreads),
                           kThreads, 0, call.stream, p, call.b,
                           Dividers{Divider(p.wide_w / kCount), Divider(p.factor), Divider(p.h)},
                           static_cast<uint32_t>(vectors));
    }
  }
  Status enqueue() const {
    switch (call.p.factor) {
      case 2: return enqueue_factor<2>();
      case 4: return enqueue_factor<4>();
      default: return enqueue_factor<8>();
    }
  }
};

template <typename Buffers>
struct NarrowIndexPath {
  static const char* name() { return "narrow index"; }
  const Request<Problem, Buffers>& call;
  bool can() const { return call.p.numel <= INT32_MAX; }
  Status enqueue() const {
    const Problem& p = call.p;
    return launch_kernel("pixel_shuffle kernel", move_elements<Buffers>, blocks_for(p.numel, kThreads), kThreads, 0,
                         call.stream, p, call.b, Dividers{Divider(p.wide_w), Divider(p.factor), Divider(p.h)});
  }
};

template <typename Buffers>
struct WideIndexPath {
  static const char* name() { return "wide index"; }
  const Request<Problem, Buffers>& call;
  Status enqueue() const {
    return launch_kernel("pixel_shuffle kernel", move_elements_of_any_number<Buffers>,
                         blocks_for(call.p.numel, kThreads), kThreads, 0, call.stream, call.p, call.b);
  }
};

template <typename Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace, Stream stream) {
  return Paths<VectorsPath<Buffers>, NarrowIndexPath<Buffers>, WideIndexPath<Buffers>>::enqueue(
      Request<Problem, Buffers>{p, b, workspace, stream});
}

}  // namespace

#define BARACUDA_PROVIDE(...) BARACUDA_PROVIDE_LAUNCH(Problem, __VA_ARGS__)
BARACUDA_PIXEL_SHUFFLE_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::pixel_shuffle
