# SPDX-License-Identifier: Apache-2.0
# Fails if an object file listed in OBJECTS defines a weak function. Weak data (nm's V, such as the compiler's own
# DW.ref.__gxx_personality_v0) holds no instructions. NM is the tool.
file(STRINGS ${OBJECTS} objects)
if(NOT objects)
  message(FATAL_ERROR "${OBJECTS} names no object")
endif()
foreach(object IN LISTS objects)
  execute_process(COMMAND ${NM} --defined-only --demangle ${object}
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  # In a regular expression of CMake ^ is the text's beginning alone, so a line begins with its newline.
  string(REGEX MATCHALL "\n[0-9a-f]+ W [^\n]*" weak "\n${symbols}")
  if(weak)
    list(JOIN weak "" weak)
    message(FATAL_ERROR "${object} defines weak functions:${weak}")
  endif()
endforeach()
list(LENGTH objects count)
message(STATUS "${count} objects without weak functions")
