# SPDX-License-Identifier: Apache-2.0
# ISTHMUS_NCCL = AUTO: communicators between GPUs are built when nccl.h and the static CUDA runtime are
# there (nvcc is not needed) and ISTHMUS_CUDA is not OFF; ON: configuring fails without them; OFF.
# Afterwards ISTHMUS_HAVE_NCCL says which files a module takes.
set_property(CACHE ISTHMUS_NCCL PROPERTY STRINGS AUTO ON OFF)
set(ISTHMUS_NCCL_OLDEST 2.18)  # communicators that can be split
set(ISTHMUS_HAVE_NCCL OFF)
set(ISTHMUS_NCCL_STATE "off (ISTHMUS_NCCL=OFF)")
if(ISTHMUS_NCCL STREQUAL "AUTO" AND NOT (ISTHMUS_CUDA STREQUAL "AUTO" OR ISTHMUS_CUDA))
  set(ISTHMUS_NCCL_STATE "off (ISTHMUS_CUDA=OFF)")
elseif(ISTHMUS_NCCL STREQUAL "AUTO" OR ISTHMUS_NCCL)
  find_package(NCCL ${ISTHMUS_NCCL_OLDEST} QUIET)
  if(NCCL_FOUND)
    set(ISTHMUS_HAVE_NCCL ON)
    set(ISTHMUS_NCCL_STATE "NCCL ${NCCL_VERSION}, loaded at run time")
  elseif(ISTHMUS_NCCL STREQUAL "AUTO")
    set(ISTHMUS_NCCL_STATE "off (needs the CUDA toolkit, its libcudart_static.a and nccl.h ${ISTHMUS_NCCL_OLDEST} or later)")
  else()
    message(FATAL_ERROR "ISTHMUS_NCCL=ON, but the CUDA toolkit, its libcudart_static.a or nccl.h ${ISTHMUS_NCCL_OLDEST} "
                        "or later was not found: install cuda-cudart-dev and libnccl-dev from NVIDIA's packages, or set NCCL_ROOT and CUDAToolkit_ROOT")
  endif()
endif()
