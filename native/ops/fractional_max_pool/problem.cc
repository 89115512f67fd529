// SPDX-License-Identifier: Apache-2.0
// Validation of fractional maximum pooling. No pointers, no CUDA.
#include "ops/fractional_max_pool/problem.h"

#include "core/checked.h"
#include "core/integer_math.h"
#include "core/pool_problem.h"

namespace baracuda::fractional_max_pool {
namespace {

Status check_windows(const Extents& e) {
  for (int a = 0; a < kAxes; ++a) {
    // Windows are then at least an element apart, and every one has all its elements.
    const int64_t most = at_least(static_cast<int64_t>(e.input[a]) - e.kernel[a] + 1, 0);
    if (e.output[a] > most) {
      const PoolAxisNames& names = kPoolAxisNames[a];
      return fail(Status::kInvalidProblem, "%s is %d; wanted at most %lld, %s - %s + 1", names.bins, e.output[a],
                  static_cast<long long>(most), names.extent, names.kernel);
    }
  }
  return check_window_places(e.kernel);
}

}  // namespace

Status make_problem(const Extents& extents, const int32_t* num_samples, int64_t element_bytes, const char* input,
                    const char* output, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_pool_extents(extents.n, extents.c, extents.input, extents.output));
  BARACUDA_RETURN_IF_FAILED(check_pool_numbers(&PoolAxisNames::kernel, extents.kernel, 1, INT32_MAX));
  if (num_samples != nullptr) {
    BARACUDA_RETURN_IF_FAILED(check_range("num_samples", *num_samples, kFewestSamples, kMostSamples));
  }
  BARACUDA_RETURN_IF_FAILED(check_windows(extents));
  Problem p{};
  p.num_samples = num_samples != nullptr ? *num_samples : 0;
  CheckedCount inputs(element_bytes), outputs(element_bytes), indices(sizeof(int64_t)), samples(element_bytes);
  inputs.times(extents.n).times(extents.c);
  outputs.times(extents.n).times(extents.c);
  indices.times(extents.n).times(extents.c);
  samples.times(extents.n).times(extents.c).times(p.num_samples);
  for (int a = 0; a < kAxes; ++a) {
    inputs.times(extents.input[a]);
    outputs.times(extents.output[a]);
    indices.times(extents.output[a]);
    p.axes[a] = {extents.input[a], extents.output[a], extents.kernel[a]};
  }
  BARACUDA_RETURN_IF_FAILED(check_count(input, inputs, &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(check_count("random_samples", samples, &p.sample_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(output, outputs, &p.output_numel));
  // Wider than elements are.
  BARACUDA_RETURN_IF_FAILED(check_count("indices", indices, &p.output_numel));
  p.planes = static_cast<int64_t>(extents.n) * extents.c;
  p.plane_numel = p.planes > 0 ? p.input_numel / p.planes : 0;
  p.plane_bins = p.planes > 0 ? p.output_numel / p.planes : 0;
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::fractional_max_pool
