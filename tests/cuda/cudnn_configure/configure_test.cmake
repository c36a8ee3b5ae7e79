# SPDX-License-Identifier: Apache-2.0
# ISTHMUS_CUDNN over headers that are made here: found by root variables, too old, not there.
# cmake -DSOURCE=... -DWORK=... -DTOOLKIT=... -P configure_test.cmake
file(REMOVE_RECURSE "${WORK}")

# headers(FOLDER CUDNN_MINOR FRONTEND_MINOR): of cuDNN 9.CUDNN_MINOR.0 and its frontend 1.FRONTEND_MINOR.0.
function(headers folder cudnn frontend)
  file(WRITE "${WORK}/${folder}/include/cudnn_version.h"
    "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR ${cudnn}\n#define CUDNN_PATCHLEVEL 0\n#define CUDNN_VERSION (CUDNN_MAJOR * 10000)\n")
  file(WRITE "${WORK}/${folder}/include/cudnn_frontend_version.h"
    "#define CUDNN_FRONTEND_MAJOR_VERSION 1\n#define CUDNN_FRONTEND_MINOR_VERSION ${frontend}\n#define CUDNN_FRONTEND_PATCH_VERSION 0\n")
endfunction()

# expect(NAME PASSES TEXT SETTINGS...): configuring passes or not and says TEXT, line ends aside.
function(expect name passes text)
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK}/build-${name}"
      "-DSOURCE=${SOURCE}" "-DCUDAToolkit_ROOT=${TOOLKIT}" "-DISTHMUS_CUDA_STATE=off for a test" ${ARGN}
    RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  string(FIND "${said}" "${text}" at)
  if(passes AND code EQUAL 0 AND NOT at EQUAL -1)
    return()
  endif()
  if(NOT passes AND NOT code EQUAL 0 AND NOT at EQUAL -1)
    return()
  endif()
  message(FATAL_ERROR "${name}: exit ${code}, \"${text}\" was expected:\n${said}")
endfunction()

headers(good 19 32)
headers(old_frontend 19 31)
headers(old_cudnn 15 32)
foreach(root good old_frontend old_cudnn)
  set(${root} "-DCUDNN_ROOT=${WORK}/${root}" "-DCUDNN_FRONTEND_ROOT=${WORK}/${root}")
endforeach()
set(none -DCMAKE_DISABLE_FIND_PACKAGE_CUDNN_FRONTEND=ON)
set(needed "cudnn.h 9.16 or later and cudnn_frontend.h 1.32 or later")
set(auto -DISTHMUS_HAVE_CUDA=ON -DISTHMUS_CUDNN=AUTO)
set(on -DISTHMUS_HAVE_CUDA=ON -DISTHMUS_CUDNN=ON)

expect(auto_good ON "have=ON state=cuDNN 9.19.0, loaded at run time, by frontend 1.32.0" ${auto} ${good})
expect(auto_good_folders ON "folders=${WORK}/good/include" ${auto} ${good})
expect(on_good ON "have=ON" ${on} ${good})
expect(auto_none ON "have=OFF state=off (needs ${needed})" ${auto} ${none})
expect(auto_old ON "include has 1.31.0)" ${auto} ${old_frontend})
expect(on_none OFF "ISTHMUS_CUDNN=ON, but ${needed} were not both found: install" ${on} ${none})
expect(on_none_package OFF "nvidia-cudnn-frontend with pip, or set CUDNN_ROOT and CUDNN_FRONTEND_ROOT" ${on} ${none})
expect(on_old_frontend OFF "include has 1.31.0: install" ${on} ${old_frontend})
expect(on_old_cudnn OFF "include has 9.15.0, " ${on} ${old_cudnn})
expect(off_good ON "have=OFF state=off (ISTHMUS_CUDNN=OFF)" -DISTHMUS_HAVE_CUDA=ON -DISTHMUS_CUDNN=OFF ${good})
expect(auto_no_cuda ON "have=OFF state=off (no CUDA kernels)" -DISTHMUS_HAVE_CUDA=OFF -DISTHMUS_CUDNN=AUTO ${good})
expect(on_no_cuda OFF "has no CUDA kernels: off for a test" -DISTHMUS_HAVE_CUDA=OFF -DISTHMUS_CUDNN=ON ${good})
