// SPDX-License-Identifier: Apache-2.0
// Validation of grid_sample_3d problems. No pointers, no CUDA.
#include "ops/grid_sample_3d/problem.h"

#include "core/checked.h"

namespace baracuda::grid_sample_3d {
namespace {

Status check_extents(const Extents& e) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", e.n));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", e.c));
  BARACUDA_RETURN_IF_FAILED(check_extent("input_d", e.input_d));
  BARACUDA_RETURN_IF_FAILED(check_extent("input_h", e.input_h));
  BARACUDA_RETURN_IF_FAILED(check_extent("input_w", e.input_w));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_d", e.output_d));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_h", e.output_h));
  return check_extent("output_w", e.output_w);
}

Status check_options(const grid_sample::Options& options) {
  BARACUDA_RETURN_IF_FAILED(check_range("options->mode", options.mode, 0, grid_sample::kVolumeModes - 1));
  BARACUDA_RETURN_IF_FAILED(
      check_range("options->padding_mode", options.padding_mode, 0, grid_sample::kPaddings - 1));
  BARACUDA_RETURN_IF_FAILED(check_range("options->align_corners", options.align_corners, 0, 1));
  BARACUDA_RETURN_IF_FAILED(check_range("options->gradients", options.gradients, 0, grid_sample::kGradients - 1));
  return check_range("options->shares_input", options.shares_input, 0, 1);
}

}  // namespace

Status make_problem(const Extents& e, const grid_sample::Options& options, bool is_backward, int64_t element_bytes,
                    int64_t coordinate_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extents(e));
  BARACUDA_RETURN_IF_FAILED(check_options(options));
  if (options.padding_mode != 0 && (e.input_d == 0 || e.input_h == 0 || e.input_w == 0)) {
    return fail(Status::kInvalidProblem,
                "input_d is %d, input_h %d and input_w %d; wanted a voxel that can be at the border", e.input_d,
                e.input_h, e.input_w);
  }

  Problem p{};
  static_cast<Extents&>(p) = e;
  p.rule = {static_cast<Mode>(options.mode), static_cast<Padding>(options.padding_mode), options.align_corners != 0};
  p.gradients = static_cast<Gradients>(options.gradients);
  p.shares_input = options.shares_input != 0;
  const auto count = [&](int64_t bytes, int64_t d, int64_t h, int64_t w) {
    return CheckedCount(bytes).times(d).times(h).times(w);
  };
  // A volume may be too large only where its tensor is empty: then nobody asks how large it is.
  const auto size = [](const CheckedCount& found) { return found.fits() ? found.value() : 0; };
  p.voxels = size(count(1, e.input_d, e.input_h, e.input_w));
  p.samples = size(count(1, e.output_d, e.output_h, e.output_w));
  const CheckedCount volume = count(element_bytes, e.input_d, e.input_h, e.input_w).times(e.c);
  const CheckedCount volumes = count(element_bytes, e.input_d, e.input_h, e.input_w).times(e.n).times(e.c);
  BARACUDA_RETURN_IF_FAILED(check_count("input", p.shares_input ? volume : volumes, &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(
      is_backward ? "grad_output" : "output",
      count(element_bytes, e.output_d, e.output_h, e.output_w).times(e.n).times(e.c), &p.output_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(
      "grid", count(coordinate_bytes, e.output_d, e.output_h, e.output_w).times(e.n).times(kAxes), &p.grid_numel));
  if (p.shares_input) {
    if (is_backward && p.has_grad_input()) {
      BARACUDA_RETURN_IF_FAILED(check_count("grad_input", volumes, &p.input_numel));
    } else {
      // Nothing has so many elements; whether it would have any is asked.
      p.input_numel = volumes.fits() ? volumes.value() : INT64_MAX;
    }
  }
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::grid_sample_3d
