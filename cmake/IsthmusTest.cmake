# SPDX-License-Identifier: Apache-2.0
# A test is a ctest entry; the tests of one module and weight share one program.
#
# isthmus_test(NAME SOURCES files... [SUPPORT files...] [OBJECTS library] [PROGRAM word] [LABELS words...] [NIGHTLY]
#              [DEPENDS modules...] [LINKS libraries...] [ENVIRONMENT VAR=value...] [TIMEOUT seconds] [RANKS n])
#   NAME is the ctest entry. The entry runs the cases that SOURCES define, and no others (tests/test_main.cpp).
#   SOURCES and SUPPORT, which defines no case, are compiled into the program <module>_<PROGRAM>, once however
#   many entries name them. PROGRAM is by default the weight. With OBJECTS the SOURCES are compiled into an object
#   library, which the programs of all entries with that library link.
#   LABELS holds the weight, `quick` or `full` (default), or `gpu`, and further labels. A quick test is a full one too.
#   RANKS starts the program as an MPI job of n processes.
#   <build>/tests/entries.txt lists all entries of test programs, built or not: name, labels, program, files.
#   NIGHTLY adds the entry NAME_nightly: the same cases with more seeds and larger sizes (tests/test_weight.h).
#
# With ISTHMUS_UNITY several files of cases are compiled as one. Their helpers may have the same names: a file of cases
# opens `namespace isthmus::this_file`, and such a build defines this_file as another name for each file.
#
# The target isthmus_quick builds the programs of all quick tests.
# Tests of the modules below, without mpi and gpu, also get the label `sanitized` and belong to the target
# isthmus_sanitized: what scripts/test builds and runs under the sanitizers. Tests of the programs <module>_threads
# and tests with the label `threads`, where threads meet, belong to isthmus_threads: what it runs under the thread
# sanitizer.
# Entries that take long begin first, so that none of them runs alone at the end. How long: the seconds in the table of
# tests/README.md.
file(READ "${PROJECT_SOURCE_DIR}/tests/README.md" rows)
string(REPLACE ";" "," rows "${rows}")
string(REGEX MATCHALL "\n[|] `[a-z0-9_]+` [^\n]*[|] [0-9.]+ [|]" rows "${rows}")
foreach(row IN LISTS rows)
  string(REGEX MATCH "`([a-z0-9_]+)`.* ([0-9.]+) [|]$" row "${row}")
  set(ISTHMUS_SECONDS_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
endforeach()

set(ISTHMUS_SANITIZED_MODULES core config text data quant transport sim outer)
add_custom_target(isthmus_quick)
add_custom_target(isthmus_sanitized)
add_custom_target(isthmus_threads)

# isthmus_test_target(TARGET KIND): the program (PROGRAM) or object library (OBJECTS), made at its first use.
function(isthmus_test_target target kind)
  if(TARGET ${target})
    return()
  endif()
  if(kind STREQUAL "PROGRAM")
    add_executable(${target})
    target_link_libraries(${target} PRIVATE isthmus_test_main)
  else()
    add_library(${target} OBJECT)
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_BINARY_DIR}/tests/generated)
  target_link_libraries(${target} PRIVATE isthmus_test_flags GTest::gmock GTest::gtest)
  isthmus_precompiled(${target} TESTS)
endfunction()

