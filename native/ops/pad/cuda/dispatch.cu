// SPDX-License-Identifier: Apache-2.0
// Pad on CUDA: which path a call takes. Mostly a thread owns one aligned 16-byte vector of the destination. A call is
// cut into slices whose elements 32 bits can count, each of which takes the first path that can.
//
//   path of moves    slices                                                     code
//   halves           words of 16 bytes that lie between vectors (whole calls)   halves.cuh
//   short rows       rows of a few vectors that begin with the slice            short_rows.cuh
//   staged tiles     many small tensors, one after the other                    tiles.cuh
//   folded rows      the destination is one run; edges repeat the source        rows.cuh
//   filled rows      the destination is one run; edges hold the value           rows.cuh
//   vectors          all                                                        vectors.cuh
//
//   path of sums     slices                                                     code
//   staged tiles     many small tensors, one after the other                    tiles.cuh
//   planes           dense planes of whole vectors, one image an axis           planes.cuh
//   images           dense rows; elements have few images                       images.cuh
//   elements         all                                                        element_sums.cuh
#include "core/checked.h"
#include "core/paths.h"
#include "ops/pad/cuda/element_sums.cuh"
#include "ops/pad/cuda/halves.cuh"
#include "ops/pad/cuda/images.cuh"
#include "ops/pad/cuda/planes.cuh"
#include "ops/pad/cuda/rows.cuh"
#include "ops/pad/cuda/short_rows.cuh"
#include "ops/pad/cuda/slice.cuh"
#include "ops/pad/cuda/tiles.cuh"
#include "ops/pad/cuda/vectors.cuh"

namespace baracuda::pad {
namespace {

// What one launch is asked to write.
template <typename T>
struct SliceRequest {
  const Problem& p;
  const Slice<T>& slice;
  Stream stream;
};

template <typename T, bool kSums>
struct StagedPath {
  static const char* name() { return "staged tiles"; }
  const SliceRequest<T>& call;
  Tiles tiles{};
  bool is_cut;

  explicit StagedPath(const SliceRequest<T>& request)
      : call(request), is_cut(cut_into_tiles(request.p, request.slice, kSums, &tiles)) {}
  bool can() const { return is_cut; }
  Status enqueue() const {
    uint32_t blocks = 0;
    BARACUDA_RETURN_IF_FAILED(blocks_that_share(tiles, &blocks));
    return launch_kernel(kSums ? "staged pad gradient kernel" : "staged pad kernel", write_tiles<T, kSums>, blocks,
                         kTileThreads, tiles.shared_bytes, call.stream, call.slice, tiles);
  }
};

// --- moves -----------------------------------------------------------------------------------------------------------

template <typename Word>
struct ShortRowsPath {
  static const char* name() { return "short rows"; }
  const SliceRequest<Word>& call;
  ShortRows rows;
  bool are_short;

  explicit ShortRowsPath(const SliceRequest<Word>& request)
      : call(request), are_short(find_short_rows(request.slice, &rows)) {}
  bool can() const { return are_short; }
  Status enqueue() const {
    return launch_kernel("pad kernel", write_short_rows<Word>, blocks_for(rows.count, kShortThreads), kShortThreads, 0,
                         call.stream, call.slice, source_vectors(call.slice), rows);
  }
};

template <typename Word>
struct FoldedRowsPath {
  static const char* name() { return "folded rows"; }
  const SliceRequest<Word>& call;
  bool can() const { return call.slice.compact && call.slice.folds; }
  Status enqueue() const {
    return launch_kernel("pad kernel", write_folded<Word>, blocks_for(call.slice.threads, kFoldThreads), kFoldThreads,
                         0, call.stream, call.slice, source_vectors(call.slice));
  }
};

template <typename Word>
struct FilledRowsPath {
  static const char* name() { return "filled rows"; }
  const SliceRequest<Word>& call;
  bool can() const {
    const Slice<Word>& s = call.slice;
    constexpr int64_t kWords = kVectorBytes / sizeof(Word);
    // Where nothing is filled and rows are whole vectors, all are plain copies.
    const bool copies = sizeof(Word) > 2 && is_filled_nowhere(s) && s.axes[0].extent.divisor % kWords == 0;
    return s.compact && !s.folds && !copies && s.axes[0].count >= kWords;
  }
  Status enqueue() const {
    return launch_kernel("pad kernel", write_filled<Word>, blocks_for(call.slice.threads, kFillThreads), kFillThreads,
                         0, call.stream, call.slice, source_vectors(call.slice));
  }
};

template <typename Word>
struct VectorsPath {
  static const char* name() { return "vectors"; }
  const SliceRequest<Word>& call;
  Status enqueue() const {
    const bool folds = call.slice.folds;
    const int threads = folds ? kMoveThreads<true> : kMoveThreads<false>;
    return launch_kernel("pad kernel", folds ? write_vectors<Word, true> : write_vectors<Word, false>,
                         blocks_for(call.slice.threads, threads), threads, 0, call.stream, call.slice);
  }
};

template <typename Word>
constexpr auto move_paths() {
  if constexpr (sizeof(Word) <= kBankBytes) {
    return Paths<ShortRowsPath<Word>, StagedPath<Word, false>, FoldedRowsPath<Word>, FilledRowsPath<Word>,
                 VectorsPath<Word>>();
  } else if constexpr (sizeof(Word) < kVectorBytes) {
    return Paths<StagedPath<Word, false>, FoldedRowsPath<Word>, FilledRowsPath<Word>, VectorsPath<Word>>();
  } else {
    return Paths<StagedPath<Word, false>, VectorsPath<Word>>();
  }
}

template <typename Word>
Status launch_slice(const Problem& p, const Moves<Word>& b, Stream stream) {
  const Slice<Word> slice = make_slice(p, b.source, b.destination, b.value);
  return decltype(move_paths<Word>())::enqueue(SliceRequest<Word>{p, slice, stream});
}

// --- sums ------------------------------------------------------------------------------------------------------------

template <typename T>
struct ImagesPath {
  static const char* name() { return "images"; }
  const SliceRequest<T>& call;
  ImageSums sums;
  bool are_found;

