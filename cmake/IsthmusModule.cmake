# SPDX-License-Identifier: Apache-2.0
# isthmus_module(NAME SOURCES ... DEPENDS ... [LINKS ...] [PRIVATE_LINKS ...])
#   One static library isthmus_NAME from the current folder. Headers are included as "NAME/file.h".
#   A module sees only its own headers, include/isthmus, and those of the modules in DEPENDS: each
#   module's folder is reached through a link in an include root of its own.
# isthmus_test(NAME SOURCES ... DEPENDS ... [LABELS ...] [TIMEOUT seconds])
#   Tests of the modules below, neither slow nor gpu, also get the label "sanitized" and belong to the target
#   isthmus_sanitized: what scripts/test builds and runs under the sanitizers. Those named in
#   ISTHMUS_THREAD_TESTS, where threads meet, get the label "threads" and belong to isthmus_threads:
#   what it builds and runs under the thread sanitizer.
set(ISTHMUS_SANITIZED_MODULES core quant transport sim outer)
add_custom_target(isthmus_sanitized)
set(ISTHMUS_THREAD_TESTS thread_team_test transport_communicator_test transport_conformance_test
  transport_mixed_communicator_test transport_nccl_communicator_test transport_peer_exchange_test sim_world_test
  sim_run_simulated_test sim_network_test)
add_custom_target(isthmus_threads)

set(ISTHMUS_HEADER_ONLY isthmus_random123 nlohmann_json::nlohmann_json CLI11::CLI11 Boost::headers)

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
  target_link_libraries(isthmus_${name} PRIVATE $<BUILD_INTERFACE:isthmus_flags>)
  foreach(link ${ARG_PRIVATE_LINKS})
    if(link IN_LIST ISTHMUS_HEADER_ONLY)
      set(link $<BUILD_INTERFACE:${link}>)  # whoever links the installed library needs no such headers
    endif()
    target_link_libraries(isthmus_${name} PRIVATE ${link})
  endforeach()
  isthmus_precompiled(isthmus_${name})
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
  if(ISTHMUS_SANITIZE)  # many times slower, and other work may share the cores
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  list(TRANSFORM ARG_DEPENDS PREPEND isthmus_)
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE isthmus_flags ${ARG_DEPENDS} ${ARG_LINKS} GTest::gmock GTest::gtest_main)
  isthmus_precompiled(${name} TESTS)
  add_test(NAME ${name} COMMAND ${name})
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REGEX MATCH "^[^/]+" module "${folder}")
  if(module IN_LIST ISTHMUS_SANITIZED_MODULES AND NOT "slow" IN_LIST ARG_LABELS AND NOT "gpu" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS sanitized)
    add_dependencies(isthmus_sanitized ${name})
  endif()
  if(name IN_LIST ISTHMUS_THREAD_TESTS)
    list(APPEND ARG_LABELS threads)
    add_dependencies(isthmus_threads ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if("gpu" IN_LIST ARG_LABELS)  # without a device its cases skip by name, and so does the test
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  endif()
endfunction()
