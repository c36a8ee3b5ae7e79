# SPDX-License-Identifier: Apache-2.0
# NCCL's header and the static CUDA runtime (CUDA::cudart_static): NCCL_FOUND, NCCL_VERSION, and the
# target NCCL::headers, which has NCCL's and CUDA's. NCCL itself is loaded at run time. NCCL_ROOT names
# a folder with include/nccl.h.
find_package(CUDAToolkit QUIET)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(NCCL_INCLUDE_DIR)
if(NCCL_INCLUDE_DIR)
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" _lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
  list(JOIN _numbers "." NCCL_VERSION)
endif()
set(NCCL_CUDA_RUNTIME NCCL_CUDA_RUNTIME-NOTFOUND)
if(TARGET CUDA::cudart_static)
  set(NCCL_CUDA_RUNTIME CUDA::cudart_static)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_INCLUDE_DIR CUDAToolkit_FOUND NCCL_CUDA_RUNTIME VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::headers)
  add_library(NCCL::headers INTERFACE IMPORTED GLOBAL)
  target_include_directories(NCCL::headers SYSTEM INTERFACE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
endif()