  explicit ImagesPath(const SliceRequest<T>& request)
      : call(request), are_found(find_images(request.slice, &sums)) {}
  bool can() const { return are_found; }
  Status enqueue() const {
    const bool has_planes = sums.planes.axis < kMaxAxes;
    return launch_kernel("pad gradient kernel", has_planes ? write_image_sums<T, true> : write_image_sums<T, false>,
                         blocks_for(call.slice.threads, kImageThreads), kImageThreads, 0, call.stream, call.slice,
                         sums);
  }
};

template <typename T>
struct PlanesPath {
  static const char* name() { return "planes"; }
  const SliceRequest<T>& call;
  PlaneSums planes;
  bool are_found;

  explicit PlanesPath(const SliceRequest<T>& request) : call(request) {
    ImageSums images;
    are_found = find_images(request.slice, &images) && find_planes(request.slice, images, &planes);
  }
  bool can() const { return are_found; }
  Status enqueue() const {
    return launch_kernel("pad gradient kernel",
                         planes.only_ends ? write_plane_sums<T, true> : write_plane_sums<T, false>,
                         blocks_for(planes.vectors, kPlaneThreads), kPlaneThreads, 0, call.stream, planes);
  }
};

template <typename T>
struct ElementsPath {
  static const char* name() { return "elements"; }
  const SliceRequest<T>& call;
  Status enqueue() const {
    return launch_kernel("pad gradient kernel", write_sums<T>, blocks_for(call.slice.threads, kSumThreads), kSumThreads,
                         0, call.stream, call.slice);
  }
};

template <typename T>
constexpr auto sum_paths() {
  if constexpr (sizeof(T) >= 4) {
    return Paths<StagedPath<T, true>, PlanesPath<T>, ImagesPath<T>, ElementsPath<T>>();
  } else {
    return Paths<StagedPath<T, true>, ImagesPath<T>, ElementsPath<T>>();
  }
}

template <typename T>
Status launch_slice(const Problem& p, const Sums<T>& b, Stream stream) {
  const Slice<T> slice = make_slice(p, b.source, b.destination, T{});
  return decltype(sum_paths<T>())::enqueue(SliceRequest<T>{p, slice, stream});
}

// --- calls -----------------------------------------------------------------------------------------------------------

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

struct HalvesPath {
  static const char* name() { return "halves"; }
  const Request<Problem, Moves<Word128>>& call;
  Status enqueue() const {
    return launch_kernel("pad kernel", write_halves, blocks_for(call.p.numel, kHalfThreads), kHalfThreads, 0,
                         call.stream, call.p, call.b);
  }
};

// Where words of 16 bytes lie decides what type they have, and that which paths there are.
Status run(const Problem& p, const Moves<Word128>& b, void* workspace, Stream stream) {
  const auto places = reinterpret_cast<uint64_t>(b.source) | reinterpret_cast<uint64_t>(b.destination);
  if (places % kVectorBytes == 0) {
    return launch_slices(p,
                         Moves<AlignedWord128>{reinterpret_cast<const AlignedWord128*>(b.source),
                                               reinterpret_cast<AlignedWord128*>(b.destination),
                                               bits_as<AlignedWord128>(b.value)},
                         0, stream);
  }
  return Paths<HalvesPath>::enqueue(Request<Problem, Moves<Word128>>{p, b, workspace, stream});
}

}  // namespace

#define BARACUDA_PROVIDE(BUFFERS) BARACUDA_PROVIDE_LAUNCH(Problem, BUFFERS)
BARACUDA_PAD_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::pad
