// SPDX-License-Identifier: Apache-2.0
// The library-wide C functions.
#include "baracuda_kernels.h"
#include "core/backend.h"
#include "core/paths.h"
#include "core/status.h"

extern "C" {

const char* baracuda_kernels_last_error(void) { return baracuda::last_error(); }
const char* baracuda_kernels_last_path(void) { return baracuda::last_path(); }
const char* baracuda_kernels_version(void) { return BARACUDA_KERNELS_VERSION; }
uint64_t baracuda_kernels_abi_hash(void) { return BARACUDA_KERNELS_ABI_HASH; }
const char* baracuda_kernels_backend_name(void) { return baracuda::backend_name(); }
int32_t baracuda_kernels_cpu_threads(void) { return baracuda::cpu_threads(); }
const char* baracuda_kernels_cpu_isa(void) { return baracuda::cpu_isa_name(); }
void baracuda_kernels_set_interrupt_check(int32_t (*check)(void* context), void* context) {
  baracuda::set_interrupt_check(check, context);
}

}  // extern "C"
