// SPDX-License-Identifier: Apache-2.0
// What the kernels of rows do around a sum of rows, on the host and on a GPU: an index is looked through, 16 bits are
// widened, named rows are counted, and what was there takes part in what the rows gave.
#pragma once

#include <cstdint>

#include "pytorch/finish.h"
#include "pytorch/tensor.h"

namespace baracuda::pytorch {

// An index of rows, and where it goes as the sums take it.
struct Index {
  const int64_t* entries;
  int64_t count;
  // How many rows there are to name.
  int64_t extent;
  // An entry that names no row and is no mistake; -1 where there is none.
  int64_t left_out;
  // NULL where the sums take the entries as they are; else memory for as many: -1 names no row.
  int64_t* kept;

  BARACUDA_HD const int64_t* as_taken() const { return kept != nullptr ? kept : entries; }
};

// An index of the elements along one axis of a tensor; it has an entry for each of `rows` x `columns` elements, and as
// many times as there are further axes before them. The tensor has `extent` x `columns` elements each time.
struct ElementIndex {
  const int64_t* entries;
  int64_t count;
  int64_t rows;
  int64_t columns;
  int64_t extent;
  // Whether a negative entry counts from the end.
  bool wraps;

  // Of the tensor.
  int64_t elements() const { return count / (rows * columns) * extent * columns; }
};

// An index with one entry for each line of a tensor along an axis, so that no element is named twice. The tensor has
// `extent` elements in each line, `columns` lines beside one another and as many times as `count` says.
struct LineIndex {
  const int64_t* entries;
  int64_t count;
  int64_t columns;
  int64_t extent;
};

namespace host {

// Answers false if an entry names no row.
bool screen(const Index& index);
// 16-bit floats to 32 bits.
void widen(int32_t dtype, const void* from, float* to, int64_t count);
// How often each row is named.
void count(const Index& index, int32_t* counts);
// 16 bits are rounded once. For tensors of this dtype.
void finish(int32_t dtype, const Finish& finish);

}  // namespace host

// The same on the current GPU. All answer false if nothing was launched.
namespace cuda {

// Whether the steps may be taken on a device: not in a build without CUDA, nor for the first time while a graph is
// captured, since that loads them.
bool is_ready(int32_t device, void* stream);
// Counts the entries that name no row; a replay of a CUDA graph counts, too.
bool screen(const Index& index, void* stream);
// Which element of a tensor of less than 2^31 each entry names, in row-major order: -1 for none, which is counted, too.
bool place(const ElementIndex& index, int32_t* places, void* stream);
// Puts elements of a source, of 1, 2 or 4 bytes, where an index of less than 2^31 entries says; of several for one
// place the last in row-major order stays. `winners` is memory for as many numbers as the tensor has elements. Counts
// what names no element, too.
bool put_last(const ElementIndex& index, int32_t element_bytes, const void* source, void* output,
              unsigned long long* winners, void* stream);
// Puts an element of source into each line, of 1, 2, 4, 8 or 16 bytes; counts what names no element, too.
bool put_in_lines(const LineIndex& index, int32_t element_bytes, const void* source, void* output, void* stream);
bool widen(int32_t dtype, const void* from, float* to, int64_t count, void* stream);
bool count(const Index& index, int32_t* counts, void* stream);
bool finish(int32_t dtype, const Finish& finish, void* stream);

// Whether the steps were ever taken on a device.
bool has_counted(int32_t device);
// How many entries named no row since this was last asked of the device, which must be the current one and have done
// its work; -1 if that cannot be read.
int64_t take_dropped(int32_t device);

}  // namespace cuda

}  // namespace baracuda::pytorch
