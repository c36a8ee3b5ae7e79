# SPDX-License-Identifier: Apache-2.0
# Program and library for other machines: what the wheel and the tarball hold. Every build links both once more, with
# stubs in the place of MPI, CUDA, cuDNN, NCCL and oneDNN, so packages come from the very objects that the tests have
# run. A bundled libmpi would not be the launcher's.
#
#   portable/isthmus-portable, portable/libisthmus.so   in the build folder, without symbol tables
#   install component `portable`                        both, as bin/isthmus and lib/libisthmus.so.N, and in lib/isthmus the shared libraries that they need
# The libraries that every Linux has (glibc, libstdc++, libgcc_s) are not bundled: an older copy of these in a process
# that has newer ones breaks it.
foreach(name inner plan report app_messages app)
  isthmus_installed_library(${name})
endforeach()

add_executable(isthmus_portable $<TARGET_OBJECTS:isthmus>)
target_link_libraries(isthmus_portable PRIVATE isthmus_flags isthmus_app_installed)

get_target_property(abi isthmus_c SOVERSION)
add_library(isthmus_c_portable SHARED $<TARGET_OBJECTS:isthmus_c>)
target_link_libraries(isthmus_c_portable PRIVATE isthmus_flags isthmus_config_installed isthmus_quant_installed
  isthmus_outer_installed isthmus_session_installed fmt::fmt)
target_link_options(isthmus_c_portable PRIVATE $<TARGET_PROPERTY:isthmus_c,LINK_OPTIONS>)
set_target_properties(isthmus_c_portable PROPERTIES OUTPUT_NAME isthmus SOVERSION ${abi})

# Ninja makes a target's file name a target too: a second file named isthmus would be built in the place of the first.
set_target_properties(isthmus_portable PROPERTIES OUTPUT_NAME isthmus-portable)

# DT_RPATH, not DT_RUNPATH: it also says where the libraries of the libraries are.
foreach(target isthmus_portable isthmus_c_portable)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX BUILD_WITH_INSTALL_RPATH ON
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/portable" LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/portable")
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags LINKER:--strip-all)
endforeach()
file(RELATIVE_PATH bundled "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}/isthmus")
set_target_properties(isthmus_portable PROPERTIES INSTALL_RPATH "$ORIGIN/${bundled}")
set_target_properties(isthmus_c_portable PROPERTIES INSTALL_RPATH "$ORIGIN/isthmus")

install(PROGRAMS $<TARGET_FILE:isthmus_portable> DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME isthmus
  COMPONENT portable EXCLUDE_FROM_ALL)
install(TARGETS isthmus_c_portable
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT portable EXCLUDE_FROM_ALL NAMELINK_SKIP)
set(licences "${PROJECT_BINARY_DIR}/third-party-licences.txt")
install(CODE "
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES \"$<TARGET_FILE:isthmus_portable>\"
    LIBRARIES \"$<TARGET_FILE:isthmus_c_portable>\"
    PRE_EXCLUDE_REGEXES \"^ld-linux\" \"^lib(c|m|dl|rt|pthread|resolv|stdc[+][+]|gcc_s)[.]so\"
    RESOLVED_DEPENDENCIES_VAR bundled)
  file(INSTALL \${bundled} DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/isthmus\" TYPE SHARED_LIBRARY
    FOLLOW_SYMLINK_CHAIN)
  execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DOUT=${licences}\" \"-DLIBRARIES=\${bundled}\" -DWHOLE=ON
    -P \"${CMAKE_CURRENT_LIST_DIR}/third_party_licences.cmake\" COMMAND_ERROR_IS_FATAL ANY)
  file(INSTALL \"${licences}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\")"
  COMPONENT portable EXCLUDE_FROM_ALL)
