# SPDX-License-Identifier: Apache-2.0
# Compiles the CPU kernel files once per instruction set; run time chooses (native/core/cpu_isa.cc).

if(NOT BARACUDA_AVX512 MATCHES "^(ON|QUICK)$")
  message(FATAL_ERROR "BARACUDA_AVX512 is '${BARACUDA_AVX512}'; wanted ON or QUICK")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(BARACUDA_CPU_ISAS portable avx2 avx512)
else()
  set(BARACUDA_CPU_ISAS portable)
endif()
set(BARACUDA_ISA_FLAGS_portable)
set(BARACUDA_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(BARACUDA_ISA_FLAGS_avx512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
if(BARACUDA_ONE_ISA)
  if(NOT BARACUDA_ONE_ISA IN_LIST BARACUDA_CPU_ISAS)
    message(FATAL_ERROR "BARACUDA_ONE_ISA is '${BARACUDA_ONE_ISA}'; wanted one of ${BARACUDA_CPU_ISAS}")
  endif()
  # They take the portable ones' place, which the library runs without asking what the processor can.
  set(BARACUDA_ISA_FLAGS_portable ${BARACUDA_ISA_FLAGS_${BARACUDA_ONE_ISA}})
  set(BARACUDA_CPU_ISAS portable)
  add_compile_definitions(BARACUDA_ONE_ISA)
endif()

# Optimised code with a sanitizer's checks takes minutes a file to compile, and the checks find no more in it. Where
# there is better code for nearly every processor, half of the time to compile and half of the size are worth more in
# the portable one.
foreach(isa IN LISTS BARACUDA_CPU_ISAS)
  set(BARACUDA_KERNEL_OPTIMISATION_${isa} -O3)
  if(BARACUDA_SANITIZE)
    set(BARACUDA_KERNEL_OPTIMISATION_${isa} -O0)
  elseif(isa STREQUAL "avx512" AND BARACUDA_AVX512 STREQUAL "QUICK")
    # The least that leaves no function out of line which another instruction set's code could call.
    set(BARACUDA_KERNEL_OPTIMISATION_${isa} -O1)
  elseif(isa STREQUAL "portable" AND "avx2" IN_LIST BARACUDA_CPU_ISAS)
    set(BARACUDA_KERNEL_OPTIMISATION_${isa} -O2)
  endif()
endforeach()

function(baracuda_add_cpu_kernels target)
  foreach(isa IN LISTS BARACUDA_CPU_ISAS)
    set(objects ${target}_${isa})
    add_library(${objects} OBJECT ${ARGN})
    target_include_directories(${objects} PRIVATE include native)
    target_compile_options(${objects} PRIVATE
      ${BARACUDA_CXX_FLAGS} ${BARACUDA_KERNEL_OPTIMISATION_${isa}} ${BARACUDA_ISA_FLAGS_${isa}})
    if(NOT BARACUDA_SANITIZE)
      target_compile_options(${objects} PRIVATE ${BARACUDA_STACK_FLAGS})
    endif()
    target_compile_definitions(${objects} PRIVATE BARACUDA_CPU_ISA_NAMESPACE=${isa})
    if(isa STREQUAL "portable")
      target_compile_definitions(${objects} PRIVATE BARACUDA_CPU_ISA_IS_PORTABLE)
    endif()
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()
