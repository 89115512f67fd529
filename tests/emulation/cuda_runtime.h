// SPDX-License-Identifier: Apache-2.0
// Stands in for CUDA's header where a C++ compiler builds the CUDA sources for the processor: the words of the language
// and what the sources call of the runtime. A block's threads are fibers of one thread of the system (device.h), which
// run in random order between two points where they must meet; blocks run one after the other. What a kernel may not
// do, such as reading what another thread has yet to write, mostly shows as wrong bits.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "device.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __restrict__ __restrict
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
// A block's own: the blocks of a launch run one after the other.
#define __shared__ thread_local

using emulation::blockDim;
using emulation::blockIdx;
using emulation::gridDim;
using emulation::threadIdx;

struct uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct int2 {
  int x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

template <typename T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
inline T max(T a, T b) {
  return a < b ? b : a;
}

// --- what threads of a block and of a warp do together -----------------------------------------------------------------

inline void __syncthreads() { emulation::meet_block(false); }
inline int __syncthreads_or(int predicate) { return emulation::meet_block(predicate != 0).any; }
inline int __syncthreads_and(int predicate) { return emulation::meet_block(predicate != 0).all; }
inline void __syncwarp(unsigned mask = 0xffffffffu) { emulation::meet_warp(mask, 0); }
inline void __threadfence() {}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const emulation::Told told = emulation::meet_warp(mask, predicate != 0);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= told.has(lane) && told.words[lane] != 0 ? 1u << lane : 0;
  return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

template <typename T>
inline T __shfl_from(unsigned mask, T value, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a word of a lane");
  uint64_t word = 0;
  memcpy(&word, &value, sizeof value);
  const emulation::Told told = emulation::meet_warp(mask, word);
  if (lane >= 0 && told.has(lane)) memcpy(&value, &told.words[lane], sizeof value);
  return value;
}
template <typename T>
inline T __shfl_sync(unsigned mask, T value, int lane) {
  return __shfl_from(mask, value, lane & 31);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  return __shfl_from(mask, value, emulation::lane() - static_cast<int>(distance));
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return __shfl_from(mask, value, (emulation::lane() ^ bits) & 31);
}
template <typename T>
inline unsigned __match_any_sync(unsigned mask, T value) {
  uint64_t word = 0;
  memcpy(&word, &value, sizeof value);
  const emulation::Told told = emulation::meet_warp(mask, word);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= told.has(lane) && told.words[lane] == word ? 1u << lane : 0;
  return bits;
}

// --- atomics: one thread of the system runs all ------------------------------------------------------------------------

template <typename T, typename U>
inline T atomicAdd(T* at, U value) {
  const T before = *at;
  *at = before + static_cast<T>(value);
  return before;
}
template <typename T, typename U>
inline T atomicOr(T* at, U value) {
  const T before = *at;
  *at = before | static_cast<T>(value);
  return before;
}
template <typename T, typename U>
inline T atomicMax(T* at, U value) {
  const T before = *at;
  *at = max<T>(before, value);
  return before;
}
template <typename T, typename U>
inline T atomicMin(T* at, U value) {
  const T before = *at;
  *at = min<T>(before, value);
  return before;
}
template <typename T>
inline T atomicCAS(T* at, T expected, T value) {
  const T before = *at;
  if (before == expected) *at = value;
  return before;
}

// --- instructions ------------------------------------------------------------------------------------------------------

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (bits & 31));
}
// The shift counts up to 32.
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned bits) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (bits < 32 ? bits : 32) >> 32);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selection) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  unsigned found = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selection >> (4 * i) & 15;
    unsigned byte = static_cast<unsigned>(both >> (8 * (choice & 7))) & 255;
    if ((choice & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    found |= byte << (8 * i);
  }
  return found;
}
inline unsigned __by_halves(unsigned a, unsigned b, bool wants_larger) {
  unsigned found = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const unsigned x = a >> shift & 0xffff, y = b >> shift & 0xffff;
    found |= ((x < y) == wants_larger ? y : x) << shift;
  }
  return found;
}
inline unsigned __vminu2(unsigned a, unsigned b) { return __by_halves(a, b, false); }
inline unsigned __vmaxu2(unsigned a, unsigned b) { return __by_halves(a, b, true); }
inline unsigned __float_as_uint(float value) {
  unsigned bits = 0;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
template <typename T>
inline T __ldcs(const T* at) {
  return *at;
}
template <typename T>
inline T __ldcg(const T* at) {
  return *at;
}
template <typename T>
inline void __stcs(T* at, T value) {
  *at = value;
}

// --- the runtime -------------------------------------------------------------------------------------------------------

using cudaStream_t = struct CUstream_st*;
enum cudaError_t { cudaSuccess };
using dim3 = emulation::Extents;

struct cudaFuncAttributes {
  size_t sharedSizeBytes;
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <typename Kernel>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel*) {
  attributes->sharedSizeBytes = 0;
  return cudaSuccess;
}
template <typename Kernel>
inline cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  memset(memory, value, bytes);
  return cudaSuccess;
}

enum { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  int id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  const cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <typename... Parameters>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                                      Parameters... arguments) {
  const std::tuple<std::decay_t<Parameters>...> given(arguments...);
  const auto run = [&] { std::apply(kernel, given); };
  emulation::launch(config->gridDim.x, config->blockDim.x, config->dynamicSmemBytes,
                    [](const void* what) { (*static_cast<const decltype(run)*>(what))(); }, &run);
  return cudaSuccess;
}
