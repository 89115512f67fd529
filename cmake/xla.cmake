# SPDX-License-Identifier: Apache-2.0
# The library of XLA's custom calls (native/xla), which the Python package alone uses: it calls both kernel libraries by
# their addresses, and is linked with neither, nor with CUDA or XLA.

add_library(xla_handlers SHARED native/xla/handler.cc)
target_include_directories(xla_handlers PRIVATE include native)
target_compile_options(xla_handlers PRIVATE ${BARACUDA_CXX_FLAGS} -fno-exceptions -fno-rtti)
set_target_properties(xla_handlers PROPERTIES
  OUTPUT_NAME baracuda_xla
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/native/xla/exports.map)
target_link_libraries(xla_handlers PRIVATE ${CMAKE_DL_LIBS})
target_link_options(xla_handlers PRIVATE
  -Wl,-Bsymbolic -Wl,--version-script=${PROJECT_SOURCE_DIR}/native/xla/exports.map
  -Wl,--no-undefined -Wl,-z,noexecstack)
install(TARGETS xla_handlers LIBRARY DESTINATION pybaracuda/lib
  PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
  COMPONENT pybaracuda EXCLUDE_FROM_ALL)
