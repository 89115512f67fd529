// SPDX-License-Identifier: Apache-2.0
// The C functions of interpolation, compiled into both libraries.
#include "abi/interpolate.h"
#include "core/options.h"
#include "ops/interpolate/launch.h"

namespace baracuda::interpolate {
namespace {

constexpr Names kNamesOfBilinear = {
    {nullptr, "input_h", "input_w"}, {nullptr, "output_h", "output_w"}, nullptr, "align_corners",
    {nullptr, "scale_h_factor", "scale_w_factor"}};
constexpr Names kNamesOfNearest = {
    {nullptr, "input_h", "input_w"}, {nullptr, "output_h", "output_w"}, nullptr, nullptr, {nullptr, nullptr, nullptr}};
constexpr Names kNamesOfEx = {{"input_d", "input_h", "input_w"},
                              {"output_d", "output_h", "output_w"},
                              "options->mode",
                              "options->align_corners",
                              {"options->scale_d", "options->scale_h", "options->scale_w"}};

// A call of two axes, by size and without corners.
template <class Block>
Request request_of_images(const Block& a, Mode mode) {
  return {a.n, a.c, {1, a.input_h, a.input_w}, {1, a.output_h, a.output_w}, static_cast<int32_t>(mode), 0, {0, 0, 0}};
}

template <class Block>
Status make_bilinear(const Block& a, int64_t element_bytes, const char* inner, const char* outer, Problem* problem) {
  Request request = request_of_images(a, Mode::kLinear);
  request.align_corners = a.align_corners;
  request.scales[1] = a.scale_h_factor;
  request.scales[2] = a.scale_w_factor;
  return make_problem(request, kNamesOfBilinear, element_bytes, inner, outer, problem);
}

template <class Block>
Status make_nearest(const Block& a, int64_t element_bytes, const char* inner, const char* outer, Problem* problem) {
  return make_problem(request_of_images(a, Mode::kNearest), kNamesOfNearest, element_bytes, inner, outer, problem);
}

template <class Block>
Status make_ex(const Block& a, int64_t element_bytes, const char* inner, const char* outer, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_options_pointer(a.options));
  baracuda_kernels_interpolate_options options;
  BARACUDA_RETURN_IF_FAILED(read_options(a.options, &options));
  const Request request = {a.n,
                           a.c,
                           {a.input_d, a.input_h, a.input_w},
                           {a.output_d, a.output_h, a.output_w},
                           options.mode,
                           options.align_corners,
                           {options.scale_d, options.scale_h, options.scale_w}};
  return make_problem(request, kNamesOfEx, element_bytes, inner, outer, problem);
}

// Both directions of an operator, whose blocks differ; `kMake` makes a problem of either.
template <typename T, class Block, Status (*kMake)(const Block&, int64_t, const char*, const char*, Problem*)>
struct ForwardOf {
  using Arguments = Block;
  using Problem = interpolate::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return kMake(a, sizeof(T), "input", "output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.input_numel, sizeof(T), false},
             {"output", a.output, p.output_numel, sizeof(T), true}},
            2};
  }
  static size_t workspace_size(const Problem& p) { return interpolate::workspace_size<ForwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return interpolate::launch(p, buffers_of<ForwardBuffers<T>>(a.input, a.output), workspace, stream);
  }
};

template <typename T, class Block, Status (*kMake)(const Block&, int64_t, const char*, const char*, Problem*)>
struct BackwardOf {
  using Arguments = Block;
  using Problem = interpolate::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return kMake(a, sizeof(T), "grad_input", "grad_output", problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"grad_output", a.grad_output, p.output_numel, sizeof(T), false},
             {"grad_input", a.grad_input, p.input_numel, sizeof(T), true}},
            2};
  }
  static size_t workspace_size(const Problem& p) { return interpolate::workspace_size<BackwardBuffers<T>>(p); }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return interpolate::launch(p, buffers_of<BackwardBuffers<T>>(a.grad_output, a.grad_input), workspace, stream);
  }
};

template <typename T>
using Bilinear = ForwardOf<T, InterpolateBilinear2dArguments, make_bilinear<InterpolateBilinear2dArguments>>;
template <typename T>
using BilinearBackward =
    BackwardOf<T, InterpolateBilinear2dBackwardArguments, make_bilinear<InterpolateBilinear2dBackwardArguments>>;
template <typename T>
using Nearest = ForwardOf<T, UpsampleNearest2dFwArguments, make_nearest<UpsampleNearest2dFwArguments>>;
template <typename T>
using NearestBackward = BackwardOf<T, UpsampleNearest2dBwArguments, make_nearest<UpsampleNearest2dBwArguments>>;
template <typename T>
using Ex = ForwardOf<T, InterpolateExArguments, make_ex<InterpolateExArguments>>;
template <typename T>
using ExBackward = BackwardOf<T, InterpolateExBackwardArguments, make_ex<InterpolateExBackwardArguments>>;

}  // namespace
}  // namespace baracuda::interpolate

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_INTERPOLATE_BILINEAR_2D(interpolate::Bilinear)
BARACUDA_STAMP_EVERY_INTERPOLATE_BILINEAR_2D_BACKWARD(interpolate::BilinearBackward)
BARACUDA_STAMP_EVERY_UPSAMPLE_NEAREST_2D_FW(interpolate::Nearest)
BARACUDA_STAMP_EVERY_UPSAMPLE_NEAREST_2D_BW(interpolate::NearestBackward)
BARACUDA_STAMP_EVERY_INTERPOLATE_EX(interpolate::Ex)
BARACUDA_STAMP_EVERY_INTERPOLATE_EX_BACKWARD(interpolate::ExBackward)
}
