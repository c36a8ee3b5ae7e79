# SPDX-License-Identifier: Apache-2.0
# `cpack` in the build folder makes the packages:
#   isthmus_0.1.0-1_amd64.deb          the program as it was built, completion, documents
#   libisthmus1_0.1.0-1_amd64.deb      libisthmus.so.1, the C interface
#   libisthmus-dev_0.1.0-1_amd64.deb   headers, archives, the CMake package
#   isthmus-0.1.0-Linux-x86_64.tar.xz  runs from any folder: the portable program (cmake/IsthmusPortable.cmake) with its
#                                      shared libraries beside it, libisthmus.so and what libisthmus-dev has
# apt brings the libraries that a .deb needs, MPI's too where the build has MPI; dpkg-shlibdeps finds them.
# The files of the packages are those of the install components (cmake/IsthmusInstall.cmake).
function(isthmus_copyright component package)
  set(out "${PROJECT_BINARY_DIR}/copyright")
  install(CODE "
    execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DOUT=${out}\"
      -P \"${PROJECT_SOURCE_DIR}/cmake/third_party_licences.cmake\" COMMAND_ERROR_IS_FATAL ANY)
    file(INSTALL \"${out}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/doc/${package}\")"
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()
get_target_property(abi isthmus_c SOVERSION)
isthmus_copyright(program isthmus)
isthmus_copyright(library libisthmus${abi})
isthmus_copyright(development libisthmus-dev)

set(CPACK_GENERATOR DEB TXZ)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_NAME isthmus)
set(CPACK_PACKAGE_VENDOR "The isthmus maintainers")
set(CPACK_PACKAGE_CONTACT "The isthmus maintainers <maintainers@isthmus.invalid>")  # whoever hands packages on: -D
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_FILE_NAME "isthmus-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_CURRENT_LIST_DIR}/package_kinds.cmake")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENT_PROGRAM_GROUP isthmus)
set(CPACK_COMPONENT_DOCUMENTS_GROUP isthmus)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(summary "${PROJECT_DESCRIPTION}")
set(CPACK_DEBIAN_ISTHMUS_PACKAGE_NAME isthmus)
set(CPACK_DEBIAN_ISTHMUS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_ISTHMUS_DESCRIPTION "${summary}
The program: training, simulation, comparison and reports of training over thin links.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libisthmus${abi})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "${summary} (library)
The C interface of isthmus, for trainers in any language.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libisthmus-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "${summary} (development files)
Headers, static libraries and the CMake package of isthmus, for trainers in C and C++.")
set(development_depends "libisthmus${abi} (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})"
  libexpected-dev libfmt-dev libxxhash-dev libsodium-dev zlib1g-dev libzstd-dev pkg-config)
if(ISTHMUS_HAVE_ZMQ)
  list(APPEND development_depends libzmq3-dev)
endif()
list(JOIN development_depends ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS)
include(CPack)
