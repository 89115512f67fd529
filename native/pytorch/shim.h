// SPDX-License-Identifier: Apache-2.0
// The part of PyTorch's stable C interface that is used here, by function pointers that are looked up in the PyTorch
// that the process has loaded: nothing of PyTorch is needed to build or to load this library. The declarations follow
// torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h of PyTorch 2.10, which later ones keep.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baracuda::pytorch {

// Tensors, lists, strings and tables behind pointers; an argument of an operator is 64 bits, whatever it holds.
using TensorHandle = void*;
using ListHandle = void*;
using StringHandle = void*;
using TableHandle = void*;
using Argument = uint64_t;
using Kernel = void (*)(Argument* stack, uint64_t inputs, uint64_t outputs);
// Functions answer 0, or another number when they threw inside.
using Failure = int32_t;

// The version of PyTorch whose interface this is, as its functions want it: 2.10.0.
constexpr uint64_t kPyTorchVersion = uint64_t{2} << 56 | uint64_t{10} << 48;

struct Shim {
  int32_t (*aoti_torch_device_type_cpu)();
  int32_t (*aoti_torch_device_type_cuda)();
  int32_t (*aoti_torch_dtype_float32)();
  int32_t (*aoti_torch_dtype_float64)();
  int32_t (*aoti_torch_dtype_float16)();
  int32_t (*aoti_torch_dtype_bfloat16)();
  int32_t (*aoti_torch_dtype_int32)();
  int32_t (*aoti_torch_dtype_int64)();
  int32_t (*aoti_torch_dtype_uint8)();
  int32_t (*aoti_torch_memory_format_contiguous_format)();

  Failure (*aoti_torch_get_dim)(TensorHandle, int64_t*);
  Failure (*aoti_torch_get_sizes)(TensorHandle, int64_t**);
  Failure (*aoti_torch_get_strides)(TensorHandle, int64_t**);
  Failure (*aoti_torch_get_dtype)(TensorHandle, int32_t*);
  Failure (*aoti_torch_get_device_type)(TensorHandle, int32_t*);
  Failure (*aoti_torch_get_device_index)(TensorHandle, int32_t*);
  Failure (*aoti_torch_get_data_ptr)(TensorHandle, void**);
  Failure (*aoti_torch_is_contiguous)(TensorHandle, bool*);
  Failure (*aoti_torch_new_tensor_handle)(TensorHandle, TensorHandle*);
  Failure (*aoti_torch_new_uninitialized_tensor)(TensorHandle*);
  Failure (*aoti_torch_empty_strided)(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                      int32_t device_type, int32_t device_index, TensorHandle*);
  Failure (*aoti_torch_delete_tensor_object)(TensorHandle);

  Failure (*torch_list_size)(ListHandle, size_t*);
  Failure (*torch_list_get_item)(ListHandle, size_t, Argument*);
  Failure (*torch_delete_list)(ListHandle);
  Failure (*torch_string_c_str)(StringHandle, const char**);
  Failure (*torch_delete_string)(StringHandle);

  Failure (*aoti_torch_library_init_impl)(const char* space, const char* key, const char* file, uint32_t line,
                                          TableHandle*);
  Failure (*torch_library_impl)(TableHandle, const char* name, Kernel, uint64_t version);
  Failure (*aoti_torch_delete_library_object)(TableHandle);
  Failure (*torch_call_dispatcher)(const char* name, const char* overload, Argument* stack, uint64_t version);

  // NULL in a PyTorch without CUDA.
  Failure (*aoti_torch_get_current_cuda_stream)(int32_t device_index, void** stream);
  Failure (*aoti_torch_create_cuda_guard)(int32_t device_index, void** guard);
  Failure (*aoti_torch_delete_cuda_guard)(void* guard);
  // NULL in an older PyTorch, too.
  Failure (*aoti_torch_cuda_caching_allocator_raw_alloc)(uint64_t bytes, void** memory);
  Failure (*aoti_torch_cuda_caching_allocator_raw_delete)(void* memory);
};

// Filled by find_shim(), which answers NULL or the name of what is missing.
extern Shim shim;
const char* find_shim();

}  // namespace baracuda::pytorch
