# SPDX-License-Identifier: Apache-2.0
# The headers of cuDNN and of its C++ frontend: CUDNN_FRONTEND_FOUND, CUDNN_FRONTEND_VERSION,
# CUDNN_VERSION, and the target CUDNN_FRONTEND::headers, which has both and CUDA's. cuDNN itself is loaded at
# run time. CUDNN_ROOT names a folder with include/cudnn.h, CUDNN_FRONTEND_ROOT one with
# include/cudnn_frontend.h; else they are looked for beside CUDA's headers and where pip puts those of the
# packages nvidia-cudnn-cu13 and nvidia-cudnn-frontend.
find_package(CUDAToolkit QUIET)
find_package(Python3 QUIET COMPONENTS Interpreter)
set(_packages)
if(Python3_Interpreter_FOUND)
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c
      "import site, sysconfig; print(sysconfig.get_paths()['purelib'], site.getusersitepackages(), sep=';', end='')"
    OUTPUT_VARIABLE _packages ERROR_QUIET)
endif()
set(_cudnn_of_packages ${_packages})
list(TRANSFORM _cudnn_of_packages APPEND "/nvidia/cudnn")
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT ${CUDAToolkit_INCLUDE_DIRS}
  PATHS ${_cudnn_of_packages} PATH_SUFFIXES include)
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend_version.h PATHS ${_packages} PATH_SUFFIXES include)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR)
# _read_version(VARIABLE FILE NAMES...): the numbers that FILE defines as NAMES, with dots.
function(_read_version variable file)
  set(numbers)
  foreach(name ${ARGN})
    file(STRINGS "${file}" line REGEX "^#define ${name} +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND numbers "${number}")
  endforeach()
  list(JOIN numbers "." version)
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()
if(CUDNN_INCLUDE_DIR)
  _read_version(CUDNN_VERSION "${CUDNN_INCLUDE_DIR}/cudnn_version.h" CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)
endif()
if(CUDNN_FRONTEND_INCLUDE_DIR)
  _read_version(CUDNN_FRONTEND_VERSION "${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h"
    CUDNN_FRONTEND_MAJOR_VERSION CUDNN_FRONTEND_MINOR_VERSION CUDNN_FRONTEND_PATCH_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN_FRONTEND
  REQUIRED_VARS CUDNN_FRONTEND_INCLUDE_DIR CUDNN_INCLUDE_DIR CUDAToolkit_FOUND VERSION_VAR CUDNN_FRONTEND_VERSION)
if(CUDNN_FRONTEND_FOUND AND NOT TARGET CUDNN_FRONTEND::headers)
  add_library(CUDNN_FRONTEND::headers INTERFACE IMPORTED GLOBAL)
  target_include_directories(CUDNN_FRONTEND::headers SYSTEM INTERFACE
    ${CUDNN_FRONTEND_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
endif()
