# SPDX-License-Identifier: Apache-2.0
# For builds by pip: when no nvcc is on the machine, takes the one that PyPI's cuda-toolkit put beside the running
# Python.

if(BARACUDA_CUDA STREQUAL "ON" AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND PYTHON_EXECUTABLE)
  find_program(BARACUDA_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin)
  if(NOT BARACUDA_NVCC)
    execute_process(
      COMMAND ${PYTHON_EXECUTABLE} -c "import importlib.util
spec = importlib.util.find_spec('nvidia')
print(*(spec.submodule_search_locations if spec else []), sep=chr(59), end='')"
      OUTPUT_VARIABLE places ERROR_QUIET)
    foreach(place IN LISTS places)
      if(EXISTS "${place}/cu13/bin/nvcc")
        set(CMAKE_CUDA_COMPILER "${place}/cu13/bin/nvcc" CACHE FILEPATH "nvcc from PyPI")
        # The wheels keep libcudart_static.a in lib, and their nvcc.profile names lib64.
        set(CMAKE_CUDA_FLAGS "-L${place}/cu13/lib" CACHE STRING "Flags for nvcc")
      endif()
    endforeach()
  endif()
endif()
