/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is the one it is linked to but for one function, which has the fault that PLANTED says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int32_t (*affine_grid)(int32_t, int32_t, int32_t, const void*, void*, void*, size_t, void*);
typedef int32_t (*affine_grid_check)(int32_t, int32_t, int32_t, const void*, const void*);

enum { WRONG_STATUS = 1, UNWRITTEN, PAST_END, BEFORE_START, WRONG_BIT, INPUT_WRITTEN, FAILURE_WRITES, CRASH, HANG,
       WRONG_CHECK };

int32_t baracuda_kernels_affine_grid_2d_f32_run(int32_t n, int32_t h, int32_t w, const void* theta, void* grid,
                                                void* workspace, size_t workspace_bytes, void* stream) {
  affine_grid real = (affine_grid)dlsym(RTLD_NEXT, "baracuda_kernels_affine_grid_2d_f32_run");
  uint32_t* words = grid;
  size_t elements = (size_t)(n > 0 && h > 0 && w > 0 ? n : 0) * 2 * h * w;
  uint32_t last = 0;
  int32_t status;
  if (n >= 0 && h >= 0 && w >= 0 && elements > 0 && elements < 1 << 20 && grid && (uintptr_t)grid % 4 == 0) {
    last = words[elements - 1];
  }
  status = real(n, h, w, theta, grid, workspace, workspace_bytes, stream);
  if (PLANTED == FAILURE_WRITES && status == 3) words[0] = 1;
  if (status != 0 || elements == 0) return status;
  switch (PLANTED) {
    case WRONG_STATUS: return 2;
    case UNWRITTEN: words[elements - 1] = last; break;
    case PAST_END: words[elements] = 0; break;
    case BEFORE_START: words[-1] = 0; break;
    case WRONG_BIT: words[0] ^= 1; break;
    case INPUT_WRITTEN: *(uint32_t*)(uintptr_t)theta ^= 1; break;
    case CRASH: abort();
    case HANG: for (;;) pause();
    default: break;
  }
  return 0;
}

int32_t baracuda_kernels_affine_grid_2d_f32_can_implement(int32_t n, int32_t h, int32_t w, const void* theta,
                                                          const void* grid) {
  affine_grid_check real = (affine_grid_check)dlsym(RTLD_NEXT, "baracuda_kernels_affine_grid_2d_f32_can_implement");
  int32_t status = real(n, h, w, theta, grid);
  return PLANTED == WRONG_CHECK && h == 1 ? 2 : status;
}
