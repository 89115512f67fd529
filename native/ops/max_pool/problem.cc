// SPDX-License-Identifier: Apache-2.0
// Validation of maximum pooling. No pointers, no CUDA.
#include "ops/max_pool/problem.h"

#include "core/checked.h"
#include "core/pool_problem.h"

namespace baracuda::max_pool {
namespace {

Status check_windows(const Windows& w) {
  BARACUDA_RETURN_IF_FAILED(check_pool_windows(w.kernel, w.stride, w.padding));
  BARACUDA_RETURN_IF_FAILED(check_pool_numbers(&PoolAxisNames::dilation, w.dilation, 1, INT32_MAX));
  return check_window_places(w.kernel);
}

}  // namespace

Status make_problem(const Extents& extents, const Windows* windows, int64_t element_bytes, const char* input,
                    const char* output, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_pool_extents(extents.n, extents.c, extents.input, extents.output));
  if (windows != nullptr) BARACUDA_RETURN_IF_FAILED(check_windows(*windows));
  Problem p{};
  CheckedCount inputs(element_bytes), outputs(element_bytes), indices(sizeof(int64_t));
  inputs.times(extents.n).times(extents.c);
  outputs.times(extents.n).times(extents.c);
  indices.times(extents.n).times(extents.c);
  for (int a = 0; a < kAxes; ++a) {
    const int32_t extent = extents.input[a], bins = extents.output[a];
    inputs.times(extent);
    outputs.times(bins);
    indices.times(bins);
    if (windows == nullptr) {
      p.axes[a] = adaptive_axis(extent, bins);
      continue;
    }
    BARACUDA_RETURN_IF_FAILED(fixed_axis(kPoolAxisNames[a], extent, bins, windows->kernel[a], windows->stride[a],
                                         windows->padding[a], windows->dilation[a], &p.axes[a]));
  }
  BARACUDA_RETURN_IF_FAILED(check_count(input, inputs, &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(output, outputs, &p.output_numel));
  // Wider than elements are.
  BARACUDA_RETURN_IF_FAILED(check_count("indices", indices, &p.output_numel));
  p.planes = static_cast<int64_t>(extents.n) * extents.c;
  p.plane_numel = p.planes > 0 ? p.input_numel / p.planes : 0;
  p.plane_bins = p.planes > 0 ? p.output_numel / p.planes : 0;
  if (p.plane_numel == 0) {
    // Every window is empty. Along an axis of many places none must be looked for.
    for (PoolAxis& axis : p.axes) axis.extent = 0;
  }
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::max_pool
