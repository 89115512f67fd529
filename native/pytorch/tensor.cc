// SPDX-License-Identifier: Apache-2.0
// Asks PyTorch about its tensors, and for new ones.
#include "pytorch/tensor.h"

namespace baracuda::pytorch {
namespace {

// The numbers that PyTorch has for what is known here, asked for once.
struct Numbers {
  int32_t dtypes[kDtypes] = {shim.aoti_torch_dtype_float32(), shim.aoti_torch_dtype_float64(),
                             shim.aoti_torch_dtype_float16(), shim.aoti_torch_dtype_bfloat16()};
  int32_t devices[kDevices] = {shim.aoti_torch_device_type_cpu(), shim.aoti_torch_device_type_cuda()};
};

const Numbers& numbers() {
  static const Numbers found;
  return found;
}

template <int kCount>
int32_t place_in(const int32_t (&known)[kCount], int32_t number) {
  for (int32_t i = 0; i < kCount; ++i) {
    if (known[i] == number) return i;
  }
  return kOther;
}

constexpr int64_t kMostRank = 8;

}  // namespace

View View::of(Argument argument) {
  View view;
  view.handle = pointer_of(argument);
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
  int32_t device = 0;
  view.is_known = view.handle != nullptr && shim.aoti_torch_get_dim(view.handle, &view.rank) == 0 &&
                  shim.aoti_torch_get_sizes(view.handle, &sizes) == 0 &&
                  shim.aoti_torch_get_strides(view.handle, &strides) == 0 &&
                  shim.aoti_torch_get_dtype(view.handle, &view.torch_dtype) == 0 &&
                  shim.aoti_torch_get_device_type(view.handle, &device) == 0 &&
                  shim.aoti_torch_get_device_index(view.handle, &view.device_index) == 0;
  if (!view.is_known) return view;
  view.sizes = sizes;
  view.strides = strides;
  view.dtype = place_in(numbers().dtypes, view.torch_dtype);
  view.device = place_in(numbers().devices, device);
  return view;
}

Owned Owned::empty(int64_t rank, const int64_t* sizes, int32_t torch_dtype, const View& like) {
  int64_t strides[kMostRank] = {};
  if (rank > kMostRank) return Owned();
  int64_t stride = 1;
  for (int64_t axis = rank - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= sizes[axis] > 1 ? sizes[axis] : 1;
  }
  TensorHandle made = nullptr;
  const bool is_made = shim.aoti_torch_empty_strided(rank, sizes, strides, torch_dtype, numbers().devices[like.device],
                                                     like.device_index, &made) == 0;
  return Owned(is_made ? made : nullptr);
}

Owned Owned::row_major(const View& view) {
  Owned found = same(view);
  if (!found || view.is_contiguous()) return found;
  // The operator takes the tensor and leaves another.
  Argument stack[2] = {found.release_argument(),
                       static_cast<Argument>(static_cast<uint32_t>(shim.aoti_torch_memory_format_contiguous_format()))};
  if (shim.torch_call_dispatcher("aten::contiguous", "", stack, kPyTorchVersion) != 0) return Owned();
  return Owned(pointer_of(stack[0]));
}

Owned Owned::same(const View& view) {
  TensorHandle handle = nullptr;
  return Owned(shim.aoti_torch_new_tensor_handle(view.handle, &handle) == 0 ? handle : nullptr);
}

Owned Owned::again() const {
  TensorHandle handle = nullptr;
  return Owned(shim.aoti_torch_new_tensor_handle(handle_, &handle) == 0 ? handle : nullptr);
}

Owned Owned::undefined() {
  TensorHandle made = nullptr;
  return Owned(shim.aoti_torch_new_uninitialized_tensor(&made) == 0 ? made : nullptr);
}

void* Owned::data() const {
  void* pointer = nullptr;
  return shim.aoti_torch_get_data_ptr(handle_, &pointer) == 0 ? pointer : nullptr;
}

int64_t integers_of(Argument list, int64_t most, int64_t* integers) {
  const ListHandle handle = pointer_of(list);
  size_t count = 0;
  if (shim.torch_list_size(handle, &count) != 0 || count > static_cast<size_t>(most)) return -1;
  for (size_t i = 0; i < count; ++i) {
    Argument item = 0;
    if (shim.torch_list_get_item(handle, i, &item) != 0) return -1;
    integers[i] = integer_of(item);
  }
  return static_cast<int64_t>(count);
}

}  // namespace baracuda::pytorch
