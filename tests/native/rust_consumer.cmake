# SPDX-License-Identifier: Apache-2.0
# Builds SOURCE with rustc against the CPU library in FOLDER and runs it.
find_program(RUSTC rustc HINTS $ENV{HOME}/.cargo/bin)
set(status 1)
if(RUSTC)
  # A toolchain manager's stub without a toolchain is no rustc either.
  execute_process(COMMAND ${RUSTC} --version RESULT_VARIABLE status OUTPUT_VARIABLE version ERROR_QUIET)
endif()
if(NOT status EQUAL 0)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "no rustc")
  return()
endif()
message(STATUS "${version}")
execute_process(COMMAND ${RUSTC} --edition 2021 -D warnings -L native=${FOLDER} -l dylib=baracuda_kernels_cpu
  -C link-arg=-Wl,-rpath,${FOLDER} -o ${SCRATCH}/consumer_rust ${SOURCE} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${SCRATCH}/consumer_rust OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output STREQUAL "ok\n")
  message(FATAL_ERROR "the program printed: ${output}")
endif()
