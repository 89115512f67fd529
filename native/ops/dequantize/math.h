// SPDX-License-Identifier: Apache-2.0
// The two formulas, shared by both backends: what a channel brings and what an element becomes. One product, one
// rounding.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"
#include "ops/dequantize/launch.h"

namespace baracuda::dequantize {
namespace {

// Differences with zero points within this bound fit 32 bits, which are converted several times as fast as 64.
constexpr int32_t kNearZeroPoint = 1 << 30;
BARACUDA_HD bool is_near(int32_t zero_point) { return zero_point >= -kNearZeroPoint && zero_point <= kNearZeroPoint; }

// The forward's value before it is rounded. `Difference` is int64_t, or int32_t where the zero point is near: it is
// exact, and converted once.
template <typename Difference, typename C>
BARACUDA_HD C dequantized(int32_t input, int32_t zero_point, C scale) {
  return static_cast<C>(static_cast<Difference>(input) - static_cast<Difference>(zero_point)) * scale;
}

// The backward's.
template <typename C>
BARACUDA_HD C scaled(C grad_output, C scale) {
  return grad_output * scale;
}

// One channel's parameters, in the types that the products take.
template <typename C>
struct ForwardChannel {
  C scale;
  int32_t zero_point;
};
template <typename C>
struct BackwardChannel {
  C scale;
};

template <typename T, typename Q>
BARACUDA_HD ForwardChannel<Compute<T>> channel_of(const ForwardBuffers<T, Q>& b, int64_t c) {
  return {widen(b.scale[c]), b.zero_point[c]};
}
template <typename T>
BARACUDA_HD BackwardChannel<Compute<T>> channel_of(const BackwardBuffers<T>& b, int64_t c) {
  return {widen(b.scale[c])};
}

template <typename Difference, typename T, typename Q>
BARACUDA_HD T element_of(const ForwardBuffers<T, Q>&, Q input, ForwardChannel<Compute<T>> channel) {
  return narrow<T>(dequantized<Difference>(input, channel.zero_point, channel.scale));
}
template <typename, typename T>
BARACUDA_HD T element_of(const BackwardBuffers<T>&, T input, BackwardChannel<Compute<T>> channel) {
  return narrow<T>(scaled(widen(input), channel.scale));
}

}  // namespace
}  // namespace baracuda::dequantize
