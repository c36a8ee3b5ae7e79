# SPDX-License-Identifier: Apache-2.0
# Flags every target shares. Contraction is off because a fused multiply-add changes bits from one
# machine to the next; kernels that want FMA ask for it with intrinsics.
include(CheckCXXCompilerFlag)
add_library(isthmus_flags INTERFACE)
target_compile_options(isthmus_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -ffp-contract=off>)

set(ISTHMUS_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=LIST (for example address,undefined)")
if(ISTHMUS_SANITIZE)
  target_compile_options(isthmus_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ISTHMUS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(isthmus_flags INTERFACE -fsanitize=${ISTHMUS_SANITIZE})
endif()

find_program(ISTHMUS_CCACHE ccache)
if(ISTHMUS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ISTHMUS_CCACHE}")
endif()
