/* SPDX-License-Identifier: Apache-2.0 */
/* The README's C example; the text between the markers is what it shows. */
/* [example-begin] */
#include <baracuda_kernels.h>
#include <stdio.h>

int main(void) {
  const float input[3] = {1, 5, 2}, grad_output[2] = {10, 20};
  const int32_t segment_ids[3] = {0, 0, 1}; /* rows 0 and 1 belong to segment 0, row 2 to segment 1 */
  float grad_input[3];
  int32_t status = baracuda_kernels_unsorted_segment_max_backward_f32_run(
      3, 1, 2, grad_output, input, segment_ids, grad_input, NULL, 0, NULL);
  if (status != BARACUDA_KERNELS_OK) { fprintf(stderr, "%s\n", baracuda_kernels_last_error()); return 1; }
  printf("%g %g %g\n", grad_input[0], grad_input[1], grad_input[2]); /* 0 10 20 */
  return 0;
}
/* [example-end] */
