# SPDX-License-Identifier: Apache-2.0
# Two installations: the C and C++ one (default components) and the Python package's (component pybaracuda).

set(BARACUDA_TARGETS kernels_cpu)
if(BARACUDA_WITH_CUDA)
  list(APPEND BARACUDA_TARGETS kernels)
endif()

install(FILES include/baracuda_kernels.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(TARGETS ${BARACUDA_TARGETS} EXPORT baracuda_kernels_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(EXPORT baracuda_kernels_targets NAMESPACE baracuda::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/baracuda_kernels COMPONENT development)

include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/baracuda_kernelsConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
configure_package_config_file(cmake/baracuda_kernelsConfig.cmake.in
  ${PROJECT_BINARY_DIR}/baracuda_kernelsConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/baracuda_kernels)
install(FILES ${PROJECT_BINARY_DIR}/baracuda_kernelsConfig.cmake
  ${PROJECT_BINARY_DIR}/baracuda_kernelsConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/baracuda_kernels COMPONENT development)

# From the pkg-config files to the prefix, so that an installed tree can be moved.
file(RELATIVE_PATH BARACUDA_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
foreach(target IN LISTS BARACUDA_TARGETS)
  get_target_property(BARACUDA_PC_NAME ${target} OUTPUT_NAME)
  configure_file(cmake/baracuda_kernels.pc.in ${PROJECT_BINARY_DIR}/${BARACUDA_PC_NAME}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${BARACUDA_PC_NAME}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT development)
  # The package loads by path: one plain file each, no version links.
  install(FILES $<TARGET_FILE:${target}> DESTINATION pybaracuda/lib RENAME lib${BARACUDA_PC_NAME}.so
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
    COMPONENT pybaracuda EXCLUDE_FROM_ALL)
endforeach()
install(FILES include/baracuda_kernels.h DESTINATION pybaracuda/include COMPONENT pybaracuda EXCLUDE_FROM_ALL)
