// SPDX-License-Identifier: Apache-2.0
// A Rust program on the CPU library: declarations by hand, as a -sys crate has them.

use std::ffi::{c_char, c_void, CStr};
use std::ptr;

extern "C" {
    fn baracuda_kernels_backend_name() -> *const c_char;
    fn baracuda_kernels_last_error() -> *const c_char;
    fn baracuda_kernels_unsorted_segment_max_backward_f32_run(
        num_inputs: i32,
        embedding_dim: i32,
        num_segments: i32,
        grad_output: *const c_void,
        input: *const c_void,
        segment_ids: *const c_void,
        grad_input: *mut c_void,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> i32;
}

fn text(pointer: *const c_char) -> String {
    // The library promises a NUL-terminated text that lives until this thread's next call.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

fn segment_max_backward(rows: i32, grad_output: &[f32], input: &[f32], ids: &[i32]) -> Result<Vec<f32>, String> {
    let mut grad_input = vec![f32::NAN; input.len()];
    let status = unsafe {
        baracuda_kernels_unsorted_segment_max_backward_f32_run(
            rows,
            1,
            grad_output.len() as i32,
            grad_output.as_ptr().cast(),
            input.as_ptr().cast(),
            ids.as_ptr().cast(),
            grad_input.as_mut_ptr().cast(),
            ptr::null_mut(),
            0,
            ptr::null_mut(),
        )
    };
    match status {
        0 => Ok(grad_input),
        _ => Err(text(unsafe { baracuda_kernels_last_error() })),
    }
}

fn main() {
    assert_eq!(text(unsafe { baracuda_kernels_backend_name() }), "cpu");
    let grad_input = segment_max_backward(3, &[10.0, 20.0], &[1.0, 5.0, 2.0], &[0, 0, 1]);
    assert_eq!(grad_input, Ok(vec![0.0, 10.0, 20.0]));
    let error = segment_max_backward(-1, &[10.0], &[1.0], &[0]).unwrap_err();
    assert!(error.contains("num_inputs is -1"), "{error}");
    println!("ok");
}
