// SPDX-License-Identifier: Apache-2.0
/* All that the handler library exports; pybaracuda/jax is its one user. Plain C. */
#ifndef BARACUDA_XLA_H
#define BARACUDA_XLA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which attributes the handlers read; part of the name under which they are registered. */
int32_t baracuda_xla_protocol(void);

/*
 * Says which library does a backend's calls (0 the CPU's, 1 CUDA's): what dlopen answered for it, never to be closed.
 * Answers NULL, or a sentence if that library is another one than this one was built with.
 */
const char* baracuda_xla_attach(int32_t backend, void* library);

/* The handlers: each takes an XLA_FFI_CallFrame and answers an XLA_FFI_Error, NULL for success. */
void* baracuda_xla_cpu(void* call_frame);
void* baracuda_xla_cuda(void* call_frame);

/*
 * As baracuda_xla_cuda, for calls without a workspace: scratch comes from the CUDA library's own pool, so that XLA must
 * not make such a call a part of a CUDA graph.
 */
void* baracuda_xla_cuda_own_scratch(void* call_frame);

#ifdef __cplusplus
}
#endif

#endif
