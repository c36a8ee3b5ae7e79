# SPDX-License-Identifier: Apache-2.0
# ISTHMUS_MPI = AUTO: links over MPI are built when an MPI is there; ON: configuring fails without
# one; OFF. Afterwards ISTHMUS_HAVE_MPI says which files a module takes. Only the C interface is used.
set_property(CACHE ISTHMUS_MPI PROPERTY STRINGS AUTO ON OFF)
set(ISTHMUS_MPI_PACKAGES "libopenmpi-dev openmpi-bin")
set(ISTHMUS_HAVE_MPI OFF)
set(ISTHMUS_MPI_STATE "off (ISTHMUS_MPI=OFF)")
if(ISTHMUS_MPI STREQUAL "AUTO" OR ISTHMUS_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(ISTHMUS_HAVE_MPI ON)
    set(ISTHMUS_MPI_STATE "MPI ${MPI_CXX_VERSION}")
  elseif(ISTHMUS_MPI STREQUAL "AUTO")
    set(ISTHMUS_MPI_STATE "off (apt install ${ISTHMUS_MPI_PACKAGES})")
  else()
    message(FATAL_ERROR "ISTHMUS_MPI=ON, but no MPI was found: apt install ${ISTHMUS_MPI_PACKAGES}")
  endif()
endif()
