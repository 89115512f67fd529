// SPDX-License-Identifier: Apache-2.0
// The CUDA side of core/backend.h: the stream's device, the scratch pools, error texts.
#include <cuda.h>
#include <pthread.h>

#include <atomic>
#include <mutex>

#include "core/backend.h"
#include "core/checked.h"
#include "core/cuda_launch.cuh"

namespace baracuda {
namespace {

// What a pool keeps after its memory is freed. Above 0 because a pool that returns everything at each synchronisation
// costs 69 us a call; the largest scratch of the shapes we tune for is well below this.
constexpr uint64_t kKeptBytes = uint64_t{256} << 20;

// CUDA cannot be used in a process forked from one that used it, and asking it there can wait for ever: for a lock, of
// CUDA's or of this file's, that a thread held which the child does not have. So the child answers by itself.
std::atomic<bool> is_used{false};
std::atomic<bool> is_lost{false};

void lose_what_was_used() {
  if (is_used.load(std::memory_order_relaxed)) is_lost.store(true, std::memory_order_relaxed);
}

// As the library is loaded, before any thread can call it.
[[maybe_unused]] const int lose_is_registered = pthread_atfork(nullptr, nullptr, lose_what_was_used);

// Before anything that touches CUDA or takes a lock here.
Status enter_process() {
  if (is_lost.load(std::memory_order_relaxed)) {
    return fail(Status::kInternal,
                "this process was forked from one that had used CUDA, which CUDA does not allow; fork before the first "
                "call, or spawn");
  }
  if (!is_used.load(std::memory_order_relaxed)) is_used.store(true, std::memory_order_seq_cst);
  return Status::kOk;
}

// Guards the first use of a device and of the driver's functions; later uses read the atomics alone. What fails is not
// remembered: the next call tries again, since a full device may have room by then.
std::mutex first_use_mutex;
std::atomic<cudaMemPool_t> pools[kMaxDevices];
std::atomic<bool> traits_known[kMaxDevices];
DeviceTraits traits_of[kMaxDevices];

// In this scope the thread may make calls that CUDA refuses it while any of its streams is captured.
class RelaxedCapture {
 public:
  RelaxedCapture() : exchanged_(cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess) {}
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() {
    if (exchanged_) cudaThreadExchangeStreamCaptureMode(&mode_);
  }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the one to return to
  bool exchanged_;
};

Status pool_of(int device, cudaMemPool_t* pool) {
  *pool = pools[device].load(std::memory_order_acquire);
  if (*pool != nullptr) return Status::kOk;
  const std::lock_guard<std::mutex> lock(first_use_mutex);
  *pool = pools[device].load(std::memory_order_relaxed);
  if (*pool != nullptr) return Status::kOk;
  // The first call of all may be one that is captured into a graph. A pool is no part of the graph, so to make one then
  // is harmless, but CUDA must be told.
  const RelaxedCapture relaxed;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaError_t error = cudaMemPoolCreate(pool, &properties);
  if (error != cudaSuccess) return cuda_failure(error, "cudaMemPoolCreate");
  uint64_t kept = kKeptBytes;
  error = cudaMemPoolSetAttribute(*pool, cudaMemPoolAttrReleaseThreshold, &kept);
  if (error != cudaSuccess) {
    cudaMemPoolDestroy(*pool);
    return cuda_failure(error, "cudaMemPoolSetAttribute");
  }
  pools[device].store(*pool, std::memory_order_release);
  return Status::kOk;
}

// The driver's functions for which the runtime has no equal; asked of the runtime, so that nothing links with libcuda.
// cudaStreamGetDevice is refused while its stream is captured into a graph, in every capture mode, and calling
// it spoils the capture. A stream's context may be asked for at any time.
struct DriverFunctions {
  decltype(&cuStreamGetCtx) stream_context;
  decltype(&cuCtxGetCurrent) current_context;
  decltype(&cuCtxPushCurrent) push_context;
  decltype(&cuCtxPopCurrent) pop_context;
};

DriverFunctions driver;
std::atomic<bool> driver_known;

template <typename Function>
cudaError_t find_in_driver(const char* name, Function* function) {
  constexpr unsigned kVersion = 12000;  // whose declarations these are; they have not changed since
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  if (error != cudaSuccess) return error;
  *function = reinterpret_cast<Function>(found);
  return result == cudaDriverEntryPointSuccess ? cudaSuccess : cudaErrorSymbolNotFound;
}

// `driver` is complete when this succeeds.
Status find_driver() {
  if (driver_known.load(std::memory_order_acquire)) return Status::kOk;
  const std::lock_guard<std::mutex> lock(first_use_mutex);
  if (driver_known.load(std::memory_order_relaxed)) return Status::kOk;
  cudaError_t error = find_in_driver("cuStreamGetCtx", &driver.stream_context);
  if (error == cudaSuccess) error = find_in_driver("cuCtxGetCurrent", &driver.current_context);
  if (error == cudaSuccess) error = find_in_driver("cuCtxPushCurrent", &driver.push_context);
  if (error == cudaSuccess) error = find_in_driver("cuCtxPopCurrent", &driver.pop_context);
  if (error != cudaSuccess) return cuda_failure(error, "cudaGetDriverEntryPointByVersion");
  driver_known.store(true, std::memory_order_release);
  return Status::kOk;
}

// The driver's codes and the runtime's are the same numbers.
Status driver_failure(CUresult result, const char* what) {
  return cuda_failure(static_cast<cudaError_t>(result), what);
}

// The default streams' handles name no device of their own.
bool is_default_stream(Stream stream) {
  const cudaStream_t handle = static_cast<cudaStream_t>(stream);
  return handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
}

// Bytes free on the current device. Not asked of a stream that is captured, whose allocations need none yet.
bool free_bytes(Stream stream, size_t* bytes) {
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusActive;
  size_t total = 0;
  const RelaxedCapture relaxed;
  return cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &captured) == cudaSuccess &&
         captured == cudaStreamCaptureStatusNone && cudaMemGetInfo(bytes, &total) == cudaSuccess;
}

Status scratch_failure(cudaError_t error, size_t bytes, int device, Stream stream) {
  size_t free = 0;
  const bool free_known = error == cudaErrorMemoryAllocation && free_bytes(stream, &free);
  cudaGetLastError();
  const char *text = cudaGetErrorString(error), *name = cudaGetErrorName(error);
  if (!free_known) return fail(Status::kInternal, "scratch allocation: %s (%s); wanted %zu bytes", text, name, bytes);
  return fail(Status::kInternal, "scratch allocation: %s (%s); wanted %zu bytes, device %d has %zu bytes free", text,
              name, bytes, device, free);
}

}  // namespace

