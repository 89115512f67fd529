# SPDX-License-Identifier: Apache-2.0
# Installs BUILD to a scratch prefix and moves that elsewhere, then builds and runs a program against it twice: with
# CMake's find_package, and with the flags of the pkg-config file.
set(prefix ${SCRATCH}/prefix)
file(REMOVE_RECURSE ${SCRATCH})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/made
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${SCRATCH}/made ${prefix})

# One plain file a library, found by its own SONAME.
set(wanted libbaracuda_kernels_cpu.so)
if(WITH_CUDA)
  set(wanted libbaracuda_kernels.so libbaracuda_kernels_cpu.so)
endif()
file(GLOB libraries RELATIVE ${prefix}/${LIBDIR} ${prefix}/${LIBDIR}/*.so*)
if(NOT libraries STREQUAL wanted)
  message(FATAL_ERROR "installed are ${libraries}, wanted ${wanted}")
endif()
foreach(library IN LISTS libraries)
  execute_process(COMMAND ${READELF} -d -W ${prefix}/${LIBDIR}/${library}
    OUTPUT_VARIABLE table COMMAND_ERROR_IS_FATAL ANY)
  if(IS_SYMLINK ${prefix}/${LIBDIR}/${library} OR NOT table MATCHES "SONAME[^\n]*\\[${library}\\]")
    message(FATAL_ERROR "${library} is a link, or another SONAME is in:\n${table}")
  endif()
endforeach()

execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/consumer -B ${SCRATCH}/build -G ${GENERATOR}
  -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM} -DCMAKE_C_COMPILER=${C_COMPILER} -DCMAKE_C_FLAGS=${C_FLAGS}
  -DCMAKE_PREFIX_PATH=${prefix} -DWITH_CUDA=${WITH_CUDA} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${SCRATCH}/build OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${SCRATCH}/build/consumer OUTPUT_VARIABLE by_package COMMAND_ERROR_IS_FATAL ANY)

set(folder ${prefix}/${LIBDIR}/pkgconfig)
find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  set(ENV{PKG_CONFIG_PATH} ${folder})
  execute_process(COMMAND ${PKG_CONFIG} --cflags --libs baracuda_kernels_cpu
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
else()
  # Without the tool the file is read as it would: its two lines, with their variables put in.
  file(READ ${folder}/baracuda_kernels_cpu.pc text)
  string(REGEX MATCH "\nCflags: ([^\n]*)" unused "${text}")
  set(flags "${CMAKE_MATCH_1}")
  string(REGEX MATCH "\nLibs: ([^\n]*)" unused "${text}")
  string(APPEND flags " ${CMAKE_MATCH_1}")
  foreach(variable IN ITEMS includedir libdir prefix)
    string(REGEX MATCH "\n${variable}=([^\n]*)" unused "\n${text}")
    string(REPLACE "\${${variable}}" "${CMAKE_MATCH_1}" flags "${flags}")
  endforeach()
  string(REPLACE "\${pcfiledir}" "${folder}" flags "${flags}")
endif()
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND ${C_COMPILER} -std=c99 -pedantic -Wall -Werror ${C_FLAGS} ${SOURCE}/example.c
  -o ${SCRATCH}/by_pkg_config ${flags} -Wl,-rpath,${prefix}/${LIBDIR} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${SCRATCH}/by_pkg_config OUTPUT_VARIABLE by_pkg_config COMMAND_ERROR_IS_FATAL ANY)

foreach(output IN ITEMS "${by_package}" "${by_pkg_config}")
  if(NOT output STREQUAL "0 10 20\n")
    message(FATAL_ERROR "a consumer printed: ${output}")
  endif()
endforeach()
