# SPDX-License-Identifier: Apache-2.0
# ISTHMUS_ZMQ = AUTO: links over ZeroMQ are built when its packages are there; ON: configuring fails
# without them; OFF. Afterwards ISTHMUS_HAVE_ZMQ says which files a module takes. A libzmq before
# 4.3.3 is refused whatever the setting but OFF: strangers can make it use up memory.
set_property(CACHE ISTHMUS_ZMQ PROPERTY STRINGS AUTO ON OFF)
set(ISTHMUS_ZMQ_PACKAGES "libzmq3-dev cppzmq-dev")
set(ISTHMUS_ZMQ_OLDEST 4.3.3)
set(ISTHMUS_HAVE_ZMQ OFF)
set(ISTHMUS_ZMQ_STATE "off (ISTHMUS_ZMQ=OFF)")
if(ISTHMUS_ZMQ STREQUAL "AUTO" OR ISTHMUS_ZMQ)
  pkg_check_modules(ZMQ QUIET IMPORTED_TARGET GLOBAL libzmq)
  find_path(ISTHMUS_ZMQ_HPP zmq.hpp HINTS ${ZMQ_INCLUDEDIR})
  mark_as_advanced(ISTHMUS_ZMQ_HPP)
  if(ZMQ_FOUND AND ZMQ_VERSION VERSION_LESS ISTHMUS_ZMQ_OLDEST)
    message(FATAL_ERROR "libzmq ${ZMQ_VERSION} is older than ${ISTHMUS_ZMQ_OLDEST} and lets strangers use up memory: "
                        "apt install ${ISTHMUS_ZMQ_PACKAGES} from Debian 12 or Ubuntu 24.04 on, or -DISTHMUS_ZMQ=OFF")
  endif()
  if(ZMQ_FOUND AND ISTHMUS_ZMQ_HPP)
    set(ISTHMUS_HAVE_ZMQ ON)
    set(ISTHMUS_ZMQ_STATE "libzmq ${ZMQ_VERSION}")
  elseif(ISTHMUS_ZMQ STREQUAL "AUTO")
    set(ISTHMUS_ZMQ_STATE "off (apt install ${ISTHMUS_ZMQ_PACKAGES})")
  else()
    message(FATAL_ERROR "ISTHMUS_ZMQ=ON, but libzmq or zmq.hpp was not found: apt install ${ISTHMUS_ZMQ_PACKAGES}")
  endif()
endif()
