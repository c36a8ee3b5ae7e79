# SPDX-License-Identifier: Apache-2.0
# Run at every build: writes OUT from IN when the commit or the flags have changed.
find_program(git git)
set(ISTHMUS_GIT "unknown")
if(git)
  execute_process(COMMAND ${git} -C ${ROOT} describe --always --dirty --exclude=*
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(ISTHMUS_GIT "${described}")
  endif()
endif()
string(STRIP "${ISTHMUS_FLAGS}" ISTHMUS_FLAGS)
configure_file(${IN} ${OUT} @ONLY)
