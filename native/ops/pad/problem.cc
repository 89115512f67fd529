// SPDX-License-Identifier: Apache-2.0
// Validation of pad problems and their reduction to few axes. No data is read; no CUDA.
#include "ops/pad/problem.h"

#include <utility>

#include "core/checked.h"
#include "core/strided_places.h"

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
  const char* source_strides;
};
constexpr Names kForwardNames{"output_numel", "output", "output_shape", "output_strides", "input", "input_strides"};
constexpr Names kBackwardNames{"input_numel",        "grad_input",  "input_shape",
                               "grad_input_strides", "grad_output", "grad_output_strides"};

const Names& names_of(Direction direction) {
  return direction == Direction::kForward ? kForwardNames : kBackwardNames;
}

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

StridedTensor strided(const RawAxes& raw, int64_t Axis::*extent, int64_t Axis::*stride, const void* first) {
  StridedTensor tensor;
  tensor.first = first;
  tensor.rank = raw.rank;
  for (int32_t a = 0; a < raw.rank; ++a) {
    tensor.extents[a] = raw.axes[a].*extent, tensor.strides[a] = raw.axes[a].*stride;
  }
  return tensor;
}

// Status 2 where two elements of the destination would be written to one place.
Status check_written_strides(const Names& names, const RawAxes& raw) {
  const Answer answer = holds_two_in_one_place(strided(raw, &Axis::extent, &Axis::stride, nullptr));
  if (answer == Answer::kNo) return Status::kOk;
  if (answer == Answer::kUnknown) {
    return fail(Status::kInvalidProblem, "%s are too irregular to tell whether two elements of %s share a place; "
                "wanted one place for each element", names.destination_strides, names.destination);
  }
  return fail(Status::kInvalidProblem, "%s give two elements of %s the same place; wanted one place for each element",
              names.destination_strides, names.destination);
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

// What is added at the ends of an axis, or cut off. Where the call does not say the output's extents, it is as if
// nothing were: what grad_output holds beyond is not read.
struct Pads {
  int64_t low, high;
};

Pads pads_of(const Shapes& shapes, int32_t a) {
  const int64_t low = shapes.pad_low[a];
  return {low, shapes.has_output ? shapes.output[a] - shapes.input[a] - low : 0};
}

// How much of the unpadded axis the pads leave; negative where they cut off more than there is.
int64_t kept_of(int64_t input, const Pads& pads) {
  return input + (pads.low < 0 ? pads.low : 0) + (pads.high < 0 ? pads.high : 0);
}

Status check_pads(const Shapes& shapes) {
  if (!shapes.has_output) return Status::kOk;
  bool output_is_empty = false;
  for (int32_t a = 0; a < shapes.rank; ++a) {
    const int32_t input = shapes.input[a], output = shapes.output[a], low = shapes.pad_low[a];
    output_is_empty = output_is_empty || output == 0;
    const int64_t least = static_cast<int64_t>(input) + low;
    if (!shapes.crops && output < least) {
      return fail(Status::kInvalidProblem, "output_shape[%d] is %d; wanted at least input_shape + pad_low, %lld", a,
                  output, static_cast<long long>(least));
    }
    if (kept_of(input, pads_of(shapes, a)) >= 0) continue;
    return fail(Status::kInvalidProblem,
                "pad_low[%d] is %d with input_shape %d and output_shape %d; wanted pads that cut off at most all",
                a, low, input, output);
  }
  if (shapes.mode == Mode::kConstant || output_is_empty) return Status::kOk;
  for (int32_t a = 0; a < shapes.rank; ++a) {
    if (kept_of(shapes.input[a], pads_of(shapes, a)) > 0) continue;
    return fail(Status::kInvalidProblem, "input_shape[%d] is %d with pad_low %d; wanted an element to repeat", a,
                shapes.input[a], shapes.pad_low[a]);
  }
  return Status::kOk;
}

Status check_shapes(const Names& names, const Shapes& shapes, int64_t numel) {
  const int32_t rank = shapes.rank;
  BARACUDA_RETURN_IF_FAILED(check_range(names.numel, numel, 0, INT64_MAX));
  BARACUDA_RETURN_IF_FAILED(check_range("rank", rank, 0, kMaxRank));
  BARACUDA_RETURN_IF_FAILED(check_entries("input_shape", shapes.input, rank));
  if (shapes.has_output) BARACUDA_RETURN_IF_FAILED(check_entries("output_shape", shapes.output, rank));
  if (!shapes.crops) BARACUDA_RETURN_IF_FAILED(check_entries("pad_low", shapes.pad_low, rank));
  return check_pads(shapes);
}

// Takes the elements first..last out of a window, at whichever end they are nearer to.
void cut(int64_t first, int64_t last, Window* window) {
  if (first > last) std::swap(first, last);
  if (first + last < window->begin + window->end) {
    window->begin = last + 1 > window->begin ? last + 1 : window->begin;
  } else {
    window->end = first < window->end ? first : window->end;
  }
  if (window->end < window->begin) window->end = window->begin;
}

// Those elements of an axis that neither pad repeats. A pad that is wider than a rule runs in one direction leaves
// none.
Window kept_alone(const Axis& axis) {
  const int64_t low = axis.origin - axis.low, high = axis.source_extent - low - axis.kept;
  if (low >= axis.kept || high >= axis.kept) {
    // The ends alone repeat, however wide the pad.
    if (axis.rule.period != 0) return {axis.origin, axis.origin};
  }
  Window alone{0, axis.kept};
  if (low > 0) cut(fold(axis.rule, axis.kept, -1), fold(axis.rule, axis.kept, -low), &alone);
  if (high > 0) cut(fold(axis.rule, axis.kept, axis.kept), fold(axis.rule, axis.kept, axis.kept - 1 + high), &alone);
  return {axis.origin + alone.begin, axis.origin + alone.end};
}

int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

// Whether steps of `outer` continue where `extent` steps of `inner` end.
bool continues(int64_t outer, int64_t inner, int64_t extent) {
  int64_t end = 0;
  return !__builtin_mul_overflow(inner, extent, &end) && end == outer;
}

// An inner axis without padding that its neighbour continues, in both tensors, is one axis with it. The neighbour may
// have a window: that is then whole inner extents.
bool merge(const Axis& outer, Axis& inner) {
  if (outer.repeats || inner.repeats || inner.low != 0 || inner.source_extent != inner.extent) return false;
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
  inner.window = {outer.window.begin * inner.extent, outer.window.end * inner.extent};
  inner.origin = outer.origin * inner.extent;
  inner.kept = outer.kept * inner.extent;
  inner.extent *= outer.extent;
  return true;
}

// Before the axes `at` and beyond, which stand further inside: an axis whose steps are shorter, or that has none.
bool stands_outside(const Axis& axis, const Axis& other) {
  if (other.extent == 1) return false;
  return axis.extent == 1 || magnitude(axis.stride) > magnitude(other.stride);
}

// Fills in the axes: those that are stepped or summed along are sorted by the destination's stride, so that
// neighbouring elements are written together whatever the layout, then merged. Order may change because every element
// is written alone; where it is a sum, `nest` keeps the order of the terms.
void collapse(const RawAxes& raw, Outside outside, Problem* p) {
  bool hollow = false;  // whether no element of the destination has a source
  p->outside = Outside::kFill;
  for (int32_t a = 0; a < raw.rank; ++a) {
    if (raw.axes[a].repeats) p->outside = outside;
    hollow = hollow || raw.axes[a].kept == 0;
  }
  if (hollow) p->outside = Outside::kFill;
  p->rank = 0;
  for (int32_t a = 0; a < raw.rank; ++a) {
    Axis axis = raw.axes[a];
    // Without a source an axis is like every other.
    const int64_t extent = axis.extent, stride = axis.stride;
    if (hollow) axis = {extent, 0, extent, stride, stride, 0, 0, {0, 0}, false, a, {0, extent}};
    if (axis.source_extent == 1) axis.source_stride = 0;  // never stepped along, so it may hold anything
    if (axis.extent == 1) {
      axis.stride = 1;  // as if it continued every other
      if (!axis.repeats || outside != Outside::kSum) {
        p->source_offset -= axis.low * axis.source_stride;
        continue;
      }
    }
    int32_t at = p->rank++;
    for (; at > 0 && stands_outside(axis, p->axes[at - 1]); --at) p->axes[at] = p->axes[at - 1];
    p->axes[at] = axis;
  }
  if (p->rank == 0) p->axes[p->rank++] = Axis{1, 0, 1, 1, 1, 0, 1, {0, 0}, false, 0, {0, 1}};
  int32_t kept = p->rank - 1;
  for (int32_t a = p->rank - 2; a >= 0; --a) {
    if (!merge(p->axes[a], p->axes[kept])) p->axes[--kept] = p->axes[a];
  }
  for (int32_t a = kept; a < p->rank; ++a) p->axes[a - kept] = p->axes[a];
  p->rank -= kept;
  for (int32_t a = 0; a < p->rank && hollow; ++a) p->axes[a].window = {0, 0};
}

}  // namespace

