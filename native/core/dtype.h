// SPDX-License-Identifier: Apache-2.0
// Element types, the type each one computes in, and the two conversions: widen on load, round once on store.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/host_device.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#elif defined(__F16C__)
#include <immintrin.h>
#endif

namespace baracuda {

// IEEE binary16 and bfloat16 as their bits; moves and selections copy the bits and never convert.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

// X(type) for each type that has arithmetic here.
#define BARACUDA_FLOAT_TYPES(X) X(float) X(double) X(Half) X(Bfloat16)

namespace {

template <typename T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<Half> {
  using type = float;
};
template <>
struct ComputeOf<Bfloat16> {
  using type = float;
};
// The type in which T's arithmetic is done: f32 for the 16-bit types, T itself otherwise.
template <typename T>
using Compute = typename ComputeOf<T>::type;

template <typename To, typename From>
BARACUDA_HD To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

BARACUDA_HD float widen(float x) { return x; }
BARACUDA_HD double widen(double x) { return x; }
BARACUDA_HD float widen(Bfloat16 x) { return bits_as<float>(static_cast<uint32_t>(x.bits) << 16); }
#if !defined(__CUDA_ARCH__)
// In integer arithmetic: for processors without the instruction, and for loops, since compilers vectorise this and not
// the instruction.
BARACUDA_HD float widen_by_bits(Half x) {
  // Shift the 15 value bits into place and rescale by 2^112: exact for normals and subnormals alike. Infinity and NaN
  // come out with exponent 143 and get the rest of the exponent back.
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  const uint32_t finite = bits_as<uint32_t>(bits_as<float>(magnitude) * 0x1p112f);
  const uint32_t value = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
  return bits_as<float>(value | static_cast<uint32_t>(x.bits & 0x8000u) << 16);
}
#endif
BARACUDA_HD float widen(Half x) {
#if defined(__CUDA_ARCH__)
  return __half2float(bits_as<__half>(x.bits));
#elif defined(__F16C__)
  return _cvtsh_ss(x.bits);
#else
  return widen_by_bits(x);
#endif
}

template <typename T>
BARACUDA_HD T canonical_nan();
template <>
BARACUDA_HD float canonical_nan<float>() {
  return bits_as<float>(0x7fc00000u);
}
template <>
BARACUDA_HD double canonical_nan<double>() {
  return bits_as<double>(static_cast<uint64_t>(0x7ff8000000000000u));
}

// Rounds a result of arithmetic to T (nearest, ties to even); every NaN becomes the one canonical quiet NaN, because
// x86 and CUDA make different ones.
template <typename T>
BARACUDA_HD T narrow(Compute<T> x);
template <>
BARACUDA_HD float narrow<float>(float x) {
  return x == x ? x : canonical_nan<float>();
}
template <>
BARACUDA_HD double narrow<double>(double x) {
  return x == x ? x : canonical_nan<double>();
}
template <>
BARACUDA_HD Bfloat16 narrow<Bfloat16>(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const uint32_t rounded = bits_as<uint16_t>(__float2bfloat16_rn(x));
#else
  const uint32_t bits = bits_as<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
#endif
  return Bfloat16{static_cast<uint16_t>(x == x ? rounded : 0x7fc0u)};
}
constexpr uint32_t kNanHalf = 0x7e00u;
#if !defined(__CUDA_ARCH__)
// As widen_by_bits.
BARACUDA_HD Half narrow_by_bits(float x) {
  const uint32_t bits = bits_as<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 puts the result's last place, 2^-24, at the sum's last place: the addition itself rounds.
  const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t finite = magnitude >= 0x38800000u ? normal : subnormal;
  const uint32_t rounded = magnitude >= 0x477ff000u ? 0x7c00u : finite;  // 65520 and above round to infinity
  return Half{static_cast<uint16_t>(magnitude > 0x7f800000u ? kNanHalf : rounded | ((bits >> 16) & 0x8000u))};
}
#endif
template <>
BARACUDA_HD Half narrow<Half>(float x) {
#if defined(__CUDA_ARCH__)
  return Half{static_cast<uint16_t>(x == x ? bits_as<uint16_t>(__float2half_rn(x)) : kNanHalf)};
#elif defined(__F16C__)
  return Half{static_cast<uint16_t>(x == x ? _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT) : kNanHalf)};
#else
  return narrow_by_bits(x);
#endif
}

}  // namespace
}  // namespace baracuda
