// SPDX-License-Identifier: Apache-2.0
// What a valid grid_sample_3d problem is, forward and backward: extents and the sizes derived from them. No pointers.
// The rule by which a coordinate becomes taps is grid_sample's.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/status.h"
#include "ops/grid_sample/problem.h"

namespace baracuda::grid_sample_3d {

using grid_sample::Gradients;
using grid_sample::kChannelChunk;
using grid_sample::kChunk;
using grid_sample::Mode;
using grid_sample::Padding;
using grid_sample::Rule;

// Coordinates of a sample, and its taps.
constexpr int kAxes = 3, kTaps = 8;

struct Extents {
  int32_t n, c, input_d, input_h, input_w, output_d, output_h, output_w;
};

struct Problem : Extents {
  Rule rule;
  Gradients gradients;
  bool shares_input;  // the input is one volume, which the samples of every volume are taken of

  int64_t voxels;        // input_d input_h input_w, in one volume
  int64_t samples;       // output_d output_h output_w, in one volume
  int64_t input_numel;   // n c voxels; also of a gradient to an input that is shared
  int64_t output_numel;  // n c samples
  int64_t grid_numel;    // 3 n samples

  bool has_grad_input() const { return gradients != Gradients::kOfGrid; }
  bool has_grad_grid() const { return gradients != Gradients::kOfInput; }
  // The nearest voxel stays the same where a position moves.
  bool has_slopes() const { return rule.mode != Mode::kNearest; }

  // Elements that `input` has.
  int64_t given_numel() const { return shares_input ? c * voxels : input_numel; }
};

// Where in `input` the channels of a volume begin.
BARACUDA_HD int64_t input_offset(const Problem& p, int64_t volume) {
  return p.shares_input ? 0 : volume * p.c * p.voxels;
}

// Checks in the project's fixed order. `element_bytes` and `coordinate_bytes` are the sizes of T and of the grid's
// type.
Status make_problem(const Extents& extents, const grid_sample::Options& options, bool is_backward,
                    int64_t element_bytes, int64_t coordinate_bytes, Problem* problem);

}  // namespace baracuda::grid_sample_3d
