// SPDX-License-Identifier: Apache-2.0
// RoIPool on CUDA: which path a call takes. The words of this family stand in native/ops/roi_pool/README.md.
//
//   forward path   calls                        code
//   few bins       fewer than 2^31 bins         forward.cuh, indices of 32 bits
//   bins           all                          forward.cuh, indices of 64 bits
//
//   backward path  calls                        code
//   zeros          without bins                 core/cuda_zeros.cuh
//   bands of few   fewer than 2^31 bins         bounds.cuh, then bands.cuh, indices of 32 bits
//   bands          all                          the same, indices of 64 bits
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/roi_pool/cuda/bands.cuh"
#include "ops/roi_pool/cuda/forward.cuh"
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
  bool can() const { return call.p.output_numel == 0; }
  Status enqueue() const {
    return enqueue_zeros(call.b.grad_input, static_cast<size_t>(call.p.input_numel) * sizeof(T), call.stream);
  }
};

template <typename T>
struct BandsOfFewPath {
  static const char* name() { return "bands of few"; }
  const BackwardRequest<T>& call;
  bool can() const { return call.p.output_numel <= INT32_MAX; }
  Status enqueue() const { return enqueue_bands<T, uint32_t>(call.p, call.b, call.workspace, call.stream); }
};

template <typename T>
struct BandsPath {
  static const char* name() { return "bands"; }
  const BackwardRequest<T>& call;
  Status enqueue() const { return enqueue_bands<T, int64_t>(call.p, call.b, call.workspace, call.stream); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<FewBinsPath<T>, BinsPath<T>>::enqueue(ForwardRequest<T>{p, b, workspace, stream});
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<ZerosPath<T>, BandsOfFewPath<T>, BandsPath<T>>::enqueue(BackwardRequest<T>{p, b, workspace, stream});
}

template <typename T>
size_t bytes_of(const Problem&, const ForwardBuffers<T>*) {
  return 0;
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  const bool has_work = p.input_numel > 0 && p.output_numel > 0;
  return has_work ? BackwardScratch<Compute<T>>(p, nullptr).layout.bytes() : 0;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::roi_pool
