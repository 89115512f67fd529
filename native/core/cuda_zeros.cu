// SPDX-License-Identifier: Apache-2.0
// The one kernel that writes zeros, for all families.
#include "core/cuda_zeros.cuh"

#include "core/cuda_launch.cuh"
#include "core/integer_math.h"

namespace baracuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) write_zeros(int64_t count, uint4* quads) {
  let_kernel_after_start();
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) quads[i] = make_uint4(0, 0, 0, 0);
}

}  // namespace

Status enqueue_zeros(void* memory, size_t bytes, Stream stream) {
  if (bytes == 0) return Status::kOk;
  const cudaError_t error = cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(stream));
  return error == cudaSuccess ? Status::kOk : cuda_failure(error, "memset");
}

Status enqueue_zeros_early(void* array, size_t bytes, Stream stream) {
  // Arrays of a workspace begin at 16 bytes, and so does what follows them.
  const int64_t count = static_cast<int64_t>(groups_of(bytes, sizeof(uint4)));
  return launch_kernel("zero kernel", write_zeros, blocks_for(count, kThreads), kThreads, 0, stream, count,
                       static_cast<uint4*>(array));
}

}  // namespace baracuda
