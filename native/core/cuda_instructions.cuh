// SPDX-License-Identifier: Apache-2.0
// Single instructions of GPUs that CUDA C++ has no word for, or for which the compiler takes others.
#pragma once

#include <cstdint>

namespace baracuda {
namespace {

// A load that is neither put off nor left out: it is on its way while other lanes see to an edge.
__device__ __forceinline__ uint4 begin_load(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}

// begin_load() of lanes that read; the vector of the others holds anything.
__device__ __forceinline__ uint4 begin_load_if(const uint4* from, bool reads) {
  uint4 v;
  asm volatile("{\n.reg .pred reads;\nsetp.ne.u32 reads, %5, 0;\n@reads ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from), "r"(static_cast<uint32_t>(reads)));
  return v;
}

// A load that is neither put off nor made where it does not read; else the word stays what it is.
template <typename T>
__device__ __forceinline__ void begin_word_if(T* word, const char* from, bool reads) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("{\n.reg .pred reads;\nsetp.ne.u32 reads, %2, 0;\n@reads ld.global.b64 %0, [%1];\n}"
                 : "+d"(*word)
                 : "l"(from), "r"(static_cast<uint32_t>(reads)));
  } else {
    asm volatile("{\n.reg .pred reads;\nsetp.ne.u32 reads, %2, 0;\n@reads ld.global.b32 %0, [%1];\n}"
                 : "+f"(*word)
                 : "l"(from), "r"(static_cast<uint32_t>(reads)));
  }
}

// The lanes whose `digit` agrees with this lane's in `bit`. The compiler would turn the tests of bits into shifts and
// comparisons; here they become predicates, seven by one instruction.
__device__ __forceinline__ uint32_t lanes_with_equal_bit(uint32_t digit, uint32_t bit) {
  uint32_t lanes;
  asm volatile(
      "{\n.reg .pred p;\n.reg .b32 t;\nand.b32 t, %1, %2;\nsetp.ne.u32 p, t, 0;\n"
      "vote.sync.ballot.b32 %0, p, 0xffffffff;\n@!p not.b32 %0, %0;\n}"
      : "=r"(lanes)
      : "r"(digit), "r"(bit));
  return lanes;
}

// One instruction, for which the compiler takes two behind votes.
__device__ __forceinline__ uint32_t and_of_three(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t all;
  asm("lop3.b32 %0, %1, %2, %3, 0x80;" : "=r"(all) : "r"(a), "r"(b), "r"(c));
  return all;
}

// A barrier of a whole block of kThreads that its roles reach at different places of the code, which __syncthreads()
// must not.
template <int kThreads>
__device__ __forceinline__ void meet_from_anywhere() {
  asm volatile("barrier.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// 1 / x to all bits but a few, of a normal number whose inverse is one.
__device__ __forceinline__ float inverse_estimate(float x) {
  float estimate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
  return estimate;
}

}  // namespace
}  // namespace baracuda
