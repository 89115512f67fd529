// SPDX-License-Identifier: Apache-2.0
// The segment operators with one result a row on CUDA.
#include "ops/segment/cuda/dispatch.cuh"

namespace baracuda::segment {

BARACUDA_SEGMENT_RULES_BY_ROW(BARACUDA_PROVIDE)

}  // namespace baracuda::segment
