# SPDX-License-Identifier: Apache-2.0
# The library of PyTorch's kernels (native/pytorch), which the Python package alone uses: it calls both kernel libraries
# and the PyTorch that a process has loaded by their functions' addresses, and is linked with none of them.

add_library(torch_kernels SHARED
  native/pytorch/bridge.cc
  native/pytorch/operators.cc
  native/pytorch/rows.cc
  native/pytorch/shim.cc
  native/pytorch/steps_host.cc
  native/pytorch/tensor.cc)
target_include_directories(torch_kernels PRIVATE native)
target_compile_options(torch_kernels PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:${BARACUDA_CXX_FLAGS}>)
if(BARACUDA_WITH_CUDA)
  target_sources(torch_kernels PRIVATE native/pytorch/steps_cuda.cu)
  baracuda_cuda_options(torch_kernels)
else()
  target_sources(torch_kernels PRIVATE native/pytorch/steps_without_cuda.cc)
endif()
set_target_properties(torch_kernels PROPERTIES
  OUTPUT_NAME baracuda_torch
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/native/pytorch/exports.map)
target_link_libraries(torch_kernels PRIVATE ${CMAKE_DL_LIBS})
target_link_options(torch_kernels PRIVATE
  -Wl,-Bsymbolic -Wl,--version-script=${PROJECT_SOURCE_DIR}/native/pytorch/exports.map
  -Wl,--no-undefined -Wl,-z,noexecstack)
install(TARGETS torch_kernels LIBRARY DESTINATION pybaracuda/lib
  PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
  COMPONENT pybaracuda EXCLUDE_FROM_ALL)
