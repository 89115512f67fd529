// SPDX-License-Identifier: Apache-2.0
// The steps on the host, on the calling thread: for calls so small that their costs count.
#include "core/dtype.h"
#include "pytorch/steps.h"

namespace baracuda::pytorch::host {
namespace {

template <typename T>
void widen_all(const void* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = baracuda::widen(static_cast<const T*>(from)[i]);
}

template <typename T>
void finish_all(const Finish& finish) {
  for (int64_t row = 0; row < finish.extent; ++row) {
    const int32_t count = finish.counts == nullptr ? 0 : finish.counts[row];
    for (int64_t i = row * finish.columns; i < (row + 1) * finish.columns; ++i) {
      const Compute<T> given = baracuda::widen(static_cast<const T*>(finish.given)[i]);
      const Compute<T> found = static_cast<const Compute<T>*>(finish.found)[i];
      static_cast<T*>(finish.output)[i] = narrow<T>(finished(finish, given, found, count));
    }
  }
}

}  // namespace

bool screen(const Index& index) {
  bool is_outside = false;
  for (int64_t i = 0; i < index.count; ++i) {
    const int64_t row = index.entries[i];
    is_outside |= row < 0 || row >= index.extent;
    if (index.kept != nullptr) index.kept[i] = row == index.left_out ? -1 : row;
  }
  return !is_outside;
}

void widen(int32_t dtype, const void* from, float* to, int64_t count) {
  if (dtype == kF16) widen_all<Half>(from, to, count);
  if (dtype == kBf16) widen_all<Bfloat16>(from, to, count);
}

void count(const Index& index, int32_t* counts) {
  for (int64_t row = 0; row < index.extent; ++row) counts[row] = 0;
  for (int64_t i = 0; i < index.count; ++i) ++counts[index.as_taken()[i]];
}

void finish(int32_t dtype, const Finish& finish) {
  if (dtype == kF32) finish_all<float>(finish);
  if (dtype == kF64) finish_all<double>(finish);
  if (dtype == kF16) finish_all<Half>(finish);
  if (dtype == kBf16) finish_all<Bfloat16>(finish);
}

}  // namespace baracuda::pytorch::host
