// SPDX-License-Identifier: Apache-2.0
// Detection of the CPU's instruction set, once per process.
#include "core/cpu_isa.h"

#include <cstdlib>
#include <cstring>

namespace baracuda {
namespace {

CpuIsa detect() {
  const char* wanted = std::getenv("BARACUDA_CPU_ISA");
  const bool only_portable = wanted != nullptr && std::strcmp(wanted, "portable") == 0;
  const bool at_most_avx2 = wanted != nullptr && std::strcmp(wanted, "avx2") == 0;
#if defined(__x86_64__)
  if (only_portable) return CpuIsa::kPortable;
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512 && !at_most_avx2) return CpuIsa::kAvx512;
  if (has_avx2) return CpuIsa::kAvx2;
#else
  (void)only_portable;
  (void)at_most_avx2;
#endif
  return CpuIsa::kPortable;
}

}  // namespace

CpuIsa cpu_isa() {
  static const CpuIsa isa = detect();
  return isa;
}

}  // namespace baracuda
