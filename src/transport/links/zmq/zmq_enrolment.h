// SPDX-License-Identifier: Apache-2.0
// Enrolment of a site with an invitation: one request to the hub, over a connection that the
// invitation's own key opens. Afterwards the hub admits the site's key.
#pragma once

#include <functional>
#include <string>

#include "isthmus/runtime.h"
#include "transport/links/key_table.h"

namespace isthmus {

struct Enrolment {
  std::string endpoint;  // of the hub: tcp://HOST:PORT
  std::string hub_key;
  LinkKeys invitation;  // the pair derived from its token
  LinkKeys own;         // of the site
  std::string name;
};
/// The hub's answer; not welcome, with the reason, also when it refuses the invitation's key or is
/// not reached in time (`reached` false).
struct EnrolOutcome {
  EnrolAnswer answer;
  bool reached = true;
};
/// Blocks until the hub has answered, or until `deadline`. `check` is called several times a
/// second, and may throw. THROWS: ConfigError for an unusable address or key; SystemError without
/// ZeroMQ.
[[nodiscard]] EnrolOutcome enrol(const Enrolment& enrolment, Runtime& runtime, TimePoint deadline,
                                 const std::function<void()>& check);

}  // namespace isthmus
