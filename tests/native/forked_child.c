/* SPDX-License-Identifier: Apache-2.0 */
/* A child forked after the thread pool has run works and answers the same bits; a pool that waited for threads which
   the child does not have would hang, so the child has an alarm. */
#define _DEFAULT_SOURCE
#include <baracuda_kernels.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAPS = 8, HEIGHT = 128, WIDTH = 256, ELEMENTS = MAPS * HEIGHT * WIDTH * 2 }; /* 2 MiB: worth several threads */

static float theta[MAPS * 6];

static int fill(float* grid) {
  memset(grid, 0xa5, ELEMENTS * sizeof *grid);
  return baracuda_kernels_affine_grid_2d_f32_run(MAPS, HEIGHT, WIDTH, theta, grid, NULL, 0, NULL);
}

int main(void) {
  float* before = malloc(ELEMENTS * sizeof *before);
  float* after = malloc(ELEMENTS * sizeof *after);
  int status = 1;
  if (before == NULL || after == NULL) return 2;
  for (int i = 0; i < MAPS * 6; ++i) theta[i] = (float)(i % 7) / 3.0f;
  if (fill(before) != 0) return 3;
  for (int round = 0; round < 4; ++round) {
    const pid_t child = fork();
    if (child < 0) return 4;
    if (child == 0) {
      alarm(30);
      const int failed = fill(after) != 0 || memcmp(before, after, ELEMENTS * sizeof *after) != 0;
      _exit(failed);
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
      fprintf(stderr, "the child ended with wait status %d\n", status);
      return 5;
    }
    if (fill(after) != 0 || memcmp(before, after, ELEMENTS * sizeof *after) != 0) return 6;
  }
  free(before);
  free(after);
  return 0;
}
