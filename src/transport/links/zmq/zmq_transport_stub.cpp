// SPDX-License-Identifier: Apache-2.0
#include "isthmus/errors.h"
#include "transport/links/zmq/zmq_enrolment.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus {

EnrolOutcome enrol(const Enrolment&, Runtime&, TimePoint, const std::function<void()>&) {
  throw SystemError(
      "an invitation needs ZeroMQ, which this build does not have; apt install libzmq3-dev "
      "cppzmq-dev, configure and build again");
}

std::unique_ptr<NetworkTransport> make_zmq_transport(Runtime&, const MemberOptions&) {
  throw SystemError(
      "net.transport = \"zmq\": this build has no ZeroMQ; apt install libzmq3-dev cppzmq-dev, "
      "configure and build again (available: inproc)");
}

std::string zmq_version() { return {}; }

}  // namespace isthmus
