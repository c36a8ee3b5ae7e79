# SPDX-License-Identifier: Apache-2.0
# Flags every target shares. Contraction is off because a fused multiply-add changes bits from one
# machine to the next; kernels that want FMA ask for it with intrinsics.
#
# isthmus_flags is for the product's targets, isthmus_test_flags for those of tests. They differ under sanitizers alone.
include(CheckCXXCompilerFlag)
option(ISTHMUS_WERROR "Warnings are errors" ON)
add_library(isthmus_flags INTERFACE)
target_compile_options(isthmus_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-missing-field-initializers -Wpedantic -Wconversion -Wshadow $<$<BOOL:${ISTHMUS_WERROR}>:-Werror> -ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees impossible overlaps in "text" + std::string (GCC PR 105651).
  target_compile_options(isthmus_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The compiler collects its own garbage only above 1 GB, which saves it a tenth of its time.
  target_compile_options(isthmus_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=1000000>")
endif()

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # clang counts sign changes under -Wconversion; g++, whose verdict is the rule here, does not.
  target_compile_options(isthmus_flags INTERFACE 
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-sign-conversion -Wno-unknown-warning-option>)
endif()
get_target_property(warnings isthmus_flags INTERFACE_COMPILE_OPTIONS)
add_library(isthmus_test_flags INTERFACE)
target_compile_options(isthmus_test_flags INTERFACE ${warnings})

set(ISTHMUS_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=LIST (for example address,undefined)")
if(ISTHMUS_SANITIZE)
  # A file of cases takes clang three times as long with checks of undefined behaviour in each assertion. What a test
  # reads and writes is watched, and what it calls has all checks; tests/CMakeLists.txt leaves out the optimizer too.
  string(REPLACE "," ";" watched "${ISTHMUS_SANITIZE}")
  list(REMOVE_ITEM watched undefined)
  list(TRANSFORM watched PREPEND -fsanitize=)
  target_compile_options(isthmus_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ISTHMUS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND ISTHMUS_SANITIZE MATCHES "address.*undefined")
    # An access beyond an object is the address sanitizer's find too, and this check takes a sixth of clang's time.
    target_compile_options(isthmus_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=object-size>)
  endif()
  target_compile_options(isthmus_test_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:${watched} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  foreach(flags isthmus_flags isthmus_test_flags)
    target_link_options(${flags} INTERFACE -fsanitize=${ISTHMUS_SANITIZE})
  endforeach()
endif()
if(ISTHMUS_FUZZ AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(isthmus_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
  foreach(flags isthmus_flags isthmus_test_flags)
    target_link_options(${flags} INTERFACE -fsanitize=fuzzer-no-link)
  endforeach()
endif()

find_program(ISTHMUS_CCACHE ccache)
if(ISTHMUS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache takes precompiled headers only where it is told that their defines and times do not matter.
  set(CMAKE_CXX_COMPILER_LAUNCHER env
    "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" "${ISTHMUS_CCACHE}")
endif()

# isthmus_isa_sources(avx2|avx512|avx512_bf16|avx512_amx FILES...): flags of files that run only where the
# instructions are found at run time. GCC 12's own AVX-512 headers look uninitialized to it (GCC PR 105593).
function(isthmus_isa_sources isa)
  set(flags -mavx2 -mfma -mf16c)
  if(isa MATCHES "^avx512")
    list(APPEND flags -mavx512f -mavx512bw -mavx512vl -mavx512dq)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      list(APPEND flags -Wno-maybe-uninitialized -Wno-uninitialized)
    endif()
  endif()
  if(isa MATCHES "_(bf16|amx)$")
    list(APPEND flags -mavx512bf16)
  endif()
  if(isa MATCHES "_amx$")
    list(APPEND flags -mamx-tile -mamx-bf16)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${flags}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()
