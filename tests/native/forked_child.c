/* SPDX-License-Identifier: Apache-2.0 */
/* A child forked at any moment works and answers the same bits: after the thread pool has run, and while other threads
   are in their first call of all. A lock or a pool whose owner the child does not have would hang, so each child has an
   alarm. */
#define _DEFAULT_SOURCE
#include <baracuda_kernels.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAPS = 8, HEIGHT = 64, WIDTH = 128, ELEMENTS = MAPS * HEIGHT * WIDTH * 2 }; /* 512 KiB: worth several threads */
enum { ROUNDS = 150, FORKS = 6, THREADS = 3, SECONDS = 30 };

static float theta[MAPS * 6];
static float* expected; /* shared by all processes, written by the first child */
static volatile int started;

static int fill(float* grid) {
  memset(grid, 0xa5, ELEMENTS * sizeof *grid);
  return baracuda_kernels_affine_grid_2d_f32_run(MAPS, HEIGHT, WIDTH, theta, grid, NULL, 0, NULL);
}

static int is_right(float* grid) { return fill(grid) == 0 && memcmp(expected, grid, ELEMENTS * sizeof *grid) == 0; }

/* Whether the child ended well. */
static int ends_well(pid_t child) {
  int status = 1;
  if (child > 0 && waitpid(child, &status, 0) == child && status == 0) return 1;
  fprintf(stderr, "child %ld ended with wait status %d\n", (long)child, status);
  return 0;
}

static pid_t child_that_calls(float* grid) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS);
    _exit(is_right(grid) && is_right(grid) ? 0 : 1);
  }
  return child;
}

static void* call_at_start(void* grid) {
  while (!started) continue;
  return is_right(grid) ? NULL : grid;
}

/* In a process that has called nothing yet: threads make their first calls while this one forks. */
static int fork_among_first_calls(unsigned pause, float* grids[THREADS + 1]) {
  pthread_t threads[THREADS];
  pid_t children[FORKS];
  void* failed = NULL;
  int bad = 0;
  for (int i = 0; i < THREADS; ++i) {
    if (pthread_create(&threads[i], NULL, call_at_start, grids[i]) != 0) return 2;
  }
  started = 1;
  for (int i = 0; i < FORKS; ++i) {
    for (volatile unsigned spin = 0; spin < pause; ++spin) continue;
    children[i] = child_that_calls(grids[THREADS]);
  }
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(threads[i], &failed);
    bad += failed != NULL;
  }
  for (int i = 0; i < FORKS; ++i) bad += !ends_well(children[i]);
  return bad == 0 && is_right(grids[THREADS]) ? 0 : 1;
}

int main(void) {
  const size_t bytes = ELEMENTS * sizeof(float);
  float* grids[THREADS + 1];
  expected = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (expected == MAP_FAILED) return 2;
  for (int i = 0; i <= THREADS; ++i) {
    grids[i] = malloc(bytes);
    if (grids[i] == NULL) return 2;
  }
  for (int i = 0; i < MAPS * 6; ++i) theta[i] = (float)(i % 7) / 3.0f;
  const pid_t first = fork();
  if (first == 0) _exit(fill(expected));
  if (!ends_well(first)) return 3;
  /* Each round in a process of its own, since this one must not have called either. */
  for (unsigned round = 0; round < ROUNDS; ++round) {
    const pid_t fresh = fork();
    if (fresh == 0) {
      alarm(2 * SECONDS);
      _exit(fork_among_first_calls(round * round % 4001, grids));
    }
    if (!ends_well(fresh)) return 4;
  }
  if (!is_right(grids[0])) return 5;
  for (int round = 0; round < 4; ++round) {
    if (!ends_well(child_that_calls(grids[0])) || !is_right(grids[0])) return 6;
  }
  for (int i = 0; i <= THREADS; ++i) free(grids[i]);
  return 0;
}
