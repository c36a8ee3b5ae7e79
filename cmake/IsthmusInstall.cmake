# SPDX-License-Identifier: Apache-2.0
# isthmus::isthmus: the library as users of include/isthmus link it, installed:
#   find_package(isthmus REQUIRED)
#   target_link_libraries(app PRIVATE isthmus::isthmus)
# The public headers offer the CPU and links over ZeroMQ. MPI, NCCL, CUDA, cuDNN and oneDNN are the program's alone, so
# the installed archives hold the stubs of these parts, and users of the library need no such package.
#
# Components: program, library (libisthmus.so.N), development (headers, archives, the CMake package), documents. The
# component portable is not part of a plain install (cmake/IsthmusPortable.cmake).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(ISTHMUS_LIBRARY core config text data kernels quant transport outer sim record session)

# isthmus_installed_library(NAME): isthmus_NAME_installed, the objects of isthmus_NAME with stubs for its optional parts.
function(isthmus_installed_library name)
  set(module isthmus_${name})
  set(library isthmus_${name}_installed)
  get_target_property(left_out ${module} ISTHMUS_LEFT_OUT)
  get_target_property(stubs ${module} ISTHMUS_STUBS)
  set(objects $<TARGET_OBJECTS:${module}>)
  if(left_out)
    list(TRANSFORM left_out REPLACE "([.+])" "[\\1]")
    list(JOIN left_out "|" pattern)
    set(objects "$<FILTER:${objects},EXCLUDE,/(${pattern})[.]o$>")
  else()
    set(stubs "")
  endif()
  add_library(${library} STATIC ${stubs} ${objects})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name} OUTPUT_NAME ${module} LINKER_LANGUAGE CXX
    ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/installed")
  target_compile_features(${library} PUBLIC cxx_std_20)
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  if(stubs)
    isthmus_precompiled(${library})
    target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:isthmus_flags>)
    foreach(part ${ISTHMUS_LIBRARY} ${name})  # a stub includes what the part that it replaces may include
      target_include_directories(${library} PRIVATE "${PROJECT_SOURCE_DIR}/include"
        "${CMAKE_BINARY_DIR}/include_roots/${part}")
    endforeach()
  endif()
  foreach(kind ISTHMUS_DEPENDS ISTHMUS_LINKS ISTHMUS_PRIVATE_LINKS)
    get_target_property(links ${module} ${kind})
    list(TRANSFORM links REPLACE "^(isthmus_.*)$" "\\1_installed")
    if(kind STREQUAL "ISTHMUS_PRIVATE_LINKS")
      target_link_libraries(${library} PRIVATE ${links})
    else()
      target_link_libraries(${library} PUBLIC ${links})
    endif()
  endforeach()
endfunction()
foreach(name ${ISTHMUS_LIBRARY})
  isthmus_installed_library(${name})
endforeach()

add_library(isthmus_umbrella INTERFACE)
set_target_properties(isthmus_umbrella PROPERTIES EXPORT_NAME isthmus)
add_library(isthmus::isthmus ALIAS isthmus_umbrella)
target_compile_features(isthmus_umbrella INTERFACE cxx_std_20)
set(libraries ${ISTHMUS_LIBRARY})
list(TRANSFORM libraries REPLACE "(.+)" "isthmus_\\1_installed")
target_link_libraries(isthmus_umbrella INTERFACE ${libraries})

install(TARGETS isthmus_umbrella ${libraries} EXPORT isthmusTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(TARGETS isthmus_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/isthmus" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.h")
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/isthmus")
install(EXPORT isthmusTargets NAMESPACE isthmus:: DESTINATION "${package_dir}" COMPONENT development)
set(ISTHMUS_ZMQ_PAIR)
if(ISTHMUS_HAVE_ZMQ)
  set(ISTHMUS_ZMQ_PAIR "\"ZMQ;libzmq;libzmq3-dev\"")
endif()
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/isthmusConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/isthmusConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/isthmusConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/isthmusConfig.cmake" "${PROJECT_BINARY_DIR}/isthmusConfigVersion.cmake"
  DESTINATION "${package_dir}" COMPONENT development)

foreach(file LICENSE THIRD_PARTY.md README.md ARCHITECTURE.md docs)
  set(kind FILES)
  if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/${file}")
    set(kind DIRECTORY)
  endif()
  install(${kind} "${PROJECT_SOURCE_DIR}/${file}" DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documents)
endforeach()

# isthmus_completion(SHELL FOLDER FILE): the program prints its completion script when it is installed.
function(isthmus_completion shell folder file)
  set(script "${PROJECT_BINARY_DIR}/completion/${file}")
  install(CODE "
    execute_process(COMMAND \"$<TARGET_FILE:isthmus>\" completion ${shell} OUTPUT_FILE \"${script}\"
      COMMAND_ERROR_IS_FATAL ANY)
    file(INSTALL \"${script}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/${folder}\")"
    COMPONENT documents)
endfunction()
if(NOT CMAKE_CROSSCOMPILING)
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/completion")
  isthmus_completion(bash bash-completion/completions isthmus)
  isthmus_completion(fish fish/vendor_completions.d isthmus.fish)
endif()
