# SPDX-License-Identifier: Apache-2.0
# isthmus_module(NAME SOURCES ... DEPENDS ... [LINKS ...] [PRIVATE_LINKS ...])
#   [APART] [LIGHT] [HOT ...]
#   One static library isthmus_NAME from the current folder. Headers are included as "NAME/file.h".
#   A module sees only its own headers, include/isthmus, and those of the modules in DEPENDS: each
#   module's folder is reached through a link in an include root of its own.
#   LIGHT: no loop over parameters of the module runs within a step, so Release compiles it with -O1, which takes a
#   third less time.
#   HOT: the sources of a LIGHT module that do loop over parameters or bytes; Release compiles them with -O3, apart.
#   With ISTHMUS_UNITY a module's sources are compiled several at a time, as one translation unit. Sources with compile
#   options of their own stay apart, and so do those with SKIP_UNITY_BUILD_INCLUSION and all of a module with APART.
#   Names of file-local helpers must differ within a module. Headers must not rely on what another source includes:
#   a build with ISTHMUS_UNITY=OFF checks that.
# Sources that include nlohmann/json come first, so that few translation units parse it.
include(IsthmusTest)

# Whoever compiles once wants few translation units; whoever changes one file wants small ones.
set(unity OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(unity ON)
endif()
option(ISTHMUS_UNITY "Compile several sources of a module as one (default: ON in Release)" ${unity})
set(ISTHMUS_UNITY_SIZE 12 CACHE STRING "Sources of a module that ISTHMUS_UNITY compiles as one")
set(ISTHMUS_UNITY_TESTS 12 CACHE STRING "Files of test cases that ISTHMUS_UNITY compiles as one")

set(ISTHMUS_HEADER_ONLY isthmus_random123 isthmus_toml_headers spdlog::spdlog_header_only nlohmann_json::nlohmann_json CLI11::CLI11 Boost::headers)

# isthmus_json_first(SOURCES): reorders the list of that name.
function(isthmus_json_first list)
  set(with "")
  set(without "")
  foreach(source IN LISTS ${list})
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    set(includes "")
    if(EXISTS "${path}")  # else it is made by the build
      file(STRINGS "${path}" includes REGEX "^#include .*(nlohmann/json|/json_values|hf_config_reader)\\.h")
    endif()
    if(includes)
      list(APPEND with "${source}")
    else()
      list(APPEND without "${source}")
    endif()
  endforeach()
  set(${list} ${with} ${without} PARENT_SCOPE)
endfunction()

function(isthmus_module name)
  cmake_parse_arguments(ARG "APART;LIGHT" "" "SOURCES;HOT;DEPENDS;LINKS;PRIVATE_LINKS" ${ARGN})
  isthmus_json_first(ARG_SOURCES)
  set(root "${CMAKE_BINARY_DIR}/include_roots/${name}")
  file(MAKE_DIRECTORY "${root}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${root}/${name}" SYMBOLIC)
  add_library(isthmus_${name} STATIC ${ARG_SOURCES} ${ARG_HOT})
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
  if(ARG_LIGHT)
    target_compile_options(isthmus_${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
    set_source_files_properties(${ARG_HOT} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
  endif()
  isthmus_precompiled(isthmus_${name})
  if(ISTHMUS_UNITY AND NOT ARG_APART)
    set_target_properties(isthmus_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${ISTHMUS_UNITY_SIZE})
  endif()
  set_property(GLOBAL APPEND PROPERTY ISTHMUS_MODULES isthmus_${name})
  set(links ${ARG_PRIVATE_LINKS})  # what the installed library asks of its users: cmake/IsthmusInstall.cmake
  list(REMOVE_ITEM links ${ISTHMUS_HEADER_ONLY})
  set_target_properties(isthmus_${name} PROPERTIES
    ISTHMUS_DEPENDS "${ARG_DEPENDS}" ISTHMUS_LINKS "${ARG_LINKS}" ISTHMUS_PRIVATE_LINKS "${links}")
endfunction()

# isthmus_optional_part(MODULE HAVE SOURCES files... STUB files... [LINKS libraries...])
#   Sources of a module that need a package which may be absent: the module takes SOURCES and links LINKS where the
#   variable HAVE is true, else it takes STUB, which defines the same functions. The installed library always has STUB.
function(isthmus_optional_part name have)
  cmake_parse_arguments(ARG "" "" "SOURCES;STUB;LINKS" ${ARGN})
  set(module isthmus_${name})
  if(NOT ${have})
    target_sources(${module} PRIVATE ${ARG_STUB})
    return()
  endif()
  target_sources(${module} PRIVATE ${ARG_SOURCES})
  target_link_libraries(${module} PRIVATE ${ARG_LINKS})
  # Objects of their own: the installed library leaves them out, and a test may replace them one by one.
  set_source_files_properties(${ARG_SOURCES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  list(TRANSFORM ARG_STUB PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set_property(TARGET ${module} APPEND PROPERTY ISTHMUS_LEFT_OUT ${ARG_SOURCES})
  set_property(TARGET ${module} APPEND PROPERTY ISTHMUS_STUBS ${ARG_STUB})
endfunction()
