# SPDX-License-Identifier: Apache-2.0
# Adds the sources of every family of operators: each folder of native/ops is one, and their layers are called alike.

# There is no list to keep: what the ABI table has and the build has not, or the other way round, fails to compile or to
# link. Every build looks whether there is a new folder.
file(GLOB families CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/native/ops ${PROJECT_SOURCE_DIR}/native/ops/*)

# Appends to `list` those of the remaining files that the family has; without any of them the configuration ends.
function(baracuda_family_sources list family)
  set(found)
  foreach(file IN LISTS ARGN)
    if(EXISTS ${PROJECT_SOURCE_DIR}/native/ops/${family}/${file})
      list(APPEND found native/ops/${family}/${file})
    endif()
  endforeach()
  if(NOT found)
    list(JOIN ARGN " or " wanted)
    message(FATAL_ERROR "The family ${family} lacks a source: add native/ops/${family}/${wanted}")
  endif()
  set(${list} ${${list}} ${found} PARENT_SCOPE)
endfunction()

foreach(family IN LISTS families)
  baracuda_family_sources(BARACUDA_SHARED_SOURCES ${family} abi.cc bags/abi.cc)
  baracuda_family_sources(BARACUDA_SHARED_SOURCES ${family} problem.cc levels.cc bags/problem.cc)
  baracuda_family_sources(BARACUDA_CPU_KERNELS ${family} cpu.cc cpu/dispatch.cc cpu/bags.cc)
  # One file, or several where kernels take minutes to compile.
  baracuda_family_sources(BARACUDA_CUDA_SOURCES ${family}
    cuda.cu cuda/dispatch.cu cuda/ruled.cu cuda/cubic.cu cuda/by_row.cu cuda/by_segment.cu
    cuda/bags.cu cuda/mode.cu)
endforeach()

# Ninja starts with what comes first. These kernels take the longest to compile, and none may be left alone at the end.
function(baracuda_compile_first list)
  list(TRANSFORM ARGN PREPEND native/ops/)
  list(REMOVE_ITEM ${list} ${ARGN})
  set(${list} ${ARGN} ${${list}} PARENT_SCOPE)
endfunction()
baracuda_compile_first(BARACUDA_CPU_KERNELS segment/cpu/dispatch.cc grid_sample/cpu/dispatch.cc)
baracuda_compile_first(BARACUDA_CUDA_SOURCES
  segment/cuda/by_segment.cu segment/cuda/by_row.cu scan/cuda/dispatch.cu segment/cuda/bags.cu
  grid_sample/cuda/ruled.cu)

# A call's checks and the choice of its kernels, once for every operator and type and without a loop that matters: -O3
# takes the compiler twice as long as -O1, for two or three nanoseconds of a call.
list(TRANSFORM families REPLACE "(.+)" "native/ops/\\1/abi.cc" OUTPUT_VARIABLE abi_sources)
set_source_files_properties(${abi_sources} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
