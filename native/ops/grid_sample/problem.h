// SPDX-License-Identifier: Apache-2.0
// What a valid grid_sample problem is, forward and backward: extents and the sizes derived from them. No pointers.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/status.h"

namespace baracuda::grid_sample {

// A pixel's gradient is cut into chunks of this many consecutive contributions; their sums are added in order.
constexpr int32_t kChunk = 256;

// A sample's gradient to its position is cut into chunks of this many channels; their sums are added in order.
constexpr int32_t kChannelChunk = 64;

struct Problem {
  int32_t n, c, input_h, input_w, output_h, output_w;

  int64_t pixels;        // input_h input_w, in one image
  int64_t samples;       // output_h output_w, in one image
  int64_t input_numel;   // n c pixels; also of a gradient to an input that is shared
  int64_t output_numel;  // n c samples
  int64_t grid_numel;    // 2 n samples
};

// Which taps a sample has, where a position outside of the image goes, and which gradients are asked for; the numbers
// are those of the C options.
enum class Mode : int32_t { kBilinear, kNearest, kBicubic };
enum class Padding : int32_t { kZeros, kBorder, kReflection };
enum class Gradients : int32_t { kBoth, kOfInput, kOfGrid };
constexpr int32_t kModes = 3, kPaddings = 3, kGradients = 3;
// Volumes have no bicubic samples.
constexpr int32_t kVolumeModes = 2;

// How a coordinate becomes taps.
struct Rule {
  Mode mode;
  Padding padding;
  bool aligns_corners;  // -1 and 1 are the corner pixels' centres, not their outer edges

  // The rule of a Problem, which kernels of their own follow.
  BARACUDA_HD bool is_plain() const { return mode == Mode::kBilinear && padding == Padding::kZeros && !aligns_corners; }
};

// A problem whose samples follow a rule. Kernels and formulas are made for the type of their problem.
struct RuledProblem : Problem {
  Rule rule;
  Gradients gradients;
  bool shares_input;  // the input is one image, which the samples of every image are taken of

  bool has_grad_input() const { return gradients != Gradients::kOfGrid; }
  bool has_grad_grid() const { return gradients != Gradients::kOfInput; }
  // The nearest pixel stays the same where a position moves.
  bool has_slopes() const { return rule.mode != Mode::kNearest; }
  bool is_cubic() const { return rule.mode == Mode::kBicubic; }

  // What the operators without options do.
  bool is_plain() const { return rule.is_plain() && gradients == Gradients::kBoth && !shares_input; }

  // Elements that `input` has.
  int64_t given_numel() const { return shares_input ? c * pixels : input_numel; }
};

// Where in `input` the channels of an image begin.
BARACUDA_HD int64_t input_offset(const Problem& p, int64_t image) { return image * p.c * p.pixels; }
BARACUDA_HD int64_t input_offset(const RuledProblem& p, int64_t image) {
  return p.shares_input ? 0 : image * p.c * p.pixels;
}

// The C options' numbers; zeros are what the operators without options do.
struct Options {
  int32_t mode, padding_mode, align_corners, gradients, shares_input;
};

// Checks in the project's fixed order. `element_bytes` and `coordinate_bytes` are the sizes of T and of the grid's
// type.
Status make_problem(int32_t n, int32_t c, int32_t input_h, int32_t input_w, int32_t output_h, int32_t output_w,
                    const Options& options, bool is_backward, int64_t element_bytes, int64_t coordinate_bytes,
                    RuledProblem* problem);

}  // namespace baracuda::grid_sample
