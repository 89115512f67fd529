// SPDX-License-Identifier: Apache-2.0
// What a valid fractional maximum pooling is, forward and backward. No pointers.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace baracuda::fractional_max_pool {

// The axes of a plane, outermost first.
constexpr int kAxes = 3;

// One axis: `extent` elements, and `bins` windows of `kernel` elements each.
struct Axis {
  int32_t extent, bins, kernel;
};

struct Problem {
  Axis axes[kAxes];
  int32_t num_samples;   // of a plane; the backward reads none
  int64_t planes;        // n c
  int64_t plane_numel;   // elements of a plane
  int64_t plane_bins;    // windows of a plane
  int64_t input_numel;   // planes plane_numel
  int64_t output_numel;  // planes plane_bins
  int64_t sample_numel;  // planes num_samples
};

// The extents by the names of the C arguments, outermost axis first.
struct Extents {
  int32_t n, c;
  int32_t input[kAxes], output[kAxes], kernel[kAxes];
};

// The forward reads samples: those of width and height, or of depth, height and width.
constexpr int32_t kFewestSamples = 2, kMostSamples = 3;

// Checks in the project's fixed order. `num_samples` is null where none are read. `input` and `output` are what texts
// call the tensors.
Status make_problem(const Extents& extents, const int32_t* num_samples, int64_t element_bytes, const char* input,
                    const char* output, Problem* problem);

}  // namespace baracuda::fractional_max_pool
