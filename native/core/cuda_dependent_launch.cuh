// SPDX-License-Identifier: Apache-2.0
// Launches that overlap the end of the kernel before them on the stream (programmatic dependent launch): the gaps
// between short kernels cost as much as the kernels. Nothing but this mechanism belongs here.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"

namespace baracuda {
namespace {

// The first architecture with programmatic dependent launch; others start the kernel after the one before has ended.
constexpr int kDependentLaunchCapability = 90;

#if defined(__CUDACC__)
// Every thread of a kernel enqueued by launch_dependent_kernel calls this before it touches memory: what earlier
// kernels wrote is visible from here on. Then the next kernel's blocks may take the places that become free.
__device__ __forceinline__ void after_earlier_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
#endif

// launch_kernel for a kernel that follows another kernel of the same call and begins with after_earlier_kernels().
template <typename... Parameters, typename... Arguments>
Status launch_dependent_kernel(const char* name, void (*kernel)(Parameters...), uint32_t blocks, uint32_t threads,
                               size_t shared_bytes, Stream stream, Arguments... arguments) {
  if (blocks == 0) return Status::kOk;
  DeviceTraits device{};
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = device.compute_capability >= kDependentLaunchCapability ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  return error == cudaSuccess ? Status::kOk : cuda_failure(error, name);
}

}  // namespace
}  // namespace baracuda
