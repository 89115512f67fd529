// SPDX-License-Identifier: Apache-2.0
// Validation of maximum unpooling. No pointers, no CUDA.
#include "ops/max_unpool/problem.h"

#include "core/checked.h"
#include "core/pool_problem.h"

namespace baracuda::max_unpool {
Status make_problem(const Extents& extents, int64_t element_bytes, const char* input, const char* output,
                    Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_pool_extents(extents.n, extents.c, extents.input, extents.output));
  Problem p{};
  CheckedCount inputs(element_bytes), indices(sizeof(int64_t)), outputs(element_bytes);
  inputs.times(extents.n).times(extents.c);
  indices.times(extents.n).times(extents.c);
  outputs.times(extents.n).times(extents.c);
  for (int a = 0; a < 3; ++a) {
    inputs.times(extents.input[a]);
    indices.times(extents.input[a]);
    outputs.times(extents.output[a]);
  }
  BARACUDA_RETURN_IF_FAILED(check_count(input, inputs, &p.input_numel));
  // Wider than elements are.
  BARACUDA_RETURN_IF_FAILED(check_count("indices", indices, &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(output, outputs, &p.output_numel));
  p.planes = static_cast<int64_t>(extents.n) * extents.c;
  p.plane_inputs = p.planes > 0 ? p.input_numel / p.planes : 0;
  p.plane_places = p.planes > 0 ? p.output_numel / p.planes : 0;
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::max_unpool
