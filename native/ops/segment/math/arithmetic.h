// SPDX-License-Identifier: Apache-2.0
// Sums and products of values, in the type that a rule keeps, and how that becomes a result's type.
#pragma once

#include <type_traits>

#include "core/dtype.h"
#include "core/float_math.h"
#include "core/host_device.h"

namespace baracuda::segment {
namespace {

// Sums and products of integers wrap around.
template <typename T>
BARACUDA_HD T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}
template <typename T>
BARACUDA_HD T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}
template <typename T>
BARACUDA_HD Compute<T> wide(T x) {
  if constexpr (std::is_integral_v<T>) {
    return x;
  } else {
#if !defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, Half>) return widen_by_bits(x);
#endif
    return widen(x);
  }
}
template <typename T>
BARACUDA_HD T stored(Compute<T> x) {
  if constexpr (std::is_integral_v<T>) {
    return x;
  } else {
#if !defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, Half>) return narrow_by_bits(x);
#endif
    return narrow<T>(x);
  }
}

}  // namespace
}  // namespace baracuda::segment
