# SPDX-License-Identifier: Apache-2.0
# cmake -DOUT=FILE [-DLIBRARIES=FILES] [-DWHOLE=ON] -P third_party_licences.cmake
# Writes the licence of isthmus and the licences of what a binary of it holds of others: of the headers that are
# compiled in, and of the shared LIBRARIES (paths) that lie beside it. The texts are those of the Debian packages that
# own the files. WHOLE adds the licences that Debian's texts only name, for machines without /usr/share/common-licenses.
# Where there is no dpkg, OUT says so and points to THIRD_PARTY.md.
cmake_minimum_required(VERSION 3.25)
# Boost's licence asks for no notice beside object code, and the text of its package has 2 MB.
set(compiled_in cppzmq-dev libcli11-dev libexpected-dev libjs-chart.js librandom123-dev libspdlog-dev
  libtomlplusplus-dev nlohmann-json3-dev)
file(READ "${CMAKE_CURRENT_LIST_DIR}/../LICENSE" text)
string(REPEAT "=" 78 rule)
string(PREPEND text "isthmus is under the Apache License 2.0, which comes first. Then follow the licences of works of others that are
part of its program and library, or lie beside them as shared libraries, in the words of their Debian packages.\n\n")
find_program(DPKG_QUERY dpkg-query)
if(NOT DPKG_QUERY)
  string(APPEND text "\nThe machine that made this has no dpkg; THIRD_PARTY.md names the works and their licences.\n")
  file(WRITE "${OUT}" "${text}")
  message(STATUS "no dpkg-query: ${OUT} names no licences")
  return()
endif()

# The package that owns a file. Debian lists some files under /lib that lie under /usr/lib.
function(owner_of file package)
  file(REAL_PATH "${file}" file)
  string(REGEX REPLACE "^/usr/" "/" short "${file}")
  foreach(path "${file}" "${short}")
    execute_process(COMMAND ${DPKG_QUERY} --search "${path}" OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0 AND found MATCHES "^([^:, ]+)")
      set(${package} "${CMAKE_MATCH_1}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${file}: no Debian package owns this library, so its licence is not known; "
                      "build where the packages of THIRD_PARTY.md are installed")
endfunction()

set(packages "")
foreach(library ${LIBRARIES})
  owner_of("${library}" package)
  cmake_path(GET library FILENAME name)
  list(APPEND packages ${package})
  list(APPEND files_of_${package} ${name})
endforeach()
list(APPEND packages ${compiled_in})
list(REMOVE_DUPLICATES packages)
list(SORT packages)

set(common "")
foreach(package ${packages})
  set(copyright "/usr/share/doc/${package}/copyright")
  if(NOT EXISTS "${copyright}")  # a package of headers that is not installed was not compiled in
    if(package IN_LIST compiled_in)
      continue()
    endif()
    message(FATAL_ERROR "${package}: '${copyright}' is not there, so the licence of ${files_of_${package}} is not known; "
                        "apt install --reinstall ${package} brings it, where dpkg does not leave out documents")
  endif()
  execute_process(COMMAND ${DPKG_QUERY} -W "-f=\${Version}|\${source:Package} \${source:Version}\n" ${package}
    OUTPUT_VARIABLE versions OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "\n.*" "" versions "${versions}")
  string(REGEX REPLACE "^(.*)[|](.*)$" "\\1, from the Debian source package \\2" versions "${versions}")
  set(holds "compiled in")
  if(files_of_${package})
    list(JOIN files_of_${package} ", " holds)
  endif()
  file(READ "${copyright}" words)
  string(APPEND text "\n${rule}\n${package} ${versions}\n(${holds})\n${rule}\n${words}")
  string(REGEX MATCHALL "/usr/share/common-licenses/[A-Za-z0-9.+-]+" named "${words}")
  list(APPEND common ${named})
endforeach()
if(WHOLE)
  list(TRANSFORM common REPLACE "[.]+$" "")
  if(common MATCHES "/LGPL-3")
    list(APPEND common /usr/share/common-licenses/GPL-3)  # of which LGPL-3 is a change
  endif()
  list(REMOVE_DUPLICATES common)
  list(SORT common)
  foreach(file ${common})
    if(EXISTS "${file}" AND NOT IS_DIRECTORY "${file}")
      file(READ "${file}" words)
      string(APPEND text "\n${rule}\n${file}\n${rule}\n${words}")
    endif()
  endforeach()
endif()
file(WRITE "${OUT}" "${text}")
