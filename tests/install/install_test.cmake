# SPDX-License-Identifier: Apache-2.0
# cmake -DBUILD=... -DSOURCE=... -DWORK=... -DCOMPILER=... [-DPREFIX=... [-DFOLDERS=...]] -P install_test.cmake
# Installs the build, then builds and runs programs outside the tree against the installed package, on a machine that
# has none of the packages that only the program or the library's own sources need. With PREFIX nothing is installed: the
# library is there already. FOLDERS names the programs.
set(forbidden CUDA CUDAToolkit MPI NCCL OpenMP dnnl spdlog tomlplusplus nlohmann_json CLI11 Boost GTest)
set(without "")
foreach(package ${forbidden})
  list(APPEND without -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}: ${status}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
if(NOT PREFIX)
  set(PREFIX "${WORK}/prefix")
  run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${PREFIX}")
endif()
if(NOT FOLDERS)
  set(FOLDERS tests/install/consumer examples)
endif()
foreach(folder ${FOLDERS})
  if(EXISTS "${SOURCE}/${folder}/CMakeLists.txt")
    # A copy, so that nothing beside it in the tree can be found by a relative path.
    get_filename_component(name ${folder} NAME)
    file(COPY "${SOURCE}/${folder}" DESTINATION "${WORK}/source")
    run(${CMAKE_COMMAND} -S "${WORK}/source/${name}" -B "${WORK}/build/${name}" -G Ninja
        -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
        "-DCMAKE_PREFIX_PATH=${PREFIX}" ${without})
    run(${CMAKE_COMMAND} --build "${WORK}/build/${name}")
  endif()
endforeach()
run("${WORK}/build/consumer/consumer")
# Nothing of these is linked either.
find_program(READELF readelf REQUIRED)
execute_process(COMMAND ${READELF} -d "${WORK}/build/consumer/consumer" OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
if(needed MATCHES "NEEDED[^\n]*lib(mpi|cuda|nccl|dnnl|gomp|spdlog|tomlplusplus)[^\n]*")
  message(FATAL_ERROR "the consumer links ${CMAKE_MATCH_0}")
endif()
file(REMOVE_RECURSE "${WORK}")
