// SPDX-License-Identifier: Apache-2.0
// Position-sensitive pooling on CUDA. By samples the forward begins with a launch that tabulates every box's weights,
// which is roi_align's.
//
//   forward path   calls          code
//   bins           all            here; a thread a bin: neighbours have neighbouring bins of a row
//
//   backward path  calls          code
//   zeros          empty ones     core/cuda_zeros.cuh
//   tiles          all            cuda_tiles.cuh
#include <type_traits>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/ps_roi/cuda_tiles.cuh"
#include "ops/ps_roi/launch.h"
#include "ops/ps_roi/math.h"
#include "ops/roi_align/cuda/tables.cuh"

namespace baracuda::ps_roi {
namespace {

// The boxes by samples, as the forward has them.
template <typename C>
struct SampledBoxes {
  roi_align::BoxTables<C> tables;

  __device__ int32_t image(const Problem&, int64_t r) const { return tables.boxes[r].image; }

  template <typename T>
  __device__ C pooled(const Problem& p, int64_t r, int32_t ph, int32_t pw, const T* plane) const {
    return samples_of(plane, p.w, tables.y(r), ph, tables.x(r), pw);
  }
};

// The boxes by averages.
template <typename C>
struct AveragedBoxes {
  const C* rois;

  __device__ int32_t image(const Problem& p, int64_t r) const { return AverageBox<C>(rois + 5 * r, p).image; }

  template <typename T>
  __device__ C pooled(const Problem& p, int64_t r, int32_t ph, int32_t pw, const T* plane) const {
    return mean_of(plane, p.w, AverageBox<C>(rois + 5 * r, p).pixels(ph, pw));
  }
};

template <typename C, Kind kKind>
using Boxes = std::conditional_t<kKind == Kind::kSamples, SampledBoxes<C>, AveragedBoxes<C>>;

template <Kind kKind, typename C>
Boxes<C, kKind> boxes_of(const Problem& p, const C* rois, void* workspace) {
  if constexpr (kKind == Kind::kSamples) {
    return {roi_align::BoxTables<C>(p.boxes, workspace)};
  } else {
    return {rois};
  }
}

// Tabulates the boxes where that is done.
template <typename C>
Status prepare(const Problem& p, const C* rois, const SampledBoxes<C>& boxes, Stream stream) {
  if (p.boxes.input_numel == 0 || p.boxes.output_numel == 0) return Status::kOk;
  return roi_align::tabulate(p.boxes, rois, boxes.tables, stream);
}
template <typename C>
Status prepare(const Problem&, const C*, const AveragedBoxes<C>&, Stream) {
  return Status::kOk;
}

template <Kind kKind, typename C>
size_t bytes_of_boxes(const Problem& p) {
  return kKind == Kind::kSamples ? roi_align::BoxTables<C>(p.boxes, nullptr).bytes : 0;
}

constexpr int kPoolThreads = 128;

template <typename T, class Found>
__global__ void __launch_bounds__(kPoolThreads)
    pool_bins(const __grid_constant__ Problem p, const T* input, T* output, const __grid_constant__ Found boxes) {
  using C = Compute<T>;
  for (int64_t at = grid_thread(); at < p.output_numel; at += grid_threads()) {
    const Division by_column(at, p.pooled_w), by_row(by_column.quotient, p.pooled_h), by_channel(by_row.quotient, p.c);
    const int64_t r = by_channel.quotient;
    const int32_t ph = static_cast<int32_t>(by_row.remainder), pw = static_cast<int32_t>(by_column.remainder);
    const int32_t image = p.input_numel > 0 ? boxes.image(p, r) : -1;
    C value = C(0);
    if (image >= 0) {
      const int64_t map = ((image * int64_t{p.c} + by_channel.remainder) * p.pooled_h + ph) * p.pooled_w + pw;
      value = boxes.pooled(p, r, ph, pw, input + map * p.plane());
    }
    output[at] = narrow<T>(value);
  }
}

template <typename T, Kind kKind>
struct BinsPath {
  static const char* name() { return "bins"; }
  const Request<Problem, ForwardBuffers<T, kKind>>& call;
  Status enqueue() const {
    using Found = Boxes<Compute<T>, kKind>;
    const Found boxes = boxes_of<kKind>(call.p, call.b.rois, call.workspace);
    BARACUDA_RETURN_IF_FAILED(prepare(call.p, call.b.rois, boxes, call.stream));
    return launch_kernel("ps_roi kernel", pool_bins<T, Found>, blocks_for(call.p.output_numel, kPoolThreads),
                         kPoolThreads, 0, call.stream, call.p, call.b.input, call.b.output, boxes);
  }
};

template <typename T, Kind kKind>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, BackwardBuffers<T, kKind>>& call;
  bool can() const { return call.p.input_numel == 0 || call.p.output_numel == 0; }
  Status enqueue() const {
    return enqueue_zeros(call.b.grad_input, static_cast<size_t>(call.p.input_numel) * sizeof(T), call.stream);
  }
};

template <typename T, Kind kKind>
struct TilesPath {
  static const char* name() { return "tiles"; }
  const Request<Problem, BackwardBuffers<T, kKind>>& call;
  Status enqueue() const { return enqueue_tiles(call.p, call.b, call.stream); }
};

template <typename T, Kind kKind>
Status run(const Problem& p, const ForwardBuffers<T, kKind>& b, void* workspace, Stream stream) {
  return Paths<BinsPath<T, kKind>>::enqueue(Request<Problem, ForwardBuffers<T, kKind>>{p, b, workspace, stream});
}

template <typename T, Kind kKind>
Status run(const Problem& p, const BackwardBuffers<T, kKind>& b, void* workspace, Stream stream) {
  const Request<Problem, BackwardBuffers<T, kKind>> request{p, b, workspace, stream};
  return Paths<ZerosPath<T, kKind>, TilesPath<T, kKind>>::enqueue(request);
}

template <typename T, Kind kKind>
size_t bytes_of(const Problem& p, const ForwardBuffers<T, kKind>*) {
  return bytes_of_boxes<kKind, Compute<T>>(p);
}

template <typename T, Kind kKind>
size_t bytes_of(const Problem&, const BackwardBuffers<T, kKind>*) {
  return 0;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_KINDS)

}  // namespace baracuda::ps_roi
