// SPDX-License-Identifier: Apache-2.0
// How a cpu.cc provides its launches: the file is compiled once per instruction set, each time into the namespace
// BARACUDA_CPU_ISA_NAMESPACE, and the portable copy also holds the choice between them.
#pragma once

#include "core/backend.h"
#include "core/cpu_interrupt.h"
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

#if defined(BARACUDA_CPU_ISA_IS_PORTABLE)
// The one place where an interrupted call ends.
template <typename Problem, typename Buffers>
Status launch_until_interrupted(Status (*launch)(const Problem&, const Buffers&, void*), const Problem& problem,
                                const Buffers& buffers, void* workspace) {
  begin_interruptible_call();
  try {
    return launch(problem, buffers, workspace);
  } catch (const Interrupted&) {
    return fail(Status::kInternal, "interrupted by the calling thread's check; the outputs are undefined");
  }
}
#endif

}  // namespace
}  // namespace baracuda

// BARACUDA_PROVIDE_LAUNCH(Problem, Buffers) stamps the launch of one type of buffers: run(problem, buffers, workspace)
// of the including file, as this instruction set's entry and, in the portable copy, as the library's launch<Buffers>.
#define BARACUDA_STAMP_ISA_LAUNCH(PROBLEM, ...)                                        \
  namespace BARACUDA_CPU_ISA_NAMESPACE {                                               \
  Status launch(const PROBLEM& problem, const __VA_ARGS__& buffers, void* workspace) { \
    return run(problem, buffers, workspace);                                           \
  }                                                                                    \
  }

#if defined(BARACUDA_CPU_ISA_IS_PORTABLE) && defined(__x86_64__) && !defined(BARACUDA_ONE_ISA)
#define BARACUDA_PROVIDE_LAUNCH(PROBLEM, ...)                                                                 \
  BARACUDA_STAMP_ISA_LAUNCH(PROBLEM, __VA_ARGS__)                                                             \
  namespace avx2 {                                                                                            \
  Status launch(const PROBLEM&, const __VA_ARGS__&, void*);                                                   \
  }                                                                                                           \
  namespace avx512 {                                                                                          \
  Status launch(const PROBLEM&, const __VA_ARGS__&, void*);                                                   \
  }                                                                                                           \
  template <>                                                                                                 \
  Status launch<__VA_ARGS__>(const PROBLEM& problem, const __VA_ARGS__& buffers, void* workspace, Stream) {   \
    using Function = Status(const PROBLEM&, const __VA_ARGS__&, void*);                                       \
    return launch_until_interrupted(select_isa<Function>(portable::launch, avx2::launch, avx512::launch),     \
                                    problem, buffers, workspace);                                             \
  }
#elif defined(BARACUDA_CPU_ISA_IS_PORTABLE)
#define BARACUDA_PROVIDE_LAUNCH(PROBLEM, ...)                                                               \
  BARACUDA_STAMP_ISA_LAUNCH(PROBLEM, __VA_ARGS__)                                                           \
  template <>                                                                                               \
  Status launch<__VA_ARGS__>(const PROBLEM& problem, const __VA_ARGS__& buffers, void* workspace, Stream) { \
    return launch_until_interrupted(portable::launch, problem, buffers, workspace);                         \
  }
#else
#define BARACUDA_PROVIDE_LAUNCH(PROBLEM, ...) BARACUDA_STAMP_ISA_LAUNCH(PROBLEM, __VA_ARGS__)
#endif

// BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, Buffers): bytes_of(problem, const Buffers*) of the including file as the
// library's workspace_size<Buffers>. The size is the same for every instruction set.
#if defined(BARACUDA_CPU_ISA_IS_PORTABLE)
#define BARACUDA_PROVIDE_WORKSPACE_SIZE(PROBLEM, ...)                   \
  template <>                                                           \
  size_t workspace_size<__VA_ARGS__>(const PROBLEM& problem) {          \
    return bytes_of(problem, static_cast<const __VA_ARGS__*>(nullptr)); \
  }
#else
#define BARACUDA_PROVIDE_WORKSPACE_SIZE(PROBLEM, ...)
#endif

// Both for a family that has a forward and a backward with scratch.
#define BARACUDA_PROVIDE_BOTH_DIRECTIONS(T)                   \
  BARACUDA_PROVIDE_LAUNCH(Problem, ForwardBuffers<T>)         \
  BARACUDA_PROVIDE_LAUNCH(Problem, BackwardBuffers<T>)        \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, ForwardBuffers<T>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, BackwardBuffers<T>)
