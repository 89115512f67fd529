# SPDX-License-Identifier: Apache-2.0
# Two installations: the C and C++ one (default components) and the Python package's (component pybaracuda).

set(BARACUDA_TARGETS kernels_cpu)
if(BARACUDA_WITH_CUDA)
  list(APPEND BARACUDA_TARGETS kernels)
endif()

include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/baracuda_kernelsConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)

# Installs libraries, header and CMake package to folders below the prefix. All paths in the package are relative to its
# own files, so that an installed tree can be moved. RUNTIME and DEVELOPMENT: the arguments that name the components.
function(baracuda_install export)
  cmake_parse_arguments(PARSE_ARGV 1 to "" "LIBDIR;INCLUDEDIR" "RUNTIME;DEVELOPMENT")
  set(package ${to_LIBDIR}/cmake/baracuda_kernels)
  install(TARGETS ${BARACUDA_TARGETS} EXPORT ${export} LIBRARY DESTINATION ${to_LIBDIR}
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
    ${to_RUNTIME} INCLUDES DESTINATION ${to_INCLUDEDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/include/baracuda_kernels.h DESTINATION ${to_INCLUDEDIR} ${to_DEVELOPMENT})
  install(EXPORT ${export} FILE baracuda_kernels_targets.cmake NAMESPACE baracuda:: DESTINATION ${package}
    ${to_DEVELOPMENT})
  set(config ${PROJECT_BINARY_DIR}/${export}/baracuda_kernelsConfig.cmake)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/baracuda_kernelsConfig.cmake.in ${config}
    INSTALL_DESTINATION ${package})
  install(FILES ${config} ${PROJECT_BINARY_DIR}/baracuda_kernelsConfigVersion.cmake DESTINATION ${package}
    ${to_DEVELOPMENT})
endfunction()

baracuda_install(baracuda_kernels_targets LIBDIR ${CMAKE_INSTALL_LIBDIR} INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR}
  RUNTIME COMPONENT runtime DEVELOPMENT COMPONENT development)
baracuda_install(pybaracuda_targets LIBDIR pybaracuda/lib INCLUDEDIR pybaracuda/include
  RUNTIME COMPONENT pybaracuda EXCLUDE_FROM_ALL DEVELOPMENT COMPONENT pybaracuda EXCLUDE_FROM_ALL)

# Everything that the Python package's component installs, for a build without the tests.
add_custom_target(python_package DEPENDS ${BARACUDA_TARGETS} ${BARACUDA_PYTHON_TARGETS})

# From the pkg-config files to the prefix, so that an installed tree can be moved.
file(RELATIVE_PATH BARACUDA_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
foreach(target IN LISTS BARACUDA_TARGETS)
  get_target_property(BARACUDA_PC_NAME ${target} OUTPUT_NAME)
  configure_file(cmake/baracuda_kernels.pc.in ${PROJECT_BINARY_DIR}/${BARACUDA_PC_NAME}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${BARACUDA_PC_NAME}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT development)
endforeach()
