# SPDX-License-Identifier: Apache-2.0
# isthmus::isthmus: the library as users of include/isthmus link it, here and installed:
#   find_package(isthmus REQUIRED)
#   target_link_libraries(app PRIVATE isthmus::isthmus)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(ISTHMUS_LIBRARY core config data kernels quant transport outer sim record session)
add_library(isthmus_umbrella INTERFACE)
set_target_properties(isthmus_umbrella PROPERTIES EXPORT_NAME isthmus)
add_library(isthmus::isthmus ALIAS isthmus_umbrella)
target_compile_features(isthmus_umbrella INTERFACE cxx_std_20)
set(libraries ${ISTHMUS_LIBRARY})
list(TRANSFORM libraries PREPEND isthmus_)
target_link_libraries(isthmus_umbrella INTERFACE ${libraries})

install(TARGETS isthmus_umbrella ${libraries} EXPORT isthmusTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/isthmus" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/isthmus")
install(EXPORT isthmusTargets NAMESPACE isthmus:: DESTINATION "${package_dir}")
set(ISTHMUS_ZMQ_PAIR)
if(ISTHMUS_HAVE_ZMQ)
  set(ISTHMUS_ZMQ_PAIR "\"ZMQ;libzmq;libzmq3-dev\"")
endif()
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/isthmusConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/isthmusConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/isthmusConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/isthmusConfig.cmake" "${PROJECT_BINARY_DIR}/isthmusConfigVersion.cmake"
  DESTINATION "${package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/THIRD_PARTY.md"
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
