# SPDX-License-Identifier: Apache-2.0
# Every third-party package, found once; an error names the Debian package that provides it.
# The lists for `apt` are packages/*.txt.
find_package(Threads REQUIRED)
find_package(PkgConfig QUIET)
if(NOT PkgConfig_FOUND)
  message(FATAL_ERROR "pkg-config is missing: apt install pkg-config")
endif()

macro(isthmus_require_package name debian)
  find_package(${name} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} is missing: apt install ${debian}   (all packages: packages/*.txt, scripts/quickstart --check)")
  endif()
endmacro()

macro(isthmus_require_pkgconfig target module debian)
  pkg_check_modules(${target} QUIET IMPORTED_TARGET GLOBAL ${module})
  if(NOT ${target}_FOUND)
    message(FATAL_ERROR "${module} is missing: apt install ${debian}   (all packages: packages/*.txt, scripts/quickstart --check)")
  endif()
endmacro()

isthmus_require_package(tl-expected libexpected-dev)
isthmus_require_package(fmt libfmt-dev)
isthmus_require_package(spdlog libspdlog-dev)
isthmus_require_package(nlohmann_json nlohmann-json3-dev)
isthmus_require_package(tomlplusplus libtomlplusplus-dev)
# spdlog and toml++ are each included by one or two sources: their headers compiled there spare whoever links the library
# two packages.
include(IsthmusToml)
isthmus_require_package(CLI11 libcli11-dev)
isthmus_require_package(Boost libboost-dev CONFIG)  # Boost.Math, headers alone
isthmus_require_pkgconfig(XXHASH libxxhash libxxhash-dev)
isthmus_require_pkgconfig(SODIUM libsodium libsodium-dev)
isthmus_require_pkgconfig(ZLIB zlib zlib1g-dev)
isthmus_require_pkgconfig(ZSTD libzstd libzstd-dev)
isthmus_require_pkgconfig(PROMETHEUS prometheus-cpp-core prometheus-cpp-dev)

# Random123 is header-only and ships no CMake or pkg-config file.
find_path(RANDOM123_INCLUDE_DIR Random123/philox.h)
if(NOT RANDOM123_INCLUDE_DIR)
  message(FATAL_ERROR "Random123 is missing: apt install librandom123-dev   (all packages: packages/*.txt, scripts/quickstart --check)")
endif()
add_library(isthmus_random123 INTERFACE)
target_include_directories(isthmus_random123 SYSTEM INTERFACE ${RANDOM123_INCLUDE_DIR})

if(ISTHMUS_ONEDNN)
  isthmus_require_package(dnnl libdnnl-dev)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()

if(ISTHMUS_TESTS)
  isthmus_require_package(GTest "libgtest-dev libgmock-dev")
endif()
