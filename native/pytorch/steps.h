// SPDX-License-Identifier: Apache-2.0
// What the kernels of rows do around a sum of rows, on the host and on a GPU: an index is looked through, 16 bits are
// widened, and what was there is added to the finished sums.
#pragma once

#include <cstdint>

#include "pytorch/tensor.h"

namespace baracuda::pytorch {

// An index of rows, and where it goes as the sums take it.
struct Index {
  const int64_t* entries;
  int64_t count;
  // How many rows there are to name.
  int64_t extent;
  // Whether entries below 0 count from the end.
  bool wraps;
  // An entry that names no row and is no mistake; -1 where there is none.
  int64_t left_out;
  // NULL where the sums take the entries as they are; else memory for as many: -1 names no row.
  int64_t* kept;
};

namespace host {

// Answers false if an entry names no row.
bool screen(const Index& index);
// 16-bit floats to 32 bits.
void widen(int32_t dtype, const void* from, float* to, int64_t count);
// output = given + sums, where 16 bits have sums of 32 bits and are rounded once. The output may be either of them.
void add(int32_t dtype, const void* given, const void* sums, void* output, int64_t count);

}  // namespace host

// The same on the current GPU. All answer false if nothing was launched.
namespace cuda {

// Whether the steps may be taken on a device: not in a build without CUDA, nor for the first time while a graph is
// captured, since that loads them.
bool is_ready(int32_t device, void* stream);
// Counts the entries that name no row; a replay of a CUDA graph counts, too.
bool screen(const Index& index, void* stream);
bool widen(int32_t dtype, const void* from, float* to, int64_t count, void* stream);
bool add(int32_t dtype, const void* given, const void* sums, void* output, int64_t count, void* stream);

// Whether the steps were ever taken on a device.
bool has_counted(int32_t device);
// How many entries named no row since this was last asked of the device, which must be the current one and have done
// its work; -1 if that cannot be read.
int64_t take_dropped(int32_t device);

}  // namespace cuda

}  // namespace baracuda::pytorch