Status current_device(int* device) {
  const cudaError_t error = cudaGetDevice(device);
  if (error != cudaSuccess) return cuda_failure(error, "cudaGetDevice");
  if (*device < 0 || *device >= kMaxDevices) {
    return fail(Status::kInternal, "device %d is beyond the %d that the library keeps pools for", *device, kMaxDevices);
  }
  return Status::kOk;
}

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
  const std::lock_guard<std::mutex> lock(first_use_mutex);
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
  BARACUDA_RETURN_IF_FAILED(enter_process());
  if (is_default_stream(stream)) {
    int device = 0;
    return current_device(&device);
  }
  BARACUDA_RETURN_IF_FAILED(find_driver());
  CUcontext wanted = nullptr, current = nullptr;
  CUresult result = driver.stream_context(static_cast<CUstream>(stream), &wanted);
  if (result != CUDA_SUCCESS) return driver_failure(result, "stream");
  result = driver.current_context(&current);
  if (result != CUDA_SUCCESS) return driver_failure(result, "cuCtxGetCurrent");
  if (wanted == current) return Status::kOk;
  result = driver.push_context(wanted);
  if (result != CUDA_SUCCESS) return driver_failure(result, "cuCtxPushCurrent");
  entered_ = true;
  return Status::kOk;
}

LaunchScope::~LaunchScope() {
  CUcontext left = nullptr;
  if (entered_) driver.pop_context(&left);
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
    return scratch_failure(error, bytes, device, stream);
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

// Calls enqueue and return: no thread of the library's own, and nothing to interrupt.
int32_t cpu_threads() { return 1; }

// Host code here only checks and enqueues.
const char* cpu_isa_name() { return "portable"; }

void set_interrupt_check(InterruptCheck*, void*) {}

}  // namespace baracuda