function(isthmus_test name)
  cmake_parse_arguments(ARG "NIGHTLY" "TIMEOUT;PROGRAM;OBJECTS;RANKS" "SOURCES;SUPPORT;DEPENDS;LINKS;LABELS;ENVIRONMENT" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "isthmus_test(${name}): unknown words: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REGEX MATCH "^[^/]+" module "${folder}")
  string(REPLACE "cuda" "device" prefix "${module}")
  if("quick" IN_LIST ARG_LABELS)
    set(weight quick)
    list(APPEND ARG_LABELS full)
  elseif("gpu" IN_LIST ARG_LABELS)
    set(weight gpu)
    list(APPEND ARG_ENVIRONMENT ISTHMUS_NIGHTLY=1)  # a device is fast
  else()
    set(weight full)
    list(APPEND ARG_LABELS full)
  endif()
  if(NOT ARG_PROGRAM)
    set(ARG_PROGRAM ${weight})
  endif()
  set(program ${prefix}_${ARG_PROGRAM})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(ISTHMUS_SANITIZE)  # many times slower, and other work may share the cores
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()

  list(TRANSFORM ARG_DEPENDS PREPEND isthmus_)
  isthmus_test_target(${program} PROGRAM)
  target_sources(${program} PRIVATE ${ARG_SUPPORT})
  set_source_files_properties(${ARG_SUPPORT} TARGET_DIRECTORY ${program} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${program} PRIVATE ${ARG_DEPENDS} ${ARG_LINKS})
  set(of_cases ${program})
  if(ARG_OBJECTS)
    set(of_cases ${ARG_OBJECTS})
    isthmus_test_target(${ARG_OBJECTS} OBJECTS)
    target_sources(${ARG_OBJECTS} PRIVATE ${ARG_SOURCES})
    set(headers ${ARG_DEPENDS})  # of the libraries; a program decides which device it links
    list(REMOVE_ITEM headers isthmus_emulated)
    target_link_libraries(${ARG_OBJECTS} PRIVATE ${headers} ${ARG_LINKS})
    target_link_libraries(${program} PRIVATE ${ARG_OBJECTS})
  else()
    target_sources(${program} PRIVATE ${ARG_SOURCES})
  endif()
  if(ISTHMUS_UNITY)
    set_target_properties(${of_cases} PROPERTIES UNITY_BUILD ON UNITY_BUILD_UNIQUE_ID this_file
      UNITY_BUILD_BATCH_SIZE ${ISTHMUS_UNITY_TESTS})
  endif()

  if("quick" IN_LIST ARG_LABELS)
    add_dependencies(isthmus_quick ${program})
  endif()
  if(module IN_LIST ISTHMUS_SANITIZED_MODULES AND NOT "gpu" IN_LIST ARG_LABELS AND NOT "mpi" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS sanitized)
    add_dependencies(isthmus_sanitized ${program})
  endif()
  if(ARG_PROGRAM STREQUAL "threads" OR "threads" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS threads)
    list(REMOVE_DUPLICATES ARG_LABELS)
    add_dependencies(isthmus_threads ${program})
  endif()
  set(cases "")
  foreach(file ${ARG_SOURCES})
    cmake_path(ABSOLUTE_PATH file NORMALIZE)
    file(RELATIVE_PATH file "${PROJECT_SOURCE_DIR}/tests" "${file}")
    list(APPEND cases "${file}")
  endforeach()
  list(JOIN cases "," cases)
  list(JOIN ARG_LABELS "," labels)
  file(APPEND "${PROJECT_BINARY_DIR}/tests/entries.txt" "${name} ${labels} ${program} --sources=${cases}\n")
  set(command ${program} --sources=${cases})
  if(ARG_RANKS)
    set(command ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ARG_RANKS} $<TARGET_FILE:${program}> --sources=${cases})
  endif()
  isthmus_test_entry(${name} COMMAND ${command} LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT ${ARG_ENVIRONMENT})
  if(ARG_RANKS)
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
  if("gpu" IN_LIST ARG_LABELS)  # without a device its cases skip by name, and so does the test
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  endif()
  if(ARG_NIGHTLY)
    isthmus_test_entry(${name}_nightly COMMAND ${command} LABELS nightly TIMEOUT 3600
      ENVIRONMENT ${ARG_ENVIRONMENT} ISTHMUS_NIGHTLY=1)
  endif()
endfunction()

# isthmus_test_entry(NAME COMMAND words... LABELS words... TIMEOUT seconds [ENVIRONMENT VAR=value...])
function(isthmus_test_entry name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${ARG_ENVIRONMENT}")
  if(ISTHMUS_SECONDS_${name})
    set_tests_properties(${name} PROPERTIES COST ${ISTHMUS_SECONDS_${name}})
  endif()
endfunction()

# isthmus_script_test(NAME COMMAND words... [LABELS words...] [PROCESSORS n] [TIMEOUT seconds] [NIGHTLY words...]
#                     [ENVIRONMENT VAR=value...])
#   A full test that is a script or the program itself; exit code 77 says that something it needs is absent.
#   NIGHTLY gives words that the entry NAME_nightly adds to the command.
function(isthmus_script_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PROCESSORS" "COMMAND;LABELS;ENVIRONMENT;NIGHTLY" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  list(APPEND ARG_ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  if(NOT "gpu" IN_LIST ARG_LABELS AND NOT "torch" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS full)
  endif()
  isthmus_test_entry(${name} COMMAND ${ARG_COMMAND} LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT ${ARG_ENVIRONMENT})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 PROCESSORS ${ARG_PROCESSORS})
  if(ARG_NIGHTLY)
    isthmus_test_entry(${name}_nightly COMMAND ${ARG_COMMAND} ${ARG_NIGHTLY} LABELS nightly TIMEOUT 3600
      ENVIRONMENT ${ARG_ENVIRONMENT} ISTHMUS_NIGHTLY=1)
    set_tests_properties(${name}_nightly PROPERTIES SKIP_RETURN_CODE 77 PROCESSORS ${ARG_PROCESSORS})
  endif()
endfunction()
