# SPDX-License-Identifier: Apache-2.0
# The libraries that the Python package alone uses, one for each framework that calls native code. They call both kernel
# libraries by their functions' addresses and are linked with neither, nor with the framework.

set(BARACUDA_PYTHON_TARGETS)

# Adds the library of native/<folder>, which exports what the folder's exports.map names.
function(baracuda_python_library target folder output_name)
  add_library(${target} SHARED ${ARGN})
  target_include_directories(${target} PRIVATE include native)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:${BARACUDA_CXX_FLAGS}>)
  set(exports ${PROJECT_SOURCE_DIR}/native/${folder}/exports.map)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output_name} LINK_DEPENDS ${exports})
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE
    -Wl,-Bsymbolic -Wl,--version-script=${exports} -Wl,--no-undefined -Wl,-z,noexecstack)
  install(TARGETS ${target} LIBRARY DESTINATION pybaracuda/lib
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
    COMPONENT pybaracuda EXCLUDE_FROM_ALL)
  set(BARACUDA_PYTHON_TARGETS ${BARACUDA_PYTHON_TARGETS} ${target} PARENT_SCOPE)
endfunction()

# PyTorch's kernels, with the small steps around ours that have no function of the C ABI.
baracuda_python_library(torch_kernels pytorch baracuda_torch
  native/pytorch/bridge.cc
  native/pytorch/operators.cc
  native/pytorch/rows.cc
  native/pytorch/shim.cc
  native/pytorch/steps_host.cc
  native/pytorch/tensor.cc)
if(BARACUDA_WITH_CUDA)
  target_sources(torch_kernels PRIVATE native/pytorch/steps_cuda.cu)
  baracuda_cuda_options(torch_kernels)
else()
  target_sources(torch_kernels PRIVATE native/pytorch/steps_without_cuda.cc)
endif()

# XLA's custom calls.
baracuda_python_library(xla_handlers xla baracuda_xla native/xla/handler.cc)
target_compile_options(xla_handlers PRIVATE -fno-exceptions -fno-rtti)
