// SPDX-License-Identifier: Apache-2.0
// The steps on a GPU: a launch each, on the caller's stream and the current device.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>
#include <mutex>

#include "pytorch/steps.h"

namespace baracuda::pytorch::cuda {
namespace {

constexpr int kThreads = 256;
// Blocks stride by the grid: enough of them to fill any GPU.
constexpr int64_t kMostBlocks = 4096;
constexpr int32_t kMostDevices = 64;

// Of each device, since the process began. Additions of integers have one result in any order; none is ever reset, so
// that replays of graphs count.
__device__ unsigned long long dropped_entries;

__device__ int64_t first_item() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t all_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

__global__ void screen_entries(Index index) {
  unsigned long long outside = 0;
  for (int64_t i = first_item(); i < index.count; i += all_threads()) {
    const int64_t row = index.entries[i];
    outside += row < 0 || row >= index.extent;
    if (index.kept != nullptr) index.kept[i] = row == index.left_out ? -1 : row;
  }
  if (outside != 0) atomicAdd(&dropped_entries, outside);
}

// Which element of the tensor an entry names; -1 for none. Unsigned counts the entries.
template <typename Unsigned>
__device__ int64_t place_of(const ElementIndex& index, int64_t i) {
  int64_t entry = index.entries[i];
  if (index.wraps && entry < 0) entry += index.extent;
  if (entry < 0 || entry >= index.extent) return -1;
  const Unsigned rows = static_cast<Unsigned>(index.rows), columns = static_cast<Unsigned>(index.columns);
  const Unsigned row = static_cast<Unsigned>(i) / columns, column = static_cast<Unsigned>(i) - row * columns;
  return (row / rows * index.extent + entry) * index.columns + column;
}

template <typename Unsigned>
__global__ void place_entries(ElementIndex index, int32_t* places) {
  unsigned long long outside = 0;
  for (int64_t i = first_item(); i < index.count; i += all_threads()) {
    const int64_t place = place_of<Unsigned>(index, i);
    outside += place < 0;
    places[i] = static_cast<int32_t>(place);
  }
  if (outside != 0) atomicAdd(&dropped_entries, outside);
}

// Of each element of the output the largest number of an entry that names it, from 1 on, and beneath it what that puts
// there; 0 without one. A maximum of integers has one result in any order, and the one who reads it needs no other
// memory. Of the lanes of a warp that name one element only the last asks for it: where all do, few meet there.
template <typename Element>
__global__ void find_last(ElementIndex index, const Element* source, unsigned long long* winners) {
  unsigned long long outside = 0;
  const unsigned lane = threadIdx.x % warpSize;
  for (int64_t first = first_item() - lane; first < index.count; first += all_threads()) {
    const int64_t i = first + lane;
    const bool is_entry = i < index.count;
    const int64_t place = is_entry ? place_of<uint32_t>(index, i) : -1;
    outside += is_entry && place < 0;
    const unsigned equals = __match_any_sync(UINT32_MAX, static_cast<int32_t>(place));
    if (place < 0 || equals >> lane != 1) continue;
    atomicMax(winners + place, static_cast<unsigned long long>(i + 1) << 32 | source[i]);
  }
  if (outside != 0) atomicAdd(&dropped_entries, outside);
}

template <typename Element>
__global__ void put_winners(const unsigned long long* winners, Element* output, int64_t elements) {
  for (int64_t i = first_item(); i < elements; i += all_threads()) {
    const unsigned long long winner = winners[i];
    if (winner != 0) output[i] = static_cast<Element>(winner);
  }
}

template <typename Element>
__global__ void put_elements_in_lines(LineIndex index, const Element* source, Element* output) {
  unsigned long long outside = 0;
  for (int64_t i = first_item(); i < index.count; i += all_threads()) {
    const int64_t row = i / index.columns, column = i - row * index.columns, entry = index.entries[i];
    const bool is_outside = entry < 0 || entry >= index.extent;
    outside += is_outside;
    if (!is_outside) output[(row * index.extent + entry) * index.columns + column] = source[i];
  }
  if (outside != 0) atomicAdd(&dropped_entries, outside);
}

template <typename T>
struct SumOf {
  using type = float;
};
template <>
struct SumOf<double> {
  using type = double;
};
template <typename T>
using Sum = typename SumOf<T>::type;

// PyTorch's conversions, to the bits of a NaN.
__device__ float widened(float x) { return x; }
__device__ double widened(double x) { return x; }
__device__ float widened(__half x) { return __half2float(x); }
__device__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void store(float x, float* to) { *to = x; }
__device__ void store(double x, double* to) { *to = x; }
__device__ void store(float x, __half* to) { *to = __float2half_rn(x); }
__device__ void store(float x, __nv_bfloat16* to) { *to = __float2bfloat16_rn(x); }

// Elements that a thread reads and writes at once.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T of[kCount];
};

template <typename T, int kCount>
__global__ void widen_elements(const T* from, float* to, int64_t packs) {
  for (int64_t i = first_item(); i < packs; i += all_threads()) {
    const auto read = reinterpret_cast<const Pack<T, kCount>*>(from)[i];
    Pack<float, kCount> written;
    for (int place = 0; place < kCount; ++place) written.of[place] = widened(read.of[place]);
    reinterpret_cast<Pack<float, kCount>*>(to)[i] = written;
  }
}

// Integers add up to the same in any order.
__global__ void count_entries(Index index, int32_t* counts) {
  for (int64_t i = first_item(); i < index.count; i += all_threads()) {
    const int64_t row = index.as_taken()[i];
    if (row >= 0 && row < index.extent) atomicAdd(counts + row, 1);
  }
}

__device__ int64_t row_of(int64_t element, int64_t columns) {
  // A division of 64 bits takes several times as long; no row has more elements than 32 bits count.
  if (element <= UINT32_MAX) return static_cast<uint32_t>(element) / static_cast<uint32_t>(columns);
  return element / columns;
}

// The output may be one of the others: each element is read before it is written. With counts a pack lies in one row.
template <typename T, int kCount>
__global__ void finish_elements(Finish finish, int64_t packs) {
  for (int64_t i = first_item(); i < packs; i += all_threads()) {
    const auto given = static_cast<const Pack<T, kCount>*>(finish.given)[i];
    const auto found = static_cast<const Pack<Sum<T>, kCount>*>(finish.found)[i];
    const int32_t count = finish.counts == nullptr ? 0 : finish.counts[row_of(i * kCount, finish.columns)];
    Pack<T, kCount> written;
    for (int place = 0; place < kCount; ++place) {
      store(finished(finish, widened(given.of[place]), found.of[place], count), &written.of[place]);
    }
    static_cast<Pack<T, kCount>*>(finish.output)[i] = written;
  }
}

template <typename... Parameters, typename... Arguments>
bool launch(void (*kernel)(Parameters...), int64_t items, void* stream, Arguments... arguments) {
  if (items == 0) return true;
  const int64_t blocks = (items + kThreads - 1) / kThreads;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  if (cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...) == cudaSuccess) return true;
  cudaGetLastError();  // The caller's next question is not answered with what ended here.
  return false;
}

