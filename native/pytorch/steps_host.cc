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
void add_all(const void* given, const void* sums, void* output, int64_t count) {
  const auto* const x = static_cast<const T*>(given);
  const auto* const y = static_cast<const Compute<T>*>(sums);
  for (int64_t i = 0; i < count; ++i) static_cast<T*>(output)[i] = narrow<T>(baracuda::widen(x[i]) + y[i]);
}

}  // namespace

bool screen(const Index& index) {
  bool is_outside = false;
  for (int64_t i = 0; i < index.count; ++i) {
    const int64_t entry = index.entries[i];
    const int64_t row = index.wraps && entry < 0 ? entry + index.extent : entry;
    is_outside |= row < 0 || row >= index.extent;
    if (index.kept != nullptr) index.kept[i] = row == index.left_out ? -1 : row;
  }
  return !is_outside;
}

void widen(int32_t dtype, const void* from, float* to, int64_t count) {
  if (dtype == kF16) widen_all<Half>(from, to, count);
  if (dtype == kBf16) widen_all<Bfloat16>(from, to, count);
}

void add(int32_t dtype, const void* given, const void* sums, void* output, int64_t count) {
  if (dtype == kF32) add_all<float>(given, sums, output, count);
  if (dtype == kF64) add_all<double>(given, sums, output, count);
  if (dtype == kF16) add_all<Half>(given, sums, output, count);
  if (dtype == kBf16) add_all<Bfloat16>(given, sums, output, count);
}

}  // namespace baracuda::pytorch::host
