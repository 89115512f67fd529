// SPDX-License-Identifier: Apache-2.0
// RoIPool on CUDA: which path a call takes. The words of this family stand in native/ops/roi_pool/README.md.
//
//   forward path   calls                        code
//   few bins       fewer than 2^31 bins         forward.cuh, indices of 32 bits
//   bins           all                          forward.cuh, indices of 64 bits
//
//   backward path  calls                        code
//   zeros          without bins                 core/cuda_zeros.cuh
//   tiles          of 8 or more channels and    ranges.cuh, then tiles.cuh
//                  more than a few pixels, an
//                  odd number of bins, at most
//                  7 x 7
//   bands of few   fewer than 2^31 bins         bounds.cuh, then bands.cuh, indices of 32 bits
//   bands          all                          the same, indices of 64 bits
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/roi_pool/cuda/bands.cuh"
#include "ops/roi_pool/cuda/forward.cuh"
#include "ops/roi_pool/cuda/tiles.cuh"
#include "ops/roi_pool/launch.h"

namespace baracuda::roi_pool {
namespace {

template <typename T>
using ForwardRequest = Request<Problem, ForwardBuffers<T>>;
template <typename T>
using BackwardRequest = Request<Problem, BackwardBuffers<T>>;

template <typename T>
struct FewBinsPath {
  static const char* name() { return "few bins"; }
  const ForwardRequest<T>& call;
  bool can() const { return call.p.output_numel <= INT32_MAX; }
  Status enqueue() const { return enqueue_bins<T, uint32_t>(call.p, call.b, call.stream); }
};

template <typename T>
struct BinsPath {
  static const char* name() { return "bins"; }
  const ForwardRequest<T>& call;
  Status enqueue() const { return enqueue_bins<T, int64_t>(call.p, call.b, call.stream); }
};

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const BackwardRequest<T>& call;
  bool can() const { return call.p.output_numel == 0 || call.p.input_numel == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    return enqueue_zeros(call.b.grad_input, static_cast<size_t>(call.p.input_numel) * sizeof(T), call.stream);
  }
};

// Of a small map each tile is met by most boxes, and there are few tiles: on an H100 bands took 106 us where tiles took
// 176 on 32 x 32 pixels, and 95 where they took 110 on 38 x 50.
constexpr int64_t kLeastTiledPixels = 2048;

template <typename T>
struct TilesPath {
  static const char* name() { return "tiles"; }
  const BackwardRequest<T>& call;
  bool can() const {
    const Problem& p = call.p;
    // Of fewer channels most lanes would have none. An even number of bins would put those of several channels in one
    // bank. Ranges have 16 bits an end, and boxes are counted with 31.
    if (p.c < 8 || int64_t{p.h} * p.w < kLeastTiledPixels) return false;
    return p.pooled_h <= kMostAcross && p.pooled_w <= kMostAcross && p.bins() % 2 == 1 && p.h < UINT16_MAX && p.w > 1 &&
           p.w <= kMostWidth && channel_groups(p) * p.num_rois <= INT32_MAX;
  }
  size_t bytes() const { return TileScratch<Compute<T>>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const { return enqueue_tiles<T>(call.p, call.b, call.workspace, call.stream); }
};

template <typename T>
struct BandsOfFewPath {
  static const char* name() { return "bands of few"; }
  const BackwardRequest<T>& call;
  bool can() const { return call.p.output_numel <= INT32_MAX; }
  size_t bytes() const { return BackwardScratch<Compute<T>>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const { return enqueue_bands<T, uint32_t>(call.p, call.b, call.workspace, call.stream); }
};

template <typename T>
struct BandsPath {
  static const char* name() { return "bands"; }
  const BackwardRequest<T>& call;
  size_t bytes() const { return BackwardScratch<Compute<T>>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const { return enqueue_bands<T, int64_t>(call.p, call.b, call.workspace, call.stream); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<FewBinsPath<T>, BinsPath<T>>::enqueue(ForwardRequest<T>{p, b, workspace, stream});
}

template <typename T>
using BackwardPaths = Paths<ZerosPath<T>, TilesPath<T>, BandsOfFewPath<T>, BandsPath<T>>;

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  return BackwardPaths<T>::enqueue(BackwardRequest<T>{p, b, workspace, stream});
}

template <typename T>
size_t bytes_of(const Problem&, const ForwardBuffers<T>*) {
  return 0;
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  const BackwardBuffers<T> none{};
  return BackwardPaths<T>::choose(BackwardRequest<T>{p, none, nullptr}, [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::roi_pool
