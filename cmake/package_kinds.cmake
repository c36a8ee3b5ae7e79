# SPDX-License-Identifier: Apache-2.0
# Read by cpack once for each kind of package: the install components that it takes (cmake/IsthmusPackages.cmake).
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_ALL program documents library development)
else()
  set(CPACK_COMPONENTS_ALL portable documents development)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
