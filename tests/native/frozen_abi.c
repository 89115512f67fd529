/* SPDX-License-Identifier: Apache-2.0 */
/* The frozen signatures, typed by hand from the upstream ABI and from nothing that we generate: a drift of our header
   does not compile here. Only the library-wide functions and what upstream callers link; our own dtypes and operators
   are not listed. */
#include <baracuda_kernels.h>

typedef int32_t i32;
typedef int64_t i64;
typedef float f32;
typedef double f64;
typedef const void* cp;
typedef void* mp;

/* What nearly every _run ends in: a workspace, its bytes and a stream. */
#define WS_S mp workspace, size_t workspace_bytes, mp stream

typedef i32 roi_align_backward_run(i32 N, i32 C, i32 H, i32 W, i32 num_rois, i32 pooled_h, i32 pooled_w,
                                   f32 spatial_scale, i32 sampling_ratio, i32 aligned, cp dout, cp rois, mp dinput,
                                   WS_S);
typedef i32 roi_align_backward_can(i32 N, i32 C, i32 H, i32 W, i32 num_rois, i32 pooled_h, i32 pooled_w,
                                   f32 spatial_scale, i32 sampling_ratio, i32 aligned, cp dout, cp rois, cp dinput);
roi_align_backward_run* const roi_align_backward_runs[] = {
    baracuda_kernels_roi_align_backward_f32_run,
    baracuda_kernels_roi_align_backward_f64_run,
};
roi_align_backward_can* const roi_align_backward_cans[] = {
    baracuda_kernels_roi_align_backward_f32_can_implement,
    baracuda_kernels_roi_align_backward_f64_can_implement,
};

typedef i32 roi_align_run(i32 N, i32 C, i32 H, i32 W, i32 num_rois, i32 pooled_h, i32 pooled_w, f32 spatial_scale,
                          i32 sampling_ratio, i32 aligned, cp input, cp rois, mp output, WS_S);
typedef i32 roi_align_can(i32 N, i32 C, i32 H, i32 W, i32 num_rois, i32 pooled_h, i32 pooled_w, f32 spatial_scale,
                          i32 sampling_ratio, i32 aligned, cp input, cp rois, cp output);
roi_align_run* const roi_align_runs[] = {
    baracuda_kernels_roi_align_f32_run,
    baracuda_kernels_roi_align_f64_run,
};
roi_align_can* const roi_align_cans[] = {
    baracuda_kernels_roi_align_f32_can_implement,
    baracuda_kernels_roi_align_f64_can_implement,
};

typedef i32 grid_sample_2d_backward_run(i32 N, i32 C, i32 IH, i32 IW, i32 OH, i32 OW, cp dout, cp input, cp grid,
                                        mp dinput, mp dgrid, WS_S);
typedef i32 grid_sample_2d_backward_can(i32 N, i32 C, i32 IH, i32 IW, i32 OH, i32 OW, cp dout, cp input, cp grid,
                                        cp dinput, cp dgrid);
grid_sample_2d_backward_run* const grid_sample_2d_backward_runs[] = {
    baracuda_kernels_grid_sample_2d_backward_f32_run,
    baracuda_kernels_grid_sample_2d_backward_f64_run,
};
grid_sample_2d_backward_can* const grid_sample_2d_backward_cans[] = {
    baracuda_kernels_grid_sample_2d_backward_f32_can_implement,
    baracuda_kernels_grid_sample_2d_backward_f64_can_implement,
};

typedef i32 grid_sample_2d_run(i32 N, i32 C, i32 IH, i32 IW, i32 OH, i32 OW, cp input, cp grid, mp output, WS_S);
typedef i32 grid_sample_2d_can(i32 N, i32 C, i32 IH, i32 IW, i32 OH, i32 OW, cp input, cp grid, cp output);
grid_sample_2d_run* const grid_sample_2d_runs[] = {
    baracuda_kernels_grid_sample_2d_f32_run,
    baracuda_kernels_grid_sample_2d_f64_run,
};
grid_sample_2d_can* const grid_sample_2d_cans[] = {
    baracuda_kernels_grid_sample_2d_f32_can_implement,
    baracuda_kernels_grid_sample_2d_f64_can_implement,
};

