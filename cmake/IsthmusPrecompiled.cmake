# SPDX-License-Identifier: Apache-2.0
# Precompiled headers. One set of headers is compiled once and shared by all targets of a kind: the product's
# libraries and fuzz targets, the tests, and the tests with compile options of their own folder.
#
# isthmus_precompiled(TARGET [TESTS])
#   TARGET's C++ sources start with the shared headers: those of the product, or with TESTS also gtest and gmock.
#   GCC and clang accept a precompiled header only under the flags it was made with, but for the level of
#   optimization. A target with other flags in code generation must not call this function; a source file with other
#   COMPILE_OPTIONS than a level of optimization needs the property SKIP_PRECOMPILE_HEADERS.
#
# Headers and sources still include all that they use: a build with -DISTHMUS_PCH=OFF checks that.
option(ISTHMUS_PCH "Precompile the headers that most sources include" ON)
if(ISTHMUS_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # With std::string precompiled GCC 12 sees impossible sizes in "text" + string and string.insert, as it sees
  # impossible overlaps (GCC PR 105651). A build without precompiled headers keeps these warnings.
  foreach(flags isthmus_flags isthmus_test_flags)
    target_compile_options(${flags} INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds -Wno-stringop-overflow>)
  endforeach()
endif()

# The headers that pay: each is included by many sources and costs more to parse than to load. nlohmann/json.hpp
# is not among them, since 26 sources of 600 include it and all would load it (0.5 s each).
set(ISTHMUS_PRECOMPILED_HEADERS
  <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstring>
  <deque> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span>
  <string> <string_view> <thread> <tuple> <utility> <vector>
  <fmt/format.h> <fmt/ranges.h>
  <isthmus/expected.h> <isthmus/types.h>)

# isthmus_precompiled_headers(NAME FLAGS library LINKS libraries... HEADERS headers...): the target that compiles the
# headers, under FLAGS and the compile options of the current folder.
function(isthmus_precompiled_headers name)
  cmake_parse_arguments(ARG "" "FLAGS" "LINKS;HEADERS" ${ARGN})
  set(anchor "${PROJECT_BINARY_DIR}/precompiled/${name}.cpp")
  if(NOT EXISTS "${anchor}")
    file(WRITE "${anchor}" "// Compiled for its precompiled headers alone.\n")
  endif()
  add_library(${name} OBJECT "${anchor}")
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${name} PRIVATE ${ARG_FLAGS} ${ARG_LINKS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  # ccache compares preprocessed text, in which a comment counts for nothing, but GCC takes a header for the one that
  # it has precompiled only while the two have the same bytes. So ccache compares the bytes of our headers as well.
  if(ISTHMUS_CCACHE AND CMAKE_CXX_COMPILER_LAUNCHER)
    set(own "${PROJECT_SOURCE_DIR}/include/isthmus/expected.h:${PROJECT_SOURCE_DIR}/include/isthmus/types.h")
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER
      "env;CCACHE_EXTRAFILES=${own};${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()

function(isthmus_precompiled target)
  if(NOT ISTHMUS_PCH)
    return()
  endif()
  cmake_parse_arguments(ARG "TESTS" "" "" ${ARGN})
  set(headers isthmus_precompiled_product)
  if(ARG_TESTS)
    get_directory_property(options COMPILE_OPTIONS)
    string(MAKE_C_IDENTIFIER "${options}" suffix)
    set(headers isthmus_precompiled_tests${suffix})
  endif()
  if(TARGET ${headers})
  elseif(ARG_TESTS)
    isthmus_precompiled_headers(${headers} FLAGS isthmus_test_flags LINKS tl::expected fmt::fmt GTest::gmock GTest::gtest
      HEADERS ${ISTHMUS_PRECOMPILED_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
  else()
    isthmus_precompiled_headers(${headers} FLAGS isthmus_flags LINKS tl::expected fmt::fmt
      HEADERS ${ISTHMUS_PRECOMPILED_HEADERS})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")  # -fPIC, as libraries and the headers are compiled, in the place of -fPIE
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()
