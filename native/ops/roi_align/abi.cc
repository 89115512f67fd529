// SPDX-License-Identifier: Apache-2.0
// The C functions of roi_align and roi_align_levels and of their gradients, compiled into both libraries.
#include <type_traits>

#include "abi/roi_align.h"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

// What the tensors are called.
const char* image_of(const RoiAlignArguments&) { return "input"; }
const char* image_of(const RoiAlignBackwardArguments&) { return "grad_input"; }
const char* image_of(const RoiAlignBoxesBackwardArguments&) { return "input"; }
const char* bins_of(const RoiAlignArguments&) { return "output"; }
const char* bins_of(const RoiAlignBackwardArguments&) { return "grad_output"; }
const char* bins_of(const RoiAlignBoxesBackwardArguments&) { return "grad_output"; }

template <typename Arguments>
constexpr int32_t kMostSamples = kMaxSamplingRatio;
template <>
constexpr int32_t kMostSamples<RoiAlignBoxesBackwardArguments> = kMostSamplesOfSlopes;

// C is the type of coordinates.
template <typename T, typename C, typename ArgumentBlock>
struct Common {
  static_assert(std::is_same_v<C, Compute<T>>);
  using Arguments = ArgumentBlock;
  using Problem = roi_align::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return roi_align::make_problem(a.n, a.c, a.h, a.w, a.num_rois, a.pooled_h, a.pooled_w, a.spatial_scale,
                                   a.sampling_ratio, a.aligned, sizeof(T), sizeof(C), image_of(a), bins_of(a), problem,
                                   kMostSamples<Arguments>);
  }
};

template <typename T, typename C>
struct Forward : Common<T, C, RoiAlignArguments> {
  static Operands operands(const Problem& p, const RoiAlignArguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return roi_align::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const RoiAlignArguments& a, void* workspace, Stream stream) {
    return roi_align::launch(p, buffers_of<ForwardBuffers<T>>(a.input, a.rois, a.output), workspace, stream);
  }
};

template <typename T, typename C>
struct Backward : Common<T, C, RoiAlignBackwardArguments> {
  static Operands operands(const Problem& p, const RoiAlignBackwardArguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            3};
  }
  static size_t workspace_size(const Problem& p) { return roi_align::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const RoiAlignBackwardArguments& a, void* workspace, Stream stream) {
    return roi_align::launch(p, buffers_of<BackwardBuffers<T>>(a.grad_output, a.rois, a.grad_input), workspace, stream);
  }
};

template <typename T, typename C>
struct BoxesBackward : Common<T, C, RoiAlignBoxesBackwardArguments> {
  static Operands operands(const Problem& p, const RoiAlignBoxesBackwardArguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"input", a.input, p.input_numel, sizeof(T), false},
             {"rois", a.rois, p.rois_numel, sizeof(C), false},
             {"grad_rois", a.grad_rois, p.rois_numel, sizeof(C), true}},
            4};
  }
  static size_t workspace_size(const Problem& p) { return roi_align::workspace_size<BoxesBackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const RoiAlignBoxesBackwardArguments& a, void* workspace, Stream stream) {
    const auto buffers = buffers_of<BoxesBackwardBuffers<T>>(a.grad_output, a.input, a.rois, a.grad_rois);
    return roi_align::launch(p, buffers, workspace, stream);
  }
};

template <class Block>
LevelsNumbers numbers_of(const Block& a) {
  return {a.num_levels, a.n,        a.c,              a.heights, a.widths, a.spatial_scales,  a.num_rois,
          a.pooled_h,   a.pooled_w, a.sampling_ratio, a.aligned, a.k_min,  a.canonical_level, a.canonical_scale};
}

constexpr LevelNames kInputs = {"input_0", "input_1", "input_2", "input_3", "input_4", "input_5", "input_6", "input_7"};
constexpr LevelNames kGradInputs = {"grad_input_0", "grad_input_1", "grad_input_2", "grad_input_3",
                                    "grad_input_4", "grad_input_5", "grad_input_6", "grad_input_7"};

template <typename T, typename C>
struct LevelsForward {
  using Arguments = RoiAlignLevelsArguments;
  using Problem = LevelsProblem;

  static LevelsForwardBuffers<T> buffers(const Arguments& a) {
    return buffers_of<LevelsForwardBuffers<T>>(a.input_0, a.input_1, a.input_2, a.input_3, a.input_4, a.input_5,
                                               a.input_6, a.input_7, a.rois, a.output);
  }
  static Status make_problem(const Arguments& a, Problem* problem) {
    return make_levels_problem(numbers_of(a), sizeof(T), sizeof(C), kInputs, "output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    const LevelsForwardBuffers<T> b = buffers(a);
    Operands found{};
    for (int32_t level = 0; level < kMostLevels; ++level) {
      found.items[level] = {kInputs[level], b.inputs[level], p.levels[level].input_numel, sizeof(T), false};
    }
    found.items[kMostLevels] = {"rois", a.rois, p.all.rois_numel, sizeof(C), false};
    found.items[kMostLevels + 1] = {"output", a.output, p.all.output_numel, sizeof(T), true};
    found.count = kMostLevels + 2;
    return found;
  }
  static size_t workspace_size(const Problem& p) { return roi_align::workspace_size<LevelsForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return roi_align::launch(p, buffers(a), workspace, stream);
  }
};

template <typename T, typename C>
struct LevelsBackward {
  using Arguments = RoiAlignLevelsBackwardArguments;
  using Problem = LevelsProblem;

  static LevelsBackwardBuffers<T> buffers(const Arguments& a) {
    return buffers_of<LevelsBackwardBuffers<T>>(a.grad_output, a.rois, a.grad_input_0, a.grad_input_1, a.grad_input_2,
                                                a.grad_input_3, a.grad_input_4, a.grad_input_5, a.grad_input_6,
                                                a.grad_input_7);
  }
  static Status make_problem(const Arguments& a, Problem* problem) {
    return make_levels_problem(numbers_of(a), sizeof(T), sizeof(C), kGradInputs, "grad_output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    const LevelsBackwardBuffers<T> b = buffers(a);
    Operands found{};
    found.items[0] = {"grad_output", a.grad_output, p.all.output_numel, sizeof(T), false};
    found.items[1] = {"rois", a.rois, p.all.rois_numel, sizeof(C), false};
    for (int32_t level = 0; level < kMostLevels; ++level) {
      found.items[level + 2] = {kGradInputs[level], b.grad_inputs[level], p.levels[level].input_numel, sizeof(T), true};
    }
    found.count = kMostLevels + 2;
    return found;
  }
  static size_t workspace_size(const Problem& p) { return roi_align::workspace_size<LevelsBackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return roi_align::launch(p, buffers(a), workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::roi_align

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_ROI_ALIGN(roi_align::Forward)
BARACUDA_STAMP_EVERY_ROI_ALIGN_BACKWARD(roi_align::Backward)
BARACUDA_STAMP_EVERY_ROI_ALIGN_BOXES_BACKWARD(roi_align::BoxesBackward)
BARACUDA_STAMP_EVERY_ROI_ALIGN_LEVELS(roi_align::LevelsForward)
BARACUDA_STAMP_EVERY_ROI_ALIGN_LEVELS_BACKWARD(roi_align::LevelsBackward)
}
