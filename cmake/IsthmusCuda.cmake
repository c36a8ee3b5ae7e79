# SPDX-License-Identifier: Apache-2.0
# ISTHMUS_CUDA = AUTO: kernels are built when nvcc works; ON: configuring fails without it; OFF.
# Afterwards ISTHMUS_HAVE_CUDA says which files a module takes: x.cu, or x_stub.cpp.
set_property(CACHE ISTHMUS_CUDA PROPERTY STRINGS AUTO ON OFF)
set(ISTHMUS_HAVE_CUDA OFF)
set(ISTHMUS_CUDA_STATE "off (ISTHMUS_CUDA=OFF)")
if(ISTHMUS_CUDA STREQUAL "AUTO" OR ISTHMUS_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90)
    endif()
    if(ISTHMUS_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER "${ISTHMUS_CCACHE}")
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    find_package(Python3 QUIET COMPONENTS Interpreter)
    # cuBLAS itself is loaded at run time, so that programs start without it.
    find_path(ISTHMUS_CUBLAS_INCLUDE_DIR cublasLt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} /usr/include NO_DEFAULT_PATH NO_CACHE)
    set(_cublas "libcublas-dev-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR} (NVIDIA's)")
    if(NOT ISTHMUS_CUBLAS_INCLUDE_DIR AND ISTHMUS_CUDA STREQUAL "AUTO")
      set(ISTHMUS_CUDA_STATE "off (nvcc ${CMAKE_CUDA_COMPILER_VERSION} without cublasLt.h: install ${_cublas})")
    elseif(NOT ISTHMUS_CUBLAS_INCLUDE_DIR)
      message(FATAL_ERROR "CUDA ${CUDAToolkit_VERSION} was found without cublasLt.h: install its package "
                          "${_cublas} or configure with ISTHMUS_CUDA=OFF")
    else()
      set(ISTHMUS_HAVE_CUDA ON)
      list(JOIN CMAKE_CUDA_ARCHITECTURES " " _architectures)
      set(ISTHMUS_CUDA_STATE "nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${_architectures}")
    endif()
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 has not heard of C++20 in nvcc 12 and 13
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  elseif(ISTHMUS_CUDA STREQUAL "AUTO")
    set(ISTHMUS_CUDA_STATE "off (no working nvcc in PATH)")
  else()
    message(FATAL_ERROR "ISTHMUS_CUDA=ON, but no working nvcc was found: put the CUDA toolkit's bin folder in PATH, "
                        "set CUDACXX, or configure with ISTHMUS_CUDA=AUTO or OFF")
  endif()
endif()

# isthmus_cuda_sources(MODULE [RUNTIME files...] [EXACT files...] [FAST files...] [HOST files...] STUB files...)
#   With CUDA the module takes all but the stub, else the stub alone. nvcc rounds each product and sum
#   of EXACT files on its own and may fuse them in FAST ones; HOST files are C++ over kernels/cuda/device.h.
#   What is not RUNTIME is compiled for the emulated device too (tests/cuda).
function(isthmus_cuda_sources module)
  cmake_parse_arguments(ARG "" "" "RUNTIME;EXACT;FAST;HOST;STUB" ${ARGN})
  set(emulated ${ARG_EXACT} ${ARG_FAST} ${ARG_HOST})
  list(TRANSFORM emulated PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set_property(GLOBAL APPEND PROPERTY ISTHMUS_EMULATED_SOURCES ${emulated})
  set_property(GLOBAL APPEND PROPERTY ISTHMUS_EMULATED_MODULES isthmus_${module})
  isthmus_optional_part(${module} ISTHMUS_HAVE_CUDA SOURCES ${ARG_RUNTIME} ${ARG_EXACT} ${ARG_FAST} ${ARG_HOST}
    STUB ${ARG_STUB} LINKS CUDA::cudart_static ${CMAKE_DL_LIBS})
  if(NOT ISTHMUS_HAVE_CUDA)
    return()
  endif()
  # The host halves of .cu files fuse no products and sums either, as isthmus_flags has it for C++.
  target_compile_options(isthmus_${module} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --Werror=all-warnings -Xcompiler=-Wall -Xcompiler=-ffp-contract=off>)
  set_source_files_properties(${ARG_EXACT} PROPERTIES COMPILE_OPTIONS --fmad=false)
  # Tests read what ptxas says of each kernel.
  get_target_property(launcher isthmus_${module} CUDA_COMPILER_LAUNCHER)
  if(ISTHMUS_TESTS AND Python3_Interpreter_FOUND AND NOT launcher MATCHES "keep_ptxas_report")
    if(NOT launcher)
      set(launcher "")
    endif()
    target_compile_options(isthmus_${module} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>)
    set_target_properties(isthmus_${module} PROPERTIES
      CUDA_COMPILER_LAUNCHER "${Python3_EXECUTABLE};${PROJECT_SOURCE_DIR}/cmake/keep_ptxas_report.py;${launcher}")
  endif()
endfunction()
