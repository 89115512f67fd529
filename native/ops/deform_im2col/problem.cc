// SPDX-License-Identifier: Apache-2.0
// Validation of the sampling of deformable convolution. No pointers, no CUDA.
#include "ops/deform_im2col/problem.h"

#include "core/checked.h"

namespace baracuda::deform_im2col {
namespace {

constexpr int64_t kMostPadding = (int64_t{1} << 30) - 1;

Status check_numbers(const Numbers& given) {
  BARACUDA_RETURN_IF_FAILED(check_extent("n", given.n));
  BARACUDA_RETURN_IF_FAILED(check_extent("offset_groups", given.offset_groups));
  BARACUDA_RETURN_IF_FAILED(check_extent("c", given.c));
  BARACUDA_RETURN_IF_FAILED(check_extent("h", given.h));
  BARACUDA_RETURN_IF_FAILED(check_extent("w", given.w));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_h", given.output_h));
  BARACUDA_RETURN_IF_FAILED(check_extent("output_w", given.output_w));
  BARACUDA_RETURN_IF_FAILED(check_range("kernel_h", given.y.taps, 1, INT32_MAX));
  BARACUDA_RETURN_IF_FAILED(check_range("kernel_w", given.x.taps, 1, INT32_MAX));
  BARACUDA_RETURN_IF_FAILED(check_range("stride_h", given.y.stride, 1, INT32_MAX));
  BARACUDA_RETURN_IF_FAILED(check_range("stride_w", given.x.stride, 1, INT32_MAX));
  BARACUDA_RETURN_IF_FAILED(check_range("padding_h", given.y.padding, 0, kMostPadding));
  BARACUDA_RETURN_IF_FAILED(check_range("padding_w", given.x.padding, 0, kMostPadding));
  BARACUDA_RETURN_IF_FAILED(check_range("dilation_h", given.y.dilation, 1, INT32_MAX));
  BARACUDA_RETURN_IF_FAILED(check_range("dilation_w", given.x.dilation, 1, INT32_MAX));
  return check_range("has_mask", given.has_mask, 0, 1);
}

}  // namespace

Status make_problem(const Numbers& given, const char* input, const char* columns, int64_t element_bytes,
                    int64_t offset_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_numbers(given));
  Problem p{};
  p.c = given.c, p.h = given.h, p.w = given.w, p.output_h = given.output_h, p.output_w = given.output_w;
  p.y = given.y, p.x = given.x;
  p.has_mask = given.has_mask != 0;

  const auto groups = [&](int64_t bytes) { return CheckedCount(bytes).times(given.n).times(given.offset_groups); };
  const auto samples = [&](CheckedCount count) {
    return count.times(p.y.taps).times(p.x.taps).times(p.output_h).times(p.output_w);
  };
  BARACUDA_RETURN_IF_FAILED(
      check_count(input, groups(element_bytes).times(p.c).times(p.h).times(p.w), &p.input_numel));
  BARACUDA_RETURN_IF_FAILED(check_count("offset", samples(groups(offset_bytes).times(2)), &p.offset_numel));
  BARACUDA_RETURN_IF_FAILED(
      check_count("mask", samples(groups(offset_bytes).times(given.has_mask)), &p.mask_numel));
  BARACUDA_RETURN_IF_FAILED(check_count(columns, samples(groups(element_bytes).times(p.c)), &p.columns_numel));

  // What follows may be too large only where tensors are empty: then nobody asks how large it is.
  const auto size = [](const CheckedCount& found) { return found.fits() ? found.value() : 0; };
  p.groups = size(groups(1));
  p.pixels = int64_t{p.h} * p.w;
  p.positions = int64_t{p.output_h} * p.output_w;
  p.samples = size(samples(CheckedCount(1)));
  p.image.input_h = p.h, p.image.input_w = p.w;
  *problem = p;
  return Status::kOk;
}

}  // namespace baracuda::deform_im2col