Status check_host_arrays(Direction direction, const Shapes& shapes) {
  const Names& names = names_of(direction);
  const int32_t rank = shapes.rank;
  BARACUDA_RETURN_IF_FAILED(check_array("input_shape", shapes.input, rank));
  if (shapes.has_output) BARACUDA_RETURN_IF_FAILED(check_array("output_shape", shapes.output, rank));
  BARACUDA_RETURN_IF_FAILED(check_array("pad_low", shapes.pad_low, rank));
  BARACUDA_RETURN_IF_FAILED(check_array(names.source_strides, shapes.source_strides, rank));
  return check_array(names.destination_strides, shapes.strides, rank);
}

Status make_problem(Direction direction, const Shapes& shapes, int64_t numel, int64_t element_bytes, Problem* problem) {
  const Names& names = names_of(direction);
  const bool forward = direction == Direction::kForward;
  BARACUDA_RETURN_IF_FAILED(check_host_arrays(direction, shapes));
  BARACUDA_RETURN_IF_FAILED(check_shapes(names, shapes, numel));
  RawAxes raw{};
  raw.rank = shapes.rank;
  for (int32_t a = 0; a < shapes.rank; ++a) {
    const Pads pads = pads_of(shapes, a);
    const int64_t input = shapes.input[a], padded = input + pads.low + pads.high;
    Axis axis{};
    axis.extent = forward ? padded : input;
    axis.source_extent = forward ? input : padded;
    axis.low = forward ? pads.low : -pads.low;
    axis.origin = axis.low > 0 ? axis.low : 0;
    axis.kept = kept_of(input, pads);
    axis.stride = shapes.strides[a];
    axis.source_stride = shapes.source_strides[a];
    axis.rule = rule_of(shapes.mode, axis.kept);
    axis.repeats = shapes.mode != Mode::kConstant && axis.kept > 0 && (pads.low > 0 || pads.high > 0);
    axis.nest = a;
    axis.window = {axis.origin, axis.origin + axis.kept};
    if (axis.repeats && !forward) axis.window = kept_alone(axis);
    raw.axes[a] = axis;
  }
  BARACUDA_RETURN_IF_FAILED(check_numel(names, raw, numel));
  Problem p{};
  BARACUDA_RETURN_IF_FAILED(
      check_tensor(names.source, raw, &Axis::source_extent, &Axis::source_stride, element_bytes, &p.source_numel));
  BARACUDA_RETURN_IF_FAILED(
      check_tensor(names.destination, raw, &Axis::extent, &Axis::stride, element_bytes, &p.numel));
  BARACUDA_RETURN_IF_FAILED(check_written_strides(names, raw));
  if (p.numel > 0) collapse(raw, forward ? Outside::kFold : Outside::kSum, &p);
  *problem = p;
  return Status::kOk;
}

Status check_overlap(Direction direction, const Shapes& shapes, const void* source, const void* destination,
                     int64_t element_bytes) {
  StridedTensor unpadded, padded;
  unpadded.rank = padded.rank = shapes.rank;
  const bool forward = direction == Direction::kForward;
  StridedTensor& from = forward ? unpadded : padded;
  StridedTensor& to = forward ? padded : unpadded;
  from.first = source, to.first = destination;
  for (int32_t a = 0; a < shapes.rank; ++a) {
    const Pads pads = pads_of(shapes, a);
    unpadded.extents[a] = shapes.input[a], padded.extents[a] = shapes.input[a] + pads.low + pads.high;
    from.strides[a] = shapes.source_strides[a], to.strides[a] = shapes.strides[a];
  }
  if (share_a_byte(from, to, element_bytes) == Answer::kNo) return Status::kOk;
  const Names& names = names_of(direction);
  return fail_for_overlap(names.destination, names.source);
}

}  // namespace baracuda::pad
