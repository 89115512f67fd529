/* SPDX-License-Identifier: Apache-2.0 */
/* A call of many seconds ends soon after its thread's check says so, with status 5 and a text; the next call works and
   answers the right bits; other threads' calls and short calls never ask. */
#define _DEFAULT_SOURCE
#include <baracuda_kernels.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHANNELS = 16, SIDE = 512, BINS = 7, FEW = 4, MANY = 40000 };
enum { PER_BOX = CHANNELS * BINS * BINS };

static volatile sig_atomic_t is_stopped;
static int questions;
static int calls_inside;
static float *input, *boxes, *output;

static void stop(int number) {
  (void)number;
  is_stopped = 1;
}

static int32_t ask(void* context) {
  ++questions;
  return context == &is_stopped && is_stopped;
}

/* Of so many boxes, each as large as the image. */
static int32_t pool(int32_t count, float* to) {
  return baracuda_kernels_roi_align_f32_run(1, CHANNELS, SIDE, SIDE, count, BINS, BINS, 1.0f, 2, 0, input, boxes, to,
                                            NULL, 0, NULL);
}

/* A check that calls the library: one call that fails, one that does not, and a large one. */
static int32_t ask_with_calls(void* context) {
  const float theta[6] = {1, 0, 0, 0, 1, 0};
  float grid[2];
  ++questions;
  calls_inside += baracuda_kernels_affine_grid_2d_f32_run(-1, 1, 1, theta, grid, NULL, 0, NULL) == 2;
  calls_inside += baracuda_kernels_affine_grid_2d_f32_run(1, 1, 1, theta, grid, NULL, 0, NULL) == 0;
  calls_inside += pool(FEW, (float*)context) == 0;
  return questions >= 3;
}

/* A check that forks: the child's call ends too, since its other threads are gone, and the next one works. */
static pid_t forked = -1;
static int32_t ask_and_fork(void* context) {
  (void)context;
  if (++questions == 2) forked = fork();
  if (forked == 0) alarm(30);
  return questions >= 4;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void* call_elsewhere(void* to) { return pool(FEW, to) == 0 ? NULL : to; }

#define REQUIRE(WHAT)                                                                      \
  do {                                                                                     \
    if (!(WHAT)) {                                                                         \
      fprintf(stderr, "line %d: %s; %s\n", __LINE__, #WHAT, baracuda_kernels_last_error()); \
      return 1;                                                                            \
    }                                                                                      \
  } while (0)

int main(void) {
  float few[FEW * PER_BOX], again[FEW * PER_BOX], inside[FEW * PER_BOX];
  input = malloc(CHANNELS * SIDE * SIDE * sizeof *input);
  boxes = malloc(MANY * 5 * sizeof *boxes);
  output = malloc((size_t)MANY * PER_BOX * sizeof *output); /* 125 MB, of which little is ever written */
  REQUIRE(input != NULL && boxes != NULL && output != NULL);
  for (int i = 0; i < CHANNELS * SIDE * SIDE; ++i) input[i] = (float)(i % 251);
  for (int i = 0; i < MANY; ++i) {
    const float box[5] = {0, (float)(i % 5), (float)(i % 3), SIDE - 1, SIDE - 1};
    memcpy(boxes + 5 * i, box, sizeof box);
  }
  REQUIRE(pool(FEW, few) == BARACUDA_KERNELS_OK);

  /* A check that says no is asked now and then, and changes nothing. Then a signal. */
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = stop;
  sigaction(SIGALRM, &action, NULL);
  baracuda_kernels_set_interrupt_check(ask, (void*)&is_stopped);
  REQUIRE(pool(FEW, again) == BARACUDA_KERNELS_OK && memcmp(few, again, sizeof few) == 0);
  REQUIRE(questions == 0);
  alarm(1);
  double began = seconds();
  REQUIRE(pool(MANY, output) == BARACUDA_KERNELS_INTERNAL);
  const double took = seconds() - began;
  printf("asked %d times, ended after %.2f s\n", questions, took);
  REQUIRE(strstr(baracuda_kernels_last_error(), "roi_align_f32: interrupted") != NULL);
  REQUIRE(questions >= 2 && questions <= 30 && took > 0.9 && took < 5);

  /* The flag is still up: a short call does not look, nor does a thread that has set no check. */
  REQUIRE(pool(FEW, again) == BARACUDA_KERNELS_OK && memcmp(few, again, sizeof few) == 0);
  REQUIRE(strlen(baracuda_kernels_last_error()) == 0);
  pthread_t thread;
  void* failed = NULL;
  REQUIRE(pthread_create(&thread, NULL, call_elsewhere, again) == 0 && pthread_join(thread, &failed) == 0);
  REQUIRE(failed == NULL && memcmp(few, again, sizeof few) == 0);
  /* A long one does. */
  REQUIRE(pool(MANY, output) == BARACUDA_KERNELS_INTERNAL);

  questions = 0;
  baracuda_kernels_set_interrupt_check(ask_with_calls, inside);
  REQUIRE(pool(MANY, output) == BARACUDA_KERNELS_INTERNAL);
  REQUIRE(questions == 3 && calls_inside == 9 && memcmp(few, inside, sizeof few) == 0);
  REQUIRE(strstr(baracuda_kernels_last_error(), "roi_align_f32: interrupted") != NULL);

  questions = 0;
  baracuda_kernels_set_interrupt_check(ask_and_fork, NULL);
  REQUIRE(pool(MANY, output) == BARACUDA_KERNELS_INTERNAL);
  baracuda_kernels_set_interrupt_check(NULL, NULL);
  const int is_right = pool(FEW, again) == BARACUDA_KERNELS_OK && memcmp(few, again, sizeof few) == 0;
  if (forked == 0) _exit(is_right ? 0 : 1);
  int status = 1;
  REQUIRE(is_right && forked > 0 && waitpid(forked, &status, 0) == forked && status == 0);

  questions = 0;
  is_stopped = 1;
  began = seconds();
  while (seconds() < began + 0.3) REQUIRE(pool(FEW, again) == BARACUDA_KERNELS_OK);
  REQUIRE(questions == 0);
  free(input);
  free(boxes);
  free(output);
  return 0;
}
