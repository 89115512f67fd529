// SPDX-License-Identifier: Apache-2.0
// Looks PyTorch's functions up in the libraries that the process has loaded.
#include "pytorch/shim.h"

#include <dlfcn.h>

#include <mutex>

namespace baracuda::pytorch {

Shim shim{};

namespace {

// A library that the process has loaded already, under the name that it was linked with; NULL if it has not.
void* loaded(const char* name) { return dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD); }

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

const char* find_all() {
  void* const cpu = loaded("libtorch_cpu.so");
  if (cpu == nullptr) return "libtorch_cpu.so";
#define BARACUDA_FIND(LIBRARY, NAME) \
  if (!find(LIBRARY, #NAME, &shim.NAME)) return #NAME
  BARACUDA_FIND(cpu, aoti_torch_device_type_cpu);
  BARACUDA_FIND(cpu, aoti_torch_device_type_cuda);
  BARACUDA_FIND(cpu, aoti_torch_dtype_float32);
  BARACUDA_FIND(cpu, aoti_torch_dtype_float64);
  BARACUDA_FIND(cpu, aoti_torch_dtype_float16);
  BARACUDA_FIND(cpu, aoti_torch_dtype_bfloat16);
  BARACUDA_FIND(cpu, aoti_torch_dtype_int32);
  BARACUDA_FIND(cpu, aoti_torch_dtype_int64);
  BARACUDA_FIND(cpu, aoti_torch_dtype_uint8);
  BARACUDA_FIND(cpu, aoti_torch_memory_format_contiguous_format);
  BARACUDA_FIND(cpu, aoti_torch_get_dim);
  BARACUDA_FIND(cpu, aoti_torch_get_sizes);
  BARACUDA_FIND(cpu, aoti_torch_get_strides);
  BARACUDA_FIND(cpu, aoti_torch_get_dtype);
  BARACUDA_FIND(cpu, aoti_torch_get_device_type);
  BARACUDA_FIND(cpu, aoti_torch_get_device_index);
  BARACUDA_FIND(cpu, aoti_torch_get_data_ptr);
  BARACUDA_FIND(cpu, aoti_torch_is_contiguous);
  BARACUDA_FIND(cpu, aoti_torch_new_tensor_handle);
  BARACUDA_FIND(cpu, aoti_torch_new_uninitialized_tensor);
  BARACUDA_FIND(cpu, aoti_torch_empty_strided);
  BARACUDA_FIND(cpu, aoti_torch_delete_tensor_object);
  BARACUDA_FIND(cpu, torch_list_size);
  BARACUDA_FIND(cpu, torch_list_get_item);
  BARACUDA_FIND(cpu, torch_delete_list);
  BARACUDA_FIND(cpu, torch_string_c_str);
  BARACUDA_FIND(cpu, torch_delete_string);
  BARACUDA_FIND(cpu, aoti_torch_library_init_impl);
  BARACUDA_FIND(cpu, torch_library_impl);
  BARACUDA_FIND(cpu, aoti_torch_delete_library_object);
  BARACUDA_FIND(cpu, torch_call_dispatcher);
  if (void* const cuda = loaded("libtorch_cuda.so")) {
    BARACUDA_FIND(cuda, aoti_torch_get_current_cuda_stream);
    BARACUDA_FIND(cuda, aoti_torch_create_cuda_guard);
    BARACUDA_FIND(cuda, aoti_torch_delete_cuda_guard);
    find(cuda, "aoti_torch_cuda_caching_allocator_raw_alloc", &shim.aoti_torch_cuda_caching_allocator_raw_alloc);
    find(cuda, "aoti_torch_cuda_caching_allocator_raw_delete", &shim.aoti_torch_cuda_caching_allocator_raw_delete);
  }
#undef BARACUDA_FIND
  return nullptr;
}

}  // namespace

const char* find_shim() {
  static std::once_flag once;
  static const char* missing = nullptr;
  std::call_once(once, [] { missing = find_all(); });
  return missing;
}

}  // namespace baracuda::pytorch
