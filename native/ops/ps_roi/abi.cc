// SPDX-License-Identifier: Apache-2.0
// The C functions of ps_roi_align and ps_roi_pool and of their gradients, compiled into both libraries.
#include <type_traits>

#include "abi/ps_roi.h"
#include "ops/ps_roi/launch.h"

namespace baracuda::ps_roi {
namespace {

// By averages there is no number of samples; any valid one will do.
template <class Block>
auto ratio_of(const Block& a, int) -> decltype(a.sampling_ratio) {
  return a.sampling_ratio;
}
template <class Block>
int32_t ratio_of(const Block&, long) {
  return 1;
}

template <class Block>
Numbers numbers_of(const Block& a) {
  return {a.n, a.c, a.h, a.w, a.num_rois, a.pooled_h, a.pooled_w, a.spatial_scale, ratio_of(a, 0)};
}

// C is the type of coordinates.
template <typename T, typename C, Kind kKind, class Block>
struct Forward {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = Block;
  using Problem = ps_roi::Problem;
  using Buffers = ForwardBuffers<T, kKind>;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return ps_roi::make_problem(numbers_of(a), sizeof(T), sizeof(C), "input", "output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return ps_roi::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return ps_roi::launch(p, buffers_of<Buffers>(a.input, a.rois, a.output), workspace, stream);
  }
};

template <typename T, typename C, Kind kKind, class Block>
struct Backward {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = Block;
  using Problem = ps_roi::Problem;
  using Buffers = BackwardBuffers<T, kKind>;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return ps_roi::make_problem(numbers_of(a), sizeof(T), sizeof(C), "grad_input", "grad_output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return ps_roi::workspace_size<Buffers>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return ps_roi::launch(p, buffers_of<Buffers>(a.grad_output, a.rois, a.grad_input), workspace, stream);
  }
};

template <typename T, typename C>
using Align = Forward<T, C, Kind::kSamples, PsRoiAlignArguments>;
template <typename T, typename C>
using AlignBackward = Backward<T, C, Kind::kSamples, PsRoiAlignBackwardArguments>;
template <typename T, typename C>
using Pool = Forward<T, C, Kind::kAverage, PsRoiPoolArguments>;
template <typename T, typename C>
using PoolBackward = Backward<T, C, Kind::kAverage, PsRoiPoolBackwardArguments>;

}  // namespace
}  // namespace baracuda::ps_roi

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_PS_ROI_ALIGN(ps_roi::Align)
BARACUDA_STAMP_EVERY_PS_ROI_ALIGN_BACKWARD(ps_roi::AlignBackward)
BARACUDA_STAMP_EVERY_PS_ROI_POOL(ps_roi::Pool)
BARACUDA_STAMP_EVERY_PS_ROI_POOL_BACKWARD(ps_roi::PoolBackward)
}
