// SPDX-License-Identifier: Apache-2.0
// Validation of pad problems and their reduction to few axes. No pointers, no CUDA.
#include "ops/pad/problem.h"

#include "core/checked.h"

namespace baracuda::pad {
namespace {

// The axes of a call in its own order, before anything is dropped or merged.
struct RawAxes {
  int32_t rank;
  Axis axes[kMaxRank];
};

// How the messages call the destination, the source and their arguments.
struct Names {
  const char* numel;
  const char* destination;
  const char* destination_shape;
  const char* destination_strides;
  const char* source;
};
constexpr Names kForwardNames{"output_numel", "output", "output_shape", "output_strides", "input"};
constexpr Names kBackwardNames{"input_numel", "grad_input", "input_shape", "grad_input_strides", "grad_output"};

// An array without entries may be NULL: there is nothing to read.
Status check_array(const char* name, const void* pointer, int32_t rank) {
  return rank == 0 ? Status::kOk : check_host_array(name, pointer);
}

Status check_entries(const char* name, const int32_t* values, int32_t rank) {
  for (int32_t a = 0; a < rank; ++a) {
    if (values[a] >= 0) continue;
    return fail(Status::kInvalidProblem, "%s[%d] is %d; wanted at least 0", name, a, values[a]);
  }
  return Status::kOk;
}

Status check_written_strides(const Names& names, const RawAxes& raw) {
  for (int32_t a = 0; a < raw.rank; ++a) {
    if (raw.axes[a].stride != 0 || raw.axes[a].extent <= 1) continue;
    return fail(Status::kInvalidProblem, "%s[%d] is 0 with an extent of %lld; wanted one place for each element",
                names.destination_strides, a, static_cast<long long>(raw.axes[a].extent));
  }
  return Status::kOk;
}

// A product too large for 64 bits cannot equal the count given; check_tensor then says why.
Status check_numel(const Names& names, const RawAxes& raw, int64_t numel) {
  CheckedCount elements(1);
  for (int32_t a = 0; a < raw.rank; ++a) elements.times(raw.axes[a].extent);
  if (!elements.fits() || elements.value() == numel) return Status::kOk;
  return fail(Status::kInvalidProblem, "%s is %lld; wanted the product of %s, %lld", names.numel,
              static_cast<long long>(numel), names.destination_shape, static_cast<long long>(elements.value()));
}

// Status 2 when a tensor's elements, or the places its strides span, do not fit in 63 bits of bytes.
Status check_tensor(const char* tensor, const RawAxes& raw, int64_t Axis::*extent, int64_t Axis::*stride,
                    int64_t element_bytes, int64_t* numel) {
  CheckedCount count(element_bytes);
  for (int32_t a = 0; a < raw.rank; ++a) count.times(raw.axes[a].*extent);
  BARACUDA_RETURN_IF_FAILED(check_count(tensor, count, numel));
  if (*numel == 0) return Status::kOk;
  // At most 8 products of 33 and 64 bits: 128 bits hold the sum.
  unsigned __int128 reach = 0;
  for (int32_t a = 0; a < raw.rank; ++a) {
    const uint64_t bits = static_cast<uint64_t>(raw.axes[a].*stride);
    const uint64_t step = raw.axes[a].*stride < 0 ? 0 - bits : bits;
    reach += static_cast<unsigned __int128>(step) * static_cast<uint64_t>(raw.axes[a].*extent - 1);
  }
  if (reach < static_cast<uint64_t>(INT64_MAX / element_bytes)) return Status::kOk;
  return fail(Status::kInvalidProblem, "%s is too large: its strides reach past 2^63 - 1 bytes", tensor);
}

int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

// Whether steps of `outer` continue where `extent` steps of `inner` end.
bool continues(int64_t outer, int64_t inner, int64_t extent) {
  int64_t end = 0;
  return !__builtin_mul_overflow(inner, extent, &end) && end == outer;
}

// An inner axis without padding that its neighbour continues, in both tensors, is one axis with it. The neighbour may
// be padded: its padding is then whole inner extents.
bool merge(const Axis& outer, Axis& inner) {
  if (inner.low != 0 || inner.source_extent != inner.extent) return false;
  if (!continues(outer.stride, inner.stride, inner.extent)) return false;
  const bool source_continues = continues(outer.source_stride, inner.source_stride, inner.extent);
  if (outer.source_extent != 1 && !source_continues) return false;
  int64_t low = 0, source_extent = 0;
  if (__builtin_mul_overflow(outer.low, inner.extent, &low) ||
      __builtin_mul_overflow(outer.source_extent, inner.extent, &source_extent)) {
    return false;
  }
  inner.low = low;
  inner.source_extent = source_extent;
  inner.extent *= outer.extent;
  return true;
}

// Fills in the axes: those that move are sorted by the destination's stride, so that neighbouring elements are written
// together whatever the layout, then merged. Order may change because every element moves alone.
void collapse(const RawAxes& raw, Problem* p) {
  p->rank = 0;
  for (int32_t a = 0; a < raw.rank; ++a) {
    Axis axis = raw.axes[a];
    if (p->source_numel == 0) axis.low = 0, axis.source_extent = axis.extent, axis.source_stride = axis.stride;
    if (axis.source_extent == 1) axis.source_stride = 0;  // never stepped along, so it may hold anything
    if (axis.extent == 1) {
      p->source_offset -= axis.low * axis.source_stride;
      continue;
    }
    int32_t at = p->rank++;
    for (; at > 0 && magnitude(p->axes[at - 1].stride) < magnitude(axis.stride); --at) p->axes[at] = p->axes[at - 1];
    p->axes[at] = axis;
  }
  if (p->rank == 0) p->axes[p->rank++] = Axis{1, 0, 1, 1, 1};
  int32_t kept = p->rank - 1;
  for (int32_t a = p->rank - 2; a >= 0; --a) {
    if (!merge(p->axes[a], p->axes[kept])) p->axes[--kept] = p->axes[a];
  }
  for (int32_t a = kept; a < p->rank; ++a) p->axes[a - kept] = p->axes[a];
  p->rank -= kept;
  for (int32_t a = 0; a < p->rank && p->source_numel == 0; ++a) p->axes[a].source_extent = 0;
}

Status make_problem(const Names& names, const RawAxes& raw, int64_t numel, int64_t element_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_written_strides(names, raw));
  BARACUDA_RETURN_IF_FAILED(check_numel(names, raw, numel));
  Problem p{};
  BARACUDA_RETURN_IF_FAILED(
      check_tensor(names.source, raw, &Axis::source_extent, &Axis::source_stride, element_bytes, &p.source_numel));
  BARACUDA_RETURN_IF_FAILED(
      check_tensor(names.destination, raw, &Axis::extent, &Axis::stride, element_bytes, &p.numel));
  if (p.numel > 0) collapse(raw, &p);
  *problem = p;
  return Status::kOk;
}

}  // namespace

