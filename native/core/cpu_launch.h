// SPDX-License-Identifier: Apache-2.0
// How a cpu.cc provides its launches: the file is compiled once per instruction set, each time into the namespace
// BARACUDA_CPU_ISA_NAMESPACE, and the portable copy also holds the choice between them.
#pragma once

#include "core/backend.h"
#include "core/cpu_isa.h"
#include "core/status.h"

#if !defined(BARACUDA_CPU_ISA_NAMESPACE)
#error "compile cpu.cc files through baracuda_add_cpu_kernels (CMakeLists.txt)"
#endif

namespace baracuda {
namespace {

template <typename Function>
Function* select_isa(Function* portable, Function* avx2, Function* avx512) {
  switch (cpu_isa()) {
    case CpuIsa::kAvx512:
      return avx512;
    case CpuIsa::kAvx2:
      return avx2;
    case CpuIsa::kPortable:
      break;
  }
  return portable;
}

}  // namespace
}  // namespace baracuda

// Stamps the launch of one buffer type: run(problem, buffers, workspace) of the including file, as this instruction set's
// entry and, in the portable copy, as the library's launch<BUFFERS>.
#define BARACUDA_STAMP_ISA_LAUNCH(PROBLEM, BUFFERS)                                         \
  namespace BARACUDA_CPU_ISA_NAMESPACE {                                                    \
  Status launch(const PROBLEM& problem, const BUFFERS& buffers, void* workspace) {          \
    return run(problem, buffers, workspace);                                                \
  }                                                                                         \
  }

#if defined(BARACUDA_CPU_ISA_IS_PORTABLE) && defined(__x86_64__)
#define BARACUDA_PROVIDE_LAUNCH(PROBLEM, BUFFERS)                                           \
  BARACUDA_STAMP_ISA_LAUNCH(PROBLEM, BUFFERS)                                               \
  namespace avx2 {                                                                          \
  Status launch(const PROBLEM&, const BUFFERS&, void*);                                     \
  }                                                                                         \
  namespace avx512 {                                                                        \
  Status launch(const PROBLEM&, const BUFFERS&, void*);                                     \
  }                                                                                         \
  template <>                                                                               \
  Status launch<BUFFERS>(const PROBLEM& problem, const BUFFERS& buffers, void* workspace, Stream) { \
    using Function = Status(const PROBLEM&, const BUFFERS&, void*);                         \
    return select_isa<Function>(portable::launch, avx2::launch, avx512::launch)(problem, buffers, workspace); \
  }
#elif defined(BARACUDA_CPU_ISA_IS_PORTABLE)
#define BARACUDA_PROVIDE_LAUNCH(PROBLEM, BUFFERS)                                           \
  BARACUDA_STAMP_ISA_LAUNCH(PROBLEM, BUFFERS)                                               \
  template <>                                                                               \
  Status launch<BUFFERS>(const PROBLEM& problem, const BUFFERS& buffers, void* workspace, Stream) { \
    return portable::launch(problem, buffers, workspace);                                   \
  }
#else
#define BARACUDA_PROVIDE_LAUNCH(PROBLEM, BUFFERS) BARACUDA_STAMP_ISA_LAUNCH(PROBLEM, BUFFERS)
#endif