typedef i32 affine_grid_2d_run(i32 N, i32 OH, i32 OW, cp theta, mp grid, WS_S);
typedef i32 affine_grid_2d_can(i32 N, i32 OH, i32 OW, cp theta, cp grid);
affine_grid_2d_run* const affine_grid_2d_runs[] = {
    baracuda_kernels_affine_grid_2d_f32_run,
    baracuda_kernels_affine_grid_2d_f64_run,
};
affine_grid_2d_can* const affine_grid_2d_cans[] = {
    baracuda_kernels_affine_grid_2d_f32_can_implement,
    baracuda_kernels_affine_grid_2d_f64_can_implement,
};

typedef i32 pad_constant_backward_run(i64 input_numel, i32 rank, const i32* input_shape, const i32* pad_low,
                                      const i64* stride_dy, const i64* stride_dx, cp dy, mp dx, WS_S);
typedef i32 pad_constant_backward_can(i64 input_numel, i32 rank, const i32* input_shape, const i32* pad_low,
                                      const i64* stride_dy, const i64* stride_dx, cp dy, cp dx);
pad_constant_backward_run* const pad_constant_backward_runs[] = {
    baracuda_kernels_pad_constant_backward_f32_run,
    baracuda_kernels_pad_constant_backward_f16_run,
    baracuda_kernels_pad_constant_backward_bf16_run,
    baracuda_kernels_pad_constant_backward_f64_run,
};
pad_constant_backward_can* const pad_constant_backward_cans[] = {
    baracuda_kernels_pad_constant_backward_f32_can_implement,
    baracuda_kernels_pad_constant_backward_f16_can_implement,
    baracuda_kernels_pad_constant_backward_bf16_can_implement,
    baracuda_kernels_pad_constant_backward_f64_can_implement,
};

/* The value is the element's own type; 16-bit types pass their bit pattern. */
#define PAD_CONSTANT(TYPE, VALUE)                                                                                   \
  typedef i32 pad_constant_##TYPE##_run(i64 output_numel, i32 rank, const i32* input_shape,                         \
                                        const i32* output_shape, const i32* pad_low, const i64* stride_x,           \
                                        const i64* stride_y, cp x, mp y, VALUE value, WS_S);                        \
  typedef i32 pad_constant_##TYPE##_can(i64 output_numel, i32 rank, const i32* input_shape,                         \
                                        const i32* output_shape, const i32* pad_low, const i64* stride_x,           \
                                        const i64* stride_y, cp x, cp y, VALUE value);                              \
  pad_constant_##TYPE##_run* const pad_constant_##TYPE##_runs = baracuda_kernels_pad_constant_##TYPE##_run;         \
  pad_constant_##TYPE##_can* const pad_constant_##TYPE##_cans = baracuda_kernels_pad_constant_##TYPE##_can_implement
PAD_CONSTANT(f32, f32);
PAD_CONSTANT(f64, f64);
PAD_CONSTANT(f16, uint16_t);
PAD_CONSTANT(bf16, uint16_t);

typedef i32 pad_mode_run(i64 output_numel, i32 rank, const i32* input_shape, const i32* output_shape,
                         const i32* pad_low, const i64* stride_x, const i64* stride_y, cp x, mp y, WS_S);
typedef i32 pad_mode_can(i64 output_numel, i32 rank, const i32* input_shape, const i32* output_shape,
                         const i32* pad_low, const i64* stride_x, const i64* stride_y, cp x, cp y);
#define PAD_MODE(MODE)                                \
  pad_mode_run* const pad_##MODE##_runs[] = {         \
      baracuda_kernels_pad_##MODE##_f32_run,          \
      baracuda_kernels_pad_##MODE##_f64_run,          \
      baracuda_kernels_pad_##MODE##_f16_run,          \
      baracuda_kernels_pad_##MODE##_bf16_run,         \
  };                                                  \
  pad_mode_can* const pad_##MODE##_cans[] = {         \
      baracuda_kernels_pad_##MODE##_f32_can_implement, \
      baracuda_kernels_pad_##MODE##_f64_can_implement, \
      baracuda_kernels_pad_##MODE##_f16_can_implement, \
      baracuda_kernels_pad_##MODE##_bf16_can_implement, \
  }
PAD_MODE(reflect);
PAD_MODE(replicate);
PAD_MODE(circular);

typedef i32 unsorted_segment_max_backward_run(i32 num_inputs, i32 embedding_dim, i32 num_segments, cp d_output,
                                              cp input, cp segment_ids, mp d_input, WS_S);
typedef i32 unsorted_segment_max_backward_can(i32 num_inputs, i32 embedding_dim, i32 num_segments, cp d_output,
                                              cp input, cp segment_ids, cp d_input);
