// SPDX-License-Identifier: Apache-2.0
// The last step of a reduction of rows: what was there takes part once, in the type that the reduction is kept in.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace baracuda::pytorch {

// How what was there is joined with what its rows gave; kNone: it takes no part.
enum class Join : int32_t { kAdd, kMultiply, kMaximum, kMinimum, kNone };

struct Finish {
  Join join;
  // Whether the result is divided by how many took part: a mean.
  bool is_mean;
  // Whether what no entry names keeps what was there.
  bool keeps_unnamed;
  // How many rows of how many elements there are.
  int64_t extent;
  int64_t columns;
  // How often each was named; NULL where neither of both is asked for.
  const int32_t* counts;
  // In the tensors' dtype.
  const void* given;
  // In 32 bits for 16.
  const void* found;
  // May be either of them.
  void* output;

  BARACUDA_HD int64_t elements() const { return extent * columns; }
};

namespace {

#if defined(__CUDA_ARCH__)
// As PyTorch does it there: NaN is passed on, and of two zeros the positive one is the larger.
template <typename T>
__device__ T extreme(T given, T found, bool is_maximum) {
  if (given != given) return given;
  if (found != found) return found;
  return is_maximum ? ::max(given, found) : ::min(given, found);
}
#endif

template <typename T>
BARACUDA_HD T finished(const Finish& finish, T given, T found, int32_t count) {
  T value = found;
  switch (finish.join) {
    case Join::kAdd: value = given + found; break;
    case Join::kMultiply: value = given * found; break;
#if defined(__CUDA_ARCH__)
    case Join::kMaximum: value = extreme(given, found, true); break;
    case Join::kMinimum: value = extreme(given, found, false); break;
#else
    // The host calls PyTorch for these, which takes one or the other of two zeros from loop to loop.
    case Join::kMaximum:
    case Join::kMinimum:
#endif
    case Join::kNone: break;
  }
  if (finish.is_mean) {
    // Without what was there an unnamed row keeps it, so that a count of 0 divides nothing that is used.
    value = value / static_cast<T>(finish.join == Join::kNone ? count : count + 1);
  }
  return finish.keeps_unnamed && count == 0 ? given : value;
}

}  // namespace
}  // namespace baracuda::pytorch
