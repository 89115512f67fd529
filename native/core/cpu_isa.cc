// SPDX-License-Identifier: Apache-2.0
// Detection of the CPU's instruction set, once per process.
#include "core/cpu_isa.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "core/backend.h"

namespace baracuda {
namespace {

#if defined(__x86_64__) && !defined(BARACUDA_ONE_ISA)
CpuIsa detect() {
  const char* wanted = std::getenv("BARACUDA_CPU_ISA");
  const bool only_portable = wanted != nullptr && std::strcmp(wanted, "portable") == 0;
  const bool at_most_avx2 = wanted != nullptr && std::strcmp(wanted, "avx2") == 0;
  if (only_portable) return CpuIsa::kPortable;
  __builtin_cpu_init();  // for calls out of other constructors
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512 && !at_most_avx2) return CpuIsa::kAvx512;
  if (has_avx2) return CpuIsa::kAvx2;
  return CpuIsa::kPortable;
}
#else
CpuIsa detect() { return CpuIsa::kPortable; }
#endif

constexpr int kUndecided = -1;

// No static inside the function: its guard is a lock, and a child forked while another thread held it would wait for
// ever. Threads that come first together all detect, and one of them decides.
std::atomic<int> chosen{kUndecided};

}  // namespace

CpuIsa cpu_isa() {
  int isa = chosen.load(std::memory_order_relaxed);
  if (isa == kUndecided) {
    const int found = static_cast<int>(detect());
    if (chosen.compare_exchange_strong(isa, found, std::memory_order_relaxed)) isa = found;
  }
  return static_cast<CpuIsa>(isa);
}

const char* cpu_isa_name() {
  switch (cpu_isa()) {
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kPortable:
      break;
  }
  return "portable";
}

}  // namespace baracuda
