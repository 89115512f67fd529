// SPDX-License-Identifier: Apache-2.0
// What a valid interpolation is, forward and backward, in every mode: extents, and for each axis the rule by which an
// output pixel finds its input pixels. No pointers.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/status.h"

namespace baracuda::interpolate {

// In the order of the options' numbers.
enum class Mode : int32_t { kNearest, kNearestExact, kLinear, kCubic, kLinearAntialias, kCubicAntialias };
constexpr int32_t kModes = 6;

// How output pixel o of an axis finds its place; s is the axis's step.
enum class Rule : int32_t {
  kSame,     // o itself
  kFloor,    // floor(s o)
  kCentre,   // floor(s (o + 1/2))
  kPixels,   // s (o + 1/2) - 1/2, in the linear mode at least 0, between two pixels
  kCorners,  // s o, between two pixels
};

struct Axis {
  int32_t input, output;
  Rule rule;
  double step;     // input pixels per output pixel, as a number of the positions' type
  double inverse;  // about 1 / step, to guess with
};

constexpr int kAxes = 3;

struct Problem {
  int32_t n, c;
  Axis axes[kAxes];   // depth, height, width
  bool is_linear, is_cubic;
  int32_t radius;  // of the antialiased modes' filter, in pixels of the coarser side; 0 in the others
  int64_t input_numel, output_numel;

  // Else, in the nearest modes, every output pixel is one input pixel.
  BARACUDA_HD bool is_antialiased() const { return radius > 0; }
  BARACUDA_HD const Axis& depth() const { return axes[0]; }
  BARACUDA_HD const Axis& height() const { return axes[1]; }
  BARACUDA_HD const Axis& width() const { return axes[2]; }
  BARACUDA_HD int64_t planes() const { return static_cast<int64_t>(n) * c; }
  BARACUDA_HD int64_t input_rows() const { return static_cast<int64_t>(axes[0].input) * axes[1].input; }
  BARACUDA_HD int64_t output_rows() const { return static_cast<int64_t>(axes[0].output) * axes[1].output; }
  BARACUDA_HD int64_t input_plane() const { return input_rows() * axes[2].input; }
  BARACUDA_HD int64_t output_plane() const { return output_rows() * axes[2].output; }
};

// A call's scalars. `scales` are output pixels per input pixel; 0 or less stands for the quotient of the extents.
struct Request {
  int32_t n, c;
  int32_t input[kAxes], output[kAxes];
  int32_t mode, align_corners;
  double scales[kAxes];
};

// What the scalars are called in texts; no name stands for a scalar that the call does not have.
struct Names {
  const char* input[kAxes];
  const char* output[kAxes];
  const char* mode;
  const char* align_corners;
  const char* scales[kAxes];
};

// Checks in the project's fixed order. `element_bytes` is the size of T; only f64 has its positions in f64. `inner` and
// `outer` are what texts call the tensors of the input's and of the output's shape.
Status make_problem(const Request& request, const Names& names, int64_t element_bytes, const char* inner,
                    const char* outer, Problem* problem);

}  // namespace baracuda::interpolate
