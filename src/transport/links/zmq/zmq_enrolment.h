// SPDX-License-Identifier: Apache-2.0
// How a site with an invitation comes into a run: one question to the hub, over a connection that
// the invitation's own key opens. From then on the hub lets the site's key in.
#pragma once

#include <functional>
#include <string>

#include "isthmus/runtime.h"
#include "transport/links/key_table.h"

namespace isthmus {

struct Enrolment {
  std::string endpoint;  // of the hub: tcp://HOST:PORT
  std::string hub_key;
  LinkKeys invitation;  // the pair that follows from its token
  LinkKeys own;         // of the site
  std::string name;
};
/// Blocks until the hub has answered, or until `deadline`. `check` is called several times a
/// second, and may throw. RETURNS: what the hub says; not welcome, with the reason, also when it
/// refuses the invitation's key or is not reached in time (`reached` false).
struct EnrolOutcome {
  EnrolAnswer answer;
  bool reached = true;
};
/// THROWS: ConfigError for an address or key that cannot be used; SystemError without ZeroMQ.
[[nodiscard]] EnrolOutcome enrol(const Enrolment& enrolment, Runtime& runtime, TimePoint deadline,
                                 const std::function<void()>& check);

}  // namespace isthmus
