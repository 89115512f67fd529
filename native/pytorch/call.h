// SPDX-License-Identifier: Apache-2.0
// What every kernel here needs for one call: its device and stream, scratch, the call of a C function, and questions
// about tensors.
#pragma once

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "pytorch/operators.h"
#include "pytorch/tensor.h"

namespace baracuda::pytorch {

// What a call needs of its device: the tensors' GPU is the current one, and work goes to PyTorch's current stream.
class Place {
 public:
  explicit Place(const View& like) : is_cuda_(like.device == kCuda) {
    if (!is_cuda_) return;
    is_ready_ = shim.aoti_torch_create_cuda_guard != nullptr &&
                shim.aoti_torch_create_cuda_guard(like.device_index, &guard_) == 0 &&
                shim.aoti_torch_get_current_cuda_stream(like.device_index, &stream_) == 0;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    if (guard_ != nullptr) shim.aoti_torch_delete_cuda_guard(guard_);
  }
  bool is_ready() const { return is_ready_; }
  bool is_cuda() const { return is_cuda_; }
  void* stream() const { return stream_; }

 private:
  bool is_cuda_;
  bool is_ready_ = true;
  void* guard_ = nullptr;
  void* stream_ = nullptr;
};

// Memory for one call. A GPU's is from PyTorch's allocator, free for later work of the same stream as soon as this
// object ends. No tensors where PyTorch gives memory alone: they are filled under its deterministic flag.
class Scratch {
 public:
  Scratch(size_t bytes, const View& like) {
    if (bytes == 0) return;
    if (like.device == kCpu) {
      of_host_.reset(std::malloc(bytes));
      is_there_ = of_host_ != nullptr;
      return;
    }
    if (shim.aoti_torch_cuda_caching_allocator_raw_alloc != nullptr &&
        shim.aoti_torch_cuda_caching_allocator_raw_delete != nullptr) {
      is_there_ = shim.aoti_torch_cuda_caching_allocator_raw_alloc(bytes, &memory_) == 0;
      return;
    }
    const int64_t size = static_cast<int64_t>(bytes);
    is_there_ = bytes <= static_cast<size_t>(INT64_MAX);
    if (is_there_) tensor_ = Owned::empty(1, &size, shim.aoti_torch_dtype_uint8(), like);
    is_there_ = is_there_ && tensor_;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (memory_ != nullptr) shim.aoti_torch_cuda_caching_allocator_raw_delete(memory_);
  }
  bool is_there() const { return is_there_; }
  void* data() const {
    if (of_host_ != nullptr) return of_host_.get();
    return tensor_ ? tensor_.data() : memory_;
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  bool is_there_ = true;
  void* memory_ = nullptr;
  std::unique_ptr<void, Free> of_host_;
  Owned tensor_;
};

// How a C function is called that takes such numbers and then pointers. On the host it takes its own scratch.
template <typename... Scalars>
struct Numbers {
  template <typename... Pointers>
  static bool run(const Functions& functions, const View& like, const Place& place, Scalars... scalars,
                  Pointers... pointers) {
    using Size = size_t (*)(Scalars...);
    using Run = int32_t (*)(Scalars..., Pointers..., void*, size_t, void*);
    const auto call = reinterpret_cast<Run>(functions.run);
    if (!place.is_cuda()) return call(scalars..., pointers..., nullptr, 0, nullptr) == 0;
    const size_t bytes = reinterpret_cast<Size>(functions.workspace_size)(scalars...);
    const Scratch scratch(bytes, like);
    return scratch.is_there() && call(scalars..., pointers..., scratch.data(), bytes, place.stream()) == 0;
  }
};

inline bool has_extents(const View& view) {
  for (int64_t axis = 0; axis < view.rank; ++axis) {
    if (view.sizes[axis] <= 0 || view.sizes[axis] > INT32_MAX) return false;
  }
  return true;
}

inline bool is_float(const View& view, int64_t rank) {
  return view.is_known && view.rank == rank && view.dtype != kOther && view.device != kOther && has_extents(view);
}

inline bool is_beside(const View& view, const View& other) {
  return view.device == other.device && view.device_index == other.device_index;
}

inline bool is_like(const View& view, const View& other) { return view.dtype == other.dtype && is_beside(view, other); }

inline bool has_sizes(const View& view, const int64_t* sizes) {
  for (int64_t axis = 0; axis < view.rank; ++axis) {
    if (view.sizes[axis] != sizes[axis]) return false;
  }
  return true;
}

inline bool are_coordinates(const View& view) { return view.dtype == kF32 || view.dtype == kF64; }

inline const Functions* functions_for(const FunctionTable& table, const View& like) {
  const Functions& found = table[0][like.device][like.dtype];
  return found.run != nullptr && found.workspace_size != nullptr ? &found : nullptr;
}

inline int32_t narrow(int64_t extent) { return static_cast<int32_t>(extent); }
inline bool fits(int64_t number) { return number >= INT32_MIN && number <= INT32_MAX; }

}  // namespace baracuda::pytorch