Status make_forward_problem(int64_t output_numel, int32_t rank, const int32_t* input_shape, const int32_t* output_shape,
                            const int32_t* pad_low, const int64_t* input_strides, const int64_t* output_strides,
                            int64_t element_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_array("input_shape", input_shape, rank));
  BARACUDA_RETURN_IF_FAILED(check_array("output_shape", output_shape, rank));
  BARACUDA_RETURN_IF_FAILED(check_array("pad_low", pad_low, rank));
  BARACUDA_RETURN_IF_FAILED(check_array("input_strides", input_strides, rank));
  BARACUDA_RETURN_IF_FAILED(check_array("output_strides", output_strides, rank));
  BARACUDA_RETURN_IF_FAILED(check_range("output_numel", output_numel, 0, INT64_MAX));
  BARACUDA_RETURN_IF_FAILED(check_range("rank", rank, 0, kMaxRank));
  BARACUDA_RETURN_IF_FAILED(check_entries("input_shape", input_shape, rank));
  BARACUDA_RETURN_IF_FAILED(check_entries("output_shape", output_shape, rank));
  BARACUDA_RETURN_IF_FAILED(check_entries("pad_low", pad_low, rank));
  RawAxes raw{};
  raw.rank = rank;
  for (int32_t a = 0; a < rank; ++a) {
    raw.axes[a] = {output_shape[a], pad_low[a], input_shape[a], output_strides[a], input_strides[a]};
    const int64_t least = static_cast<int64_t>(input_shape[a]) + pad_low[a];
    if (output_shape[a] < least) {
      return fail(Status::kInvalidProblem, "output_shape[%d] is %d; wanted at least input_shape + pad_low, %lld", a,
                  output_shape[a], static_cast<long long>(least));
    }
  }
  return make_problem(kForwardNames, raw, output_numel, element_bytes, problem);
}

Status make_backward_problem(int64_t input_numel, int32_t rank, const int32_t* input_shape, const int32_t* pad_low,
                             const int64_t* grad_output_strides, const int64_t* grad_input_strides,
                             int64_t element_bytes, Problem* problem) {
  BARACUDA_RETURN_IF_FAILED(check_array("input_shape", input_shape, rank));
  BARACUDA_RETURN_IF_FAILED(check_array("pad_low", pad_low, rank));
  BARACUDA_RETURN_IF_FAILED(check_array("grad_output_strides", grad_output_strides, rank));
  BARACUDA_RETURN_IF_FAILED(check_array("grad_input_strides", grad_input_strides, rank));
  BARACUDA_RETURN_IF_FAILED(check_range("input_numel", input_numel, 0, INT64_MAX));
  BARACUDA_RETURN_IF_FAILED(check_range("rank", rank, 0, kMaxRank));
  BARACUDA_RETURN_IF_FAILED(check_entries("input_shape", input_shape, rank));
  BARACUDA_RETURN_IF_FAILED(check_entries("pad_low", pad_low, rank));
  RawAxes raw{};
  raw.rank = rank;
  for (int32_t a = 0; a < rank; ++a) {
    const int64_t low = pad_low[a];
    // The high pad is not an argument; the source is as large as is read of it.
    raw.axes[a] = {input_shape[a], -low, input_shape[a] + low, grad_input_strides[a], grad_output_strides[a]};
  }
  return make_problem(kBackwardNames, raw, input_numel, element_bytes, problem);
}

}  // namespace baracuda::pad
