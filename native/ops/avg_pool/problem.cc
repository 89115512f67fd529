// SPDX-License-Identifier: Apache-2.0
// Validation of average pooling. No pointers, no CUDA.
#include "ops/avg_pool/problem.h"

#include "core/checked.h"
#include "core/pool_problem.h"

namespace baracuda::avg_pool {
namespace {

Status check_windows(const Windows& w) {
  BARACUDA_RETURN_IF_FAILED(check_pool_windows(w.kernel, w.stride, w.padding));
  BARACUDA_RETURN_IF_FAILED(check_range("count_include_pad", w.count_include_pad, 0, 1));
  // A window's count is a factor of each quotient: it has to be a number of 31 bits.
  return check_window_places(w.kernel);
}

}  // namespace

Status make_problem(const Extents& extents, const Windows* windows, int64_t element_bytes, const char* input,
                    const char* output, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_pool_extents(extents.n, extents.c, extents.input, extents.output));
  if (windows != nullptr) BARACUDA_RETURN_IF_FAILED(check_windows(*windows));
  Problem p{};
  CheckedCount inputs(element_bytes), outputs(element_bytes);
  inputs.times(extents.n).times(extents.c);
  outputs.times(extents.n).times(extents.c);
  for (int a = 0; a < kAxes; ++a) {
    const int32_t extent = extents.input[a], bins = extents.output[a];
    inputs.times(extent);
    outputs.times(bins);
    if (windows == nullptr) {
      p.axes[a] = adaptive_axis(extent, bins);
      continue;
    }
    const int32_t no_dilation = 1;
    BARACUDA_RETURN_IF_FAILED(fixed_axis(kPoolAxisNames[a], extent, bins, windows->kernel[a], windows->stride[a],
                                         windows->padding[a], no_dilation, &p.axes[a]));
  }
  BARACUDA_RETURN_IF_FAILED(check_count(input, inputs, &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(output, outputs, &p.output_numel));
  p.planes = static_cast<int64_t>(extents.n) * extents.c;
  p.count_padding = windows != nullptr && windows->count_include_pad != 0;
  p.divisor = windows != nullptr ? windows->divisor_override : 0;
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::avg_pool
