// SPDX-License-Identifier: Apache-2.0
// The markers that let one function serve both backends.
//
// Shared code stands in an anonymous namespace: each CPU file is compiled once per instruction set, and a function with
// external linkage would let the linker keep the widest copy for every machine.
#pragma once

#if defined(__CUDACC__)
#define BARACUDA_HD __host__ __device__ __forceinline__
#else
#define BARACUDA_HD inline __attribute__((always_inline))
#endif
