// SPDX-License-Identifier: Apache-2.0
// Validation of grid_sample problems. No pointers, no CUDA.
#include "ops/grid_sample/problem.h"

#include "core/checked.h"

namespace baracuda::grid_sample {

Status make_problem(int32_t n, int32_t c, int32_t input_h, int32_t input_w, int32_t output_h, int32_t output_w,
                    const Options& options, bool is_backward, int64_t element_bytes, int64_t coordinate_bytes,
                    RuledProblem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", n));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", c));
  BARACUDA_RETURN_IF_FAILED(check_extent("input_h", input_h));
  BARACUDA_RETURN_IF_FAILED(check_extent("input_w", input_w));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_h", output_h));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_w", output_w));
  BARACUDA_RETURN_IF_FAILED(check_range("options->mode", options.mode, 0, kModes - 1));
  BARACUDA_RETURN_IF_FAILED(check_range("options->padding_mode", options.padding_mode, 0, kPaddings - 1));
  BARACUDA_RETURN_IF_FAILED(check_range("options->align_corners", options.align_corners, 0, 1));
  BARACUDA_RETURN_IF_FAILED(check_range("options->gradients", options.gradients, 0, kGradients - 1));
  BARACUDA_RETURN_IF_FAILED(check_range("options->shares_input", options.shares_input, 0, 1));
  if (options.padding_mode != 0 && (input_h == 0 || input_w == 0)) {
    return fail(Status::kInvalidProblem, "input_h is %d and input_w %d; wanted a pixel that can be at the border",
                input_h, input_w);
  }

  RuledProblem p{};
  p.rule = {static_cast<Mode>(options.mode), static_cast<Padding>(options.padding_mode), options.align_corners != 0};
  p.gradients = static_cast<Gradients>(options.gradients);
  p.shares_input = options.shares_input != 0;
  p.n = n, p.c = c;
  p.input_h = input_h, p.input_w = input_w;
  p.output_h = output_h, p.output_w = output_w;
  p.pixels = static_cast<int64_t>(input_h) * input_w;
  p.samples = static_cast<int64_t>(output_h) * output_w;
  const CheckedCount image = CheckedCount(element_bytes).times(c).times(input_h).times(input_w);
  const CheckedCount images = CheckedCount(element_bytes).times(n).times(c).times(input_h).times(input_w);
  BARACUDA_RETURN_IF_FAILED(check_count("input", p.shares_input ? image : images, &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(
      is_backward ? "grad_output" : "output",
      CheckedCount(element_bytes).times(n).times(c).times(output_h).times(output_w), &p.output_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(
      "grid", CheckedCount(coordinate_bytes).times(n).times(output_h).times(output_w).times(2), &p.grid_numel));
  if (p.shares_input) {
    if (is_backward && p.has_grad_input()) {
      BARACUDA_RETURN_IF_FAILED(check_count("grad_input", images, &p.input_numel));
    } else {
      // Nothing has so many elements; whether it would have any is asked.
      p.input_numel = images.fits() ? images.value() : INT64_MAX;
    }
  }
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::grid_sample
