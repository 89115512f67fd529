// SPDX-License-Identifier: Apache-2.0
// Laying out several arrays in one workspace: the same walk gives the size (from the problem alone) and the pointers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baracuda {
namespace {

class WorkspaceLayout {
 public:
  // Reserves `count` elements of T, 16-byte aligned, and answers their offset in bytes.
  template <typename T>
  size_t reserve(int64_t count) {
    const size_t offset = bytes_;
    size_t size = 0;
    if (__builtin_mul_overflow(static_cast<size_t>(count), sizeof(T), &size) ||
        __builtin_add_overflow(size, size_t{15}, &size) ||
        __builtin_add_overflow(bytes_, size & ~size_t{15}, &bytes_)) {
      bytes_ = SIZE_MAX & ~size_t{15};  // no machine has this; the allocation says so
    }
    return offset;
  }

  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

// The array that stands `offset` bytes into a workspace. Of a workspace whose size is only asked for there is none, and
// the offset may be any: a sum of numbers, since one of pointers may not wrap.
template <typename T>
inline T* workspace_array(void* workspace, size_t offset) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(workspace) + offset);
}

}  // namespace
}  // namespace baracuda
