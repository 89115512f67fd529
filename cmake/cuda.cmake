# SPDX-License-Identifier: Apache-2.0
# Decides whether the CUDA library is built, for which architectures and with which flags.

if(NOT BARACUDA_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "BARACUDA_CUDA is '${BARACUDA_CUDA}'; wanted AUTO, ON or OFF")
endif()

set(BARACUDA_WITH_CUDA OFF)
if(NOT BARACUDA_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(BARACUDA_WITH_CUDA ON)
  elseif(BARACUDA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BARACUDA_CUDA=ON needs nvcc 13: put it on PATH, set CMAKE_CUDA_COMPILER, or "
                        "pip install 'cuda-toolkit[nvcc,cccl]==13.0.*'")
  else()
    message(STATUS "nvcc was not found: building the CPU library alone")
  endif()
endif()

if(BARACUDA_WITH_CUDA)
  # One architecture and its PTX by default; the release preset and wheels name the full list.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
endif()

set(BARACUDA_CUDA_SPEED_FLAGS --compress-mode=size)
if(BARACUDA_CUDA_UNOPTIMISED)
  # The file that takes longest compiles in two fifths of its time. With -Ofc=max it would take a quarter, but device
  # functions then stand apart from the kernels that call them, by whose names tools/check_ptx.py knows
  # compare-and-swaps. -O is for code of the host alone.
  set(BARACUDA_CUDA_SPEED_FLAGS --compress-mode=speed -Ofc=mid)
  string(REPLACE "-O3" "-O0" CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_RELEASE}")
endif()

function(baracuda_cuda_options target)
  # -fmad=false and the precise defaults keep the bits; they are spelled out so that no cache entry changes them. Split
  # compilation, because the segment family is one file of many kernels, for which the whole build would wait.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:
    -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr -Wno-deprecated-gpu-targets
    --split-compile=0 ${BARACUDA_CUDA_SPEED_FLAGS}
    -Xcompiler=-ffp-contract=off,-fno-gnu-unique,-Wall,-Wextra,-Wno-unknown-pragmas>)
  set_target_properties(${target} PROPERTIES CUDA_VISIBILITY_PRESET hidden)
endfunction()
