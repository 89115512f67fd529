// SPDX-License-Identifier: Apache-2.0
// Tensors of PyTorch as a kernel here looks at them, and new ones.
#pragma once

#include <cstdint>
#include <cstring>

#include "pytorch/shim.h"

namespace baracuda::pytorch {

enum Device : int32_t { kCpu, kCuda, kDevices };
enum Dtype : int32_t { kF32, kF64, kF16, kBf16, kDtypes };
// A dtype or a device that no kernel here takes.
constexpr int32_t kOther = -1;

inline void* pointer_of(Argument argument) {
  void* pointer;
  std::memcpy(&pointer, &argument, sizeof pointer);
  return pointer;
}

// A tensor that belongs to somebody else. What cannot be found out leaves `is_known` false.
struct View {
  TensorHandle handle = nullptr;
  bool is_known = false;
  int64_t rank = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int32_t torch_dtype = kOther;
  int32_t dtype = kOther;
  int32_t device = kOther;
  int32_t device_index = 0;

  static View of(Argument argument);

  int64_t size(int64_t axis) const { return sizes[axis]; }
  int64_t numel() const {
    int64_t count = 1;
    for (int64_t axis = 0; axis < rank; ++axis) count *= sizes[axis];
    return count;
  }
  bool is_contiguous() const {
    bool answer = false;
    return shim.aoti_torch_is_contiguous(handle, &answer) == 0 && answer;
  }
  void* data() const {
    void* pointer = nullptr;
    return shim.aoti_torch_get_data_ptr(handle, &pointer) == 0 ? pointer : nullptr;
  }
};

// A tensor that is this object's, until it is given away.
class Owned {
 public:
  Owned() = default;
  explicit Owned(TensorHandle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(other.release()) {}
  Owned& operator=(Owned&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Owned() { reset(nullptr); }

  // Row-major and not written; nothing when there is no memory.
  static Owned empty(int64_t rank, const int64_t* sizes, int32_t torch_dtype, const View& like);
  // The tensor itself if it is row-major, else a copy that is; nothing when that fails.
  static Owned row_major(const View& view);
  // The tensor itself.
  static Owned same(const View& view);
  // What an operator answers where it has no tensor to answer.
  static Owned undefined();

  explicit operator bool() const { return handle_ != nullptr; }
  void* data() const;
  // The tensor once more.
  Owned again() const;
  Argument release_argument() {
    const TensorHandle handle = release();
    Argument argument = 0;
    std::memcpy(&argument, &handle, sizeof handle);
    return argument;
  }

 private:
  TensorHandle release() {
    const TensorHandle handle = handle_;
    handle_ = nullptr;
    return handle;
  }
  void reset(TensorHandle handle) {
    if (handle_ != nullptr) shim.aoti_torch_delete_tensor_object(handle_);
    handle_ = handle;
  }

  TensorHandle handle_ = nullptr;
};

inline int64_t integer_of(Argument argument) { return static_cast<int64_t>(argument); }
inline bool bool_of(Argument argument) { return (argument & 0xff) != 0; }
inline double double_of(Argument argument) {
  double number;
  std::memcpy(&number, &argument, sizeof number);
  return number;
}

// Integers of a list: up to `most`; -1 when there are more, else how many.
int64_t integers_of(Argument list, int64_t most, int64_t* integers);

}  // namespace baracuda::pytorch