unsorted_segment_max_backward_run* const unsorted_segment_max_backward_runs[] = {
    baracuda_kernels_unsorted_segment_max_backward_f32_run,
    baracuda_kernels_unsorted_segment_max_backward_f64_run,
};
unsorted_segment_max_backward_can* const unsorted_segment_max_backward_cans[] = {
    baracuda_kernels_unsorted_segment_max_backward_f32_can_implement,
    baracuda_kernels_unsorted_segment_max_backward_f64_can_implement,
};

typedef i32 unsorted_segment_max_run(i32 n, i32 d, i32 num_segments, cp input, cp segment_ids, mp output, WS_S);
typedef i32 unsorted_segment_max_can(i32 n, i32 d, i32 num_segments, cp input, cp segment_ids, cp output);
unsorted_segment_max_run* const unsorted_segment_max_runs[] = {
    baracuda_kernels_unsorted_segment_max_f32_run,
    baracuda_kernels_unsorted_segment_max_f64_run,
    baracuda_kernels_unsorted_segment_max_i64idx_f32_run,
    baracuda_kernels_unsorted_segment_max_i64idx_f64_run,
};
unsorted_segment_max_can* const unsorted_segment_max_cans[] = {
    baracuda_kernels_unsorted_segment_max_f32_can_implement,
    baracuda_kernels_unsorted_segment_max_f64_can_implement,
    baracuda_kernels_unsorted_segment_max_i64idx_f32_can_implement,
    baracuda_kernels_unsorted_segment_max_i64idx_f64_can_implement,
};

/* The segment family: two symbols of each width of ids; those of 64 bits are ours in the gradients of min, max and prod
   and in unsorted_segment_prod. */
typedef i32 segment_run(i32 n, i32 d, i32 num_segments, cp input, cp segment_ids, mp output, WS_S);
typedef i32 segment_can(i32 n, i32 d, i32 num_segments, cp input, cp segment_ids, cp output);
typedef i32 segment_backward_run(i32 n, i32 d, i32 num_segments, cp d_output, cp segment_ids, mp d_input, WS_S);
typedef i32 segment_backward_can(i32 n, i32 d, i32 num_segments, cp d_output, cp segment_ids, cp d_input);
typedef i32 segment_choice_backward_run(i32 n, i32 d, i32 num_segments, cp d_output, cp input, cp segment_ids,
                                        mp d_input, WS_S);
typedef i32 segment_choice_backward_can(i32 n, i32 d, i32 num_segments, cp d_output, cp input, cp segment_ids,
                                        cp d_input);
typedef i32 segment_prod_backward_run(i32 n, i32 d, i32 num_segments, cp d_output, cp input, cp output, cp segment_ids,
                                      mp d_input, WS_S);
typedef i32 segment_prod_backward_can(i32 n, i32 d, i32 num_segments, cp d_output, cp input, cp output, cp segment_ids,
                                      cp d_input);
#define SEGMENT(NAME, TYPE, SIGNATURE)                                                        \
  SIGNATURE##_run* const NAME##_##TYPE##_runs = baracuda_kernels_##NAME##_##TYPE##_run;       \
  SIGNATURE##_can* const NAME##_##TYPE##_cans = baracuda_kernels_##NAME##_##TYPE##_can_implement
#define SEGMENT_OF_NARROW_IDS(NAME, SIGNATURE) \
  SEGMENT(NAME, f32, SIGNATURE);               \
  SEGMENT(NAME, f64, SIGNATURE)
#define SEGMENT_OF_BOTH_IDS(NAME, SIGNATURE) \
  SEGMENT_OF_NARROW_IDS(NAME, SIGNATURE);    \
  SEGMENT(NAME, i64idx_f32, SIGNATURE);      \
  SEGMENT(NAME, i64idx_f64, SIGNATURE)
