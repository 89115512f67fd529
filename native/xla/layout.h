// SPDX-License-Identifier: Apache-2.0
// How the arguments of an operator lie in the block that its _run_packed function takes, as data: what the handler
// needs to put addresses into a block that it got without them, and to see that nothing reaches beyond a buffer.
#pragma once

#include <cstdint>

#include "xla/ffi.h"

namespace baracuda::xla {

// The dtype of a tensor's elements: one of XLA's numbers, or 0 for any of that many bytes.
struct Element {
  uint8_t bytes;
  uint8_t dtype;
};

enum ExtentKind : uint8_t {
  kNumber,     // `at` itself
  kInt32,      // the scalar at `at`, plus `other`
  kInt64,
  kWhether,    // the int32 at `at`, which is 0 or 1: with 0 there is no such tensor
  kProduct,    // of the int32 at `at` and the int32 at `other`
  kBySquare,   // of the int32 at `at` and the square of the int32 at `other`
  kEntry,      // of the host array number `at`: the entry that the int32 at `other` names
  kIfEntry,    // of the host array number `at`: its entry number `other`; without one there is no such tensor
  kArray,      // each entry of the host array number `at`, plus that of the array number `other`, -1 for none
  kIndex,      // of segment_ex's index: num_segments (at `at`) + 1 offsets, or num_rows (at `other`) ids
  kRowsOfArg,  // of segment_ex's arg: num_segments (at `at`), where the reduction has one
  kUnlessReduced,  // the int32 at `at`, or 1 unless the int32 at `other` is 0
};

struct Extent {
  ExtentKind kind;
  int16_t at;
  int16_t other;
};

struct Tensor {
  int16_t at;
  bool is_output;
  int8_t element;  // 0, 1 or 2: the symbol's; 3: int32; 4: uint8; 5: int64
  int8_t strides;  // the number of the host array that has them, or -1
  int8_t rank;
  Extent extents[6];
};

struct HostArray {
  int16_t at;
  int8_t bytes;      // of an entry
  int16_t length;    // how many entries
  bool is_length_at; // ... or where the int32 stands that says it
};

// A pointer to a struct of `bytes`, which begins with its size; at `value_at` it has a pointer to one element, or NULL.
struct Options {
  int16_t at;  // -1 where there is none
  int16_t bytes;
  int16_t value_at;  // -1 where it has no such pointer
};

struct Layout {
  int16_t bytes;
  int16_t workspace_at;  // address, bytes and stream stand one behind the other
  int8_t num_arrays;
  int8_t num_tensors;
  HostArray arrays[5];
  Options options;
  Tensor tensors[10];
};

struct Symbol {
  const char* name;  // between "baracuda_kernels_" and "_run_packed"
  const Layout* layout;
  Element elements[3];
};

inline Element element_of(const Symbol& symbol, const Tensor& tensor) {
  constexpr Element kOthers[] = {{4, kS32}, {1, kU8}, {8, kS64}};
  return tensor.element < 3 ? symbol.elements[tensor.element] : kOthers[tensor.element - 3];
}

}  // namespace baracuda::xla
