// SPDX-License-Identifier: Apache-2.0
// What a valid pad problem is, and the one form that every mode and both directions take: a copy seen through a window,
// and a rule for what lies outside it. The destination is output (forward) or grad_input (backward), the source input
// or grad_output. No data is read.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "ops/pad/rule.h"

namespace baracuda::pad {

constexpr int32_t kMaxRank = 8;

// The destination indices [begin, end) of an axis, empty as begin == end.
struct Window {
  int64_t begin, end;
};

// Destination index i of an axis in the window takes source index i - low, and nothing else.
//
// Destination indices [origin, origin + kept) are the tensor that is repeated: forward all of input; backward what the
// pads leave of it, in grad_input. On an axis that repeats the rule says what the others are (forward), or which other
// source indices are added (backward). Elsewhere what stands outside the window has no source.
struct Axis {
  int64_t extent;
  int64_t low;
  int64_t source_extent;
  int64_t stride, source_stride;  // in elements
  int64_t origin, kept;
  Rule rule;
  bool repeats;
  int32_t nest;  // place among the call's own axes, the outermost first: the order of sums
  Window window;
};

// What becomes of an element that is outside its window on some axis.
enum class Outside {
  kFill,  // it holds the value
  kFold,  // it takes another source element
  kSum,   // it adds up all its source elements
};

// Axes in order of destination stride, outermost first, none of extent 1 unless it is the only one or is summed along,
// merged where two are one in memory: an image with padded rows and columns has three, whatever its rank.
struct Problem {
  int32_t rank;
  Axis axes[kMaxRank];
  Outside outside;
  int64_t numel;          // elements of the destination
  int64_t source_numel;   // elements of the source; 0: the destination is all fill value
  int64_t source_offset;  // where in the source every axis has source index 0
};

// A call's description of its padded and unpadded tensor, each array of `rank` entries in the call's own order.
struct Shapes {
  Mode mode;
  int32_t rank;
  const int32_t* input;
  const int32_t* output;
  const int32_t* pad_low;
  const int64_t* source_strides;
  const int64_t* strides;
  bool has_output;  // else the call does not say `output`, and input + pad_low is read of grad_output
  bool crops;       // whether pads may be negative
};

enum class Direction { kForward, kBackward };

// Checks in the project's fixed order; the first of them, that no host array is NULL, also stands alone, for what must
// come between. `numel` is the caller's count of the destination's elements.
Status check_host_arrays(Direction direction, const Shapes& shapes);
Status make_problem(Direction direction, const Shapes& shapes, int64_t numel, int64_t element_bytes, Problem* problem);

// Status 2 where the destination shares an element with the source. The shapes are a valid problem's.
Status check_overlap(Direction direction, const Shapes& shapes, const void* source, const void* destination,
                     int64_t element_bytes);

}  // namespace baracuda::pad
