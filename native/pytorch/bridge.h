// SPDX-License-Identifier: Apache-2.0
// What libbaracuda_torch.so gives the Python package: kernels for PyTorch's table that call this project's C functions
// without Python. Private to the package; it changes with it.
//
// An operator is named by its number, from 0 to baracuda_torch_operators() - 1; a device by 0, the CPU, or 1, CUDA; a
// dtype by 0 to 3: f32, f64, f16, bf16. All functions may be called from any thread, but those that change something
// not while others do.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BARACUDA_TORCH_API __attribute__((visibility("default")))

// Looks up what is needed of the PyTorch that is loaded. NULL, or the name of what this PyTorch lacks: the first
// function, or a library. Without CUDA in this PyTorch, CUDA's functions are not missed.
BARACUDA_TORCH_API const char* baracuda_torch_start(void);

BARACUDA_TORCH_API int32_t baracuda_torch_operators(void);
// "aten::grid_sampler_2d".
BARACUDA_TORCH_API const char* baracuda_torch_name(int32_t number);
// The C functions that an operator calls, by their places from 0 on, with %s for the dtype and without what they do:
// "baracuda_kernels_grid_sample_2d_%s". NULL at the first place where there are none.
BARACUDA_TORCH_API const char* baracuda_torch_symbol(int32_t number, int32_t place);
// Hands over an operator's C functions of one place for one device and dtype; NULL where there are none.
BARACUDA_TORCH_API void baracuda_torch_set_kernel(int32_t number, int32_t place, int32_t device, int32_t dtype,
                                                  void* run, void* workspace_size);

// Enters an operator's kernel in PyTorch's table for a device, above what is there. `fallback` is the operator, with
// the same arguments, that every call goes to which the kernel does not take. Answers what baracuda_torch_remove()
// takes, or NULL.
BARACUDA_TORCH_API void* baracuda_torch_enter(int32_t number, int32_t device, const char* fallback);
BARACUDA_TORCH_API void baracuda_torch_remove(void* entry);
// Whether the kernel takes calls; where nobody holds it, all go to the fallback.
BARACUDA_TORCH_API void baracuda_torch_hold(int32_t number, int32_t device, int32_t is_held);
// How many calls it has taken.
BARACUDA_TORCH_API int64_t baracuda_torch_calls(int32_t number, int32_t device);
// What the fallback wants to be raised when it returns on this thread, whose results, its first argument each, are then
// dropped: an exception of this Python type, which must outlive the library, with this text. An exception that the
// fallback raised itself would lose both on its way.
BARACUDA_TORCH_API void baracuda_torch_raise(void* type, const char* text);

// Counts the entries of an index, int64 one behind the other, that name none of `extent` rows, by one launch on a
// stream of the current GPU, which has this index. 0 if nothing was launched.
BARACUDA_TORCH_API int32_t baracuda_torch_screen(const void* entries, int64_t count, int64_t extent, int32_t index,
                                                 void* stream);
// Writes which element of a tensor, in row-major order, each entry of an index along one of its axes names: int32, -1
// for none, which is counted as above. The tensor has `extent` rows of `columns` elements, the index `rows` of them,
// and both as many times as `count` says; `wraps`: a negative entry counts from the end. 0 if nothing was launched.
BARACUDA_TORCH_API int32_t baracuda_torch_place(const void* entries, int64_t count, int64_t rows, int64_t columns,
                                                int64_t extent, int32_t wraps, void* places, int32_t index,
                                                void* stream);
// Puts elements of a source, of 1, 2 or 4 bytes, where an index as above names them; of several for one place the last
// in row-major order stays. `winners` is memory for 8 bytes of each element of the tensor. 0 if nothing was launched.
BARACUDA_TORCH_API int32_t baracuda_torch_put_last(const void* entries, int64_t count, int64_t rows, int64_t columns,
                                                   int64_t extent, int32_t wraps, int32_t element_bytes,
                                                   const void* source, void* output, void* winners, int32_t index,
                                                   void* stream);
// Puts an element of a source, of 1, 2, 4, 8 or 16 bytes, into each line of a tensor along an axis: where one entry for
// each line says, int64, so that no element is put twice. The tensor has `extent` elements in a line, `columns` lines
// beside one another and as many times as `count` says. An entry that names none is counted as above. 0 if nothing was
// launched.
BARACUDA_TORCH_API int32_t baracuda_torch_put_in_lines(const void* entries, int64_t count, int64_t columns,
                                                       int64_t extent, int32_t element_bytes, const void* source,
                                                       void* output, int32_t index, void* stream);
// Whether kernels here have counted indices on the GPU of this index, and how many named no row since this was last
// asked: that GPU must be the current one and have done its work. -1 if the count cannot be read.
BARACUDA_TORCH_API int32_t baracuda_torch_has_counted(int32_t index);
BARACUDA_TORCH_API int64_t baracuda_torch_take_dropped(int32_t index);

#ifdef __cplusplus
}
#endif