#define SEGMENT_FAMILY(PREFIX)                                           \
  SEGMENT_OF_BOTH_IDS(PREFIX##_sum, segment);                            \
  SEGMENT_OF_BOTH_IDS(PREFIX##_mean, segment);                           \
  SEGMENT_OF_BOTH_IDS(PREFIX##_min, segment);                            \
  SEGMENT_OF_BOTH_IDS(PREFIX##_sum_backward, segment_backward);          \
  SEGMENT_OF_BOTH_IDS(PREFIX##_mean_backward, segment_backward);         \
  SEGMENT_OF_NARROW_IDS(PREFIX##_min_backward, segment_choice_backward); \
  SEGMENT_OF_NARROW_IDS(PREFIX##_prod_backward, segment_prod_backward)
SEGMENT_FAMILY(segment);
SEGMENT_FAMILY(unsorted_segment);
SEGMENT_OF_BOTH_IDS(segment_max, segment);
SEGMENT_OF_NARROW_IDS(segment_max_backward, segment_choice_backward);
SEGMENT_OF_BOTH_IDS(segment_prod, segment);
SEGMENT_OF_NARROW_IDS(unsorted_segment_prod, segment);

typedef i32 dequantize_per_channel_backward_run(i64 numel, const i32* shape4, i32 axis, cp scale, cp dy, mp dq, WS_S);
typedef i32 dequantize_per_channel_backward_can(i64 numel, const i32* shape4, i32 axis, cp scale, cp dy, cp dq);
dequantize_per_channel_backward_run* const dequantize_per_channel_backward_runs[] = {
    baracuda_kernels_dequantize_per_channel_backward_f32_run,
    baracuda_kernels_dequantize_per_channel_backward_f16_run,
    baracuda_kernels_dequantize_per_channel_backward_bf16_run,
    baracuda_kernels_dequantize_per_channel_backward_f64_run,
};
dequantize_per_channel_backward_can* const dequantize_per_channel_backward_cans[] = {
    baracuda_kernels_dequantize_per_channel_backward_f32_can_implement,
    baracuda_kernels_dequantize_per_channel_backward_f16_can_implement,
    baracuda_kernels_dequantize_per_channel_backward_bf16_can_implement,
    baracuda_kernels_dequantize_per_channel_backward_f64_can_implement,
};

typedef i32 dequantize_per_channel_run(i64 numel, const i32* shape4, i32 axis, cp q, cp scale, cp zero_point, mp x,
                                       WS_S);
typedef i32 dequantize_per_channel_can(i64 numel, const i32* shape4, i32 axis, cp q, cp scale, cp zero_point, cp x);
dequantize_per_channel_run* const dequantize_per_channel_runs[] = {
    baracuda_kernels_dequantize_per_channel_f32_s8_run,  baracuda_kernels_dequantize_per_channel_f32_u8_run,
    baracuda_kernels_dequantize_per_channel_f16_s8_run,  baracuda_kernels_dequantize_per_channel_f16_u8_run,
    baracuda_kernels_dequantize_per_channel_bf16_s8_run, baracuda_kernels_dequantize_per_channel_bf16_u8_run,
    baracuda_kernels_dequantize_per_channel_f64_s8_run,  baracuda_kernels_dequantize_per_channel_f64_u8_run,
};
dequantize_per_channel_can* const dequantize_per_channel_cans[] = {
    baracuda_kernels_dequantize_per_channel_f32_s8_can_implement,
    baracuda_kernels_dequantize_per_channel_f32_u8_can_implement,
    baracuda_kernels_dequantize_per_channel_f16_s8_can_implement,
    baracuda_kernels_dequantize_per_channel_f16_u8_can_implement,
    baracuda_kernels_dequantize_per_channel_bf16_s8_can_implement,
    baracuda_kernels_dequantize_per_channel_bf16_u8_can_implement,
    baracuda_kernels_dequantize_per_channel_f64_s8_can_implement,
    baracuda_kernels_dequantize_per_channel_f64_u8_can_implement,
};

/* Here scalars come between the workspace and the stream, and the twins keep the workspace. */
typedef i32 interpolate_bilinear_2d_run(i32 N, i32 C, i32 IH, i32 IW, i32 OH, i32 OW, cp in, mp out, mp workspace,
                                        size_t workspace_bytes, i32 align_corners, f64 scale_h_factor,
                                        f64 scale_w_factor, mp stream);
typedef i32 interpolate_bilinear_2d_can(i32 N, i32 C, i32 IH, i32 IW, i32 OH, i32 OW, cp in, cp out, mp workspace,
                                        size_t workspace_bytes, i32 align_corners, f64 scale_h_factor,
                                        f64 scale_w_factor);
interpolate_bilinear_2d_run* const interpolate_bilinear_2d_runs[] = {
    baracuda_kernels_interpolate_bilinear_2d_f32_run,
    baracuda_kernels_interpolate_bilinear_2d_f64_run,
    baracuda_kernels_interpolate_bilinear_2d_f16_run,
    baracuda_kernels_interpolate_bilinear_2d_bf16_run,
};
interpolate_bilinear_2d_can* const interpolate_bilinear_2d_cans[] = {
    baracuda_kernels_interpolate_bilinear_2d_f32_can_implement,
    baracuda_kernels_interpolate_bilinear_2d_f64_can_implement,
    baracuda_kernels_interpolate_bilinear_2d_f16_can_implement,
    baracuda_kernels_interpolate_bilinear_2d_bf16_can_implement,
};
interpolate_bilinear_2d_run* const interpolate_bilinear_2d_backward_runs[] = {
    baracuda_kernels_interpolate_bilinear_2d_backward_f32_run,
    baracuda_kernels_interpolate_bilinear_2d_backward_f64_run,
    baracuda_kernels_interpolate_bilinear_2d_backward_f16_run,
    baracuda_kernels_interpolate_bilinear_2d_backward_bf16_run,
};
interpolate_bilinear_2d_can* const interpolate_bilinear_2d_backward_cans[] = {
    baracuda_kernels_interpolate_bilinear_2d_backward_f32_can_implement,
    baracuda_kernels_interpolate_bilinear_2d_backward_f64_can_implement,
    baracuda_kernels_interpolate_bilinear_2d_backward_f16_can_implement,
    baracuda_kernels_interpolate_bilinear_2d_backward_bf16_can_implement,
};

typedef i32 upsample_nearest_2d_run(i32 N, i32 C, i32 IH, i32 IW, i32 OH, i32 OW, cp in, mp out, WS_S);
typedef i32 upsample_nearest_2d_can(i32 N, i32 C, i32 IH, i32 IW, i32 OH, i32 OW, cp in, cp out);
upsample_nearest_2d_run* const upsample_nearest_2d_fw_runs[] = {
    baracuda_kernels_upsample_nearest_2d_fw_f32_run,
    baracuda_kernels_upsample_nearest_2d_fw_f64_run,
    baracuda_kernels_upsample_nearest_2d_fw_f16_run,
    baracuda_kernels_upsample_nearest_2d_fw_bf16_run,
};
upsample_nearest_2d_can* const upsample_nearest_2d_fw_cans[] = {
    baracuda_kernels_upsample_nearest_2d_fw_f32_can_implement,
    baracuda_kernels_upsample_nearest_2d_fw_f64_can_implement,
    baracuda_kernels_upsample_nearest_2d_fw_f16_can_implement,
    baracuda_kernels_upsample_nearest_2d_fw_bf16_can_implement,
};
upsample_nearest_2d_run* const upsample_nearest_2d_bw_runs[] = {
    baracuda_kernels_upsample_nearest_2d_bw_f32_run,
    baracuda_kernels_upsample_nearest_2d_bw_f64_run,
    baracuda_kernels_upsample_nearest_2d_bw_f16_run,
    baracuda_kernels_upsample_nearest_2d_bw_bf16_run,
};
upsample_nearest_2d_can* const upsample_nearest_2d_bw_cans[] = {
    baracuda_kernels_upsample_nearest_2d_bw_f32_can_implement,
    baracuda_kernels_upsample_nearest_2d_bw_f64_can_implement,
    baracuda_kernels_upsample_nearest_2d_bw_f16_can_implement,
    baracuda_kernels_upsample_nearest_2d_bw_bf16_can_implement,
};

/* The functions of no operator. */
typedef const char* text_of_library(void);
typedef i32 threads_of_library(void);
typedef void interrupt_setter(i32 (*check)(mp context), mp context);
text_of_library* const library_texts[] = {
    baracuda_kernels_last_error,
    baracuda_kernels_last_path,
    baracuda_kernels_version,
    baracuda_kernels_backend_name,
    baracuda_kernels_cpu_isa,
};
uint64_t (*const library_hash)(void) = baracuda_kernels_abi_hash;
threads_of_library* const library_threads = baracuda_kernels_cpu_threads;
interrupt_setter* const library_interrupts = baracuda_kernels_set_interrupt_check;

/* The status codes. A wrong one makes an array of negative size. */
#define STATUS_IS(NAME, NUMBER) typedef char status_##NAME[BARACUDA_KERNELS_##NAME == NUMBER ? 1 : -1]
STATUS_IS(OK, 0);
STATUS_IS(MISALIGNED_OPERAND, 1);
STATUS_IS(INVALID_PROBLEM, 2);
STATUS_IS(UNSUPPORTED, 3);
STATUS_IS(WORKSPACE_TOO_SMALL, 4);
STATUS_IS(INTERNAL, 5);

/* Upstream's callers pass NULL and 0 for the workspace and start with pointers that hold nothing: an empty problem. */
int main(void) {
  return roi_align_backward_runs[0](0, 1, 1, 1, 0, 1, 1, 1.0f, 2, 0, NULL, NULL, NULL, NULL, 0, NULL);
}
