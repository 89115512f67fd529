// SPDX-License-Identifier: Apache-2.0
// What both backends share of weighted counts: what an entry names, in which type weights are added, and what becomes
// of a sum.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/host_device.h"

namespace baracuda::bincount {
namespace {

template <typename T, bool kIsInteger = std::is_integral_v<T>>
struct SumOf {
  using type = Compute<T>;
};
template <typename T>
struct SumOf<T, true> {
  using type = std::make_unsigned_t<T>;  // whose overflow is defined
};
// The type in which weights are added. A sum begins with +0 and so never is -0: one that nothing was added to may be
// added or left out.
template <typename T>
using Sum = typename SumOf<T>::type;

template <typename T>
BARACUDA_HD Sum<T> term_of(T weight) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<Sum<T>>(weight);
  } else {
    return widen(weight);
  }
}

template <typename T>
BARACUDA_HD T result_of(Sum<T> sum) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sum);
  } else {
    return narrow<T>(sum);
  }
}

// Whether an entry names a bin: as an unsigned number a negative one is larger than every bin's.
template <typename I>
BARACUDA_HD bool names_bin(I entry, int32_t num_bins) {
  using U = std::make_unsigned_t<I>;
  return static_cast<U>(entry) < static_cast<U>(num_bins);
}

// Entries are compared as unsigned numbers, as which a negative one is larger than all others.
template <typename I>
using Rank = std::make_unsigned_t<I>;

// How many bins entries name of which this is the largest; -1 where one is negative, or too large for an answer.
template <typename I>
BARACUDA_HD int64_t extent_of(Rank<I> largest) {
  const int64_t entry = static_cast<I>(largest);
  return entry < 0 || entry == INT64_MAX ? -1 : entry + 1;
}

}  // namespace
}  // namespace baracuda::bincount