template <typename Number>
bool clear(Number* numbers, int64_t count, void* stream) {
  const size_t bytes = static_cast<size_t>(count) * sizeof *numbers;
  if (cudaMemsetAsync(numbers, 0, bytes, static_cast<cudaStream_t>(stream)) == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

// use(Element{}) of the type that stands for elements of so many bytes; false if there is none.
template <class Use>
bool with_element(int32_t bytes, const Use& use) {
  switch (bytes) {
    case 1:
      return use(uint8_t{});
    case 2:
      return use(uint16_t{});
    case 4:
      return use(uint32_t{});
    case 8:
      return use(uint64_t{});
    case 16:
      return use(uint4{});
    default:
      return false;
  }
}

template <typename T, int kCount>
bool is_aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Pack<T, kCount>) == 0;
}

constexpr int kPack = 4;

template <typename T>
bool widen_as(const void* from, float* to, int64_t count, void* stream) {
  const auto* const x = static_cast<const T*>(from);
  if (count % kPack == 0 && is_aligned<T, kPack>(x) && is_aligned<float, kPack>(to)) {
    return launch(widen_elements<T, kPack>, count / kPack, stream, x, to, count / kPack);
  }
  return launch(widen_elements<T, 1>, count, stream, x, to, count);
}

template <typename T>
bool finish_as(const Finish& finish, void* stream) {
  const int64_t elements = finish.elements();
  if ((finish.counts == nullptr ? elements : finish.columns) % kPack == 0 &&
      is_aligned<T, kPack>(static_cast<const T*>(finish.given)) &&
      is_aligned<Sum<T>, kPack>(static_cast<const Sum<T>*>(finish.found)) &&
      is_aligned<T, kPack>(static_cast<const T*>(finish.output))) {
    return launch(finish_elements<T, kPack>, elements / kPack, stream, finish, elements / kPack);
  }
  return launch(finish_elements<T, 1>, elements, stream, finish, elements);
}

// By device: loaded, and what was dropped when that was last asked.
std::atomic<bool> is_loaded[kMostDevices];
int64_t seen[kMostDevices];
std::mutex seen_mutex;

