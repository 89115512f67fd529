// SPDX-License-Identifier: Apache-2.0
// Validation of interpolation problems. No pointers, no CUDA.
#include "ops/interpolate/problem.h"

#include "core/checked.h"

namespace baracuda::interpolate {
namespace {

Status check_extents(const Request& request, const Names& names) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", request.n));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", request.c));
  for (int axis = 0; axis < kAxes; ++axis) {
    if (names.input[axis] != nullptr) BARACUDA_RETURN_IF_FAILED(check_extent(names.input[axis], request.input[axis]));
  }
  for (int axis = 0; axis < kAxes; ++axis) {
    if (names.output[axis] != nullptr) {
      BARACUDA_RETURN_IF_FAILED(check_extent(names.output[axis], request.output[axis]));
    }
  }
  return Status::kOk;
}

// Status 2 where there are output pixels and no input pixels that they could be made of.
Status check_pixels(const Request& request, const Names& names) {
  bool is_empty = request.n == 0 || request.c == 0;
  for (const int32_t extent : request.output) is_empty = is_empty || extent == 0;
  for (int axis = 0; axis < kAxes && !is_empty; ++axis) {
    if (request.input[axis] > 0) continue;
    return fail(Status::kInvalidProblem, "%s is 0; wanted a pixel to interpolate", names.input[axis]);
  }
  return Status::kOk;
}

// Whether the mode has no depth.
bool is_for_images(Mode mode) {
  return mode == Mode::kCubic || mode == Mode::kLinearAntialias || mode == Mode::kCubicAntialias;
}

Status check_options(const Request& request, const Names& names) {
  if (names.mode != nullptr) BARACUDA_RETURN_IF_FAILED(check_range(names.mode, request.mode, 0, kModes - 1));
  if (names.align_corners != nullptr) {
    BARACUDA_RETURN_IF_FAILED(check_range(names.align_corners, request.align_corners, 0, 1));
  }
  for (int axis = 0; axis < kAxes; ++axis) {
    const double scale = request.scales[axis];
    if (names.scales[axis] == nullptr || scale - scale == 0.0) continue;
    return fail(Status::kInvalidProblem, "%s is %g; wanted a finite number", names.scales[axis], scale);
  }
  const Mode mode = static_cast<Mode>(request.mode);
  if (request.align_corners != 0 && (mode == Mode::kNearest || mode == Mode::kNearestExact)) {
    return fail(Status::kInvalidProblem, "%s is 1 in mode %d; wanted 0, since pixels there have no corners",
                names.align_corners, request.mode);
  }
  if (is_for_images(mode) && (request.input[0] != 1 || request.output[0] != 1)) {
    const bool is_inner = request.input[0] != 1;
    return fail(Status::kInvalidProblem, "%s is %d in mode %d; wanted 1, since it is for images",
                is_inner ? names.input[0] : names.output[0], is_inner ? request.input[0] : request.output[0],
                request.mode);
  }
  return Status::kOk;
}

// The step from the scale or else from the extents, rounded where PyTorch rounds.
template <typename C>
double step_of(int32_t input, int32_t output, double scale) {
  if (scale > 0.0) return static_cast<double>(static_cast<C>(1.0 / scale));
  return static_cast<double>(static_cast<C>(input) / static_cast<C>(output));
}

template <typename C>
double corner_step(int32_t input, int32_t output) {
  return output > 1 ? static_cast<double>(static_cast<C>(input - 1) / static_cast<C>(output - 1)) : 0.0;
}

// Neither extent is 0.
template <typename C>
Axis make_axis(Mode mode, bool align_corners, int32_t input, int32_t output, double scale) {
  Axis axis{input, output, Rule::kSame, 1.0, 1.0};
  switch (mode) {
    case Mode::kNearest:
      axis.rule = Rule::kFloor;
      axis.step = step_of<float>(input, output, scale);
      break;
    case Mode::kNearestExact:
      axis.rule = Rule::kCentre;
      axis.step = step_of<float>(input, output, scale);
      break;
    case Mode::kLinear:
    case Mode::kCubic:
    case Mode::kLinearAntialias:
    case Mode::kCubicAntialias:
      axis.rule = align_corners ? Rule::kCorners : Rule::kPixels;
      axis.step = align_corners ? corner_step<C>(input, output) : step_of<C>(input, output, scale);
      break;
  }
  // A linear axis of equal extents is a copy whatever its scale; a nearest one where the scale says so, too.
  if (input == output && (mode == Mode::kLinear || axis.step == 1.0)) return {input, output, Rule::kSame, 1.0, 1.0};
  axis.inverse = 1.0 / axis.step;
  return axis;
}

}  // namespace

Status make_problem(const Request& request, const Names& names, int64_t element_bytes, const char* inner,
                    const char* outer, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extents(request, names));
  BARACUDA_RETURN_IF_FAILED(check_options(request, names));
  BARACUDA_RETURN_IF_FAILED(check_pixels(request, names));

  Problem p{};
  p.n = request.n, p.c = request.c;
  const Mode mode = static_cast<Mode>(request.mode);
  p.is_linear = mode == Mode::kLinear;
  p.is_cubic = mode == Mode::kCubic;
  p.radius = mode == Mode::kLinearAntialias ? 1 : mode == Mode::kCubicAntialias ? 2 : 0;
  CheckedCount inputs(element_bytes), outputs(element_bytes);
  inputs.times(p.n).times(p.c);
  outputs.times(p.n).times(p.c);
  for (int axis = 0; axis < kAxes; ++axis) {
    inputs.times(request.input[axis]);
    outputs.times(request.output[axis]);
  }
  BARACUDA_RETURN_IF_FAILED(check_count(inner, inputs, &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(outer, outputs, &p.output_numel));
  for (int axis = 0; axis < kAxes; ++axis) {
    const int32_t input = request.input[axis], output = request.output[axis];
    const bool is_wide = element_bytes == sizeof(double);
    if (input == 0 || output == 0 || (is_for_images(mode) && axis == 0)) {
      p.axes[axis] = {input, output, Rule::kSame, 1.0, 1.0};
    } else if (is_wide) {
      p.axes[axis] = make_axis<double>(mode, request.align_corners != 0, input, output, request.scales[axis]);
    } else {
      p.axes[axis] = make_axis<float>(mode, request.align_corners != 0, input, output, request.scales[axis]);
    }
  }
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::interpolate
