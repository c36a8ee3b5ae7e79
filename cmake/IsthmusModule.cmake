# SPDX-License-Identifier: Apache-2.0
# isthmus_module(NAME SOURCES ... DEPENDS ... [LINKS ...] [PRIVATE_LINKS ...])
#   One static library isthmus_NAME from the current folder. Headers are included as "NAME/file.h".
#   A module sees only its own headers, include/isthmus, and those of the modules in DEPENDS: each
#   module's folder is reached through a link in an include root of its own.
# isthmus_test(NAME SOURCES ... DEPENDS ... [LABELS ...] [TIMEOUT seconds])
function(isthmus_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINKS;PRIVATE_LINKS" ${ARGN})
  set(root "${CMAKE_BINARY_DIR}/include_roots/${name}")
  file(MAKE_DIRECTORY "${root}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${root}/${name}" SYMBOLIC)
  add_library(isthmus_${name} STATIC ${ARG_SOURCES})
  set_target_properties(isthmus_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(isthmus_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${root}>
    $<INSTALL_INTERFACE:include>)
  list(TRANSFORM ARG_DEPENDS PREPEND isthmus_)
  target_link_libraries(isthmus_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LINKS})
  target_link_libraries(isthmus_${name} PRIVATE $<BUILD_INTERFACE:isthmus_flags> ${ARG_PRIVATE_LINKS})
  set_property(GLOBAL APPEND PROPERTY ISTHMUS_MODULES isthmus_${name})
endfunction()

function(isthmus_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LINKS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  list(TRANSFORM ARG_DEPENDS PREPEND isthmus_)
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE isthmus_flags ${ARG_DEPENDS} ${ARG_LINKS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
