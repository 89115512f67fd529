// SPDX-License-Identifier: Apache-2.0
// What CUDA code needs to launch: checked launches on a stream, one-dimensional grids of any size, and the stamp that
// provides launch<Buffers>.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "core/backend.h"
#include "core/checked.h"
#include "core/integer_math.h"
#include "core/status.h"

namespace baracuda {

// Status 5 with the runtime's text; clears the runtime's error so that the caller's next check does not see ours.
Status cuda_failure(cudaError_t error, const char* what);

// What launches depend on of the current device (cached per device).
struct DeviceTraits {
  int multiprocessors;
  int compute_capability;  // major * 10 + minor
  int shared_bytes;        // dynamic shared memory that one CTA may opt in to
};
Status device_traits(DeviceTraits* traits);

// Devices that the library keeps a pool and traits for; current_device() answers a number below it or a failure.
constexpr int kMaxDevices = 64;
Status current_device(int* device);

namespace {

// Blocks for `items` items at `per_block` each; kernels stride by the grid, so a cut at the launch limit is harmless.
inline uint32_t blocks_for(int64_t items, int64_t per_block) {
  const int64_t blocks = ceil_div(items, per_block);
  return static_cast<uint32_t>(blocks < INT32_MAX ? blocks : INT32_MAX);
}

// Enqueues a kernel; `name` is what a failure is called. No block, no launch: an empty grid is an error to CUDA alone.
template <typename... Parameters, typename... Arguments>
Status launch_kernel(const char* name, void (*kernel)(Parameters...), uint32_t blocks, uint32_t threads,
                     size_t shared_bytes, Stream stream, Arguments... arguments) {
  if (blocks == 0) return Status::kOk;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  return error == cudaSuccess ? Status::kOk : cuda_failure(error, name);
}

// Enqueues a kernel that begins with wait_for_kernel_before(): where the hardware can (sm_90), its blocks start while
// the kernel before it in the stream drains, which hides the launch.
template <typename... Parameters, typename... Arguments>
Status launch_early(const char* name, void (*kernel)(Parameters...), uint32_t blocks, uint32_t threads,
                    size_t shared_bytes, Stream stream, Arguments... arguments) {
  if (blocks == 0) return Status::kOk;
  DeviceTraits device;
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &early;
  config.numAttrs = device.compute_capability >= 90 ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  return error == cudaSuccess ? Status::kOk : cuda_failure(error, name);
}

// Lets a kernel use all the shared memory that a block may have, beyond the default of 48 KiB. All, whatever the launch
// at hand wants: the limit is the kernel's and not the launch's, and another thread may be about to launch the same
// kernel with more.
template <auto kKernel>
Status allow_shared_bytes(const char* name) {
  static std::atomic<int> most[kMaxDevices];  // what its own arrays leave of the device's; 0 before it is known
  int device = 0;
  BARACUDA_RETURN_IF_FAILED(current_device(&device));
  int bytes = most[device].load(std::memory_order_relaxed);
  if (bytes == 0) {
    DeviceTraits traits;
    BARACUDA_RETURN_IF_FAILED(device_traits(&traits));
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kKernel);
    if (error != cudaSuccess) return cuda_failure(error, name);
    bytes = traits.shared_bytes - static_cast<int>(attributes.sharedSizeBytes);
    most[device].store(bytes, std::memory_order_relaxed);
  }
  // At every call: it counts for the current context alone, of which a device may have several.
  const cudaError_t error = cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  return error == cudaSuccess ? Status::kOk : cuda_failure(error, name);
}

#if defined(__CUDACC__)
__device__ __forceinline__ int64_t grid_thread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
// Nothing that another kernel wrote may be read, and nothing that one reads be written, before this.
__device__ __forceinline__ void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From here on the blocks of the kernel after, if it was launched early, may take the places that become free.
__device__ __forceinline__ void let_kernel_after_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

__device__ __forceinline__ int64_t grid_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }
#endif

}  // namespace
}  // namespace baracuda

// BARACUDA_PROVIDE_LAUNCH(Problem, Buffers) provides launch<Buffers> through the including file's
// run(problem, buffers, workspace, stream).
#define BARACUDA_PROVIDE_LAUNCH(PROBLEM, ...)                                                                  \
  template <>                                                                                                  \
  Status launch<__VA_ARGS__>(const PROBLEM& problem, const __VA_ARGS__& buffers, void* workspace, Stream stream) { \
    return run(problem, buffers, workspace, stream);                                                           \
  }

// BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, Buffers): bytes_of(problem, const Buffers*) of the including file as the
// library's workspace_size<Buffers>.
#define BARACUDA_PROVIDE_WORKSPACE_SIZE(PROBLEM, ...)                   \
  template <>                                                           \
  size_t workspace_size<__VA_ARGS__>(const PROBLEM& problem) {          \
    return bytes_of(problem, static_cast<const __VA_ARGS__*>(nullptr)); \
  }

// Both for a family that has a forward and a backward with scratch.
#define BARACUDA_PROVIDE_BOTH_DIRECTIONS(T)                   \
  BARACUDA_PROVIDE_LAUNCH(Problem, ForwardBuffers<T>)         \
  BARACUDA_PROVIDE_LAUNCH(Problem, BackwardBuffers<T>)        \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, ForwardBuffers<T>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, BackwardBuffers<T>)
