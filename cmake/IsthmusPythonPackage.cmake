# SPDX-License-Identifier: Apache-2.0
# What the Python package holds beside python/isthmus: the library and the program. The install component `python`
# lays them where pyproject.toml's build expects them, in the package's folder. A build by pip takes them as configured;
# from a finished build the portable ones are taken, which need neither MPI nor CUDA (cmake/IsthmusPortable.cmake).
if(ISTHMUS_PREBUILT)
  add_custom_target(isthmus_c)
  add_custom_target(isthmus)
  set(library "${ISTHMUS_PREBUILT}/portable/libisthmus.so")
  set(program "${ISTHMUS_PREBUILT}/portable/isthmus-portable")
  foreach(file "${library}" "${program}")
    if(NOT EXISTS "${file}")
      message(FATAL_ERROR "ISTHMUS_PREBUILT = ${ISTHMUS_PREBUILT}: no '${file}' there; "
                          "build the targets isthmus_portable and isthmus_c_portable in that folder")
    endif()
  endforeach()
  file(REAL_PATH "${library}" library)
else()
  set(library "$<TARGET_FILE:isthmus_c>")
  set(program "$<TARGET_FILE:isthmus>")
endif()
install(PROGRAMS "${library}" DESTINATION isthmus/lib RENAME libisthmus.so COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS "${program}" DESTINATION isthmus/bin RENAME isthmus COMPONENT python EXCLUDE_FROM_ALL)
