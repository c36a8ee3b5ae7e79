# SPDX-License-Identifier: Apache-2.0
# ISTHMUS_CUDNN = AUTO: attention by cuDNN is built when CUDA's kernels are and its headers are found; ON:
# configuring fails without them; OFF. Afterwards ISTHMUS_HAVE_CUDNN says which files a module takes.
set_property(CACHE ISTHMUS_CUDNN PROPERTY STRINGS AUTO ON OFF)
set(ISTHMUS_CUDNN_OLDEST 9.16)  # of cuDNN; kernels/cuda/cudnn/cudnn_library.cpp says why
set(ISTHMUS_CUDNN_FRONTEND_OLDEST 1.32)  # the oldest that it was compiled with; 1.14 asks for a device to check a graph
set(ISTHMUS_HAVE_CUDNN OFF)
set(ISTHMUS_CUDNN_STATE "off (ISTHMUS_CUDNN=OFF)")
set(_needed "cudnn.h ${ISTHMUS_CUDNN_OLDEST} or later and cudnn_frontend.h ${ISTHMUS_CUDNN_FRONTEND_OLDEST} or later")
set(_found "")
if(ISTHMUS_CUDNN STREQUAL "AUTO" AND NOT ISTHMUS_HAVE_CUDA)
  set(ISTHMUS_CUDNN_STATE "off (no CUDA kernels)")
elseif(ISTHMUS_CUDNN STREQUAL "AUTO" OR ISTHMUS_CUDNN)
  if(ISTHMUS_HAVE_CUDA)
    find_package(CUDNN_FRONTEND ${ISTHMUS_CUDNN_FRONTEND_OLDEST} QUIET)
    foreach(_name CUDNN CUDNN_FRONTEND)
      if(${_name}_INCLUDE_DIR)
        string(APPEND _found ", ${${_name}_INCLUDE_DIR} has ${${_name}_VERSION}")
      endif()
    endforeach()
  endif()
  if(CUDNN_FRONTEND_FOUND AND CUDNN_VERSION VERSION_GREATER_EQUAL ISTHMUS_CUDNN_OLDEST)
    set(ISTHMUS_HAVE_CUDNN ON)
    set(ISTHMUS_CUDNN_STATE "cuDNN ${CUDNN_VERSION}, loaded at run time, by frontend ${CUDNN_FRONTEND_VERSION}")
  elseif(ISTHMUS_CUDNN STREQUAL "AUTO")
    set(ISTHMUS_CUDNN_STATE "off (needs ${_needed}${_found})")
  elseif(NOT ISTHMUS_HAVE_CUDA)
    message(FATAL_ERROR "ISTHMUS_CUDNN=ON, but this build has no CUDA kernels: ${ISTHMUS_CUDA_STATE}")
  else()
    message(FATAL_ERROR "ISTHMUS_CUDNN=ON, but ${_needed} were not both found${_found}: install cudnn9-cuda-13 from NVIDIA's packages "
                        "(or nvidia-cudnn-cu13 with pip) and nvidia-cudnn-frontend with pip, or set CUDNN_ROOT and CUDNN_FRONTEND_ROOT")
  endif()
endif()
