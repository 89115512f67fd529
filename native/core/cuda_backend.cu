// SPDX-License-Identifier: Apache-2.0
// The CUDA side of core/backend.h: the stream's device, the scratch pools, error texts.
#include <atomic>
#include <mutex>

#include "core/backend.h"
#include "core/checked.h"
#include "core/cuda_launch.cuh"

namespace baracuda {
namespace {

constexpr int kMaxDevices = 64;

// What a pool keeps after its memory is freed. Above 0 because a pool that returns everything at each synchronisation
// costs 69 us a call; the largest scratch of the shapes we tune for is well below this.
constexpr uint64_t kKeptBytes = uint64_t{256} << 20;

// Guards the first use of a device; later uses read the atomics alone.
std::mutex devices_mutex;
std::atomic<cudaMemPool_t> pools[kMaxDevices];
std::atomic<bool> traits_known[kMaxDevices];
DeviceTraits traits_of[kMaxDevices];

Status current_device(int* device) {
  const cudaError_t error = cudaGetDevice(device);
  if (error != cudaSuccess) return cuda_failure(error, "cudaGetDevice");
  if (*device < 0 || *device >= kMaxDevices) {
    return fail(Status::kInternal, "device %d is beyond the %d that the library keeps pools for", *device, kMaxDevices);
  }
  return Status::kOk;
}

Status pool_of(int device, cudaMemPool_t* pool) {
  *pool = pools[device].load(std::memory_order_acquire);
  if (*pool != nullptr) return Status::kOk;
  const std::lock_guard<std::mutex> lock(devices_mutex);
  *pool = pools[device].load(std::memory_order_relaxed);
  if (*pool != nullptr) return Status::kOk;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaError_t error = cudaMemPoolCreate(pool, &properties);
  if (error != cudaSuccess) return cuda_failure(error, "cudaMemPoolCreate");
  uint64_t kept = kKeptBytes;
  error = cudaMemPoolSetAttribute(*pool, cudaMemPoolAttrReleaseThreshold, &kept);
  if (error != cudaSuccess) return cuda_failure(error, "cudaMemPoolSetAttribute");
  pools[device].store(*pool, std::memory_order_release);
  return Status::kOk;
}

// The default streams' handles name no device of their own.
bool is_default_stream(Stream stream) {
  const cudaStream_t handle = static_cast<cudaStream_t>(stream);
  return handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
}

}  // namespace

Status cuda_failure(cudaError_t error, const char* what) {
  cudaGetLastError();
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
      return fail(Status::kInternal, "%s: no NVIDIA driver is loaded; wanted one for CUDA %d.%d (580 or newer)", what,
                  runtime / 1000, runtime % 1000 / 10);
    }
    if (error == cudaErrorInsufficientDriver) {
      return fail(Status::kInternal, "%s: the NVIDIA driver serves CUDA %d.%d; wanted CUDA %d.%d (driver 580 or newer)",
                  what, driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
  }
  return fail(Status::kInternal, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

Status device_traits(DeviceTraits* traits) {
  int device = 0;
  BARACUDA_RETURN_IF_FAILED(current_device(&device));
  if (traits_known[device].load(std::memory_order_acquire)) {
    *traits = traits_of[device];
    return Status::kOk;
  }
  const std::lock_guard<std::mutex> lock(devices_mutex);
  int major = 0, minor = 0;
  DeviceTraits found{};
  cudaError_t error = cudaDeviceGetAttribute(&found.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&found.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return cuda_failure(error, "cudaDeviceGetAttribute");
  found.compute_capability = major * 10 + minor;
  traits_of[device] = found;
  traits_known[device].store(true, std::memory_order_release);
  *traits = found;
  return Status::kOk;
}

Status LaunchScope::enter(Stream stream) {
  int device = 0;
  BARACUDA_RETURN_IF_FAILED(current_device(&device));
  if (is_default_stream(stream)) return Status::kOk;
  int wanted = 0;
  cudaError_t error = cudaStreamGetDevice(static_cast<cudaStream_t>(stream), &wanted);
  if (error != cudaSuccess) return cuda_failure(error, "stream");
  if (wanted == device) return Status::kOk;
  error = cudaSetDevice(wanted);
  if (error != cudaSuccess) return cuda_failure(error, "cudaSetDevice");
  saved_ = device;
  entered_ = true;
  return Status::kOk;
}

LaunchScope::~LaunchScope() {
  if (entered_) cudaSetDevice(static_cast<int>(saved_));
}

Status Scratch::acquire(size_t bytes, Stream stream) {
  int device = 0;
  BARACUDA_RETURN_IF_FAILED(current_device(&device));
  cudaMemPool_t pool = nullptr;
  BARACUDA_RETURN_IF_FAILED(pool_of(device, &pool));
  stream_ = stream;
  const cudaError_t error = cudaMallocFromPoolAsync(&pointer_, bytes, pool, static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) {
    pointer_ = nullptr;
    return cuda_failure(error, "scratch allocation");
  }
  return Status::kOk;
}

Status Scratch::release() {
  const cudaError_t error = cudaFreeAsync(pointer_, static_cast<cudaStream_t>(stream_));
  pointer_ = nullptr;
  return error == cudaSuccess ? Status::kOk : cuda_failure(error, "scratch release");
}

Scratch::~Scratch() {
  if (pointer_ != nullptr) cudaFreeAsync(pointer_, static_cast<cudaStream_t>(stream_));
}

const char* backend_name() { return "cuda"; }

}  // namespace baracuda