template <typename... Kernels>
bool load(Kernels... kernels) {
  cudaFuncAttributes attributes{};
  bool is_done = true;
  ((is_done = is_done && cudaFuncGetAttributes(&attributes, kernels) == cudaSuccess), ...);
  if (!is_done) cudaGetLastError();
  return is_done;
}

bool load_all() {
  return load(screen_entries, place_entries<uint32_t>, place_entries<uint64_t>, count_entries,
              put_elements_in_lines<uint8_t>, put_elements_in_lines<uint16_t>, put_elements_in_lines<uint32_t>,
              put_elements_in_lines<uint64_t>, put_elements_in_lines<uint4>, find_last<uint8_t>,
              find_last<uint16_t>, find_last<uint32_t>, put_winners<uint8_t>, put_winners<uint16_t>,
              put_winners<uint32_t>,
              widen_elements<__half, 1>, widen_elements<__half, kPack>, widen_elements<__nv_bfloat16, 1>,
              widen_elements<__nv_bfloat16, kPack>, finish_elements<float, 1>, finish_elements<float, kPack>,
              finish_elements<double, 1>, finish_elements<double, kPack>,
              finish_elements<__half, 1>, finish_elements<__half, kPack>, finish_elements<__nv_bfloat16, 1>,
              finish_elements<__nv_bfloat16, kPack>);
}

}  // namespace

bool is_ready(int32_t device, void* stream) {
  if (device < 0 || device >= kMostDevices) return false;
  if (is_loaded[device].load(std::memory_order_acquire)) return true;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  if (status != cudaStreamCaptureStatusNone || !load_all()) return false;
  is_loaded[device].store(true, std::memory_order_release);
  return true;
}

bool screen(const Index& index, void* stream) { return launch(screen_entries, index.count, stream, index); }

bool place(const ElementIndex& index, int32_t* places, void* stream) {
  // A division of 64 bits takes several times as long.
  return index.count <= UINT32_MAX ? launch(place_entries<uint32_t>, index.count, stream, index, places)
                                   : launch(place_entries<uint64_t>, index.count, stream, index, places);
}

bool put_last(const ElementIndex& index, int32_t element_bytes, const void* source, void* output,
              unsigned long long* winners, void* stream) {
  if (index.count > INT32_MAX) return false;
  const int64_t elements = index.elements();
  return with_element(element_bytes, [&](auto element) {
    using Element = decltype(element);
    // A winner's number stands beside what it writes.
    if constexpr (sizeof(Element) > 4) {
      return false;
    } else {
      return clear(winners, elements, stream) &&
             launch(find_last<Element>, index.count, stream, index, static_cast<const Element*>(source), winners) &&
             launch(put_winners<Element>, elements, stream, winners, static_cast<Element*>(output), elements);
    }
  });
}

bool put_in_lines(const LineIndex& index, int32_t element_bytes, const void* source, void* output, void* stream) {
  return with_element(element_bytes, [&](auto element) {
    using Element = decltype(element);
    return launch(put_elements_in_lines<Element>, index.count, stream, index, static_cast<const Element*>(source),
                  static_cast<Element*>(output));
  });
}

bool widen(int32_t dtype, const void* from, float* to, int64_t count, void* stream) {
  if (dtype == kF16) return widen_as<__half>(from, to, count, stream);
  if (dtype == kBf16) return widen_as<__nv_bfloat16>(from, to, count, stream);
  return false;
}

bool count(const Index& index, int32_t* counts, void* stream) {
  return clear(counts, index.extent, stream) && launch(count_entries, index.count, stream, index, counts);
}

bool finish(int32_t dtype, const Finish& finish, void* stream) {
  if (dtype == kF32) return finish_as<float>(finish, stream);
  if (dtype == kF64) return finish_as<double>(finish, stream);
  if (dtype == kF16) return finish_as<__half>(finish, stream);
  if (dtype == kBf16) return finish_as<__nv_bfloat16>(finish, stream);
  return false;
}

bool has_counted(int32_t device) {
  return device >= 0 && device < kMostDevices && is_loaded[device].load(std::memory_order_acquire);
}

int64_t take_dropped(int32_t device) {
  if (!has_counted(device)) return 0;
  const std::lock_guard<std::mutex> guard(seen_mutex);
  unsigned long long total = 0;
  if (cudaMemcpyFromSymbol(&total, dropped_entries, sizeof total) != cudaSuccess) {
    cudaGetLastError();
    return -1;
  }
  const int64_t found = static_cast<int64_t>(total) - seen[device];
  seen[device] = static_cast<int64_t>(total);
  return found;
}

}  // namespace baracuda::pytorch::cuda
